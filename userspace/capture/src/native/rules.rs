//! Translates a row of call frame information into a [`Rule`].
//!
//! Beyond "register and offset", these shapes are supported, which compilers and linkers emit for x86-64:
//! - stubs of a procedure linkage table (binutils, `elf_x86_64_eh_frame_plt`): `breg7+8 breg16+0 lit15 and
//!   litN ge lit3 shl plus`;
//! - functions that realign their stack (GCC, `-mstackrealign` and vectors on the stack): the CFA is `breg6-8
//!   deref`, the caller's rbp is at `breg6+0`;
//! - glibc's `__restore_rt`: every register at its place in the `ucontext_t` that rsp points to.

use gimli::{CfaRule, EndianSlice, LittleEndian, Operation, Register, RegisterRule, UnwindExpression, UnwindSection};
use gimli::{UnwindContextStorage, UnwindTableRow, X86_64};
use pyobs_abi::unwind::{Rule, cfa, rbp};

pub type Bytes<'data> = EndianSlice<'data, LittleEndian>;

pub const NONE: Rule = Rule::new(cfa::NONE, 0, rbp::SAME, 0);
pub const UNSUPPORTED: Rule = Rule::new(cfa::UNSUPPORTED, 0, rbp::UNDEFINED, 0);
const SIGNAL: Rule = Rule::new(cfa::SIGNAL, 0, rbp::UNDEFINED, 0);
const END: Rule = Rule::new(cfa::END, 0, rbp::UNDEFINED, 0);

/// Offsets of the interrupted rsp and rip in the `ucontext_t` of x86-64 Linux.
const UCONTEXT_RSP: i64 = 160;
const UCONTEXT_RIP: i64 = 168;

/// Operations in the longest supported expression.
const OPERATIONS_MAX: usize = 9;

/// `offset` in 8-byte words, if it is a whole number of them.
fn words(offset: i64) -> Option<i64> {
    (offset % 8 == 0).then_some(offset / 8)
}

/// An expression that a [`Rule`] can express.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// The register plus the offset.
    Sum(Register, i64),
    /// The word at the register plus the offset.
    Deref(Register, i64),
    /// The same, plus a constant.
    DerefPlus(Register, i64, u64),
    /// rsp + 8, plus 8 from this low nibble of the pc on.
    Plt(u64),
}

/// The section of a row, which contains the row's expressions.
pub struct Translator<'a, S> {
    pub section: &'a S,
    pub encoding: gimli::Encoding,
    /// The row's function is marked as a signal trampoline.
    pub signal: bool,
}

impl<'data, S: UnwindSection<Bytes<'data>>> Translator<'_, S> {
    /// The rule of a row. [`UNSUPPORTED`] if a [`Rule`] cannot compute the CFA or the return address from
    /// rsp, rbp and the stack. If only the caller's rbp cannot be computed, it is marked lost and the rest of
    /// the row is used.
    pub fn rule<C: UnwindContextStorage<usize>>(&self, row: &UnwindTableRow<usize, C>) -> Rule {
        match row.register(X86_64::RA) {
            Some(RegisterRule::Offset(-8)) => {}
            Some(RegisterRule::Undefined) => return END,
            Some(RegisterRule::Expression(address)) if self.signal => return self.signal(row, &address),
            _ => return UNSUPPORTED,
        }
        let Some((kind, offset)) = self.cfa(row.cfa()) else { return UNSUPPORTED };
        let (rbp, rbp_offset) = self.rbp(row.register(X86_64::RBP).as_ref()).unwrap_or((rbp::UNDEFINED, 0));
        Rule::new(kind, offset, rbp, rbp_offset)
    }

    fn cfa(&self, rule: &CfaRule<usize>) -> Option<(u32, u16)> {
        let shape = match rule {
            CfaRule::RegisterAndOffset { register, offset } => Shape::Sum(*register, *offset),
            CfaRule::Expression(expression) => self.shape(expression)?,
        };
        match shape {
            Shape::Sum(X86_64::RSP, offset) => Some((cfa::RSP, words(offset)?.try_into().ok()?)),
            Shape::Sum(X86_64::RBP, offset) => Some((cfa::RBP, words(offset)?.try_into().ok()?)),
            Shape::Deref(X86_64::RBP, offset) => {
                Some((cfa::DEREF_RBP, i16::try_from(words(offset)?).ok()?.cast_unsigned()))
            }
            Shape::DerefPlus(X86_64::RSP, offset, more) if more % 8 == 0 && more < 128 => {
                let offset = i16::try_from(words(offset)?).ok().filter(|offset| (-2048..2048).contains(offset))?;
                Some((cfa::DEREF_RSP, offset.cast_unsigned() << 4 | (more / 8) as u16))
            }
            Shape::Plt(limit) if limit < 16 => Some((cfa::PLT, limit.try_into().ok()?)),
            _ => None,
        }
    }

    fn rbp(&self, rule: Option<&RegisterRule<usize>>) -> Option<(u32, u16)> {
        match rule {
            // A callee saves rbp or leaves it alone.
            None | Some(RegisterRule::SameValue) => Some((rbp::SAME, 0)),
            Some(RegisterRule::Offset(offset)) => {
                let offset = u16::try_from(words(*offset)?.checked_neg()?).ok()?;
                (offset < 1024).then_some((rbp::AT_CFA, offset))
            }
            Some(RegisterRule::Expression(address)) => match self.shape(address)? {
                Shape::Sum(X86_64::RBP, offset) => {
                    let offset = i16::try_from(words(offset)?).ok()?;
                    (-512..512).contains(&offset).then_some((rbp::AT_RBP, offset.cast_unsigned()))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Other code is marked as a signal trampoline too, so the registers must be where the kernel leaves
    /// them.
    fn signal<C: UnwindContextStorage<usize>>(
        &self,
        row: &UnwindTableRow<usize, C>,
        return_address: &UnwindExpression<usize>,
    ) -> Rule {
        let CfaRule::Expression(stack) = row.cfa() else { return UNSUPPORTED };
        let kernels = self.shape(stack) == Some(Shape::Deref(X86_64::RSP, UCONTEXT_RSP))
            && self.shape(return_address) == Some(Shape::Sum(X86_64::RSP, UCONTEXT_RIP));
        if kernels { SIGNAL } else { UNSUPPORTED }
    }

    fn shape(&self, expression: &UnwindExpression<usize>) -> Option<Shape> {
        use Operation::{And, Deref, Ge, Plus, PlusConstant, RegisterOffset, Shl, UnsignedConstant};
        let expression = expression.get(self.section).ok()?;
        let mut rest = expression.operations(self.encoding);
        let mut operations = Vec::with_capacity(OPERATIONS_MAX);
        while let Some(operation) = rest.next().ok()? {
            if operations.len() == OPERATIONS_MAX {
                return None;
            }
            operations.push(operation);
        }
        match *operations.as_slice() {
            [RegisterOffset { register, offset, .. }] => Some(Shape::Sum(register, offset)),
            [RegisterOffset { register, offset, .. }, Deref { size: 8, space: false, .. }] => {
                Some(Shape::Deref(register, offset))
            }
            [RegisterOffset { register, offset, .. }, Deref { size: 8, space: false, .. }, PlusConstant { value }] => {
                Some(Shape::DerefPlus(register, offset, value))
            }
            [
                RegisterOffset { register: X86_64::RSP, offset: 8, .. },
                RegisterOffset { register: X86_64::RA, offset: 0, .. },
                UnsignedConstant { value: 15 },
                And,
                UnsignedConstant { value: limit },
                Ge,
                UnsignedConstant { value: 3 },
                Shl,
                Plus,
            ] => Some(Shape::Plt(limit)),
            _ => None,
        }
    }
}

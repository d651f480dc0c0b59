//! The reference: unwinds a stack by evaluating every rule of the call frame information, with all registers.

use gimli::{CfaRule, EvaluationResult, Expression, Location, Register, RegisterRule, UnwindExpression, Value, X86_64};
use pyobs_abi::copy::PAGE_SIZE;
use pyobs_capture::session::{Copied, Page};

use crate::image::Rules;
use crate::space::{Place, Space};

/// No stack in these tests is deeper.
const FRAMES_MAX: usize = 20_000;
const REGISTERS: usize = 17;
const RBP: usize = 6;
const RSP: usize = 7;
const RIP: usize = 16;
/// rbx, rbp and r12 to r15: a function restores them before it returns (System V ABI, 3.2.1).
const PRESERVED: [usize; 6] = [3, RBP, 12, 13, 14, 15];

/// Why an unwinding ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The outermost frame.
    Root,
    /// A rule needs a register whose value is unknown.
    RegisterUnknown,
    /// A rule reads memory that was not copied.
    NotCopied,
    /// A rule that makes no sense for a stack.
    RuleInvalid,
    /// Code in a file that has no call frame information for it.
    NoRule,
    NoMapping,
    Endless,
}

#[derive(Debug)]
pub struct Unwound {
    /// As in the kernel side's words: for callers, the address of the call's last byte.
    pub pcs: Vec<u64>,
    pub end: End,
    /// Whether every frame's caller is found by a register and an offset: no realigned stack, no signal.
    pub is_plain: bool,
}

type Registers = [Option<u64>; REGISTERS];

/// The copied part of a stack.
#[derive(Clone, Copy)]
pub struct Memory<'a>(pub &'a [Page]);

impl Memory<'_> {
    pub fn word(&self, address: u64) -> Option<u64> {
        let (page, at) = self.find(address)?;
        if let Some(word) = page.bytes.get(at..at + 8) {
            return Some(u64::from_le_bytes(word.try_into().unwrap()));
        }
        let mut word = [0; 8];
        for (address, byte) in (address..).zip(&mut word) {
            let (page, at) = self.find(address)?;
            *byte = page.bytes[at];
        }
        Some(u64::from_le_bytes(word))
    }

    fn find(&self, address: u64) -> Option<(&Page, usize)> {
        let after = self.0.partition_point(|page| page.address <= address);
        let page = self.0[..after].last()?;
        let at = usize::try_from(address - page.address).ok()?;
        (at < PAGE_SIZE).then_some((page, at))
    }
}

/// Unwinds the copied stack of a sample.
pub fn unwind(space: &mut Space, copied: &Copied) -> Option<Unwound> {
    let start = copied.registers?;
    let memory = Memory(&copied.pages);
    let mut registers: Registers = [None; REGISTERS];
    (registers[RIP], registers[RSP], registers[RBP]) = (Some(start.ip), Some(start.sp), Some(start.bp));
    let mut unwound = Unwound { pcs: Vec::new(), end: End::Endless, is_plain: true };
    let mut behind_call = start.after;
    while unwound.pcs.len() < FRAMES_MAX {
        let Some(ip) = registers[RIP] else { return finish(unwound, End::RegisterUnknown) };
        if ip == 0 {
            return finish(unwound, End::Root);
        }
        let pc = ip - u64::from(behind_call);
        unwound.pcs.push(pc);
        let stepped = match space.place(pc) {
            Place::Nothing => Err(End::NoMapping),
            Place::FramePointers => by_frame_pointer(&registers, memory).map(|registers| (registers, false)),
            Place::Code(image, address) => match image.borrow_mut().rules(address) {
                None => Err(End::NoRule),
                Some(rules) => {
                    unwound.is_plain &= matches!(rules.cfa, CfaRule::RegisterAndOffset { .. }) && !rules.signal;
                    step(&rules, &registers, memory).map(|registers| (registers, rules.signal))
                }
            },
        };
        match stepped {
            Ok((caller, was_interrupted)) => {
                registers = caller;
                behind_call = !was_interrupted;
            }
            Err(end) => return finish(unwound, end),
        }
    }
    Some(unwound)
}

fn finish(unwound: Unwound, end: End) -> Option<Unwound> {
    Some(Unwound { end, ..unwound })
}

fn by_frame_pointer(registers: &Registers, memory: Memory<'_>) -> Result<Registers, End> {
    let frame = registers[RBP].ok_or(End::RegisterUnknown)?;
    let mut caller = [None; REGISTERS];
    caller[RBP] = Some(memory.word(frame).ok_or(End::NotCopied)?);
    caller[RIP] = Some(memory.word(frame.wrapping_add(8)).ok_or(End::NotCopied)?);
    caller[RSP] = Some(frame.wrapping_add(16));
    Ok(caller)
}

fn step(rules: &Rules, registers: &Registers, memory: Memory<'_>) -> Result<Registers, End> {
    let machine = Machine { rules, registers, memory };
    // Checked first, because the outermost frame's other rules may be nonsense.
    if matches!(rules.registers.get(&X86_64::RA.0), Some(RegisterRule::Undefined)) {
        return Err(End::Root);
    }
    let cfa = match &rules.cfa {
        CfaRule::RegisterAndOffset { register, offset } => machine.register(*register)?.wrapping_add_signed(*offset),
        CfaRule::Expression(expression) => machine.evaluate(*expression, None)?,
    };
    let mut caller = [None; REGISTERS];
    for (number, value) in caller.iter_mut().enumerate() {
        *value = match rules.registers.get(&(number as u16)) {
            Some(rule) => match machine.apply(rule, cfa, number) {
                Ok(value) => value,
                // Other registers may remain unknown, because they may never be needed.
                Err(end) if number == RIP || number == RSP => return Err(end),
                Err(_) => None,
            },
            None if number == RSP => Some(cfa),
            None if PRESERVED.contains(&number) => registers[number],
            None => None,
        };
    }
    if !rules.registers.contains_key(&X86_64::RA.0) {
        return Err(End::RuleInvalid);
    }
    Ok(caller)
}

struct Machine<'a> {
    rules: &'a Rules,
    registers: &'a Registers,
    memory: Memory<'a>,
}

impl Machine<'_> {
    fn register(&self, register: Register) -> Result<u64, End> {
        self.registers.get(usize::from(register.0)).copied().flatten().ok_or(End::RegisterUnknown)
    }

    fn apply(&self, rule: &RegisterRule<usize>, cfa: u64, number: usize) -> Result<Option<u64>, End> {
        let word = |address| self.memory.word(address).ok_or(End::NotCopied);
        Ok(match rule {
            RegisterRule::Undefined => None,
            RegisterRule::SameValue => self.registers[number],
            RegisterRule::Offset(offset) => Some(word(cfa.wrapping_add_signed(*offset))?),
            RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(*offset)),
            RegisterRule::Register(other) => Some(self.register(*other)?),
            RegisterRule::Expression(expression) => Some(word(self.evaluate(*expression, Some(cfa))?)?),
            RegisterRule::ValExpression(expression) => Some(self.evaluate(*expression, Some(cfa))?),
            RegisterRule::Constant(value) => Some(*value),
            RegisterRule::Architectural => return Err(End::RuleInvalid),
        })
    }

    fn evaluate(&self, expression: UnwindExpression<usize>, initial: Option<u64>) -> Result<u64, End> {
        let part = self.rules.section.range(expression.offset..expression.offset + expression.length);
        let mut evaluation = Expression(part).evaluation(self.rules.encoding);
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
        }
        let invalid = |_| End::RuleInvalid;
        let mut result = evaluation.evaluate().map_err(invalid)?;
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = Value::Generic(self.register(register)?);
                    evaluation.resume_with_register(value).map_err(invalid)?
                }
                EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                    let value = Value::Generic(self.memory.word(address).ok_or(End::NotCopied)?);
                    evaluation.resume_with_memory(value).map_err(invalid)?
                }
                _ => return Err(End::RuleInvalid),
            };
        }
        match evaluation.result().first().map(|piece| piece.location) {
            Some(Location::Address { address }) => Ok(address),
            _ => Err(End::RuleInvalid),
        }
    }
}

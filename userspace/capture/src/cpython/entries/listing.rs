//! The code of the interpreter's loop, disassembled once, and what probes need to know about it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{Range, RangeInclusive};

use iced_x86::{
    Code, ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};
use object::elf::R_X86_64_RELATIVE;

use crate::elf::Elf;

/// Bytes disassembled, more than any loop has (usually 57 kB); code beyond is left out.
const CODE_MAX: u64 = 8 << 20;
/// Instructions after a start that are searched for a place for a probe.
pub const WAY_MAX: usize = 32;
pub const INSTRUCTIONS: usize = 256;

/// A direct jump, conditional or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Jump {
    pub to: u64,
    pub from: u64,
}

/// All instructions in some ranges of a file's code.
pub struct Listing<'a, 'data> {
    elf: &'a Elf<'data>,
    pub ranges: Vec<Range<u64>>,
    /// By target.
    jumps: BTreeSet<Jump>,
    pub returns: Vec<u64>,
    /// Jumps that leave the ranges for good.
    pub leaving: Vec<u64>,
    /// Addresses that appear as constants.
    constants: BTreeSet<u64>,
    /// The address of the instruction before each.
    before: BTreeMap<u64, u64>,
}

impl<'a, 'data> Listing<'a, 'data> {
    pub fn of(elf: &'a Elf<'data>, ranges: Vec<Range<u64>>) -> Self {
        let mut listing = Self {
            elf,
            ranges: Vec::new(),
            jumps: BTreeSet::new(),
            returns: Vec::new(),
            leaving: Vec::new(),
            constants: BTreeSet::new(),
            before: BTreeMap::new(),
        };
        let mut left = CODE_MAX;
        let mut outward = Vec::new();
        for range in &ranges {
            let length = range.end.saturating_sub(range.start).min(left);
            left -= length;
            let Some(code) = elf.bytes(range.start, length) else { continue };
            let mut previous = None;
            for instruction in &mut Decoder::with_ip(64, code, range.start, DecoderOptions::NONE) {
                if let Some(previous) = previous.replace(instruction.ip()) {
                    listing.before.insert(instruction.ip(), previous);
                }
                listing.note(&instruction, &mut outward);
            }
        }
        listing.ranges = ranges;
        listing.leaving = outward.iter().filter(|jump| !listing.contains(jump.to)).map(|jump| jump.from).collect();
        listing
    }

    fn note(&mut self, instruction: &Instruction, outward: &mut Vec<Jump>) {
        match instruction.flow_control() {
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                let jump = Jump { to: instruction.near_branch_target(), from: instruction.ip() };
                self.jumps.insert(jump);
                if instruction.flow_control() == FlowControl::UnconditionalBranch {
                    outward.push(jump);
                }
            }
            FlowControl::Return => self.returns.push(instruction.ip()),
            _ => {
                self.constants.extend(constant(instruction));
            }
        }
    }

    pub fn contains(&self, address: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }

    /// The instructions from `start` up to the first after which control does not continue. Conditional jumps
    /// are not taken, calls return.
    pub fn straight(&self, start: u64, most: usize) -> Vec<Instruction> {
        let Some(code) = self.elf.from(start).filter(|_| self.elf.is_code(start)) else { return Vec::new() };
        let mut way = Vec::new();
        for instruction in Decoder::with_ip(64, code, start, DecoderOptions::NONE).iter().take(most) {
            if instruction.is_invalid() {
                break;
            }
            way.push(instruction);
            let goes_on = matches!(
                instruction.flow_control(),
                FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall | FlowControl::ConditionalBranch
            );
            if !goes_on {
                break;
            }
        }
        way
    }

    /// The instructions up to and including the first that the kernel can emulate; empty if there is none.
    pub fn to_cheap(&self, start: u64) -> Vec<Instruction> {
        let mut way = self.straight(start, WAY_MAX);
        match way.iter().position(is_cheap) {
            Some(at) => way.truncate(at + 1),
            None => way.clear(),
        }
        way
    }

    /// Jumps to one of these addresses.
    pub fn jumps_to(&self, addresses: RangeInclusive<u64>) -> impl Iterator<Item = Jump> + '_ {
        let (start, end) = addresses.into_inner();
        self.jumps.range(Jump { to: start, from: 0 }..).take_while(move |jump| jump.to <= end).copied()
    }

    pub fn instruction(&self, address: u64) -> Option<Instruction> {
        let code = self.elf.from(address)?;
        let instruction = Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// The instruction before an address, if the listing has both.
    pub fn instruction_before(&self, address: u64) -> Option<Instruction> {
        self.instruction(*self.before.get(&address)?)
    }

    /// The handler table through which the loop jumps: among the constants in the code, a table with an
    /// address in the loop for every instruction that also `fits`.
    pub fn handlers(&self, fits: impl Fn(&[u64; INSTRUCTIONS]) -> bool) -> Option<[u64; INSTRUCTIONS]> {
        let written = self.written_by_the_loader();
        let mut tables = self.constants.iter().filter_map(|address| self.table_at(*address, &written));
        tables.find(fits)
    }

    /// The words near the constants that the dynamic linker writes, with their values.
    fn written_by_the_loader(&self) -> HashMap<u64, u64> {
        let relative = self.elf.relocations().filter(|relocation| relocation.kind == R_X86_64_RELATIVE.0);
        let inside = relative.map(|relocation| (relocation.address, relocation.addend.cast_unsigned()));
        inside.filter(|(_, to)| self.contains(*to)).collect()
    }

    fn table_at(&self, address: u64, written: &HashMap<u64, u64>) -> Option<[u64; INSTRUCTIONS]> {
        if !address.is_multiple_of(8) || self.elf.is_code(address) {
            return None;
        }
        let mut table = [0; INSTRUCTIONS];
        for (index, word) in table.iter_mut().enumerate() {
            let at = address.checked_add(8 * index as u64)?;
            let value = written.get(&at).copied().or_else(|| self.elf.u64(at))?;
            if !self.contains(value) {
                return None;
            }
            *word = value;
        }
        Some(table)
    }
}

/// An address in an instruction: of a table in `jmp [table + index*8]`, `lea reg, [rip + …]`, `mov reg, imm`.
fn constant(instruction: &Instruction) -> Option<u64> {
    if instruction.is_ip_rel_memory_operand() {
        return Some(instruction.ip_rel_memory_address());
    }
    if instruction.memory_index_scale() == 8 && instruction.memory_index() != Register::None {
        return (instruction.memory_base() == Register::None).then(|| instruction.memory_displacement64());
    }
    matches!(instruction.code(), Code::Mov_r32_imm32 | Code::Mov_rm64_imm32 | Code::Mov_r64_imm64)
        .then(|| instruction.immediate(1))
}

/// Whether the kernel emulates this instruction at a probe instead of single-stepping a copy. That saves a
/// second trap, which in a virtual machine costs more than ten times the first (`branch_setup_xol_ops` and
/// `push_setup_xol_ops` in <https://github.com/torvalds/linux/blob/v6.1/arch/x86/kernel/uprobes.c>).
pub fn is_cheap(instruction: &Instruction) -> bool {
    match instruction.code() {
        Code::Jmp_rel8_64 | Code::Jmp_rel32_64 | Code::Call_rel32_64 | Code::Nopd => true,
        Code::Push_r64 => instruction.len() <= 2,
        _ => instruction.flow_control() == FlowControl::ConditionalBranch && instruction.is_jcc_short_or_near(),
    }
}

/// Whether an instruction may change a register.
pub fn writes(instruction: &Instruction, register: Register) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let written = |access: OpAccess| {
        matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
    };
    let used = factory.info(instruction).used_registers();
    used.iter().any(|used| used.register().full_register() == register && written(used.access()))
}

/// The zero flag for which a conditional jump is taken; `None` if it depends on other flags.
pub fn taken_if_zero(jump: &Instruction) -> Option<bool> {
    match jump.condition_code() {
        ConditionCode::e => Some(true),
        ConditionCode::ne => Some(false),
        _ => None,
    }
}

/// How far an instruction moves the stack pointer down; `None` if unknown.
pub fn pushed(instruction: &Instruction) -> Option<i64> {
    match instruction.mnemonic() {
        Mnemonic::Push | Mnemonic::Pop => Some(-i64::from(instruction.stack_pointer_increment())),
        Mnemonic::Sub | Mnemonic::Add if instruction.op0_register() == Register::RSP => {
            let by = (instruction.op1_kind() != OpKind::Register && instruction.op1_kind() != OpKind::Memory)
                .then(|| instruction.immediate(1).cast_signed())?;
            Some(if instruction.mnemonic() == Mnemonic::Sub { by } else { by.checked_neg()? })
        }
        _ if writes(instruction, Register::RSP) => None,
        _ => Some(0),
    }
}

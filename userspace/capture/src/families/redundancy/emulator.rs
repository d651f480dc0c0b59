//! Which memory a thread is about to access: emulates its instructions from where it was interrupted, up to
//! the first that accesses memory other than its stack.
//!
//! Unknown values stay unknown, and an address or branch that depends on one ends the attempt. Nothing is
//! guessed.

mod flags;

use std::collections::HashMap;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, MemorySize, Mnemonic, OpAccess, OpKind,
    Register, UsedMemory,
};

/// Instructions emulated at most; a later access counts as too far away.
const STEPS: usize = 32;
/// Length of the longest x86 instruction.
const LONGEST: usize = 15;
/// Bytes of the widest register.
const WIDEST: usize = 64;

/// An access about to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub address: u64,
    pub size: u64,
    pub reads: bool,
    pub writes: bool,
    /// Whether its elements are floating-point numbers.
    pub is_float: bool,
}

/// Why no access was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAccess {
    /// The code could not be read, or is not code.
    Undecodable,
    /// It depends on an unknown value.
    Unknown,
    /// None within `STEPS` instructions.
    TooFar,
}

/// What an instruction does at the address; `None` if it only computes it.
fn access_to(of: &Instruction, memory: &UsedMemory, address: u64) -> Option<Access> {
    let (reads, writes) = match memory.access() {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        _ => return None,
    };
    // The size of one element says nothing about the whole move, so assume a word.
    let size = if of.is_string_instruction() { 8 } else { memory.memory_size().size() as u64 };
    Some(Access { address, size, reads, writes, is_float: is_float(memory.memory_size()) })
}

/// Of several accesses, as in string instructions, prefers one that writes.
fn better(found: Option<Access>, other: Option<Access>) -> Option<Access> {
    let is_better = other.is_some_and(|access| found.is_none_or(|before| access.writes && !before.writes));
    if is_better { other } else { found }
}

/// The state of the emulated thread.
pub struct Machine<'a> {
    pub registers: [Option<u64>; 16],
    pub ip: u64,
    /// The arithmetic flags, with the bits of rflags.
    pub flags: Option<u64>,
    /// Words of the stack, from `stack_start` up.
    pub stack: &'a [u64],
    pub stack_start: u64,
    written: HashMap<u64, Option<u64>>,
}

impl<'a> Machine<'a> {
    pub fn new(registers: [u64; 16], ip: u64, flags: u64, stack: &'a [u64]) -> Self {
        let stack_start = registers[4];
        let registers = registers.map(Some);
        Self { registers, ip, flags: Some(flags), stack, stack_start, written: HashMap::new() }
    }

    /// `read` fills a buffer with code at an address and returns how much there is.
    pub fn next_access(&mut self, mut read: impl FnMut(u64, &mut [u8]) -> usize) -> Result<Access, NoAccess> {
        let mut info = InstructionInfoFactory::new();
        for _ in 0..STEPS {
            let mut bytes = [0; LONGEST];
            let length = read(self.ip, &mut bytes);
            let mut decoder = Decoder::with_ip(64, &bytes[..length], self.ip, DecoderOptions::NONE);
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                return Err(NoAccess::Undecodable);
            }
            if let Some(access) = self.access(&instruction, &mut info)? {
                return Ok(access);
            }
            self.ip = instruction.next_ip();
            self.carry_out(&instruction, &mut info)?;
        }
        Err(NoAccess::TooFar)
    }

    /// The access of an instruction to memory other than the stack.
    fn access(&self, of: &Instruction, info: &mut InstructionInfoFactory) -> Result<Option<Access>, NoAccess> {
        if matches!(of.mnemonic(), Mnemonic::Nop | Mnemonic::Lea | Mnemonic::Endbr64) {
            return Ok(None);
        }
        let is_prefetch = matches!(
            of.mnemonic(),
            Mnemonic::Prefetcht0
                | Mnemonic::Prefetcht1
                | Mnemonic::Prefetcht2
                | Mnemonic::Prefetchnta
                | Mnemonic::Prefetchw
        );
        if is_prefetch {
            return Ok(None);
        }
        let used = info.info(of);
        let mut found = None;
        for memory in used.used_memory() {
            if self.is_stack(memory.base()) || of.is_stack_instruction() && memory.base() == Register::RSP {
                continue;
            }
            let base = self.value(memory.base())?;
            let index = self.value(memory.index())?.wrapping_mul(memory.scale().into());
            if matches!(memory.segment(), Register::FS | Register::GS) {
                continue;
            }
            let address = base.wrapping_add(index).wrapping_add(memory.displacement());
            found = better(found, access_to(of, memory, address));
        }
        Ok(found)
    }

    fn is_stack(&self, base: Register) -> bool {
        base == Register::RSP
            || base == Register::RBP
                && self.registers[5].zip(self.registers[4]).is_some_and(|(bp, sp)| bp >= sp && bp - sp < (1 << 20))
    }

    /// The value of a register in an address.
    fn value(&self, register: Register) -> Result<u64, NoAccess> {
        match register {
            Register::None => Ok(0),
            // Addresses relative to the instruction already have the sum as displacement.
            Register::RIP | Register::EIP => Ok(0),
            _ => self.get(register).ok_or(NoAccess::Unknown),
        }
    }

    fn get(&self, register: Register) -> Option<u64> {
        if !register.is_gpr() {
            return None;
        }
        let whole = self.registers[number(register)]?;
        Some(match register.size() {
            8 => whole,
            4 => whole & 0xffff_ffff,
            2 => whole & 0xffff,
            _ if is_high(register) => (whole >> 8) & 0xff,
            _ => whole & 0xff,
        })
    }

    fn set(&mut self, register: Register, value: Option<u64>) {
        if !register.is_gpr() {
            return;
        }
        let place = &mut self.registers[number(register)];
        *place = match (register.size(), *place, value) {
            (8, _, value) => value,
            (4, _, value) => value.map(|value| value & 0xffff_ffff),
            (2, Some(whole), Some(value)) => Some(whole & !0xffff | value & 0xffff),
            (1, Some(whole), Some(value)) if is_high(register) => Some(whole & !0xff00 | (value & 0xff) << 8),
            (1, Some(whole), Some(value)) => Some(whole & !0xff | value & 0xff),
            _ => None,
        };
    }

    fn load(&self, address: u64) -> Option<u64> {
        if let Some(written) = self.written.get(&address) {
            return *written;
        }
        let at = address.checked_sub(self.stack_start)?;
        if !at.is_multiple_of(8) { None } else { self.stack.get(usize::try_from(at / 8).ok()?).copied() }
    }

    fn operand(&self, of: &Instruction, number: u32) -> Option<u64> {
        match of.op_kind(number) {
            OpKind::Register => self.get(of.op_register(number)),
            OpKind::Memory => {
                let loaded = self.load(self.stack_address(of)?)?;
                let bits = 8 * of.memory_size().size();
                Some(if bits >= 64 { loaded } else { loaded & ((1 << bits) - 1) })
            }
            _ => of.try_immediate(number).ok(),
        }
    }

    fn stack_address(&self, of: &Instruction) -> Option<u64> {
        let index = self.value(of.memory_index()).ok()?.wrapping_mul(of.memory_index_scale().into());
        Some(self.value(of.memory_base()).ok()?.wrapping_add(index).wrapping_add(of.memory_displacement64()))
    }

    fn carry_out(&mut self, of: &Instruction, info: &mut InstructionInfoFactory) -> Result<(), NoAccess> {
        match of.flow_control() {
            FlowControl::Next => {}
            FlowControl::UnconditionalBranch => {
                self.ip = of.near_branch_target();
                return Ok(());
            }
            FlowControl::ConditionalBranch => {
                if self.condition(of).ok_or(NoAccess::Unknown)? {
                    self.ip = of.near_branch_target();
                }
                return Ok(());
            }
            FlowControl::Call => {
                let sp = self.registers[4].ok_or(NoAccess::Unknown)?.wrapping_sub(8);
                self.written.insert(sp, Some(of.next_ip()));
                self.registers[4] = Some(sp);
                self.ip = of.near_branch_target();
                return Ok(());
            }
            FlowControl::Return => {
                let sp = self.registers[4].ok_or(NoAccess::Unknown)?;
                self.ip = self.load(sp).ok_or(NoAccess::Unknown)?;
                self.registers[4] = Some(sp.wrapping_add(8));
                return Ok(());
            }
            FlowControl::IndirectBranch | FlowControl::IndirectCall => {
                let target = self.operand(of, 0).ok_or(NoAccess::Unknown)?;
                if of.flow_control() == FlowControl::IndirectCall {
                    let sp = self.registers[4].ok_or(NoAccess::Unknown)?.wrapping_sub(8);
                    self.written.insert(sp, Some(of.next_ip()));
                    self.registers[4] = Some(sp);
                }
                self.ip = target;
                return Ok(());
            }
            _ => return Err(NoAccess::Unknown),
        }
        self.compute(of, info);
        Ok(())
    }

    fn compute(&mut self, of: &Instruction, info: &mut InstructionInfoFactory) {
        let (first, second) = (self.operand(of, 0), if of.op_count() > 1 { self.operand(of, 1) } else { None });
        let both = first.zip(second);
        let bits = if of.op_kind(0) == OpKind::Register { 8 * of.op_register(0).size() as u32 } else { 64 };
        let result = match of.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movzx => Some(second),
            Mnemonic::Movsx | Mnemonic::Movsxd => Some(second.map(|value| sign_extended(value, self.width(of, 1)))),
            Mnemonic::Lea => Some(self.stack_address(of)),
            Mnemonic::Add => Some(both.map(|(a, b)| a.wrapping_add(b))),
            Mnemonic::Sub => Some(both.map(|(a, b)| a.wrapping_sub(b))),
            Mnemonic::Inc => Some(first.map(|a| a.wrapping_add(1))),
            Mnemonic::Dec => Some(first.map(|a| a.wrapping_sub(1))),
            Mnemonic::And => Some(both.map(|(a, b)| a & b)),
            Mnemonic::Or => Some(both.map(|(a, b)| a | b)),
            Mnemonic::Xor if of.op_kind(1) == OpKind::Register && of.op_register(0) == of.op_register(1) => {
                Some(Some(0))
            }
            Mnemonic::Xor => Some(both.map(|(a, b)| a ^ b)),
            // The count is taken modulo 32, for 64-bit operands modulo 64.
            Mnemonic::Shl => Some(both.map(|(a, b)| a << (b & if bits == 64 { 63 } else { 31 }))),
            Mnemonic::Shr => Some(both.map(|(a, b)| a >> (b & if bits == 64 { 63 } else { 31 }))),
            Mnemonic::Neg => Some(first.map(u64::wrapping_neg)),
            Mnemonic::Not => Some(first.map(|a| !a)),
            Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push | Mnemonic::Pop => None,
            _ => {
                self.forget(of, info);
                return;
            }
        };
        match of.mnemonic() {
            Mnemonic::Push => {
                if let Some(sp) = self.registers[4] {
                    self.written.insert(sp.wrapping_sub(8), first);
                    self.registers[4] = Some(sp.wrapping_sub(8));
                }
                return;
            }
            Mnemonic::Pop => {
                if let Some(sp) = self.registers[4] {
                    let value = self.load(sp);
                    self.registers[4] = Some(sp.wrapping_add(8));
                    self.set(of.op_register(0), value);
                }
                return;
            }
            _ => {}
        }
        self.compute_flags(of, first, second, bits);
        let Some(result) = result else { return };
        match of.op_kind(0) {
            OpKind::Register => self.set(of.op_register(0), result),
            _ => {
                if let Some(address) = self.stack_address(of) {
                    let whole = of.memory_size().size() == 8;
                    self.written.insert(address & !7, result.filter(|_| whole));
                }
            }
        }
    }

    fn width(&self, of: &Instruction, number: u32) -> u32 {
        if of.op_kind(number) == OpKind::Register {
            8 * of.op_register(number).size() as u32
        } else {
            8 * of.memory_size().size() as u32
        }
    }

    /// Marks as unknown what an instruction writes that is not emulated.
    fn forget(&mut self, of: &Instruction, info: &mut InstructionInfoFactory) {
        let used = info.info(of);
        for register in used.used_registers() {
            if !matches!(register.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None) {
                let register = register.register();
                if register.is_gpr() {
                    self.registers[number(register)] = None;
                }
            }
        }
        for memory in used.used_memory() {
            let known = self.value(memory.base()).ok().zip(self.value(memory.index()).ok());
            if let Some((base, index)) = known {
                let address = base.wrapping_add(index.wrapping_mul(memory.scale().into()));
                let start = address.wrapping_add(memory.displacement());
                let size = memory.memory_size().size().clamp(1, WIDEST) as u64;
                for word in (start & !7..start.saturating_add(size)).step_by(8) {
                    self.written.insert(word, None);
                }
            }
        }
        if of.rflags_modified() != 0 {
            self.flags = None;
        }
    }
}

/// The register's number in instruction encodings.
fn number(register: Register) -> usize {
    register.full_register().number() & 15
}

fn is_high(register: Register) -> bool {
    matches!(register, Register::AH | Register::BH | Register::CH | Register::DH)
}

fn sign_extended(value: u64, bits: u32) -> u64 {
    let shift = 64 - bits.clamp(1, 64);
    ((value << shift).cast_signed() >> shift).cast_unsigned()
}

fn is_float(size: MemorySize) -> bool {
    matches!(
        size.element_type(),
        MemorySize::Float16 | MemorySize::Float32 | MemorySize::Float64 | MemorySize::BFloat16
    )
}

#[cfg(test)]
mod tests;

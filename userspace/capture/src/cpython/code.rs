//! What a few small exported functions reveal about where an interpreter keeps its state.
//!
//! The address of the thread state's pthread key, the way to its thread-local and the version string are in
//! no symbol table of a stripped file. But `PyGILState_GetThisThreadState`, `PyThreadState_Get` and
//! `Py_GetVersion` (exported, stable ABI) must compute them. So their instructions are followed from entry to
//! end in a straight line, tracking what is known about each register. Anything not understood makes a
//! register unknown, never wrong. Callers check the result against the file's relocations and symbols.

use super::thread_local::{TlsAccess, TssKey};
use crate::elf::Elf;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use object::elf;
use std::ops::Range;

/// Instructions followed; none of these functions has more before its first return.
const MAX_INSTRUCTIONS: usize = 96;
/// Direct jumps followed: to a cold part, or to the function behind a thunk.
const MAX_JUMPS: usize = 4;
/// Calls followed: through a static function and a procedure linkage table.
const MAX_CALLS: usize = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Value {
    #[default]
    Unknown,
    /// A link-time address or any other constant.
    Constant(u64),
    /// The contents of this address in the process.
    Loaded(u64),
    /// The thread pointer plus a constant.
    ThreadPointer(i64),
    /// The thread pointer plus the contents of a GOT slot plus a constant.
    ViaSlot(u64, i64),
    /// The offset from the thread pointer that a GOT slot contains.
    Slot(u64),
    /// The same, computed by a TLS descriptor.
    Descriptor(u64),
    /// The thread pointer plus that.
    ViaDescriptor(u64),
    /// The address of a thread-local that `__tls_get_addr` returned for the GOT index at this address, plus a
    /// constant.
    Block(u64, i64),
    /// The contents of a thread-local.
    ThreadLocal(TlsAccess),
}

#[derive(Clone, Copy, Default)]
struct Registers {
    values: [Value; 16],
    /// What unoptimized code has saved below its frame pointer: displacements from rbp, and values.
    saved: [(i64, Value); 4],
}

impl Registers {
    fn index(register: Register) -> Option<usize> {
        let full = register.full_register();
        full.is_gpr64().then(|| full as usize - Register::RAX as usize)
    }

    fn get(&self, register: Register) -> Value {
        Self::index(register).map_or(Value::Unknown, |index| self.values[index])
    }

    fn set(&mut self, register: Register, value: Value) {
        if let Some(index) = Self::index(register) {
            self.values[index] = value;
            if register.full_register() == Register::RBP {
                self.saved = Default::default();
            }
        }
    }

    fn save(&mut self, displacement: i64, value: Value) {
        for overlapped in self.saved.iter_mut().filter(|(at, _)| at.abs_diff(displacement) < 8) {
            *overlapped = Default::default();
        }
        if let Some(free) = self.saved.iter_mut().find(|(at, _)| *at == 0) {
            *free = (displacement, value);
        }
    }

    fn saved(&self, displacement: i64) -> Value {
        let saved = self.saved.iter().find(|(at, _)| *at == displacement);
        saved.map_or(Value::Unknown, |(_, value)| *value)
    }

    /// Forgets the registers that a call may change by the System V ABI.
    fn forget_caller_saved(&mut self) {
        for register in [
            Register::RAX,
            Register::RCX,
            Register::RDX,
            Register::RSI,
            Register::RDI,
            Register::R8,
            Register::R9,
            Register::R10,
            Register::R11,
        ] {
            self.set(register, Value::Unknown);
        }
    }
}

/// The kind of step that an instruction is.
enum Step {
    /// A call, or a jump that leaves for good.
    Call,
    Return,
    Other,
}

struct Follower<'a, 'data> {
    elf: &'a Elf<'data>,
    registers: Registers,
}

impl Follower<'_, '_> {
    /// Runs through a function. `visit` sees each step before its effect, and ends the run by returning a
    /// result.
    fn run<T>(&mut self, entry: u64, mut visit: impl FnMut(&Instruction, &Step, &Registers) -> Option<T>) -> Option<T> {
        let mut at = entry;
        let mut left = MAX_INSTRUCTIONS;
        'code: for _ in 0..=MAX_JUMPS {
            if !self.elf.is_code(at) {
                return None;
            }
            let code = self.elf.from(at)?;
            let mut decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
            while left > 0 && decoder.can_decode() {
                left -= 1;
                let instruction = decoder.decode();
                let step = match instruction.flow_control() {
                    FlowControl::Call
                    | FlowControl::IndirectCall
                    | FlowControl::UnconditionalBranch
                    | FlowControl::IndirectBranch => Step::Call,
                    FlowControl::Return => Step::Return,
                    FlowControl::Exception | FlowControl::Interrupt => return None,
                    _ => Step::Other,
                };
                if let Some(result) = visit(&instruction, &step, &self.registers) {
                    return Some(result);
                }
                match instruction.flow_control() {
                    FlowControl::Return | FlowControl::IndirectBranch => return None,
                    FlowControl::UnconditionalBranch => {
                        at = instruction.near_branch_target();
                        continue 'code;
                    }
                    FlowControl::Call | FlowControl::IndirectCall => self.call(&instruction),
                    // The branch is not taken: the initialized interpreter falls through.
                    FlowControl::ConditionalBranch => {}
                    _ => self.apply(&instruction),
                }
            }
            return None;
        }
        None
    }

    fn relocation(&self, address: u64) -> Option<elf::RelocationType> {
        self.elf.relocation_at(address).map(|relocation| elf::RelocationType(relocation.kind))
    }

    fn call(&mut self, instruction: &Instruction) {
        let argument = self.registers.get(Register::RDI);
        // `call [rax]` of a TLS descriptor preserves every register except rax.
        if instruction.op0_kind() == OpKind::Memory
            && let Value::Constant(slot) = self.registers.get(instruction.memory_base())
            && self.relocation(slot) == Some(elf::R_X86_64_TLSDESC)
        {
            return self.registers.set(Register::RAX, Value::Descriptor(slot));
        }
        self.registers.forget_caller_saved();
        if let Value::Constant(index) = argument
            && self.relocation(index) == Some(elf::R_X86_64_DTPMOD64)
        {
            self.registers.set(Register::RAX, Value::Block(index, 0));
        }
    }

    fn apply(&mut self, instruction: &Instruction) {
        let target = instruction.op0_register();
        if instruction.op0_kind() != OpKind::Register {
            let compares = matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
            if let Some(displacement) = self.below_frame_pointer(instruction).filter(|_| !compares) {
                let moved = instruction.code() == Code::Mov_rm64_r64;
                let value = if moved { self.registers.get(instruction.op1_register()) } else { Value::Unknown };
                self.registers.save(displacement, value);
            }
            return;
        }
        let value = match instruction.mnemonic() {
            Mnemonic::Mov => self.source(instruction),
            Mnemonic::Lea => self.address(instruction),
            Mnemonic::Add => self.sum(instruction),
            Mnemonic::Xor if instruction.op1_kind() == OpKind::Register && instruction.op1_register() == target => {
                Value::Constant(0)
            }
            // These only set flags.
            Mnemonic::Test | Mnemonic::Cmp | Mnemonic::Push => return,
            _ => Value::Unknown,
        };
        // The key is an int, so a 32-bit move preserves it; a smaller one does not.
        self.registers.set(target, if target.size() >= 4 { value } else { Value::Unknown });
    }

    /// The address of the memory operand, without the segment base.
    fn address(&self, instruction: &Instruction) -> Value {
        if instruction.memory_index() != Register::None {
            return Value::Unknown;
        }
        let displacement = instruction.memory_displacement64();
        match instruction.memory_base() {
            // iced has already added the instruction pointer.
            Register::None | Register::RIP | Register::EIP => Value::Constant(displacement),
            base => offset_by(self.registers.get(base), displacement.cast_signed()),
        }
    }

    /// The displacement of a memory operand from a frame pointer.
    fn below_frame_pointer(&self, instruction: &Instruction) -> Option<i64> {
        let by_frame_pointer = instruction.memory_base() == Register::RBP
            && instruction.memory_index() == Register::None
            && self.registers.get(Register::RBP) == Value::Unknown;
        by_frame_pointer.then(|| instruction.memory_displacement64().cast_signed()).filter(|at| *at < 0)
    }

    fn source(&self, instruction: &Instruction) -> Value {
        if instruction.code() == Code::Mov_r64_rm64
            && instruction.op1_kind() == OpKind::Memory
            && let Some(displacement) = self.below_frame_pointer(instruction)
        {
            return self.registers.saved(displacement);
        }
        match instruction.op1_kind() {
            OpKind::Register => self.registers.get(instruction.op1_register()),
            OpKind::Memory => self.load(instruction),
            _ => Self::immediate(instruction),
        }
    }

    fn immediate(instruction: &Instruction) -> Value {
        match instruction.op1_kind() {
            OpKind::Immediate8
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64 => Value::Constant(instruction.immediate(1)),
            _ => Value::Unknown,
        }
    }

    fn load(&self, instruction: &Instruction) -> Value {
        let address = self.address(instruction);
        if instruction.segment_prefix() == Register::FS {
            return match address {
                Value::Constant(0) => Value::ThreadPointer(0),
                Value::Constant(offset) => Value::ThreadLocal(TlsAccess::Offset(offset.cast_signed())),
                Value::Slot(slot) => Value::ThreadLocal(TlsAccess::GotSlot(slot)),
                Value::Descriptor(slot) => Value::ThreadLocal(TlsAccess::Descriptor { slot }),
                _ => Value::Unknown,
            };
        }
        match address {
            Value::Constant(address) => match self.relocation(address) {
                Some(elf::R_X86_64_TPOFF64) => Value::Slot(address),
                Some(_) => self.elf.loaded_word(address).map_or(Value::Loaded(address), Value::Constant),
                None => Value::Loaded(address),
            },
            Value::ThreadPointer(offset) => Value::ThreadLocal(TlsAccess::Offset(offset)),
            Value::ViaSlot(slot, 0) => Value::ThreadLocal(TlsAccess::GotSlot(slot)),
            Value::ViaDescriptor(slot) => Value::ThreadLocal(TlsAccess::Descriptor { slot }),
            Value::Block(index, offset) => self.block_offset(index, offset).map_or(Value::Unknown, Value::ThreadLocal),
            _ => Value::Unknown,
        }
    }

    fn sum(&self, instruction: &Instruction) -> Value {
        let left = self.registers.get(instruction.op0_register());
        match (left, self.source(instruction)) {
            (value, Value::Constant(constant)) => offset_by(value, constant.cast_signed()),
            (Value::ThreadPointer(offset), Value::Slot(slot)) | (Value::Slot(slot), Value::ThreadPointer(offset)) => {
                Value::ViaSlot(slot, offset)
            }
            (Value::ThreadPointer(0), Value::Descriptor(slot)) | (Value::Descriptor(slot), Value::ThreadPointer(0)) => {
                Value::ViaDescriptor(slot)
            }
            _ => Value::Unknown,
        }
    }

    /// The second word of a TLS index: from a relocation if the dynamic linker fills it in, else as the
    /// linker wrote it.
    fn block_offset(&self, index: u64, offset: i64) -> Option<TlsAccess> {
        let slot = index.checked_add(8)?;
        let base = match self.elf.relocation_at(slot) {
            None => self.elf.u64(slot)?,
            Some(relocation) if relocation.kind == elf::R_X86_64_DTPOFF64.0 => {
                let symbol = self.elf.relocation_symbol(&relocation)?;
                symbol.address.wrapping_add(relocation.addend.cast_unsigned())
            }
            Some(_) => return None,
        };
        Some(TlsAccess::Dynamic { module_id_slot: index, offset: base.wrapping_add_signed(offset) })
    }
}

fn offset_by(value: Value, offset: i64) -> Value {
    match value {
        Value::Constant(constant) => Value::Constant(constant.wrapping_add_signed(offset)),
        Value::ThreadPointer(before) => Value::ThreadPointer(before.wrapping_add(offset)),
        Value::Block(index, before) => Value::Block(index, before.wrapping_add(offset)),
        Value::ViaSlot(slot, before) => Value::ViaSlot(slot, before.wrapping_add(offset)),
        value if offset == 0 => value,
        _ => Value::Unknown,
    }
}

fn follow<T>(elf: &Elf<'_>, entry: u64, visit: impl FnMut(&Instruction, &Step, &Registers) -> Option<T>) -> Option<T> {
    Follower { elf, registers: Registers::default() }.run(entry, visit)
}

/// The pthread key that `PyGILState_GetThisThreadState` uses. It is the first argument of a call: either a
/// `Py_tss_t *` (for `PyThread_tss_get`, or `PyThread_tss_is_created` before it) or, if inlined, the key itself.
///
/// 3.11 and 3.12 pass the address of the structure around it to a static function, which debug builds do not inline.
/// So calls of functions other than these `accessors` are followed.
pub(super) fn thread_key(elf: &Elf<'_>, entry: u64, within: &Range<u64>, accessors: &[u64]) -> Option<TssKey> {
    let inside = |address: u64| within.contains(&address) && address.is_multiple_of(4);
    let key = |address: u64| {
        let initialized = address.checked_sub(4).filter(|address| within.contains(address));
        inside(address).then_some(TssKey { initialized, key: address })
    };
    let mut registers = Registers::default();
    let mut entry = entry;
    for _ in 0..=MAX_CALLS {
        let (argument, callee, passed) = Follower { elf, registers }.run(entry, |instruction, step, registers| {
            let argument = registers.get(Register::RDI);
            let interesting = match argument {
                Value::Constant(address) | Value::Loaded(address) => inside(address),
                _ => false,
            };
            let target = match instruction.op0_kind() {
                OpKind::NearBranch64 => Some(instruction.near_branch_target()),
                _ => None,
            };
            (matches!(step, Step::Call) && interesting).then_some((argument, target, *registers))
        })?;
        match (argument, callee) {
            (Value::Loaded(address), _) => return key(address),
            // struct _Py_tss_t { int _is_initialized; pthread_key_t _key; }
            // (<https://github.com/python/cpython/blob/v3.13.0/Include/pythread.h>)
            (Value::Constant(tss), None) => return key(tss.checked_add(4)?),
            (Value::Constant(tss), Some(callee)) if accessors.contains(&callee) => return key(tss.checked_add(4)?),
            (_, callee) => entry = callee?,
        }
        registers = passed;
    }
    None
}

/// The same before 3.7: a plain `static int autoTLSkey`
/// (<https://github.com/python/cpython/blob/v3.6.0/Python/pystate.c>), loaded as the argument of
/// `PyThread_get_key_value`. It is -1 until the key is created.
pub(super) fn plain_key(elf: &Elf<'_>, entry: u64) -> Option<TssKey> {
    follow(elf, entry, |_, step, registers| match (step, registers.get(Register::RDI)) {
        (Step::Call, Value::Loaded(key)) if elf.is_writable(key) && key.is_multiple_of(4) => {
            Some(TssKey { initialized: None, key })
        }
        _ => None,
    })
}

/// How a function reaches the thread-local that it returns.
pub(super) fn returned_thread_local(elf: &Elf<'_>, entry: u64) -> Option<TlsAccess> {
    follow(elf, entry, |_, step, registers| match (step, registers.get(Register::RAX)) {
        (Step::Return, Value::ThreadLocal(access)) => Some(access),
        _ => None,
    })
}

/// The address of the word whose contents a function returns.
pub(super) fn returned_word(elf: &Elf<'_>, entry: u64) -> Option<u64> {
    follow(elf, entry, |_, step, registers| match (step, registers.get(Register::RAX)) {
        (Step::Return, Value::Loaded(address)) if elf.is_writable(address) => Some(address),
        _ => None,
    })
}

/// The second word of what a function copies from writable memory: `PyObjectArenaAllocator {void *ctx; alloc;
/// free}` (<https://github.com/python/cpython/blob/v3.13.0/Include/cpython/objimpl.h>), three words of which
/// two are addresses of code.
pub(super) fn copied_allocator(elf: &Elf<'_>, entry: u64) -> Option<u64> {
    let code = |address: u64| elf.loaded_word(address).filter(|word| elf.is_code(*word));
    follow(elf, entry, |instruction, _, registers| {
        if instruction.op1_kind() != OpKind::Memory || instruction.memory_index() != Register::None {
            return None;
        }
        let displacement = instruction.memory_displacement64();
        let address = match instruction.memory_base() {
            Register::None | Register::RIP => displacement,
            base => match registers.get(base) {
                Value::Constant(constant) => constant.wrapping_add(displacement),
                _ => return None,
            },
        };
        let (alloc, free) = (address.checked_add(8)?, address.checked_add(16)?);
        elf.is_writable(address).then_some(())?;
        code(free).and(code(alloc))
    })
}

/// The constants that a function computes, in order, including addresses of strings.
pub(super) fn constants(elf: &Elf<'_>, entry: u64) -> Vec<u64> {
    let mut found = Vec::new();
    let _: Option<()> = follow(elf, entry, |instruction, _, _| {
        let loads_address = instruction.is_ip_rel_memory_operand() && instruction.mnemonic() == Mnemonic::Lea;
        if loads_address {
            found.push(instruction.ip_rel_memory_address());
        } else if matches!(instruction.code(), Code::Mov_r32_imm32 | Code::Mov_rm64_imm32 | Code::Mov_r64_imm64) {
            found.push(instruction.immediate(1));
        }
        None
    });
    found
}

/// The targets of conditional branches out of `range`, which is how compilers connect a function's hot part
/// to its cold part. (Other functions are reached by calls, or by unconditional jumps for tail calls.)
pub(super) fn branches_out(elf: &Elf<'_>, range: &Range<u64>) -> Vec<u64> {
    let Some(code) = elf.bytes(range.start, range.end.saturating_sub(range.start).min(MAX_LOOP)) else {
        return Vec::new();
    };
    let mut targets: Vec<u64> = Decoder::with_ip(64, code, range.start, DecoderOptions::NONE)
        .iter()
        .filter(|instruction| instruction.flow_control() == FlowControl::ConditionalBranch)
        .map(|instruction| instruction.near_branch_target())
        .filter(|target| !range.contains(target))
        .collect();
    targets.sort_unstable();
    targets.dedup();
    targets
}

/// Bytes of code scanned; an interpreter loop has about 50 kB.
const MAX_LOOP: u64 = 4 << 20;

//! Checks whether a libucp reads its caller's parameters at the offsets that the kernel side uses, by
//! decoding its code.

use std::collections::{BTreeSet, HashMap, HashSet};

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use crate::elf::Elf;

/// The supported major version of `ucp/api/ucp.h`.
const MAJOR: u32 = 1;
/// This function reads all relevant parameters through its fifth argument.
const READER: &str = "ucp_tag_send_nbx";
const PARAMETERS: Register = Register::R8;
/// Offsets in `ucp_request_param_t`: the 4-byte fields (mask, flags, kind of memory), then the 8-byte fields.
const SHORT: [u64; 3] = [MASK, 4, 48];
const LONG: [u64; 7] = [8, 16, DATATYPE, 32, 40, 56, 64];
const MASK: u64 = 0;
const DATATYPE: u64 = 24;
/// Mask for the kind in a `ucp_datatype_t`: a field tested against these bits is one.
const KIND: u64 = 7;
/// Instructions decoded over all paths through the function; code beyond is not checked.
const STEPS_MAX: usize = 20_000;
const CODE_MAX: u64 = 16 << 10;

/// An error says why this library's parameters cannot be read.
pub(super) fn check(elf: &Elf<'_>) -> Result<(), String> {
    if let Some((major, minor)) = version(elf).filter(|(major, _)| *major != MAJOR) {
        return Err(format!("it is UCX {major}.{minor}, and only the interface of UCX {MAJOR} is known"));
    }
    let Some(symbol) = elf.exported(READER) else { return Ok(()) };
    let code = elf.bytes(symbol.address, symbol.size.min(CODE_MAX)).filter(|_| elf.is_code(symbol.address));
    check_reads(&code.map_or_else(Reads::default, |code| reads(code, symbol.address)))
}

fn check_reads(reads: &Reads) -> Result<(), String> {
    if let Some(at) = reads.datatypes.iter().find(|at| **at != DATATYPE) {
        return Err(format!(
            "it has the datatype at {at} of ucp_request_param_t, where UCX {MAJOR} has it at {DATATYPE}"
        ));
    }
    let is_known = |(at, bytes): &&(u64, usize)| match bytes {
        4 => SHORT.contains(at) || *at == DATATYPE,
        // Mask and flags may be read together.
        8 => LONG.contains(at) || *at == MASK,
        _ => true,
    };
    if let Some((at, bytes)) = reads.all.iter().filter(|read| !is_known(read)).min() {
        return Err(format!(
            "it reads {bytes} bytes at {at} of ucp_request_param_t, where UCX {MAJOR} has no such field"
        ));
    }
    for (field, name) in [(MASK, "op_attr_mask"), (DATATYPE, "datatype")] {
        if !reads.all.iter().any(|(at, bytes)| (*at..at.saturating_add(*bytes as u64)).contains(&field)) {
            return Err(format!("it does not read {name} where ucp_request_param_t of UCX {MAJOR} has it"));
        }
    }
    Ok(())
}

/// Reads the constants that `ucp_get_version` stores through its first arguments.
fn version(elf: &Elf<'_>) -> Option<(u32, u32)> {
    let symbol = elf.exported("ucp_get_version").filter(|symbol| elf.is_code(symbol.address))?;
    let code = elf.bytes(symbol.address, symbol.size.min(64))?;
    let written = |register| {
        let mut instructions = Decoder::new(64, code, DecoderOptions::NONE).into_iter();
        let writes = instructions.find(|it| it.mnemonic() == Mnemonic::Mov && it.memory_base() == register)?;
        (writes.op1_kind() == OpKind::Immediate32).then(|| writes.immediate32())
    };
    Some((written(Register::RDI)?, written(Register::RSI)?))
}

/// What a function reads through its fifth argument.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reads {
    /// Offsets, and the number of bytes.
    all: HashSet<(u64, usize)>,
    /// Offsets of fields tested for their datatype kind.
    datatypes: BTreeSet<u64>,
}

/// Follows all paths and tracks which registers contain the argument.
fn reads(code: &[u8], start: u64) -> Reads {
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let (mut factory, mut found, mut seen) = (InstructionInfoFactory::new(), Reads::default(), HashSet::new());
    let mut ways = vec![(start, bit(PARAMETERS))];
    while let Some((mut ip, mut holders)) = ways.pop() {
        // Registers loaded from the parameters on this path, with the offsets.
        let mut loaded: HashMap<Register, u64> = HashMap::new();
        while holders != 0 && seen.len() < STEPS_MAX && seen.insert((ip, holders)) {
            let offset = ip.wrapping_sub(start);
            if offset >= code.len() as u64 || decoder.set_position(offset as usize).is_err() {
                break;
            }
            decoder.set_ip(ip);
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                break;
            }
            let info = factory.info(&instruction);
            let mut read = None;
            for memory in info.used_memory() {
                let is_read = matches!(memory.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite);
                let is_plain = memory.index() == Register::None && memory.base() != Register::None;
                if is_read && is_plain && holders & bit(memory.base()) != 0 {
                    found.all.insert((memory.displacement(), memory.memory_size().size()));
                    read = Some(memory.displacement());
                }
            }
            if asks_for_kind(&instruction) {
                let word = read.or_else(|| loaded.get(&instruction.op0_register().full_register()).copied());
                found.datatypes.extend(word);
            }
            let is_copy = is_move(&instruction) && holders & bit(instruction.op1_register()) != 0;
            for register in info.used_registers() {
                if !matches!(register.access(), OpAccess::Read | OpAccess::CondRead) {
                    holders &= !bit(register.register());
                    loaded.remove(&register.register().full_register());
                }
            }
            if is_copy {
                holders |= bit(instruction.op0_register());
            }
            if let Some(at) = read.filter(|_| instruction.mnemonic() == Mnemonic::Mov) {
                loaded.insert(instruction.op0_register().full_register(), at);
            }
            ip = instruction.next_ip();
            match instruction.flow_control() {
                FlowControl::Next => {}
                FlowControl::ConditionalBranch => ways.push((instruction.near_branch_target(), holders)),
                FlowControl::UnconditionalBranch => ip = instruction.near_branch_target(),
                FlowControl::Call | FlowControl::IndirectCall => {
                    // A called function may change these registers (System V ABI, 3.2.1).
                    holders &= KEPT.iter().fold(0, |all, it| all | bit(*it));
                    loaded.clear();
                }
                _ => break,
            }
        }
    }
    found
}

fn asks_for_kind(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Test | Mnemonic::And)
        && instruction.op_count() == 2
        && instruction.try_immediate(1).is_ok_and(|bits| bits == KIND)
}

const KEPT: [Register; 6] = [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];

fn is_move(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Register
        && instruction.op1_kind() == OpKind::Register
        && instruction.op1_register().is_gpr64()
}

/// The bit of a general register, whichever part of it is used.
fn bit(register: Register) -> u32 {
    let full = register.full_register();
    if full.is_gpr64() { 1 << full.number() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_followed_through_copies_and_over_all_ways() {
        let code = [
            0x4d, 0x89, 0xc4, // mov r12, r8
            0x41, 0x8b, 0x0c, 0x24, // mov ecx, [r12]
            0xf6, 0xc1, 0x08, // test cl, 8
            0x74, 0x0a, // je +10
            0x4d, 0x8b, 0x4c, 0x24, 0x18, // mov r9, [r12+24]
            0x41, 0xf6, 0xc1, 0x07, // test r9b, 7
            0xc3, // ret
            0x41, 0x8b, 0x40, 0x30, // mov eax, [r8+48]
            0x45, 0x31, 0xc0, // xor r8d, r8d
            0x49, 0x8b, 0x40, 0x50, // mov rax, [r8+80]: it is another by now
            0xc3, // ret
        ];
        let found = reads(&code, 0x1000);
        assert_eq!(found.all, HashSet::from([(0, 4), (24, 8), (48, 4)]));
        assert_eq!(found.datatypes, BTreeSet::from([24]));
        assert_eq!(check_reads(&found), Ok(()));
    }

    #[test]
    fn moved_fields_are_reported() {
        let of = |all: &[(u64, usize)], datatypes: &[u64]| {
            let reads = Reads { all: all.iter().copied().collect(), datatypes: datatypes.iter().copied().collect() };
            check_reads(&reads).err().unwrap_or_default()
        };
        assert!(of(&[(0, 4), (32, 8)], &[32]).contains("has the datatype at 32"));
        // Here the kind of memory is at an offset that belongs to an 8-byte field.
        assert!(of(&[(0, 4), (24, 8), (56, 4)], &[]).contains("reads 4 bytes at 56"));
        assert!(of(&[(24, 8)], &[24]).contains("does not read op_attr_mask"));
        assert!(of(&[(0, 4)], &[]).contains("does not read datatype"));
        assert_eq!(of(&[(0, 8), (24, 8), (16, 16), (48, 4)], &[24]), "");
    }

    #[test]
    fn nothing_is_read_by_what_is_no_code() {
        assert_eq!(reads(&[], 0), Reads::default());
        assert_eq!(reads(&[0x06; 8], 0), Reads::default());
        // A jump to itself.
        assert_eq!(reads(&[0xeb, 0xfe], 0), Reads::default());
    }
}

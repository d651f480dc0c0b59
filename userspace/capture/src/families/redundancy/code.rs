//! What the instruction before a trap did: a watchpoint traps after the access, so its address is that of the
//! next instruction.

use std::collections::HashMap;

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess};

use crate::cache::Cache;
use crate::memory::{Memory, ProcessMemory};

/// Bytes of code decoded before an instruction.
const BEHIND: usize = 64;
/// Cached instructions; the least recently used are evicted and decoded again.
const KNOWN_MAX: usize = 65_536;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    Load,
    Store,
    /// A read and a write, as by an addition to memory.
    Both,
    Unknown,
}

/// By process and address.
pub struct Code {
    known: Cache<(u32, u64), Did>,
}

impl Default for Code {
    fn default() -> Self {
        Self { known: Cache::new(KNOWN_MAX) }
    }
}

impl Code {
    pub fn before(&mut self, pid: u32, ip: u64) -> Did {
        if let Some(did) = self.known.get(&(pid, ip)) {
            return *did;
        }
        let mut bytes = [0; BEHIND];
        let did = match ip.checked_sub(BEHIND as u64) {
            Some(start) if ProcessMemory::new(pid).read(start, &mut bytes).is_ok() => before(&bytes),
            _ => Did::Unknown,
        };
        self.known.insert((pid, ip), did);
        did
    }

    pub fn forget(&mut self, pid: u32) {
        self.known.retain(|(of, _)| *of != pid);
    }
}

/// x86 instructions have no fixed length, so decoding is tried from every offset; most attempts agree on the
/// last instruction.
fn before(bytes: &[u8; BEHIND]) -> Did {
    let mut votes: HashMap<usize, u32> = HashMap::new();
    for from in 0..BEHIND - 1 {
        let mut decoder = Decoder::with_ip(64, &bytes[from..], 0, DecoderOptions::NONE);
        let mut last = None;
        while decoder.can_decode() {
            let start = from + decoder.position();
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                last = None;
                break;
            }
            last = (from + decoder.position() == BEHIND).then_some(start);
        }
        if let Some(start) = last {
            *votes.entry(start).or_default() += 1;
        }
    }
    let Some(start) = votes.into_iter().max_by_key(|(start, count)| (*count, *start)).map(|(start, _)| start) else {
        return Did::Unknown;
    };
    let instruction = Decoder::with_ip(64, &bytes[start..], 0, DecoderOptions::NONE).decode();
    let (mut reads, mut writes) = (false, false);
    for memory in InstructionInfoFactory::new().info(&instruction).used_memory() {
        match memory.access() {
            OpAccess::Read | OpAccess::CondRead => reads = true,
            OpAccess::Write | OpAccess::CondWrite => writes = true,
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => (reads, writes) = (true, true),
            _ => {}
        }
    }
    match (reads, writes) {
        (true, true) => Did::Both,
        (true, false) => Did::Load,
        (false, true) => Did::Store,
        (false, false) => Did::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instruction_before_is_found() {
        for (code, did) in [
            (&[0x48, 0x8b, 0x47, 0x10][..], Did::Load),
            (&[0x48, 0x89, 0x47, 0x10][..], Did::Store),
            (&[0x48, 0xff, 0x07][..], Did::Both),
            (&[0x48, 0x01, 0xc8][..], Did::Unknown),
        ] {
            // Fill the bytes before it with copies of mov rbp, rsp.
            let mut bytes = [0; BEHIND];
            let end = BEHIND - code.len();
            for (index, byte) in bytes[..end].iter_mut().rev().enumerate() {
                *byte = [0xe5, 0x89, 0x48][index % 3];
            }
            bytes[end..].copy_from_slice(code);
            assert_eq!(before(&bytes), did);
        }
    }
}

//! Which memory a sampled thread accesses, and which part of it is watched.

use pyobs_abi::redundancy::Registers;

use super::emulator::{Access, Machine, NoAccess};
use crate::memory::{Memory, ProcessMemory};

/// The next access of a sampled thread, from its registers and code.
pub fn access(sample: &Registers) -> Result<Access, NoAccess> {
    let memory = ProcessMemory::new(sample.header.pid);
    let words = (sample.words as usize).min(sample.stack.len());
    let mut machine = Machine::new(sample.general, sample.ip, sample.flags, &sample.stack[..words]);
    // Code is read in pieces of this size; most attempts need only one.
    let mut piece = [0; 256];
    let (mut start, mut length) = (0, 0);
    machine.next_access(|at, into| {
        let within = at >= start && at + into.len() as u64 <= start + length as u64;
        if !within {
            (start, length) = (at, code(&memory, at, &mut piece));
        }
        let from = (at - start) as usize;
        let got = into.len().min(length - from);
        into[..got].copy_from_slice(&piece[from..from + got]);
        got
    })
}

/// Reads as much code as there is, up to the end of the page if the next one cannot be read.
fn code(memory: &ProcessMemory, at: u64, into: &mut [u8]) -> usize {
    const PAGE: u64 = 4096;
    if memory.read(at, into).is_ok() {
        return into.len();
    }
    let rest = (PAGE - at % PAGE).min(into.len() as u64) as usize;
    if memory.read(at, &mut into[..rest]).is_ok() { rest } else { 0 }
}

/// The part of an access that is watched and read at each trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub start: u64,
    pub length: u64,
}

impl Part {
    /// The largest aligned part of up to eight bytes; of larger accesses the `choice`-th such part.
    pub fn of(access: &Access, choice: u64) -> Self {
        let end = access.address.saturating_add(access.size.max(1));
        let words = access.size / 8;
        if words > 1 {
            let first = access.address.next_multiple_of(8);
            let count = end.saturating_sub(first) / 8;
            if count > 0 {
                return Self { start: first + 8 * (choice % count), length: 8 };
            }
        }
        for length in [8, 4, 2] {
            let start = access.address.next_multiple_of(length);
            if start + length <= end {
                return Self { start, length };
            }
        }
        Self { start: access.address, length: 1 }
    }

    /// For a watch that includes reads: the byte to watch, and the others, which are read at each trap.
    /// Reading the watched byte would trap again. It is the byte that matters least: the lowest of a
    /// floating-point number, else the highest.
    pub fn around_one_byte(self, is_float: bool) -> (u64, u64, u32) {
        let others = (self.length - 1) as u32;
        if is_float { (self.start, self.start + 1, others) } else { (self.start + self.length - 1, self.start, others) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(address: u64, size: u64) -> Access {
        Access { address, size, reads: true, writes: false, is_float: true }
    }

    #[test]
    fn parts_are_aligned_and_inside() {
        for address in 0x1000..0x1010 {
            for size in [1, 2, 4, 8, 16, 32] {
                for choice in 0..5 {
                    let part = Part::of(&access(address, size), choice);
                    assert!(part.start >= address && part.start + part.length <= address + size);
                    assert!(part.start.is_multiple_of(part.length));
                }
            }
        }
        assert_eq!(Part { start: 0x1000, length: 8 }.around_one_byte(true), (0x1000, 0x1001, 7));
        assert_eq!(Part { start: 0x1000, length: 8 }.around_one_byte(false), (0x1007, 0x1000, 7));
    }
}

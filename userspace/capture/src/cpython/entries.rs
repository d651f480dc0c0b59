//! Where calls of Python functions begin and end in an interpreter's code.
//!
//! Up to 3.10 each call enters `_PyEval_EvalFrameDefault`. From 3.11 on, a Python function that calls another
//! stays in the loop. But every start of a function and every resumption of a generator executes a RESUME
//! instruction (PEP 659, <https://github.com/python/cpython/blob/v3.13.0/Python/bytecodes.c>; the "call" event
//! of sys.setprofile is the same moment). The loop jumps to an instruction's code, its handler, through a
//! table, so a probe on RESUME's handlers sees every call. An exception thrown into a generator resumes it
//! without RESUME, so that path through the loop has a probe of its own.
//!
//! A probe is placed on the first instruction after the handler's start that the kernel can emulate, unless
//! other code jumps in between: see `listing::is_cheap`.

mod functions;
mod handlers;
mod listing;

use pyobs_abi::eval::Cookie;

use super::loops;
use super::version::Version;
use crate::elf::Elf;
use listing::Listing;

/// Which calls cannot be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unseen {
    /// All calls.
    Calls,
    /// Resumptions of a generator by an exception thrown into it.
    Throws,
    /// The ends of all calls.
    Returns,
    /// The ends of calls that an exception leaves.
    Exceptions,
}

/// A place for a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Link-time address in the file.
    pub address: u64,
    /// One of `pyobs_abi::eval::source`.
    pub source: u64,
    /// One of `pyobs_abi::eval::condition`.
    pub condition: u64,
    /// How far the stack pointer is below its value at the call. Calls are matched by that value.
    pub distance: Option<u32>,
    /// Whether the kernel single-steps the instruction.
    pub stepped: bool,
}

impl Site {
    /// The cookie for its program; `cost` is in nanoseconds.
    pub fn cookie(&self, cost: u32) -> Cookie {
        Cookie::new(self.source, self.condition, self.distance.is_some(), self.distance.unwrap_or(0), cost)
    }
}

/// The places in one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    pub enters: Vec<Site>,
    pub exits: Vec<Site>,
    pub unseen: Vec<Unseen>,
}

/// Finds them in a file with an interpreter.
pub fn find(elf: &Elf<'_>, version: Version) -> Entries {
    let listing = Listing::of(elf, loops::find(elf));
    if version.since(11) { handlers::find(elf, &listing, version) } else { functions::find(elf, &listing, version) }
}

/// The address of a function, exported or not.
fn function(elf: &Elf<'_>, name: &str) -> Option<u64> {
    let local = || elf.symbols().find(|(symbol, _)| *symbol == name.as_bytes()).map(|(_, symbol)| symbol);
    let symbol = elf.exported(name).or_else(local)?;
    elf.is_code(symbol.address).then_some(symbol.address)
}

/// The first place in a function where the argument in `register` is still in its register, and how far the
/// stack pointer is below its value at the function's start.
fn prologue(listing: &Listing<'_, '_>, start: u64, register: iced_x86::Register) -> (u64, u32, bool) {
    let mut distance = 0;
    for instruction in listing.straight(start, listing::WAY_MAX) {
        let clean = listing.jumps_to(start + 1..=instruction.ip()).next().is_none();
        if clean && listing::is_cheap(&instruction) {
            return (instruction.ip(), u32::try_from(distance).unwrap_or(0), false);
        }
        match listing::pushed(&instruction) {
            Some(bytes) if clean && !listing::writes(&instruction, register) => distance += bytes,
            _ => break,
        }
    }
    (start, 0, true)
}

#[cfg(test)]
mod tests;

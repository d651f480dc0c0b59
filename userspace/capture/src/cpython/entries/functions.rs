//! Up to 3.10: a call enters the loop's function, and its end leaves it.

use iced_x86::{FlowControl, Instruction, Mnemonic, Register};
use pyobs_abi::eval::{condition, source};

use super::listing::{Listing, is_cheap, pushed, taken_if_zero};
use super::{Entries, Site, Unseen, function, prologue};
use crate::cpython::version::Version;
use crate::elf::Elf;

/// How many instructions before a function's end a cheaper place is looked for.
const BACK_MAX: usize = 8;

pub(super) fn find(elf: &Elf<'_>, listing: &Listing<'_, '_>, version: Version) -> Entries {
    let Some(start) = function(elf, "_PyEval_EvalFrameDefault") else {
        return Entries { unseen: vec![Unseen::Calls], ..Entries::default() };
    };
    // PyObject *_PyEval_EvalFrameDefault([PyThreadState *tstate,] PyFrameObject *f, int throwflag), with the
    // thread state since 3.9 (https://github.com/python/cpython/blob/v3.9.0/Python/ceval.c).
    let (source, register) =
        if version.since(9) { (source::SECOND, Register::RSI) } else { (source::FIRST, Register::RDI) };
    let (address, distance, stepped) = prologue(listing, start, register);
    let enter = Site { address, source, condition: condition::ALWAYS, distance: Some(distance), stepped };
    let exits = exits(listing);
    let unseen = if exits.is_empty() { vec![Unseen::Returns] } else { Vec::new() };
    Entries { enters: vec![enter], exits, unseen }
}

pub(super) fn exits(listing: &Listing<'_, '_>) -> Vec<Site> {
    let mut found = Vec::new();
    for end in &listing.returns {
        match before_epilogue(listing, *end) {
            Some(sites) => found.extend(sites),
            None => found.push(exit(*end, condition::ALWAYS, 0, true)),
        }
    }
    // The last call of a function can be a tail call; the stack is then as it was at the start.
    found.extend(listing.leaving.iter().map(|jump| exit(*jump, condition::ALWAYS, 0, false)));
    found.sort_unstable_by_key(|site| site.address);
    found.dedup();
    found
}

fn exit(address: u64, condition: u64, distance: u32, stepped: bool) -> Site {
    Site { address, source: source::NONE, condition, distance: Some(distance), stepped }
}

/// Cheap places right before the registers are restored, on each path there; `None` if a path has none.
fn before_epilogue(listing: &Listing<'_, '_>, end: u64) -> Option<Vec<Site>> {
    let (mut epilogue, mut distance) = (end, 0);
    while let Some(instruction) = listing.instruction_before(epilogue).filter(restores) {
        distance -= pushed(&instruction)?;
        epilogue = instruction.ip();
    }
    let distance = u32::try_from(distance).ok()?;
    if listing.jumps_to(epilogue + 1..=end).next().is_some() {
        return None;
    }
    let mut sites = Vec::new();
    for jump in listing.jumps_to(epilogue..=epilogue) {
        let instruction = listing.instruction(jump.from)?;
        let condition = match instruction.flow_control() {
            FlowControl::UnconditionalBranch => condition::ALWAYS,
            _ if taken_if_zero(&instruction)? => condition::ZERO,
            _ => condition::NOT_ZERO,
        };
        sites.push(exit(jump.from, condition, distance, false));
    }
    let (mut next, mut before) = (epilogue, Vec::new());
    for _ in 0..BACK_MAX {
        let Some(instruction) = listing.instruction_before(next) else { break };
        if matches!(instruction.flow_control(), FlowControl::UnconditionalBranch | FlowControl::IndirectBranch) {
            // This point is not reached from above.
            return Some(sites);
        }
        // Code that jumps past the place would be missed.
        if next != epilogue && listing.jumps_to(next..=next).next().is_some() {
            return None;
        }
        if is_cheap(&instruction) {
            let condition = match instruction.flow_control() {
                FlowControl::ConditionalBranch if taken_if_zero(&instruction)? => condition::NOT_ZERO,
                FlowControl::ConditionalBranch => condition::ZERO,
                _ => condition::ALWAYS,
            };
            sites.push(exit(instruction.ip(), condition, distance, false));
            return Some(sites);
        }
        if pushed(&instruction) != Some(0) {
            return None;
        }
        before.push(instruction);
        next = instruction.ip();
    }
    None
}

fn restores(instruction: &Instruction) -> bool {
    let pops = matches!(instruction.mnemonic(), Mnemonic::Pop);
    pops || (instruction.mnemonic() == Mnemonic::Add && instruction.op0_register() == Register::RSP)
}

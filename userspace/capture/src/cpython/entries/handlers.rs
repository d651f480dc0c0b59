//! From 3.11 on: a call executes RESUME.

use std::collections::BTreeSet;

use iced_x86::{Instruction, OpKind, Register};
use pyobs_abi::eval::{condition, source};

use super::listing::{INSTRUCTIONS, Jump, Listing, WAY_MAX, is_cheap, taken_if_zero, writes};
use super::{Entries, Site, Unseen, function, prologue};
use crate::cpython::opcodes::{self, Numbers};
use crate::cpython::version::Version;
use crate::elf::Elf;

const STARTS: [&str; 4] = ["RESUME", "RESUME_QUICK", "RESUME_CHECK", "INSTRUMENTED_RESUME"];
const YIELDS: [&str; 2] = ["YIELD_VALUE", "INSTRUMENTED_YIELD_VALUE"];
const RETURNS: [&str; 4] = ["RETURN_VALUE", "RETURN_CONST", "INSTRUMENTED_RETURN_VALUE", "INSTRUMENTED_RETURN_CONST"];

/// Instructions searched for the branch: before the loop starts, a frame for the C stack is filled in field
/// by field.
const PROLOGUE_MAX: usize = 128;

pub(super) fn find(elf: &Elf<'_>, listing: &Listing<'_, '_>, version: Version) -> Entries {
    let Some(handlers) = Handlers::of(elf, listing, version) else {
        return Entries { unseen: vec![Unseen::Calls], ..Entries::default() };
    };
    let mut unseen = Vec::new();
    let mut enters = starts(listing, &handlers.addresses(&STARTS));
    let loop_start = function(elf, "_PyEval_EvalFrameDefault");
    match loop_start.map(|start| throws(listing, start)) {
        Some(site) => enters.push(site),
        None => unseen.push(Unseen::Throws),
    }
    let mut exits = Vec::new();
    // In 3.11 the instructions that end a frame check for tracing before they leave it
    // (https://github.com/python/cpython/blob/v3.11.0/Python/ceval.c); later versions leave at once.
    let leave = |address| if version.since(12) { at(address, true) } else { early(listing, address) };
    exits.extend(handlers.addresses(&YIELDS).into_iter().map(leave));
    match cleared(elf, listing, version) {
        Some(site) => exits.push(site),
        None => {
            exits.extend(handlers.addresses(&RETURNS).into_iter().map(leave));
            unseen.push(Unseen::Exceptions);
        }
    }
    Entries { enters, exits, unseen }
}

fn at(address: u64, stepped: bool) -> Site {
    Site { address, source: source::THREAD, condition: condition::ALWAYS, distance: None, stepped }
}

/// The first cheap place after a start that other code does not reach.
fn early(listing: &Listing<'_, '_>, start: u64) -> Site {
    match listing.to_cheap(start).last().map(Instruction::ip) {
        Some(end) if listing.jumps_to(start + 1..=end).next().is_none() => at(end, false),
        _ => at(start, true),
    }
}

/// Where each instruction is implemented.
enum Handlers<'a, 'data> {
    Table(Box<[u64; INSTRUCTIONS]>, &'static Numbers),
    /// A function for each instruction (3.14, `--with-tail-call-interp`).
    Functions(&'a Elf<'data>),
}

impl<'a, 'data> Handlers<'a, 'data> {
    fn of(elf: &'a Elf<'data>, listing: &Listing<'_, '_>, version: Version) -> Option<Self> {
        if function(elf, "_TAIL_CALL_RESUME").is_some() {
            return Some(Self::Functions(elf));
        }
        let numbers = opcodes::of(version)?;
        let table = listing.handlers(|table| numbers.fit(table))?;
        Some(Self::Table(Box::new(table), numbers))
    }

    fn addresses(&self, names: &[&str]) -> BTreeSet<u64> {
        let address = |name: &&str| match self {
            Self::Table(table, numbers) => Some(table[usize::from(numbers.number(name)?)]),
            Self::Functions(elf) => function(elf, &format!("_TAIL_CALL_{name}")),
        };
        names.iter().filter_map(address).collect()
    }
}

/// A handler of RESUME or one of its variants.
struct Start {
    address: u64,
    way: Vec<Instruction>,
    /// The instruction of the path that gets the probe; `None` for the first, which is single-stepped.
    place: Option<usize>,
    condition: u64,
}

impl Start {
    fn of(listing: &Listing<'_, '_>, address: u64) -> Self {
        let way = listing.straight(address, WAY_MAX);
        Self { address, place: way.iter().position(is_cheap), way, condition: condition::ALWAYS }
    }

    /// Jumps to the code after its start, up to an instruction of its path.
    fn jumps_in(&self, listing: &Listing<'_, '_>, place: usize) -> Vec<Jump> {
        listing.jumps_to(self.address + 1..=self.way[place].ip()).collect()
    }

    /// The instruction of its path that is this jump, and whether it is taken if the zero flag is set.
    fn jump_out(&self, jump: Jump) -> Option<(usize, bool)> {
        let place = self.way.iter().position(|instruction| instruction.ip() == jump.from)?;
        Some((place, taken_if_zero(&self.way[place])?))
    }
}

/// RESUME_CHECK, the short form of RESUME, jumps into the long form when there is something to do. That is
/// one call and must count once: in the long form, and in the short form only if its jump is not taken.
pub(super) fn starts(listing: &Listing<'_, '_>, addresses: &BTreeSet<u64>) -> Vec<Site> {
    let mut starts: Vec<Start> = addresses.iter().map(|address| Start::of(listing, *address)).collect();
    // For the start that is jumped into: (the jump's start, the instruction of its path, taken if zero).
    let jumps_into = |starts: &[Start], index: usize| -> Option<Vec<(usize, usize, bool)>> {
        let jumps = starts[index].jumps_in(listing, starts[index].place?);
        let source = |jump: &Jump| {
            let others = starts.iter().enumerate().filter(|(other, _)| *other != index);
            others
                .into_iter()
                .find_map(|(other, start)| start.jump_out(*jump).map(|(place, zero)| (other, place, zero)))
        };
        jumps.iter().map(source).collect()
    };
    for index in 0..starts.len() {
        match jumps_into(&starts, index) {
            Some(sources) => {
                // If the short form can also be entered in its middle, both are probed at their very start.
                let clear =
                    |(other, place, _): &(usize, usize, bool)| starts[*other].jumps_in(listing, *place).is_empty();
                if !sources.iter().all(clear) {
                    starts[index].place = None;
                    continue;
                }
                for (other, place, zero) in sources {
                    let other = &mut starts[other];
                    if other.condition == condition::ALWAYS || other.place.is_none_or(|before| before < place) {
                        other.place = Some(place);
                        other.condition = if zero { condition::NOT_ZERO } else { condition::ZERO };
                    }
                }
            }
            // Code that is not a start of a function leads there.
            None => starts[index].place = None,
        }
    }
    let site = |start: &Start| match start.place {
        Some(place) => Site { condition: start.condition, ..at(start.way[place].ip(), false) },
        None => at(start.address, true),
    };
    starts.iter().map(site).collect()
}

/// Where an exception thrown into a generator enters the loop: `if (throwflag)` in
/// `_PyEval_EvalFrameDefault(tstate, frame, throwflag)`, when the frame is already the thread's current one
/// (<https://github.com/python/cpython/blob/v3.13.0/Python/ceval.c>). If that is not found, the function
/// itself, which is entered for every call from C.
fn throws(listing: &Listing<'_, '_>, start: u64) -> Site {
    branch_on_throwing(listing, start).unwrap_or_else(|| {
        let (address, _, stepped) = prologue(listing, start, Register::RSI);
        Site { address, source: source::SECOND, condition: condition::THROWING, distance: None, stepped }
    })
}

pub(super) fn branch_on_throwing(listing: &Listing<'_, '_>, start: u64) -> Option<Site> {
    let mut holders = vec![Register::RDX];
    let mut tested = false;
    for instruction in listing.straight(start, PROLOGUE_MAX) {
        if tested && let Some(zero) = taken_if_zero(&instruction) {
            let begin = if zero { instruction.next_ip() } else { instruction.near_branch_target() };
            return alone(listing, begin, instruction.ip());
        }
        let full = |operand: u32| instruction.op_register(operand).full_register();
        let registers = instruction.op0_kind() == OpKind::Register && instruction.op1_kind() == OpKind::Register;
        let tests = registers && instruction.mnemonic() == iced_x86::Mnemonic::Test && full(0) == full(1);
        if tests && holders.contains(&full(0)) {
            tested = true;
            continue;
        }
        if instruction.rflags_modified() != 0 {
            tested = false;
        }
        let copies = registers && instruction.mnemonic() == iced_x86::Mnemonic::Mov && holders.contains(&full(1));
        holders.retain(|holder| !writes(&instruction, *holder));
        if copies {
            holders.push(full(0));
        }
        if !is_cheap(&instruction) && instruction.flow_control() != iced_x86::FlowControl::Next {
            return None;
        }
    }
    None
}

/// The first cheap place after `begin`, if only this one jump leads there.
fn alone(listing: &Listing<'_, '_>, begin: u64, jump: u64) -> Option<Site> {
    let only = |end: u64| listing.jumps_to(begin..=end).all(|other| other.from == jump);
    match listing.to_cheap(begin).last().map(Instruction::ip) {
        Some(end) if only(end) => Some(at(end, false)),
        _ => only(begin).then(|| at(begin, true)),
    }
}

/// The function that receives each frame at its end, whether by return or exception. In 3.11 this is
/// `_PyFrame_Clear(frame)` (<https://github.com/python/cpython/blob/v3.11.0/Python/frame.c>), which generators
/// reach too; later it is one with the thread state as first argument
/// (<https://github.com/python/cpython/blob/v3.13.0/Python/ceval.c>).
fn cleared(elf: &Elf<'_>, listing: &Listing<'_, '_>, version: Version) -> Option<Site> {
    let (name, source, register) = match version.minor {
        11 => ("_PyFrame_Clear", source::FIRST, Register::RDI),
        12 => ("_PyEvalFrameClearAndPop", source::SECOND, Register::RSI),
        _ => ("_PyEval_FrameClearAndPop", source::SECOND, Register::RSI),
    };
    let (address, _, stepped) = prologue(listing, function(elf, name)?, register);
    Some(Site { address, source, condition: condition::ALWAYS, distance: None, stepped })
}

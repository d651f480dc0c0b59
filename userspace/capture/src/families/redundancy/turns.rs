//! How long one turn of a loop takes: the time from one result in a frame of the program to the next. The loop is in
//! the program and calls a library, or it is in a library and calls a function of the program.
//!
//! While a sample is in library code that the program called, the program's frame waits, and the place of the call's
//! result in that frame is known. A watchpoint on the place traps at this result and at the next ones. A function that
//! a library calls has its frame at the same address each time. So the same works for the result of an instruction in
//! that function, if the instruction runs once per call.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use pyobs_abi::redundancy::{SpotKey, Trap};
use pyobs_abi::stack::Frame;
use pyobs_model::package;

use super::frames::At;
use super::place::Place;
use crate::cpython::operands::{self, ResultAt, Value};
use crate::memory::Memory;

/// The results that one watchpoint waits for.
pub const RESULTS: u32 = 6;
/// Watchpoints at an instruction after which its turns are known well enough, and how many are tried.
const ENOUGH: usize = 20;
const TRIES: u32 = 60;
/// How much more a trap can take than when pyobs started.
const COST_MAX: u64 = 3;
/// How long one waits. The turns of a loop of small calls are much shorter.
pub const TIMEOUT: Duration = Duration::from_millis(20);
/// Instructions kept; further ones are not timed.
const SPOTS_MAX: usize = 4096;

struct Spot {
    /// `None` if the place of the result is unknown.
    result: Option<ResultAt>,
    /// The number of watchpoints that were tried.
    tried: u32,
    /// How long turns took, in nanoseconds: a value for each watchpoint that saw some, in order of size.
    turns: Vec<u64>,
}

impl Spot {
    /// Whether more watchpoints may be tried.
    fn is_open(&self) -> bool {
        self.turns.len() < ENOUGH && self.tried < TRIES
    }
}

/// A result to wait for: its address, and the instruction that the frame is at when it appears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub key: SpotKey,
    pub address: u64,
    pub instruction: u64,
    pub callee: Callee,
}

/// What is called once in each turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callee {
    pub name: Arc<str>,
    /// It is a function of the program that a library calls, and the result is one in it.
    pub is_callback: bool,
}

/// What one watchpoint has seen so far.
#[derive(Clone, Debug)]
pub struct Timed {
    pub key: SpotKey,
    pub callee: Callee,
    /// The size of the data in the first result, if it is known.
    pub bytes: Option<u64>,
    results: Vec<Result>,
}

/// A result: the trap that saw it, and how much time the program of the process had until then.
#[derive(Clone, Copy, Debug)]
struct Result {
    number: u32,
    /// As in [`Trap`].
    between: u64,
    between_least: u64,
}

#[derive(Default)]
pub struct Turns {
    spots: HashMap<SpotKey, Spot>,
    /// By the instruction that leads to the call of a function of the program: the frame of that instruction, and the
    /// result awaited in the function. While the library runs its own code, the function has no frame, but its next
    /// frame will be at the same address.
    callbacks: HashMap<SpotKey, (u64, Wanted)>,
}

impl Turns {
    /// Where to wait for results: in a function of the program that a library calls, else in the program's frame that
    /// calls Python code of a library of arrays. `None` if the sample is in neither, or enough turns were timed.
    pub fn wanted(&mut self, place: &Place, frames: &[At]) -> Option<Wanted> {
        self.of_callback(place, frames).or_else(|| self.of_call(place, frames))
    }

    /// The innermost line of the program calls the library.
    fn of_call(&mut self, place: &Place, frames: &[At]) -> Option<Wanted> {
        let own = frames.iter().position(At::is_own)?;
        let callee = &frames[own.checked_sub(1)?].function;
        let is_meant = callee.package.as_deref().is_some_and(package::is_of_arrays);
        let callee = Callee { name: Arc::clone(&callee.name), is_callback: false };
        is_meant.then(|| self.place_of(place, &frames[own], callee)).flatten()
    }

    /// Handles callbacks: a library calls a function of the program, from Python or from native code.
    fn of_callback(&mut self, place: &Place, frames: &[At]) -> Option<Wanted> {
        let applies = |at: &At| at.function.package.as_deref().is_some_and(package::applies_functions);
        let is_callback = |pair: &[At]| pair[0].is_own() && (pair[0].is_applied || applies(&pair[1]));
        let Some(inner) = frames.windows(2).position(is_callback) else {
            let caller = frames.first()?;
            let (_, wanted) = self.callbacks.get(&caller.key).filter(|(frame, _)| *frame == caller.frame)?;
            return self.spots.get(&wanted.key).is_some_and(Spot::is_open).then(|| wanted.clone());
        };
        let (own, caller) = (&frames[inner], &frames[inner + 1]);
        let callee = Callee { name: Arc::clone(&own.function.name), is_callback: true };
        let wanted = self.place_of(place, own, callee)?;
        if self.callbacks.len() < SPOTS_MAX || self.callbacks.contains_key(&caller.key) {
            self.callbacks.insert(caller.key, (caller.frame, wanted.clone()));
        }
        Some(wanted)
    }

    fn place_of(&mut self, place: &Place, own: &At, callee: Callee) -> Option<Wanted> {
        let key = own.key;
        if self.spots.len() >= SPOTS_MAX && !self.spots.contains_key(&key) {
            return None;
        }
        let spot =
            self.spots.entry(key).or_insert_with(|| Spot { result: result(place, key), tried: 0, turns: Vec::new() });
        let result = spot.result.filter(|_| spot.is_open())?;
        if callee.is_callback && !result.is_straight {
            return None;
        }
        let Value { pointer, start } = result.value;
        let base = match pointer {
            Some(pointer) => place.memory().read_u64(own.frame.checked_add(pointer.into())?).ok()?,
            None => own.frame,
        };
        let address = base.checked_add(start.into()).filter(|address| address.is_multiple_of(8))?;
        let instruction = own.instruction.unwrap_or(result.instruction);
        Some(Wanted { key, address, instruction, callee })
    }

    /// Counts a watchpoint that is set.
    pub fn tried(&mut self, key: SpotKey) {
        if let Some(spot) = self.spots.get_mut(&key) {
            spot.tried += 1;
        }
    }

    /// Adds the median turn that one watchpoint has seen. Returns the median over all watchpoints at the instruction.
    pub fn timed(&mut self, key: SpotKey, turn: u64) -> u64 {
        let Some(Spot { turns, .. }) = self.spots.get_mut(&key) else { return turn };
        turns.insert(turns.partition_point(|of| *of < turn), turn);
        median(turns).unwrap_or(turn)
    }

    pub fn forget(&mut self, pid: u32) {
        self.spots.retain(|key, _| key.pid != pid);
        self.callbacks.retain(|key, _| key.pid != pid);
    }
}

fn result(place: &Place, key: SpotKey) -> Option<ResultAt> {
    let offset = Frame { address: key.code, detail: key.detail }.offset()?;
    let interpreter = place.interpreter();
    let offset = u32::try_from(offset).ok()?;
    operands::locate_result(place.memory(), interpreter.version, &interpreter.layout, key.code, offset)
}

impl Timed {
    pub fn new(wanted: &Wanted) -> Self {
        Self { key: wanted.key, callee: wanted.callee.clone(), bytes: None, results: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// Takes a result.
    pub fn add(&mut self, trap: &Trap) {
        let Trap { number, between, between_least, .. } = *trap;
        self.results.push(Result { number, between, between_least });
    }

    /// The number of turns, and how long their median is, in nanoseconds without the traps. Other threads may have run during
    /// a turn, but hardly during most of them.
    ///
    /// `trap_cost` was measured when pyobs started. The actual cost varies with time and processor, and the measured
    /// one may exceed a turn. So if there are several traps in a turn, the minimum that this watchpoint has seen is
    /// used, up to `COST_MAX` times `trap_cost`.
    pub fn turns(&self, trap_cost: u64) -> Option<(u32, u64)> {
        let (first, last) = (self.results.first()?, self.results.last()?);
        let traps = |from: &Result, to: &Result| u64::from(to.number.saturating_sub(from.number));
        let several = traps(first, last) >= 2 * (self.results.len() as u64 - 1);
        let cost = if several { last.between_least.min(COST_MAX * trap_cost) } else { trap_cost };
        let turn = |pair: &[Result]| {
            let took = pair[1].between.saturating_sub(pair[0].between);
            took.saturating_sub(traps(&pair[0], &pair[1]).saturating_mul(cost))
        };
        let mut turns: Vec<u64> = self.results.windows(2).map(turn).collect();
        turns.sort_unstable();
        Some((turns.len() as u32, median(&turns)?))
    }

    /// The trap whose stack was taken.
    pub fn stack(&self) -> Option<u32> {
        self.results.first().map(|first| first.number)
    }
}

/// Of numbers in order of size. Of two in the middle, the smaller one: whatever comes between makes a turn longer.
fn median(sorted: &[u64]) -> Option<u64> {
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use pyobs_abi::record::Header;

    use super::*;

    #[test]
    fn the_time_of_turns_does_not_count_the_traps_between_them() {
        let key = SpotKey { pid: 7, padding: 0, code: 0x1000, detail: 2 };
        let callee = Callee { name: Arc::from("iterrows"), is_callback: false };
        let new = || Timed::new(&Wanted { key, address: 8, instruction: 1, callee: callee.clone() });
        let trapped = |timed: &mut Timed, between, number| {
            let (header, between_least) = (Header::default(), 1200);
            timed.add(&Trap {
                object: 0,
                header,
                id: 1,
                ip: 0,
                value: 0,
                class: 0,
                call: 0,
                between,
                between_least,
                number,
                stack: 2,
                last: 0,
                read: 1,
            });
            timed.turns(1000)
        };
        let mut timed = new();
        assert_eq!(trapped(&mut timed, 50_000, 2), None, "one result ends no turn");
        assert_eq!(trapped(&mut timed, 80_000, 5), Some((1, 26_400)));
        assert_eq!(trapped(&mut timed, 5_080_000, 8), Some((2, 26_400)), "another thread ran");
        assert_eq!(trapped(&mut timed, 5_112_000, 11), Some((3, 28_400)));
        assert_eq!((timed.turns(100), timed.stack()), (Some((3, 31_100)), Some(2)), "that is not the cost of a trap");
        let mut timed = new();
        trapped(&mut timed, 0, 1);
        assert_eq!(trapped(&mut timed, 30_000, 2), Some((1, 29_000)), "the least time between traps is a turn");
    }
}

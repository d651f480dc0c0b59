//! The contract of a probe family.
//!
//! A family answers one question: where CPU time goes, who holds the GIL, which transfers are slow. What it takes from the
//! kernel is its [`FamilySpec`]; what becomes of its records is its [`Collector`]. `registry.rs` lists the families, and
//! the session (`session.rs`) drives them without knowing any. Four lifetimes matter:
//!
//! - **Session.** [`FamilySpec::start`] loads and attaches what the family needs and makes its collector. Running processes are
//!   known by then, and the samplers are not attached yet. If it fails, the family is left out and the others run.
//!   [`Collector::begin`] says when the recording begins: everything is attached, and times count from there. Then come
//!   turns of the loop, 4 to 200 ms apart: first the records that the ring holds, in the order in which the kernel sent them,
//!   then [`Collector::advance`]. [`Collector::stop`] comes before the last records, and an `advance` with
//!   [`Context::at_the_end`] after them.
//! - **File.** [`Collector::mapped`] says that memory maps were read again. A family that puts probes on a library looks for it there,
//!   opens the file through the process that maps it, and puts its probes once for each [`crate::files::FileId`].
//! - **Process.** A [`ProcessRef`] names one program in one process, and never means another one. A process is known, with its
//!   interpreter if it has one, before records of it are handed on. [`Collector::forked`] comes when the child is known;
//!   [`Collector::ended`] comes while the process that ends, or becomes another program, is still known.
//! - **Thread.** Records name it by its tid, which the kernel uses again. What is kept of a thread goes with its process.
//!
//! A record with a stack takes two steps, as native frames get their names beside the loop: [`Collector::wants`] says
//! whether the stack is of any use and under which number, and [`Collector::named`] brings the stack under that number, often
//! in the same turn, seconds later if debug information has to be read first.
//!
//! A watched process must not be able to fill pyobs's memory. A collector that keeps something for each thread, address or
//! file has to bound it, evict the oldest, and count what that loses.

use pyobs_abi::stack;
use pyobs_model::{Event, Family, Meta, Nanos, Outcome, ProcessRef, Reason, Sample, StackId};
use std::time::Duration;

use crate::budget::{Arbiter, Spender};
use crate::intern::Interner;
use crate::kernel::btf::Offsets;
use crate::kernel::object::Object;
use crate::kernel::program::ProgramSpec;
use crate::processes::Processes;
use crate::record::{Plain, Stack};
use crate::session::error::StartError;
use crate::session::options::Options;

/// A family as the rest of pyobs has to know it.
pub struct FamilySpec {
    pub family: Family,
    /// What it shows, in a few words.
    pub shows: &'static str,
    /// Whether it is on unless it is turned off. The others cost too much for that.
    pub is_on_by_default: bool,
    /// Whether it puts probes on functions, which takes CAP_SYS_ADMIN.
    pub puts_probes: bool,
    /// Kinds of its records (`pyobs_abi::record`): those with a stack, and those without.
    pub stacks: &'static [u32],
    pub records: &'static [u32],
    /// Its programs, less those that another family lists, which says of each who needs it.
    pub programs: &'static [ProgramSpec],
    pub maps: &'static [MapSize],
    /// Offsets in the kernel's structures that its programs need.
    pub offsets: Option<Offsets>,
    /// The system calls that it looks at, by the names of their tracepoints: their beginnings, and their ends.
    pub system_calls: [&'static [&'static str]; 2],
    /// Its bit in the kernel side's word of families that are on; 0 where its programs are only attached while it is.
    pub control_bit: u64,
    /// The families that cannot be without its collector.
    pub serves: &'static [Family],
    pub start: fn(&mut Start<'_>) -> Result<Box<dyn Collector>, StartError>,
}

/// A map that takes no memory while its family is off.
pub struct MapSize {
    pub name: &'static str,
    /// Entries while the family is on, or bytes of a ring; `None` for what the object's file has.
    pub on: Option<u32>,
    /// The least that the kernel takes.
    pub off: u32,
}

impl MapSize {
    pub const fn new(name: &'static str) -> Self {
        Self { name, on: None, off: 1 }
    }
}

impl FamilySpec {
    /// A family with nothing in it.
    pub const fn new(family: Family, shows: &'static str) -> Self {
        Self {
            family,
            shows,
            is_on_by_default: false,
            puts_probes: false,
            stacks: &[],
            records: &[],
            programs: &[],
            maps: &[],
            offsets: None,
            system_calls: [&[], &[]],
            control_bit: 0,
            serves: &[],
            start: |_| Ok(Box::new(Nothing)),
        }
    }
}

/// The collector of a family that another one's serves.
struct Nothing;

impl Collector for Nothing {}

/// What a family starts with.
pub struct Start<'a> {
    pub options: &'a Options,
    pub object: &'a mut Object,
    pub processes: &'a Processes,
    pub interner: &'a mut Interner,
    pub meta: &'a mut Meta,
    /// What counts as the recording's beginning until it begins, on `CLOCK_MONOTONIC`.
    pub start: Nanos,
    pub events: &'a mut Vec<Event>,
    /// Sentences for the user.
    pub notes: &'a mut Vec<String>,
}

/// What a collector works with.
pub struct Context<'a> {
    /// Since the recording began.
    pub now: Nanos,
    /// When the recording began, on `CLOCK_MONOTONIC`.
    pub start: Nanos,
    /// Nothing more comes.
    pub at_the_end: bool,
    /// The CPUs' samplers keep one sample in this many.
    pub keep_every: u64,
    pub object: &'a mut Object,
    pub processes: &'a mut Processes,
    pub interner: &'a mut Interner,
    /// Samples of the CPUs that were named since the last [`Collector::advance`].
    pub samples: &'a mut Vec<Sample>,
    pub events: &'a mut Vec<Event>,
    /// Sentences for the user.
    pub notes: &'a mut Vec<String>,
}

impl Context<'_> {
    /// A time of the kernel's clock in the recording.
    pub fn at(&self, time: u64) -> Nanos {
        Nanos(time).saturating_sub(self.start)
    }

    /// A stack has no number, as there are too many: counts what it would have been.
    pub fn lose_stack(&mut self, at: Nanos) {
        self.events.push(Event::Loss { at, reason: Reason::TableFull, count: 1 });
    }
}

/// A stack whose frames have names.
#[derive(Clone, Copy, Debug)]
pub struct NamedStack {
    /// `None` when there was no number left.
    pub id: Option<StackId>,
    /// How much of it was walked.
    pub outcome: Outcome,
}

/// What a family has cost since it started.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    pub on: Spender,
    /// Run time of its programs.
    pub programs: Duration,
    /// What the processor and the kernel did to get to them, where that is much.
    pub traps: Nanos,
}

/// What follows one family during a session. See the module's documentation for when each method is called.
pub trait Collector {
    /// The recording begins at this time of `CLOCK_MONOTONIC`.
    fn begin(&mut self, _start: Nanos) {}

    /// A record without a stack. `None` if it is not what its kind says.
    fn record(&mut self, _record: &Plain, _context: &mut Context<'_>) -> Option<()> {
        None
    }

    /// A record with a stack. Returns the number under which [`Self::named`] brings the stack; `None` if it is of no use.
    fn wants(&mut self, _stack: &Stack, _process: ProcessRef, _context: &mut Context<'_>) -> Option<u64> {
        None
    }

    /// The stack that is wanted under this number has its names.
    fn named(&mut self, _number: u64, _stack: NamedStack, _context: &mut Context<'_>) {}

    /// The CPUs' samplers have taken a sample of any family's.
    fn sampled(&mut self, _sample: &stack::Sample, _process: ProcessRef) {}

    /// A process has forked, and the child is known.
    fn forked(&mut self, _parent: u32, _child: (u32, ProcessRef), _at: Nanos, _context: &mut Context<'_>) {}

    /// A process ends, or becomes another program.
    fn ended(&mut self, _pid: u32, _at: Nanos, _context: &mut Context<'_>) {}

    /// Some processes' memory maps were read again.
    fn mapped(&mut self, _context: &mut Context<'_>) {}

    /// A turn of the loop.
    fn advance(&mut self, _context: &mut Context<'_>) {}

    /// How soon it wants the next turn.
    fn next_due(&self) -> Option<Duration> {
        None
    }

    /// Adds what the family has cost.
    fn costs(&mut self, _object: &Object, _costs: &mut Vec<Spent>) {}

    /// Keeps to what the arbiter allows the family from now on. Whether it does.
    fn keep(&mut self, _arbiter: &Arbiter, _context: &mut Context<'_>) -> bool {
        true
    }

    /// What calls may cost now, in percent of a core.
    fn allow(&mut self, _percent: f64) {}

    /// Whether it puts probes on what may come, which takes rights.
    fn goes_on_probing(&self) -> bool {
        false
    }

    /// What was asked for by its name and has not been found so far, in words.
    fn unfound(&self) -> Vec<String> {
        Vec::new()
    }

    /// Takes away what disturbs: the recording is over, and what it has seen is still to be told.
    fn stop(&mut self) {}
}

/// What stacks are for, by the numbers under which they are wanted.
#[derive(Debug)]
pub struct Waiting<T> {
    places: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Waiting<T> {
    pub fn add(&mut self, what: T) -> u64 {
        match self.free.pop() {
            Some(place) => {
                self.places[place] = Some(what);
                place as u64
            }
            None => {
                self.places.push(Some(what));
                self.places.len() as u64 - 1
            }
        }
    }

    pub fn take(&mut self, number: u64) -> Option<T> {
        let place = usize::try_from(number).ok()?;
        let what = self.places.get_mut(place)?.take()?;
        self.free.push(place);
        Some(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_and_never_at_the_same_time() {
        let mut waiting = Waiting::default();
        let [first, second] = ["a", "b"].map(|what| waiting.add(what));
        assert_eq!(waiting.take(first), Some("a"));
        assert_eq!(waiting.take(first), None);
        assert_eq!(waiting.add("c"), first);
        assert_eq!((waiting.take(second), waiting.take(first)), (Some("b"), Some("c")));
        assert_eq!(waiting.take(7), None);
    }
}

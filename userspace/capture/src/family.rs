//! The contract of a probe family.
//!
//! A family answers one question: where CPU time goes, who holds the GIL, which transfers are slow. Its
//! [`FamilySpec`] says what it takes from the kernel, and its [`Collector`] turns its records into events.
//! `registry.rs` lists the families, and the session (`session.rs`) drives them without knowing any. Four
//! lifetimes matter:
//!
//! - **Session.** [`FamilySpec::start`] loads and attaches what the family needs and creates its collector.
//!   At that point running processes are known, and the samplers are not attached yet. If it fails, the
//!   family is left out and the others run. [`Collector::begin`] marks the beginning of the recording:
//!   everything is attached, and times are relative to it. Then come turns of the loop, 1 to 400 ms apart:
//!   first the records in the ring buffer, in the order in which the kernel sent them, then
//!   [`Collector::advance`]. [`Collector::stop`] comes before the last records, and an `advance` with
//!   [`Context::at_the_end`] after them.
//! - **File.** [`Collector::mapped`] announces that memory maps were read again. A family that probes a
//!   library looks for it there, opens the file through a process that maps it, and attaches its probes once
//!   per [`FileId`]. [`Collector::rewritten`] announces that a file is another one under the same id.
//! - **Process.** A [`ProcessRef`] identifies one program in one process and is never reused. A process is
//!   known, with its interpreter if it has one, before its records are passed on. [`Collector::forked`] comes
//!   when the child is known; [`Collector::ended`] comes while the process that ends or execs is still known.
//! - **Thread.** Records identify it by its tid, which the kernel reuses. A collector drops a thread's state
//!   with its process.
//!
//! A record with a stack takes two steps, because native frames are named outside the loop.
//! [`Collector::wants`] says whether the stack is wanted and under which number. [`Collector::named`]
//! delivers the stack under that number, often in the same turn, but seconds later if debug information has
//! to be read first.
//!
//! A watched process must not be able to fill pyobs's memory. A collector that keeps something for each
//! thread, address or file must bound it, evict the oldest entries, and count what that loses.

use pyobs_abi::stack;
use pyobs_model::{Event, Family, Meta, Nanos, Outcome, ProcessRef, Reason, Sample, StackId, TaskId};
use std::time::Duration;

use crate::budget::{Arbiter, Spender};
use crate::files::FileId;
use crate::intern::Interner;
use crate::kernel::btf::Offsets;
use crate::kernel::object::Object;
use crate::kernel::program::ProgramSpec;
use crate::machine;
use crate::pipeline::decode::{Plain, Stack};
use crate::pipeline::processes::Processes;
use crate::session::error::StartError;
use crate::session::options::Options;

/// A family as the rest of pyobs sees it.
pub struct FamilySpec {
    pub family: Family,
    /// What it shows, in a few words.
    pub shows: &'static str,
    /// Whether it is on by default. The other families are too expensive for that.
    pub is_on_by_default: bool,
    /// Whether it attaches probes to functions, which takes CAP_SYS_ADMIN.
    pub puts_probes: bool,
    /// Kinds of its records (`pyobs_abi::record`): those with a stack, and those without.
    pub stacks: &'static [u32],
    pub records: &'static [u32],
    /// Its programs, except those in another family's list. Each program names the families that need it.
    pub programs: &'static [ProgramSpec],
    pub maps: &'static [MapSize],
    /// Offsets in kernel structures that its programs need.
    pub offsets: Option<Offsets>,
    /// The system calls that it watches, by the names of their tracepoints: entries, then exits.
    pub system_calls: [&'static [&'static str]; 2],
    /// What it learns without them.
    pub at_mappings: AtMappings,
    /// Its bit in the kernel side's word of enabled families; 0 if its programs are attached only while it is
    /// on.
    pub control_bit: u64,
    /// The families that depend on its collector.
    pub serves: &'static [Family],
    pub start: fn(&mut Start<'_>) -> Result<Box<dyn Collector>, StartError>,
}

/// What the programs at the kernel's tracepoints of mappings show of a family, without programs at system
/// calls. Those make every system call of the machine slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtMappings {
    Nothing,
    /// That it has something to watch from now on. Its collector then calls
    /// [`Object::attach_later_calls`].
    FirstSign,
    All,
}

/// A map that takes no memory while its family is off.
pub struct MapSize {
    pub name: &'static str,
    /// Entries while the family is on, or bytes of a ring buffer; `None` for the size in the object file.
    pub on: Option<u32>,
    /// The smallest size that the kernel accepts.
    pub off: u32,
}

impl MapSize {
    pub const fn new(name: &'static str) -> Self {
        Self { name, on: None, off: 1 }
    }
}

impl FamilySpec {
    /// An empty specification to start from.
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
            at_mappings: AtMappings::Nothing,
            control_bit: 0,
            serves: &[],
            start: |_| Ok(Box::new(Nothing)),
        }
    }
}

/// The collector of a family that another family's collector serves.
struct Nothing;

impl Collector for Nothing {}

/// What a family starts with.
pub struct Start<'a> {
    pub options: &'a Options,
    pub object: &'a mut Object,
    pub processes: &'a Processes,
    pub interner: &'a mut Interner,
    pub meta: &'a mut Meta,
    /// The provisional start of the recording, on `CLOCK_MONOTONIC`.
    pub start: Nanos,
    pub events: &'a mut Vec<Event>,
    /// Sentences for the user.
    pub notes: &'a mut Vec<String>,
}

impl<'a> Start<'a> {
    pub fn new(options: &'a Options, context: &'a mut Context, meta: &'a mut Meta) -> Self {
        let Context { start, object, processes, interner, events, notes, .. } = context;
        Self { options, object, processes, interner, meta, start: *start, events, notes }
    }
}

/// What the pipeline and the collectors work with.
pub struct Context {
    /// On `CLOCK_MONOTONIC`. The end is unknown until the samplers are detached.
    pub start: Nanos,
    pub end: Option<Nanos>,
    /// No more records will come.
    pub at_the_end: bool,
    /// The CPU samplers keep one sample in this many.
    pub keep_every: u64,
    pub object: Object,
    pub processes: Processes,
    pub interner: Interner,
    /// CPU samples named since the last [`Collector::advance`].
    pub samples: Vec<Sample>,
    pub events: Vec<Event>,
    /// Sentences for the user.
    pub notes: Vec<String>,
}

impl Context {
    pub fn new(object: Object, processes: Processes, start: Nanos) -> Self {
        Self {
            start,
            end: None,
            at_the_end: false,
            keep_every: 1,
            object,
            processes,
            interner: Interner::default(),
            samples: Vec::new(),
            events: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Time since the recording began, at most its length.
    pub fn now(&self) -> Nanos {
        self.end.unwrap_or_else(machine::monotonic).saturating_sub(self.start)
    }

    /// Converts a time on the kernel's clock to one in the recording.
    pub fn at(&self, time: u64) -> Nanos {
        Nanos(time).saturating_sub(self.start)
    }

    /// Counts a stack that got no number because the table is full.
    pub fn lose_stack(&mut self, at: Nanos) {
        self.events.push(Event::Loss { at, reason: Reason::TableFull, count: 1 });
    }
}

/// A stack whose frames are all named.
#[derive(Clone, Copy, Debug)]
pub struct NamedStack {
    /// `None` if no stack number was left.
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
    /// What the processor and the kernel spent to reach the programs, if that is significant.
    pub traps: Nanos,
}

/// Turns one family's records into events during a session. The module documentation says when each method is
/// called.
pub trait Collector {
    /// The recording begins at this time on `CLOCK_MONOTONIC`.
    fn begin(&mut self, _start: Nanos) {}

    /// Handles a record without a stack. `None` if its contents do not match its kind.
    fn record(&mut self, _record: &Plain, _context: &mut Context) -> Option<()> {
        None
    }

    /// Handles a record with a stack. Returns the number under which [`Self::named`] delivers the stack;
    /// `None` if it is not wanted.
    fn wants(&mut self, _stack: &Stack, _process: ProcessRef, _context: &mut Context) -> Option<u64> {
        None
    }

    /// Delivers the stack wanted under this number, with all frames named.
    fn named(&mut self, _number: u64, _stack: NamedStack, _context: &mut Context) {}

    /// Returns the task that ran where a stack was taken. Only for the family `tasks`; the stack may be any family's.
    fn task_of(&mut self, _stack: &Stack, _context: &mut Context) -> Option<TaskId> {
        None
    }

    /// Announces a CPU sample, for whichever family it was taken.
    fn sampled(&mut self, _sample: &stack::Sample, _process: ProcessRef) {}

    /// Announces that a process has forked; the child is already known.
    fn forked(&mut self, _parent: u32, _child: (u32, ProcessRef), _at: Nanos, _context: &mut Context) {}

    /// Announces that a process ends or becomes another program.
    fn ended(&mut self, _pid: u32, _at: Nanos, _context: &mut Context) {}

    /// Announces that a file was written to, which has removed all probes on it. Processes that map it later
    /// run other code.
    fn rewritten(&mut self, _file: FileId) {}

    /// Announces that some processes' memory maps were read again.
    fn mapped(&mut self, _context: &mut Context) {}

    /// Runs one turn of the loop.
    fn advance(&mut self, _context: &mut Context) {}

    /// How soon it needs the next turn; `None` if the usual interval of at most 400 ms is short enough.
    fn next_due(&self) -> Option<Duration> {
        None
    }

    /// Adds what the family has cost.
    fn costs(&mut self, _object: &Object, _costs: &mut Vec<Spent>) {}

    /// Keeps to the arbiter's limits from now on. Returns whether it does.
    fn keep(&mut self, _arbiter: &Arbiter, _context: &mut Context) -> bool {
        true
    }

    /// Sets what calls may cost now, in percent of a core.
    fn allow(&mut self, _percent: f64) {}

    /// Whether it attaches probes to processes that start later, which takes privileges.
    fn goes_on_probing(&self) -> bool {
        false
    }

    /// What the user named and no process has had so far, in words.
    fn unfound(&self) -> Vec<String> {
        Vec::new()
    }

    /// Detaches what slows processes down: the recording is over, but the rest of its data is still to be
    /// emitted.
    fn stop(&mut self) {}
}

/// What stacks are wanted for, by number.
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

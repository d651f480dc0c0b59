//! The family `eval`: calls of Python functions, counted and timed in the kernel.
//!
//! Probes sit in the interpreter's code where functions begin and end (`cpython/entries.rs`). The kernel side counts by
//! code object; here the code objects get names, functions that nobody asked for are told off, and once a second what
//! has been counted since becomes events. [`windows`] says when probes are there at all.

pub mod chosen;
mod collector;
mod programs;
mod watching;
mod windows;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use aya::maps::{Array, HashMap as KernelMap, MapData, Queue};
use pyobs_abi::eval::{self, Function, state, verdict};
use pyobs_model::{Calls, Event, Family, Frame, FrameId, FrameKind, Nanos, ProcessRef, Reason};

pub use chosen::Chosen;

use crate::cpython::names::{self, LongTables};
use crate::family::{FamilySpec, MapSize};
use crate::files::FileId;
use crate::intern::Interner;
use crate::kernel::uprobes::close_later;
use crate::machine;
use crate::memory::ProcessMemory;
use crate::processes::Running;
use chosen::Candidate;
use watching::{Programs, Watching};
use windows::{Phase, Turn, Windows};

pub const SPEC: FamilySpec = FamilySpec {
    puts_probes: true,
    programs: &programs::PROGRAMS,
    start: collector::start,
    maps: &[MapSize::new("EVAL_CALLS"), MapSize::new("EVAL_NEW"), MapSize::new("EVAL_OPEN")],
    ..FamilySpec::new(Family::Eval, "calls of Python functions")
};

const UNREADABLE: &str = "<unreadable>";
const DRAIN_PERIOD: Nanos = Nanos(1_000_000_000);
/// Functions, of those nobody asked for, that the kernel side remembers so; then it is to ask again.
const IGNORED_MAX: usize = 8192;
/// When it is said that a function that was asked for has not been called.
const PATIENCE: Nanos = Nanos(5_000_000_000);
/// What a program costs besides its trap, in nanoseconds, before the kernel has counted.
const PROGRAM_COST: u32 = 700;
/// While a window is open it is looked at this often, at the least and the most.
const CHECK_EVERY: std::ops::RangeInclusive<u64> = 5_000_000..=50_000_000;

/// What the user asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only these functions; all when there is none.
    pub functions: Vec<Chosen>,
    /// The share of one core that calls may cost, in percent, if there is a bound.
    pub budget: Option<f64>,
    /// Probes are put on the interpreters' files, for every process, instead of on each process.
    pub everybody: bool,
}

/// The maps of the kernel side.
pub struct Maps {
    pub calls: KernelMap<MapData, Function, eval::Calls>,
    pub new: Queue<MapData, Function>,
    pub state: Array<MapData, u64>,
}

/// What is known of a function that the kernel side counts.
struct Known {
    frame: FrameId,
    process: ProcessRef,
    reported: eval::Calls,
}

pub struct Eval {
    watching: Watching,
    maps: Maps,
    windows: Windows,
    chosen: Vec<Chosen>,
    /// Those of `chosen` that no call has been seen of; asked once.
    missing: Option<Vec<Chosen>>,
    known: HashMap<Function, Known>,
    ignored: Vec<Function>,
    /// When the capture began.
    start: Nanos,
    drained: Nanos,
    losses: [u64; state::COUNT as usize],
    /// What a run of a program has cost so far, in nanoseconds.
    program_cost: u32,
    /// What hits have cost in windows that are closed.
    spent: u64,
    /// What of the open window's limit was left when it was looked at last.
    left: u64,
}

/// What the kernel side's counters of losses mean.
const LOSSES: [(u32, Reason); 5] = [
    (state::THREAD_UNREADABLE, Reason::ThreadStateUnreadable),
    (state::FRAME_UNREADABLE, Reason::FrameUnreadable),
    (state::CODE_UNREADABLE, Reason::CodeUnreadable),
    (state::TABLE_FULL, Reason::TableFull),
    (state::RETURN_UNSEEN, Reason::CallUnseen),
];

/// Where what happens is told.
pub struct Out<'a> {
    pub interner: &'a mut Interner,
    pub events: &'a mut Vec<Event>,
    /// Sentences for the user.
    pub notes: &'a mut Vec<String>,
}

impl Eval {
    /// The recording begins at this time of the kernel's clock.
    pub fn starts_at(&mut self, start: Nanos) {
        self.start = start;
        self.drained = Nanos(0);
    }

    /// `start`: when the capture began, on `CLOCK_MONOTONIC`.
    pub fn new(options: Options, programs: Programs, maps: Maps, start: Nanos) -> io::Result<Self> {
        let now = machine::monotonic().saturating_sub(start);
        Ok(Self {
            watching: Watching::new(programs, options.everybody)?,
            maps,
            windows: Windows::new(options.budget, now),
            missing: (!options.functions.is_empty()).then(|| options.functions.clone()),
            chosen: options.functions,
            known: HashMap::new(),
            ignored: Vec::new(),
            start,
            drained: now,
            losses: [0; state::COUNT as usize],
            program_cost: PROGRAM_COST,
            spent: 0,
            left: 0,
        })
    }

    /// How soon [`Eval::tick`] wants to be called.
    fn next_check(&self) -> Option<Duration> {
        let open = self.windows.is_bound() && self.windows.phase() == Phase::Open;
        open.then(|| Duration::from_nanos(self.left.clamp(*CHECK_EVERY.start(), *CHECK_EVERY.end())))
    }

    /// Calls may cost so much of a core, in percent, where they are bound.
    fn allow_share(&mut self, percent: f64) {
        self.windows.allow(percent);
    }

    /// What the kernel side's programs cost on the average, by the kernel's statistics.
    pub fn set_program_cost(&mut self, run_time: Duration, runs: u64) {
        if let Some(cost) = run_time.as_nanos().checked_div(runs.into()) {
            self.program_cost = u32::try_from(cost).unwrap_or(PROGRAM_COST);
        }
    }

    /// Takes notice of processes that came and went, puts probes and takes them away, names what was called.
    pub fn tick<'a>(&mut self, running: impl Iterator<Item = Running<'a>> + Clone, out: &mut Out<'_>) {
        let now = self.now();
        self.learn(&running, out);
        self.follow(running, now, out);
        self.turn(now, out);
        if now.saturating_sub(self.drained) >= DRAIN_PERIOD {
            self.drain(now, |_| true, out);
            self.drained = now;
            self.report_losses(now, out);
            self.report_missing(now, out);
            self.report_coverage(now, false, out);
        }
    }

    /// Takes what is left and all probes away.
    pub fn finish<'a>(&mut self, running: &(impl Iterator<Item = Running<'a>> + Clone), out: &mut Out<'_>) {
        let now = self.now();
        self.set(state::LIMIT, 0);
        self.learn(running, out);
        self.drain(now, |_| true, out);
        self.report_losses(now, out);
        self.report_coverage(now, true, out);
        close_later(self.watching.detach());
    }

    fn now(&self) -> Nanos {
        machine::monotonic().saturating_sub(self.start)
    }

    /// Processes that came and went since the last time.
    fn follow<'a>(&mut self, running: impl Iterator<Item = Running<'a>>, now: Nanos, out: &mut Out<'_>) {
        let mut gone = self.watching.pids();
        let mut is_new = false;
        for process in running {
            match self.watching.subject(process.pid).map(|subject| subject.id == process.id) {
                Some(true) => gone.retain(|pid| *pid != process.pid),
                Some(false) | None => {
                    if gone.contains(&process.pid) {
                        gone.retain(|pid| *pid != process.pid);
                        self.end(process.pid, now, out);
                    }
                    let file: FileId = process.python.file;
                    out.notes.extend(self.watching.add(process.pid, process.id, &process.python.version, file));
                    is_new = true;
                }
            }
        }
        for pid in gone {
            self.end(pid, now, out);
        }
        if is_new && self.windows.phase() == Phase::Open {
            out.notes.extend(self.watching.attach(self.program_cost));
        }
    }

    /// A process is no more: what it called is told, and forgotten.
    fn end(&mut self, pid: u32, now: Nanos, out: &mut Out<'_>) {
        self.drain(now, |function| function.pid == pid, out);
        let ended: Vec<Function> = self.known.keys().filter(|function| function.pid == pid).copied().collect();
        let ignored = self.ignored.extract_if(.., |function| function.pid == pid);
        for function in ended.into_iter().chain(ignored) {
            self.known.remove(&function);
            // It is not there when the kernel side was told to forget it.
            let _ = self.maps.calls.remove(&function);
        }
        close_later(self.watching.remove(pid));
    }

    /// Opens, extends and closes windows.
    fn turn(&mut self, now: Nanos, out: &mut Out<'_>) {
        let spent = self.state(state::SPENT);
        match self.windows.turn(now, spent) {
            Turn::Nothing => {}
            // Nobody is there to be watched.
            Turn::Open(_) if self.watching.pids().is_empty() => {}
            Turn::Open(limit) => {
                out.notes.extend(self.watching.attach(self.program_cost));
                let window = self.state(state::WINDOW).wrapping_add(1);
                self.spent = self.spent.saturating_add(self.state(state::SPENT));
                for (index, value) in
                    [(state::WINDOW, window), (state::SPENT, 0), (state::CLOSED, 0), (state::LIMIT, limit)]
                {
                    self.set(index, value);
                }
                // From now on; putting the probes took a while.
                self.windows.opened(self.now());
                self.left = limit;
            }
            Turn::Extend(limit) => {
                self.set(state::LIMIT, limit);
                self.left = limit.saturating_sub(spent);
            }
            Turn::Close => {
                self.close(now);
                self.drain(now, |_| true, out);
            }
        }
    }

    fn close(&mut self, now: Nanos) {
        self.set(state::LIMIT, 0);
        let ended = match self.state(state::CLOSED) {
            0 => now,
            time => Nanos(time).saturating_sub(self.start),
        };
        let spent = self.state(state::SPENT);
        self.set(state::SPENT, 0);
        self.spent = self.spent.saturating_add(spent);
        self.windows.closed(now, ended, spent);
        close_later(self.watching.detach());
    }

    /// Names the functions that the kernel side has begun to count.
    fn learn<'a>(&mut self, running: &(impl Iterator<Item = Running<'a>> + Clone), out: &mut Out<'_>) {
        while let Ok(function) = self.maps.new.pop(0) {
            match running.clone().find(|process| process.pid == function.pid) {
                Some(process) => self.name(function, &process, out),
                None => {
                    out.events.push(Event::Loss { at: self.now(), reason: Reason::ProcessGone, count: 1 });
                    let _ = self.maps.calls.remove(&function);
                }
            }
        }
        if self.ignored.len() > IGNORED_MAX {
            for function in self.ignored.drain(..) {
                let _ = self.maps.calls.remove(&function);
            }
        }
    }

    fn name(&mut self, function: Function, process: &Running<'_>, out: &mut Out<'_>) {
        let python = process.python;
        let memory = ProcessMemory::new(function.pid);
        let (layout, no_lines) = (&python.layout, LongTables::LeaveOut);
        let code = names::read_code(&memory, function.code, function.check, layout, python.code_type, no_lines);
        let frame = match code {
            Ok(code) if !self.is_wanted(&code, process) => {
                let ignored = eval::Calls { verdict: verdict::IGNORED, ..eval::Calls::default() };
                if self.maps.calls.insert(function, ignored, 0).is_ok() {
                    self.ignored.push(function);
                }
                return;
            }
            Ok(code) => Frame {
                kind: FrameKind::Python,
                function: code.function,
                module: None,
                file: Some(code.file),
                line: Some(code.first_line),
                first_line: Some(code.first_line),
            },
            Err(reason) => {
                out.events.push(Event::Loss { at: self.now(), reason, count: 1 });
                // Whether it was asked for, nobody knows.
                if !self.chosen.is_empty() {
                    return;
                }
                nameless()
            }
        };
        match out.interner.frame(frame, out.events) {
            Some(frame) => {
                let known = Known { frame, process: process.id, reported: eval::Calls::default() };
                self.known.insert(function, known);
            }
            None => out.events.push(Event::Loss { at: self.now(), reason: Reason::TableFull, count: 1 }),
        }
    }

    fn is_wanted(&mut self, code: &names::CodeObject, process: &Running<'_>) -> bool {
        if self.chosen.is_empty() {
            return true;
        }
        let command = self.watching.subject(process.pid).map_or(&[][..], |subject| &subject.command);
        let qualified = process.python.layout.code.qualname.is_some();
        let candidate = Candidate { function: &code.function, file: &code.file, qualified, command };
        if let Some(missing) = &mut self.missing {
            missing.retain(|chosen| !chosen.matches(&candidate));
        }
        self.chosen.iter().any(|chosen| chosen.matches(&candidate))
    }

    /// Tells what has been counted since it was told last.
    fn drain(&mut self, now: Nanos, which: impl Fn(&Function) -> bool, out: &mut Out<'_>) {
        for (function, known) in self.known.iter_mut().filter(|(function, _)| which(function)) {
            let Ok(calls) = self.maps.calls.get(function, 0) else { continue };
            let reported = std::mem::replace(&mut known.reported, calls);
            if (calls.count, calls.timed) == (reported.count, reported.timed) {
                continue;
            }
            out.events.push(Event::Calls(Calls {
                at: now,
                process: known.process,
                function: known.frame,
                count: calls.count.saturating_sub(reported.count),
                timed: calls.timed.saturating_sub(reported.timed),
                total: Nanos(calls.total.saturating_sub(reported.total)),
                max: Nanos(calls.max),
            }));
        }
    }

    fn report_losses(&mut self, now: Nanos, out: &mut Out<'_>) {
        for (index, reason) in LOSSES {
            let count = self.state(index);
            let before = std::mem::replace(&mut self.losses[index as usize], count);
            if count > before {
                out.events.push(Event::Loss { at: now, reason, count: count - before });
            }
        }
    }

    fn report_coverage(&mut self, now: Nanos, at_the_end: bool, out: &mut Out<'_>) {
        let is_first = !self.windows.is_reported();
        if let Some(sentence) = self.windows.report(now, at_the_end) {
            if is_first {
                out.events.push(Event::measure(now, Family::Eval.name(), "windows", true));
            }
            out.events.push(Event::Shed { at: now, what: Arc::from(sentence) });
        }
    }

    fn report_missing(&mut self, now: Nanos, out: &mut Out<'_>) {
        if now < PATIENCE {
            return;
        }
        if let Some(missing) = self.missing.take().filter(|missing| !missing.is_empty()) {
            let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
            out.notes.push(format!("no call of {} has been seen yet", names.join(", ")));
        }
    }

    /// What hits have cost so far, by estimate: the traps and their programs' run time.
    pub fn cost(&self) -> Nanos {
        Nanos(self.spent.saturating_add(self.state(state::SPENT)))
    }

    /// The traps' part of it: what the kernel's statistics of programs do not have.
    pub fn trap_cost(&self) -> Nanos {
        let programs = self.state(state::HITS).saturating_mul(self.program_cost.into());
        Nanos(self.cost().0.saturating_sub(programs))
    }

    fn state(&self, index: u32) -> u64 {
        self.maps.state.get(&index, 0).unwrap_or(0)
    }

    fn set(&mut self, index: u32, value: u64) {
        // An element of an array is always there.
        let _ = self.maps.state.set(index, value, 0);
    }
}

fn nameless() -> Frame {
    let function = Arc::from(UNREADABLE);
    Frame { kind: FrameKind::Python, function, module: None, file: None, line: None, first_line: None }
}

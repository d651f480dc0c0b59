//! The family `eval`: calls of Python functions, counted and timed in the kernel.
//!
//! Probes sit in the interpreter's code where functions begin and end (`cpython/entries.rs`). The BPF
//! programs count per code object. User space names the code objects, tells the programs to ignore functions
//! the user did not choose, and once a second turns the new counts into events. [`windows`] decides when
//! probes are attached.

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
use crate::pipeline::processes::Running;
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
/// Entries for ignored functions in the kernel's map. Beyond this all are removed, and functions still being
/// called are named and matched again.
const IGNORED_MAX: usize = 8192;
/// How long to wait before warning that a chosen function has not been called.
const PATIENCE: Nanos = Nanos(5_000_000_000);
/// Assumed run time of a program, in nanoseconds, until the kernel's statistics have a measured one. The trap
/// is extra.
const PROGRAM_COST: u32 = 700;
/// How often called functions are named. One that is freed before that has no name.
const NAME_EVERY: Duration = Duration::from_millis(200);
/// Bounds, in nanoseconds, on how often an open window is checked.
const CHECK_EVERY: std::ops::RangeInclusive<u64> = 5_000_000..=50_000_000;

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only these functions; empty for all.
    pub functions: Vec<Chosen>,
    /// The share of one core that calls may cost, in percent; `None` for no limit.
    pub budget: Option<f64>,
    /// Attach to the interpreters' files, hence to every process, instead of to each process.
    pub everybody: bool,
}

/// The maps that the BPF programs fill.
pub struct Maps {
    pub calls: KernelMap<MapData, Function, eval::Calls>,
    pub new: Queue<MapData, Function>,
    pub state: Array<MapData, u64>,
}

/// A function that the BPF programs count.
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
    /// The `chosen` functions not yet seen in a call; `None` once the user has been warned.
    missing: Option<Vec<Chosen>>,
    known: HashMap<Function, Known>,
    ignored: Vec<Function>,
    /// When the capture began.
    start: Nanos,
    drained: Nanos,
    losses: [u64; state::COUNT as usize],
    /// Average cost of one program run, in nanoseconds.
    program_cost: u32,
    /// What hits cost in windows that are closed.
    spent: u64,
    /// What was left of the open window's limit at the last check.
    left: u64,
}

/// The reason behind each of the kernel's loss counters.
const LOSSES: [(u32, Reason); 5] = [
    (state::THREAD_UNREADABLE, Reason::ThreadStateUnreadable),
    (state::FRAME_UNREADABLE, Reason::FrameUnreadable),
    (state::CODE_UNREADABLE, Reason::CodeUnreadable),
    (state::TABLE_FULL, Reason::TableFull),
    (state::RETURN_UNSEEN, Reason::CallUnseen),
];

/// Where results go.
pub struct Out<'a> {
    pub interner: &'a mut Interner,
    pub events: &'a mut Vec<Event>,
    /// Sentences for the user.
    pub notes: &'a mut Vec<String>,
}

impl Eval {
    /// Sets the time on the kernel's clock at which the recording begins.
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

    /// When [`Eval::tick`] has to run next.
    fn next_check(&self) -> Option<Duration> {
        let open = self.windows.is_bound() && self.windows.phase() == Phase::Open;
        let due = Duration::from_nanos(self.left.clamp(*CHECK_EVERY.start(), *CHECK_EVERY.end()));
        Some(if open { due } else { NAME_EVERY })
    }

    /// Sets the share of a core that calls may cost, in percent; no effect without a budget.
    fn allow_share(&mut self, percent: f64) {
        self.windows.allow(percent);
    }

    /// Sets the average cost of a program run, from the kernel's statistics.
    pub fn set_program_cost(&mut self, run_time: Duration, runs: u64) {
        if let Some(cost) = run_time.as_nanos().checked_div(runs.into()) {
            self.program_cost = u32::try_from(cost).unwrap_or(PROGRAM_COST);
        }
    }

    /// Follows processes that started or ended, attaches and detaches probes, and names the functions called.
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

    /// Emits what is left and detaches all probes.
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

    /// Follows processes that started or ended since the last call.
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

    pub fn rewritten(&mut self, file: FileId) {
        self.watching.rewritten(file);
    }

    /// Emits and forgets the calls of a process that has ended.
    fn end(&mut self, pid: u32, now: Nanos, out: &mut Out<'_>) {
        self.drain(now, |function| function.pid == pid, out);
        let ended: Vec<Function> = self.known.keys().filter(|function| function.pid == pid).copied().collect();
        let ignored = self.ignored.extract_if(.., |function| function.pid == pid);
        for function in ended.into_iter().chain(ignored) {
            self.known.remove(&function);
            // Fails if the kernel side has already removed it.
            let _ = self.maps.calls.remove(&function);
        }
        close_later(self.watching.remove(pid));
    }

    /// Opens, extends and closes windows.
    fn turn(&mut self, now: Nanos, out: &mut Out<'_>) {
        let spent = self.state(state::SPENT);
        match self.windows.turn(now, spent) {
            Turn::Nothing => {}
            // No process to watch.
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
                // Time again: attaching the probes took a while.
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

    /// Names the functions that the BPF programs have begun to count.
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
            Ok(code) => {
                let line = Some(code.first_line);
                Frame::python(code.function, code.file, line, line)
            }
            Err(reason) => {
                out.events.push(Event::Loss { at: self.now(), reason, count: 1 });
                // Without a name, it is unknown whether the user chose this function.
                if !self.chosen.is_empty() {
                    return;
                }
                Frame::new(FrameKind::Python, Arc::from(UNREADABLE))
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

    /// Emits what has been counted since the last call.
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

    /// Estimated cost of all hits so far: traps and program run time.
    pub fn cost(&self) -> Nanos {
        Nanos(self.spent.saturating_add(self.state(state::SPENT)))
    }

    /// The traps' part of [`Eval::cost`], which the kernel's statistics of programs do not include.
    pub fn trap_cost(&self) -> Nanos {
        let programs = self.state(state::HITS).saturating_mul(self.program_cost.into());
        Nanos(self.cost().0.saturating_sub(programs))
    }

    fn state(&self, index: u32) -> u64 {
        self.maps.state.get(&index, 0).unwrap_or(0)
    }

    fn set(&mut self, index: u32, value: u64) {
        // Setting an existing element of an array map cannot fail.
        let _ = self.maps.state.set(index, value, 0);
    }
}

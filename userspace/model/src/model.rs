//! The state that events add up to.

mod cost;
mod history;
mod interpreters;
mod memory;
mod processes;
mod summed;
mod sums;

use crate::Family;
use std::collections::HashMap;
use std::sync::Arc;

pub use self::cost::{Shed, Usage};
use self::cost::{Sheds, Usages};
pub use self::history::{EVENTS_KEPT, EVENTS_SHOWN, History};
use self::interpreters::Interpreters;
pub use self::interpreters::is_interpreter_module;
use self::processes::Processes;
pub use self::processes::{ProcessState, ThreadState};
use self::sums::Sums;
use crate::ids::Pid;
use crate::loss::{Losses, Reason};
use crate::regions::{Region, RegionId, Regions, Space};
use crate::views;
use crate::{
    ArenaChange, Event, Frame, FrameId, FrameKind, HeapChange, MemInfoChange, Meta, Nanos, ProcessRef, SegmentChange,
    Selection, StackId, Tid, TransferChange,
};

/// What all lines of a function have in common.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FunctionKey {
    kind: FrameKind,
    name: Arc<str>,
    module: Option<Arc<str>>,
    file: Option<Arc<str>>,
    first_line: Option<u32>,
}

impl FunctionKey {
    fn of(frame: &Frame) -> Self {
        Self {
            kind: frame.kind,
            name: Arc::clone(&frame.function),
            module: frame.module.clone(),
            file: frame.file.clone(),
            first_line: frame.first_line,
        }
    }
}

#[derive(Debug)]
pub struct Model {
    meta: Meta,
    is_finished: bool,
    history: History,
    now: Nanos,
    processes: Processes,
    frames: Vec<Frame>,
    interpreters: Interpreters,
    /// For each frame, the first frame seen of its function.
    functions: Vec<FrameId>,
    function_ids: HashMap<FunctionKey, FrameId>,
    stacks: Vec<Arc<[FrameId]>>,
    sums: Sums,
    regions: Regions,
    loss: Losses,
    costs: Usages,
    shed: Vec<Arc<str>>,
    sheds: Sheds,
    memory_until: Option<Nanos>,
}

impl Model {
    pub fn new(meta: Meta, history: History) -> Self {
        Self {
            meta,
            is_finished: true,
            history,
            now: Nanos(0),
            processes: Processes::new(history.bound(usize::MAX)),
            frames: Vec::new(),
            interpreters: Interpreters::default(),
            functions: Vec::new(),
            function_ids: HashMap::new(),
            stacks: Vec::new(),
            sums: Sums::new(history),
            regions: Regions::new(history),
            loss: Losses::default(),
            costs: Usages::default(),
            shed: Vec::new(),
            sheds: Sheds::default(),
            memory_until: None,
        }
    }

    /// Makes the family `heap` keep the memory of processes as it is at this time. Call it before the first event.
    pub fn keep_memory_of(&mut self, at: Option<Nanos>) {
        self.memory_until = at;
    }

    fn is_after_memory(&self, at: Nanos) -> bool {
        self.history.is_over(at) || self.memory_until.is_some_and(|until| at >= until)
    }

    /// Applies one event. Anyone may have written a recording, so an event is ignored if it refers to something
    /// undefined or defines out of turn.
    pub fn apply(&mut self, event: &Event) {
        if let Some(at) = event.at() {
            self.now = self.now.max(at);
        }
        let of_others = event.of_process(|id| self.processes.resolve(id));
        let event = of_others.as_ref().unwrap_or(event);
        match event {
            Event::Frame { id, frame } => {
                if id.0 as usize == self.frames.len() {
                    let function = self.function_ids.entry(FunctionKey::of(frame)).or_insert(*id);
                    self.functions.push(*function);
                    self.frames.push(frame.clone());
                    self.interpreters.add(&self.frames);
                }
            }
            Event::Stack { id, frames } => {
                let known = frames.iter().all(|frame| (frame.0 as usize) < self.frames.len());
                if known && id.0 as usize == self.stacks.len() {
                    self.stacks.push(Arc::clone(frames));
                }
            }
            Event::Task { id, task } => {
                if let Some(coroutine) = self.frames.get(task.coroutine.0 as usize) {
                    self.sums.tasks.define(*id, task, coroutine);
                }
            }
            Event::StackTask { stack, task } => {
                if self.has_stack(*stack) {
                    self.sums.tasks.add(*stack, *task);
                }
            }
            Event::TaskStatus(status) => {
                if self.has_stack(status.stack) {
                    self.sums.tasks.set(status);
                }
            }
            Event::Process { id, process } => {
                if self.processes.define(*id, process) {
                    self.sums.reassign(&|id| self.processes.resolve(id));
                }
            }
            Event::Placement { process, placement } => {
                if let Some(state) = self.processes.kept(*process) {
                    state.placement = placement.clone();
                }
            }
            Event::Limits(limits) => self.sums.limits.add(limits),
            Event::Machine { at, used } => self.sums.load.add(*at, *used),
            Event::ProcessEnd { id, at } => {
                if let Some(state) = self.processes.kept(*id) {
                    state.ended = Some(*at);
                }
                self.sums.arenas.ended(*id, *at);
                if !self.is_after_memory(*at) {
                    self.sums.heap.end(*id, *at);
                }
                // What the tasks of a program did at its end matters afterwards, but not while others are watched.
                if matches!(self.history, History::Window { .. }) {
                    self.sums.tasks.end(*id);
                }
                self.end_regions(*id, *at);
            }
            Event::Thread { process, tid, name } => {
                if let Some(state) = self.processes.kept(*process) {
                    state.thread(*tid).name = Some(Arc::clone(name));
                }
            }
            Event::Sample(sample) => {
                if self.has_stack(sample.stack) && self.processes.sampled(sample.process, sample.tid) {
                    self.sums.cpu.add(*sample);
                    self.sums.turns.add(sample);
                }
            }
            Event::Sleep(sleep) => {
                if self.has_stack(sleep.stack) && self.sees(sleep.process, sleep.tid) {
                    self.sums.offcpu.add(sleep.clone());
                }
            }
            Event::GilWait(wait) => {
                let known = self.has_stack(wait.stack) && wait.holder.is_none_or(|holder| self.has_stack(holder.stack));
                if known && self.sees(wait.process, wait.tid) {
                    self.sums.gil.add_wait(*wait);
                }
            }
            Event::GilHeld { at, process, tid, held } => {
                if self.sees(*process, *tid) {
                    self.sums.gil.add_held(*at, *process, *tid, *held);
                }
            }
            Event::Calls(calls) => {
                if self.process(calls.process).is_some() && (calls.function.0 as usize) < self.frames.len() {
                    self.sums.eval.add(*calls);
                }
            }
            Event::Access(access) => {
                if self.has_stack(access.stack) && self.sees(access.process, access.tid) {
                    let origin = views::origin(self, access.process, access.stack);
                    self.sums.redundancy.add_access(access, origin);
                }
            }
            Event::Pair(pair) => {
                let known = self.has_stack(pair.first) && self.has_stack(pair.second);
                if known && self.sees(pair.process, pair.tid) {
                    let region = pair.address.and_then(|address| self.owner_at(pair.process, address, pair.at));
                    let line = views::origin(self, pair.process, pair.second).map(|origin| origin.line);
                    self.sums.redundancy.add_pair(pair, region, line);
                }
            }
            Event::Call(call) => {
                if self.has_stack(call.stack) && self.sees(call.process, call.tid) {
                    let origin = views::origin_of_call(self, call);
                    self.sums.redundancy.add_call(call, origin);
                }
            }
            Event::Watchpoints { counts, .. } => self.sums.redundancy.set_counts(*counts),
            Event::MemInfo { at, id, change } => {
                let known = match change {
                    MemInfoChange::Born { process, stack, .. } => {
                        self.process(*process).is_some() && self.has_stack(*stack)
                    }
                    MemInfoChange::Referenced(_) | MemInfoChange::Died => true,
                };
                if known {
                    self.meminfo_region(*at, *id, change);
                    self.sums.nrt.add(*at, *id, change);
                }
            }
            Event::Arena { at, id, change } => {
                let known = match change {
                    ArenaChange::Begun(arena) => self.process(arena.process).is_some(),
                    ArenaChange::Born(stack) | ArenaChange::Escaped(stack) => self.has_stack(*stack),
                    _ => true,
                };
                let is_over = self.history.is_over(*at) && self.sums.arenas.get(*id).is_none();
                if known && !is_over {
                    self.arena_region(*at, *id, change);
                    let forgotten = self.sums.arenas.add(*at, *id, change);
                    self.forget(forgotten);
                }
            }
            Event::Heap { at, process, change } => {
                let known = match change {
                    HeapChange::Touched { stack, .. } | HeapChange::Mapped { stack, .. } => self.has_stack(*stack),
                    _ => true,
                };
                if known && self.process(*process).is_some() && !self.is_after_memory(*at) {
                    let is_in_arena = matches!(change, HeapChange::Touched { address, .. }
                        if self.regions.at(Space::Arenas(*process), *address).is_some());
                    self.sums.heap.add(*at, *process, change, is_in_arena);
                }
            }
            Event::Segment { at, id, change } => {
                let is_over = self.history.is_over(*at) && self.sums.shm.get(*id).is_none();
                if !is_over && !matches!(change, SegmentChange::Born(stack) if !self.has_stack(*stack)) {
                    self.segment_region(*at, *id, change);
                    let forgotten = self.sums.shm.add(*at, *id, change);
                    self.forget(forgotten);
                }
            }
            Event::Transfer { at, id, change } => {
                let known = match change {
                    TransferChange::Seen(transfer) => self.sees(transfer.process, transfer.tid),
                    TransferChange::Asked(stack) => self.has_stack(*stack),
                    TransferChange::Woken { .. } => true,
                };
                if known {
                    let forgotten = self.sums.ucx.add(*at, *id, change);
                    self.forget(forgotten);
                }
            }
            Event::Transfers(transfers) => {
                if self.process(transfers.process).is_some() {
                    self.sums.ucx.add_total(*transfers);
                }
            }
            Event::TransferThread(thread) => {
                if self.sees(thread.process, thread.tid) {
                    self.sums.ucx.add_thread(*thread);
                }
            }
            Event::Resident { at, process, resident } => {
                if let Some(state) = self.processes.kept(*process) {
                    state.resident = Some((*at, *resident));
                }
            }
            Event::Loss { reason, count, .. } => self.loss.add(*reason, *count),
            Event::Cost { at, bpf, cpu, startup, rss_bytes } => {
                let (startup, rss_bytes) = (*startup, *rss_bytes);
                self.costs.add(Usage { at: *at, bpf: *bpf, cpu: *cpu, startup, rss_bytes });
            }
            Event::Shed { what, .. } => self.shed.push(Arc::clone(what)),
            Event::Measure { at, family, measure, on } => self.sheds.add(*at, family, measure, *on),
        }
    }

    /// Advances the clock of a model whose events are rare, and forgets what is older than its window.
    pub fn advance(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        self.sums.expire(self.now);
        if let History::Window { length, .. } = self.history {
            self.regions.expire(self.now.saturating_sub(length));
        }
    }

    fn forget(&mut self, things: u64) {
        if things > 0 {
            self.loss.add(Reason::PastForgotten, things);
        }
    }

    fn has_stack(&self, id: StackId) -> bool {
        (id.0 as usize) < self.stacks.len()
    }

    /// Records that a thread exists. `false` if its process was never defined.
    fn sees(&mut self, process: ProcessRef, tid: Tid) -> bool {
        self.processes.sees(process, tid)
    }

    /// Whether a probe family was on.
    pub fn is_on(&self, family: Family) -> bool {
        self.meta.probes.iter().any(|probe| probe == family.name())
    }

    /// How long a process was watched within the time of `selection`, from `since` on.
    pub fn observed(&self, process: ProcessRef, selection: &Selection, since: Nanos) -> Nanos {
        let Some(state) = self.process(process) else { return Nanos(0) };
        let from = [state.process.started, selection.from].into_iter().flatten().fold(since, Nanos::max);
        let to = [state.ended, selection.to].into_iter().flatten().fold(self.now, Nanos::min);
        to.saturating_sub(from)
    }

    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Marks the recording as cut off or still being written.
    pub fn set_unfinished(&mut self) {
        self.is_finished = false;
    }

    /// Whether the recording was ended, rather than cut off or still being written.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// The time of the latest event.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The process with that number; if it was evicted, the sum of all that were.
    pub fn process(&self, id: ProcessRef) -> Option<&ProcessState> {
        self.processes.get(id)
    }

    /// All processes, with [`ProcessRef::OTHERS`] for those that were evicted.
    pub fn processes(&self) -> impl Iterator<Item = (ProcessRef, &ProcessState)> + '_ {
        self.processes.iter()
    }

    /// How many processes there are, and how many of them have samples.
    pub fn process_counts(&self) -> (u64, u64) {
        self.processes.counts()
    }

    /// Whether the process was evicted, so that only the sum of all such processes is known.
    pub fn is_evicted(&self, id: ProcessRef) -> bool {
        self.processes.resolve(id) == ProcessRef::OTHERS
    }

    /// The frame with an id from an applied stack.
    pub fn frame(&self, id: FrameId) -> Option<&Frame> {
        self.frames.get(id.0 as usize).or_else(|| self.sums.tasks.frame(id.task()))
    }

    /// The processes that had a pid, one after the other.
    pub fn processes_of(&self, pid: Pid) -> impl DoubleEndedIterator<Item = (ProcessRef, &ProcessState)> + '_ {
        self.processes.of(pid)
    }

    /// The process that had a pid at a time.
    pub fn process_at(&self, pid: Pid, at: Nanos) -> Option<(ProcessRef, &ProcessState)> {
        let lived = |state: &ProcessState| {
            state.process.started.is_none_or(|started| started <= at) && state.ended.is_none_or(|ended| ended >= at)
        };
        self.processes_of(pid).rfind(|(_, state)| lived(state))
    }

    /// Whether this is a Python frame.
    pub fn is_python(&self, id: FrameId) -> bool {
        self.frame(id).is_some_and(|frame| frame.kind == FrameKind::Python)
    }

    /// Whether this is one of the interpreter's own native frames.
    pub fn is_interpreter(&self, id: FrameId) -> bool {
        self.interpreters.has(id)
    }

    /// The frame that represents all lines of `id`'s function.
    pub fn function_of(&self, id: FrameId) -> FrameId {
        self.functions.get(id.0 as usize).copied().unwrap_or(id)
    }

    /// Root first; empty if the id was never defined.
    pub fn stack(&self, id: StackId) -> &[FrameId] {
        self.stacks.get(id.0 as usize).map_or(&[], |stack| stack)
    }

    pub fn frame_count(&self) -> usize {
        self.frames.len()
    }

    pub fn loss(&self) -> &Losses {
        &self.loss
    }

    pub fn cost(&self) -> Usage {
        self.costs.now()
    }

    /// Converts a share of one core to a percentage, with its unit: of all CPUs together if their number is known.
    pub fn cost_percent(&self, share: f64) -> (f64, &'static str) {
        match self.meta.cpus {
            0 => (share * 100.0, "of a core"),
            cpus => (share / f64::from(cpus) * 100.0, "of the machine"),
        }
    }

    /// The present cost of pyobs in shares of one core: (kernel, user space).
    pub fn cost_now(&self) -> (f64, f64) {
        self.costs.shares_now()
    }

    /// The cost of pyobs over the last hour, in shares of one core, each with the time at which its interval ends.
    pub fn cost_history(&self) -> impl Iterator<Item = (Nanos, f64)> + '_ {
        self.costs.history()
    }

    pub fn shed(&self) -> &[Arc<str>] {
        &self.shed
    }

    /// The measures that kept pyobs inside the budget, in the order in which they began.
    pub fn sheds(&self) -> impl DoubleEndedIterator<Item = &Shed> {
        self.sheds.all()
    }

    /// What is being shed now, in a few words; empty if nothing is.
    pub fn shed_now(&self) -> String {
        let held = self.sheds.all().filter(|shed| shed.to.is_none());
        let words = |shed: &Shed| format!("{} {} since {:.0} s", shed.family, shed.measure, shed.from.as_secs_f64());
        held.map(words).collect::<Vec<_>>().join(", ")
    }
}

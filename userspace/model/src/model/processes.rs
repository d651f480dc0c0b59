//! The processes of a recording: a bounded number of them, and the sum of those that were evicted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::ids::Pid;
use crate::{Nanos, Placement, Process, ProcessRef, Resident, Tid};

/// Bounds the processes. Beyond it, half are evicted: first those that ended, and of these the ones with the fewest samples.
/// Families keep twice as many sums by place, so that places are merged across processes before they lose their stacks.
const KEPT_MAX: usize = 1 << 14;
/// Bounds the threads of a process. Beyond it, the half with the fewest samples is evicted.
const THREADS_MAX: usize = 1 << 14;

/// A process as it is known now.
#[derive(Clone, Debug)]
pub struct ProcessState {
    pub process: Process,
    pub ended: Option<Nanos>,
    pub placement: Placement,
    pub threads: BTreeMap<Tid, ThreadState>,
    /// Samples since the recording began.
    pub samples: u64,
    /// Its resident memory when it was last examined.
    pub resident: Option<(Nanos, Resident)>,
}

#[derive(Clone, Debug, Default)]
pub struct ThreadState {
    pub name: Option<Arc<str>>,
    /// Samples since the recording began.
    pub samples: u64,
}

impl ProcessState {
    fn new(process: Process) -> Self {
        Self {
            process,
            ended: None,
            placement: Placement::default(),
            threads: BTreeMap::new(),
            samples: 0,
            resident: None,
        }
    }

    /// Whether it was running at that time, as far as is known.
    pub fn is_alive(&self, at: Nanos) -> bool {
        self.process.started.is_none_or(|started| started <= at) && self.ended.is_none_or(|ended| ended > at)
    }

    pub(super) fn thread(&mut self, tid: Tid) -> &mut ThreadState {
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&tid) {
            let mut least: Vec<_> = self.threads.iter().map(|(tid, thread)| (thread.samples, *tid)).collect();
            least.sort_unstable();
            for (_, tid) in least.iter().take(least.len() / 2) {
                self.threads.remove(tid);
            }
        }
        self.threads.entry(tid).or_default()
    }
}

#[derive(Debug)]
pub(super) struct Processes {
    most: usize,
    kept: BTreeMap<ProcessRef, ProcessState>,
    /// In the order in which they were seen.
    by_pid: HashMap<Pid, Vec<ProcessRef>>,
    /// How many were defined.
    count: u32,
    /// The sum of those that were evicted.
    others: Others,
}

#[derive(Debug)]
struct Others {
    state: ProcessState,
    count: u64,
    /// How many of them had samples.
    busy: u64,
}

impl Others {
    fn new() -> Self {
        let process =
            Process { pid: Pid(0), ppid: Pid(0), command: Arc::from(""), python: None, started: Some(Nanos(u64::MAX)) };
        Self { state: ProcessState { ended: Some(Nanos(0)), ..ProcessState::new(process) }, count: 0, busy: 0 }
    }

    fn absorb(&mut self, other: &ProcessState) {
        let (all, process) = (&mut self.state, &other.process);
        all.samples += other.samples;
        all.process.started = all.process.started.min(Some(process.started.unwrap_or_default()));
        all.ended = all.ended.max(other.ended);
        if process.python.is_some() {
            all.process.python.get_or_insert_with(|| Arc::from("various"));
        }
        self.count += 1;
        self.busy += u64::from(other.samples > 0);
    }
}

impl Processes {
    pub(super) fn new(most: usize) -> Self {
        let (kept, by_pid) = (BTreeMap::new(), HashMap::new());
        Self { most: most.clamp(2, KEPT_MAX), kept, by_pid, count: 0, others: Others::new() }
    }

    /// Returns whether processes were evicted, so that what refers to them must be reassigned.
    pub(super) fn define(&mut self, id: ProcessRef, process: &Process) -> bool {
        let is_next = id.0 == self.count && id != ProcessRef::OTHERS;
        if let Some(state) = self.kept.get_mut(&id) {
            state.process = process.clone();
        } else if is_next {
            self.count += 1;
            self.kept.insert(id, ProcessState::new(process.clone()));
        } else {
            return false;
        }
        let of_pid = self.by_pid.entry(process.pid).or_default();
        if let Err(at) = of_pid.binary_search(&id) {
            of_pid.insert(at, id);
        }
        self.make_room()
    }

    fn make_room(&mut self) -> bool {
        if self.kept.len() <= self.most {
            return false;
        }
        let rank = |(id, state): (&ProcessRef, &ProcessState)| (state.ended.is_none(), state.samples, state.ended, *id);
        let mut least: Vec<_> = self.kept.iter().map(rank).collect();
        least.sort_unstable();
        for (.., id) in least.iter().take(least.len() / 2) {
            let Some(state) = self.kept.remove(id) else { continue };
            self.others.absorb(&state);
        }
        let kept = &self.kept;
        self.by_pid.retain(|_, ids| {
            ids.retain(|id| kept.contains_key(id));
            !ids.is_empty()
        });
        self.others.state.process.command = Arc::from(format!("({} other processes)", self.others.count));
        true
    }

    /// Returns `id`, or [`ProcessRef::OTHERS`] if that process was evicted.
    pub(super) fn resolve(&self, id: ProcessRef) -> ProcessRef {
        let is_gone = self.others.count > 0 && id.0 < self.count && !self.kept.contains_key(&id);
        if is_gone { ProcessRef::OTHERS } else { id }
    }

    pub(super) fn get(&self, id: ProcessRef) -> Option<&ProcessState> {
        let others = (self.resolve(id) == ProcessRef::OTHERS).then(|| self.others()).flatten();
        others.or_else(|| self.kept.get(&id))
    }

    fn others(&self) -> Option<&ProcessState> {
        (self.others.count > 0).then_some(&self.others.state)
    }

    /// `None` if it was evicted.
    pub(super) fn kept(&mut self, id: ProcessRef) -> Option<&mut ProcessState> {
        self.kept.get_mut(&id)
    }

    /// Counts a sample. Returns whether its process is known.
    pub(super) fn sampled(&mut self, id: ProcessRef, tid: Tid) -> bool {
        if id == ProcessRef::OTHERS {
            self.others.state.samples += 1;
            return self.others.count > 0;
        }
        let Some(state) = self.kept.get_mut(&id) else { return false };
        state.samples += 1;
        state.thread(tid).samples += 1;
        true
    }

    /// Records that a thread exists. Returns whether its process is known.
    pub(super) fn sees(&mut self, id: ProcessRef, tid: Tid) -> bool {
        if self.resolve(id) == ProcessRef::OTHERS {
            return self.others.count > 0;
        }
        self.kept.get_mut(&id).map(|state| state.thread(tid)).is_some()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ProcessRef, &ProcessState)> + '_ {
        let others = self.others().map(|state| (ProcessRef::OTHERS, state));
        self.kept.iter().map(|(id, state)| (*id, state)).chain(others)
    }

    /// The processes that had a pid, without evicted ones, one after the other.
    pub(super) fn of(&self, pid: Pid) -> impl DoubleEndedIterator<Item = (ProcessRef, &ProcessState)> + '_ {
        let ids = self.by_pid.get(&pid).map_or(&[][..], Vec::as_slice);
        let state = move |id: &ProcessRef| Some((*id, self.kept.get(id).filter(|state| state.process.pid == pid)?));
        ids.iter().filter_map(state)
    }

    /// How many there are, and how many of them have samples.
    pub(super) fn counts(&self) -> (u64, u64) {
        let busy = self.kept.values().filter(|state| state.samples > 0).count() as u64;
        (u64::from(self.count), busy + self.others.busy)
    }

    /// How many were evicted.
    pub(super) fn evicted(&self) -> u64 {
        self.others.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(number: u32) -> Process {
        let started = Some(Nanos(u64::from(number)));
        Process { pid: Pid(100 + number % 7), ppid: Pid(1), command: "python".into(), python: None, started }
    }

    #[test]
    fn those_that_ended_with_the_fewest_samples_become_one() {
        let mut processes = Processes::new(8);
        for number in 0..8 {
            assert!(!processes.define(ProcessRef(number), &process(number)));
            (0..number).for_each(|_| assert!(processes.sampled(ProcessRef(number), Tid(1))));
        }
        for number in [1, 3, 4, 5, 6] {
            processes.kept(ProcessRef(number)).unwrap().ended = Some(Nanos(50));
        }
        assert!(processes.define(ProcessRef(8), &process(8)));
        let known = |processes: &Processes| processes.iter().map(|(id, _)| id.0).collect::<Vec<_>>();
        assert_eq!(known(&processes), [0, 2, 6, 7, 8, u32::MAX]);
        let others = processes.get(ProcessRef(3)).unwrap();
        assert_eq!((others.samples, others.ended, others.process.started), (13, Some(Nanos(50)), Some(Nanos(1))));
        assert_eq!(&*others.process.command, "(4 other processes)");
        assert_eq!(processes.resolve(ProcessRef(3)), ProcessRef::OTHERS);
        assert_eq!(processes.counts(), (9, 7));
        assert_eq!(processes.of(Pid(103)).count(), 0);
        // An evicted process cannot be defined again, nor one out of turn.
        assert!(!processes.define(ProcessRef(3), &process(3)) && !processes.define(ProcessRef(11), &process(11)));
        assert_eq!(known(&processes), [0, 2, 6, 7, 8, u32::MAX]);
        assert!(processes.get(ProcessRef(9)).is_none() && !processes.sees(ProcessRef(9), Tid(1)));
    }

    #[test]
    fn if_none_ended_the_bound_holds_all_the_same() {
        let mut processes = Processes::new(8);
        for number in 0..1000 {
            processes.define(ProcessRef(number), &process(number));
        }
        assert!(processes.iter().count() <= 9);
        assert_eq!(processes.counts().0, 1000);
    }

    #[test]
    fn threads_are_bounded_and_the_busiest_stay() {
        let mut processes = Processes::new(8);
        processes.define(ProcessRef(0), &process(0));
        for tid in 0..100_000 {
            processes.sees(ProcessRef(0), Tid(tid));
            processes.sampled(ProcessRef(0), Tid(7));
        }
        let state = processes.get(ProcessRef(0)).unwrap();
        assert!(state.threads.len() <= THREADS_MAX);
        assert_eq!(state.threads[&Tid(7)].samples, 100_000);
    }
}

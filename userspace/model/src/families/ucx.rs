//! Transfers of UCX and UCXX, and the threads that work on them.

use std::collections::{BTreeMap, VecDeque};

use super::ended::Ended;
use super::places::reassign;
use super::{Past, Timed};
use crate::{
    History, Library, Nanos, Operation, ProcessRef, Selection, StackId, Tid, Transfer, TransferChange, TransferId,
    TransferThread, Transfers,
};

/// Limits the stacks and wakes that arrive before their transfers.
const EARLY_MAX: usize = 1 << 16;

/// Limits the transfers kept. A model with sums keeps as many as events of a kind, those seen last; the others are in the
/// sums of their kinds.
const TRANSFERS_MAX: usize = 1 << 20;

/// With more threads than this, those of evicted processes are dropped.
const THREADS_MAX: usize = 1 << 14;

/// The state of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferState {
    pub transfer: Transfer,
    /// The stack that requested it.
    pub stack: Option<StackId>,
    /// When its future was handed over, and when and by which thread it was set.
    pub woken: Option<Woken>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Woken {
    pub notified: Nanos,
    pub woken: Nanos,
    pub tid: Tid,
}

impl TransferState {
    /// When it was over for the program.
    pub fn ended(&self) -> Option<Nanos> {
        self.woken.map(|woken| woken.woken).or(self.transfer.completed)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Early {
    stack: Option<StackId>,
    woken: Option<Woken>,
}

/// Three reports about a thread: the last before a time span, the last within it, and the latest of all.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    before: Option<TransferThread>,
    last: Option<TransferThread>,
    latest: Option<TransferThread>,
}

impl Span {
    /// Adds a report. Call it in time order.
    fn add(&mut self, word: &TransferThread, selection: &Selection) {
        let begun = self.latest.map_or_else(|| word.at.saturating_sub(word.observed), |latest| latest.at);
        if word.at <= selection.from.unwrap_or_default() {
            self.before = Some(*word);
        } else if begun < selection.end() {
            self.last = Some(*word);
        }
        self.latest = Some(*word);
    }
}

/// The key of transfer sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferKind {
    pub process: ProcessRef,
    pub library: Library,
    pub operation: Operation,
}

/// All transfers of a kind that are over, or that were not followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferSum {
    pub count: u64,
    pub bytes: u64,
    pub immediate: u64,
    pub failed: u64,
    pub spent: Nanos,
    /// The part of `count` whose ends are unknown.
    pub unfollowed: u64,
    /// The largest sampling interval: one in this many transfers was recorded individually.
    pub every: u32,
}

impl TransferKind {
    fn of(transfers: &Transfers) -> Self {
        let Transfers { process, library, operation, .. } = *transfers;
        Self { process, library, operation }
    }
}

impl TransferSum {
    fn of(transfers: &Transfers) -> Self {
        let Transfers { count, bytes, immediate, failed, spent, unfollowed, every, .. } = *transfers;
        Self { count, bytes, immediate, failed, spent, unfollowed, every }
    }

    fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.immediate = self.immediate.saturating_add(other.immediate);
        self.failed = self.failed.saturating_add(other.failed);
        self.spent = self.spent.saturating_add(other.spent);
        self.unfollowed = self.unfollowed.saturating_add(other.unfollowed);
        self.every = self.every.max(other.every);
    }
}

#[derive(Debug)]
pub struct Ucx {
    history: History,
    transfers: BTreeMap<TransferId, TransferState>,
    /// In the order in which their ends were first reported.
    ended: Ended<TransferId>,
    early: BTreeMap<TransferId, Early>,
    /// Keys of `early`, in the order of arrival.
    early_order: VecDeque<TransferId>,
    sums: BTreeMap<TransferKind, TransferSum>,
    totals: Past<Transfers>,
    threads: BTreeMap<(ProcessRef, Tid), TransferThread>,
    /// Earlier reports about threads.
    told: Past<TransferThread>,
    /// What the reports say about the time that the sums cover.
    covered: BTreeMap<(ProcessRef, Tid), Span>,
}

impl Timed for Transfers {
    fn at(&self) -> Nanos {
        self.at
    }
}

impl Timed for TransferThread {
    fn at(&self) -> Nanos {
        self.at
    }
}

impl Ucx {
    pub fn new(history: History) -> Self {
        Self {
            history,
            transfers: BTreeMap::new(),
            ended: Ended::new(history),
            early: BTreeMap::new(),
            early_order: VecDeque::new(),
            sums: BTreeMap::new(),
            totals: Past::new(history),
            threads: BTreeMap::new(),
            told: Past::new(history),
            covered: BTreeMap::new(),
        }
    }

    /// Returns how many transfers were forgotten to make room.
    pub fn add(&mut self, at: Nanos, id: TransferId, change: &TransferChange) -> u64 {
        let ended = |ucx: &Self| ucx.get(id).and_then(TransferState::ended);
        let had_ended = ended(self).is_some();
        let forgotten = self.change(at, id, change);
        // A recording forgets nothing because of its age.
        let is_aging = matches!(self.history, History::Window { .. });
        if let Some(ended) = ended(self).filter(|_| is_aging && !had_ended) {
            self.ended.push(ended, id);
        }
        forgotten
    }

    fn change(&mut self, at: Nanos, id: TransferId, change: &TransferChange) -> u64 {
        match change {
            TransferChange::Seen(transfer) => {
                let is_known = self.transfers.contains_key(&id);
                if !is_known && transfer.begun().is_some_and(|begun| self.history.is_over(begun)) {
                    return 0;
                }
                let early = self.early.remove(&id).unwrap_or_default();
                let state = self.transfers.entry(id).or_insert_with(|| TransferState {
                    transfer: **transfer,
                    stack: early.stack,
                    woken: early.woken,
                });
                state.transfer = **transfer;
                if self.transfers.len() > self.history.events().unwrap_or(TRANSFERS_MAX).min(TRANSFERS_MAX) {
                    self.transfers.pop_first();
                    return 1;
                }
            }
            TransferChange::Asked(stack) => match self.transfers.get_mut(&id) {
                Some(state) => state.stack = Some(*stack),
                None => self.early(id).stack = Some(*stack),
            },
            TransferChange::Woken { notified, tid } => {
                let woken = Woken { notified: *notified, woken: at, tid: *tid };
                match self.transfers.get_mut(&id) {
                    Some(state) => state.woken = Some(woken),
                    None => self.early(id).woken = Some(woken),
                }
            }
        }
        0
    }

    fn early(&mut self, id: TransferId) -> &mut Early {
        if !self.early.contains_key(&id) {
            self.early_order.push_back(id);
            if self.early_order.len() > EARLY_MAX
                && let Some(oldest) = self.early_order.pop_front()
            {
                self.early.remove(&oldest);
            }
        }
        self.early.entry(id).or_default()
    }

    pub fn add_total(&mut self, transfers: Transfers) {
        if transfers.is_within(self.totals.covered()) {
            self.sums.entry(TransferKind::of(&transfers)).or_default().add(TransferSum::of(&transfers));
        }
        self.totals.push(transfers);
    }

    pub fn add_thread(&mut self, thread: TransferThread) {
        self.threads.insert((thread.process, thread.tid), thread);
        if self.told.has_sums() && self.told.covered().is_timed() {
            self.covered.entry((thread.process, thread.tid)).or_default().add(&thread, self.told.covered());
        } else {
            self.told.push(thread);
        }
    }

    /// Reassigns the transfers of evicted processes. Their threads are dropped if there are too many.
    pub(crate) fn reassign(&mut self, resolve: impl Fn(ProcessRef) -> ProcessRef) {
        for state in self.transfers.values_mut() {
            state.transfer.process = resolve(state.transfer.process);
        }
        self.totals.iter_mut().for_each(|totals| totals.process = resolve(totals.process));
        let is_other = |process: ProcessRef| resolve(process) != process;
        let other = |kind: &TransferKind| {
            is_other(kind.process).then(|| TransferKind { process: resolve(kind.process), ..*kind })
        };
        reassign(&mut self.sums, other, TransferSum::add);
        if self.threads.len() > THREADS_MAX {
            self.threads.retain(|(process, _), _| !is_other(*process));
            self.covered.retain(|(process, _), _| !is_other(*process));
        }
    }

    pub fn expire(&mut self, now: Nanos) {
        while self.totals.expire(now).is_some() {}
        while self.told.expire(now).is_some() {}
        self.ended.expire(now, &mut self.transfers);
    }

    /// The number of events of counts and of threads that are in sums only.
    pub fn summed(&self) -> u64 {
        if self.totals.has_sums() { self.totals.gone() + self.told.gone() } else { 0 }
    }

    /// In the order of first sight.
    pub fn transfers(&self) -> impl Iterator<Item = (TransferId, &TransferState)> + Clone + '_ {
        self.transfers.iter().map(|(id, state)| (*id, state))
    }

    pub fn get(&self, id: TransferId) -> Option<&TransferState> {
        self.transfers.get(&id)
    }

    /// The stack that requested it, or the transfer it is part of.
    pub fn stack(&self, state: &TransferState) -> Option<StackId> {
        state.stack.or_else(|| self.get(state.transfer.parent?)?.stack)
    }

    /// Sums over the processes and the time of `selection`.
    pub fn sums(&self, selection: &Selection) -> BTreeMap<TransferKind, TransferSum> {
        let mut sums: BTreeMap<TransferKind, TransferSum> = BTreeMap::new();
        if !self.totals.is_summed(selection) {
            for transfers in self.totals.since_then(selection.from).filter(|word| selection.has_time(word.at)) {
                sums.entry(TransferKind::of(transfers)).or_default().add(TransferSum::of(transfers));
            }
        } else {
            sums.clone_from(&self.sums);
        }
        sums.retain(|kind, _| selection.has_process(kind.process));
        sums
    }

    pub fn threads(&self) -> impl Iterator<Item = &TransferThread> + '_ {
        self.threads.values()
    }

    /// What the threads in `selection` did in its time. A report covers the time since the thread's previous report, or
    /// since it was first examined. Reports that partly cover the time count.
    pub fn threads_in(&self, selection: &Selection) -> Vec<TransferThread> {
        let has_thread = |word: &TransferThread| selection.has_thread(word.process, word.tid);
        if !selection.is_timed() {
            return self.threads.values().filter(|word| has_thread(word)).copied().collect();
        }
        let mut spans: BTreeMap<(ProcessRef, Tid), Span> = BTreeMap::new();
        if self.told.is_summed(selection) {
            spans.clone_from(&self.covered);
        }
        for word in self.told.iter() {
            spans.entry((word.process, word.tid)).or_default().add(word, selection);
        }
        let within = spans.into_values().filter_map(|span| Some(span.last?.since(span.before.as_ref())));
        within.filter(has_thread).collect()
    }

    pub fn threads_of(&self, process: ProcessRef) -> impl Iterator<Item = &TransferThread> + '_ {
        self.threads.range((process, Tid(0))..=(process, Tid(u32::MAX))).map(|(_, thread)| thread)
    }

    pub fn thread(&self, process: ProcessRef, tid: Tid) -> Option<&TransferThread> {
        self.threads.get(&(process, tid))
    }
}

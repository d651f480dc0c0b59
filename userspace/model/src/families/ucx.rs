//! Transfers of UCX and UCXX, and the threads that work on them.

use std::collections::{BTreeMap, VecDeque};

use super::ended::Ended;
use super::{Past, Timed};
use crate::{
    History, Library, Nanos, Operation, ProcessRef, Selection, StackId, Tid, Transfer, TransferChange, TransferId,
    TransferThread, Transfers,
};

/// Limits the stacks and wakes that arrive before their transfers.
const EARLY_MAX: usize = 1 << 16;

/// Limits the transfers kept. A report keeps those seen last; the others are in the sums of their kinds.
const TRANSFERS_MAX: usize = 1 << 20;
const REPORTED_MAX: usize = 1 << 16;

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
#[derive(Default)]
struct Span<'a> {
    before: Option<&'a TransferThread>,
    last: Option<&'a TransferThread>,
    latest: Option<&'a TransferThread>,
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
    fn add(&mut self, transfers: &Transfers) {
        self.count = self.count.saturating_add(transfers.count);
        self.bytes = self.bytes.saturating_add(transfers.bytes);
        self.immediate = self.immediate.saturating_add(transfers.immediate);
        self.failed = self.failed.saturating_add(transfers.failed);
        self.spent = self.spent.saturating_add(transfers.spent);
        self.unfollowed = self.unfollowed.saturating_add(transfers.unfollowed);
        self.every = self.every.max(transfers.every);
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
                let early = self.early.remove(&id).unwrap_or_default();
                let state = self.transfers.entry(id).or_insert_with(|| TransferState {
                    transfer: **transfer,
                    stack: early.stack,
                    woken: early.woken,
                });
                state.transfer = **transfer;
                let most = if self.history == History::Sums { REPORTED_MAX } else { TRANSFERS_MAX };
                if self.transfers.len() > self.history.bound(most) {
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
        self.sums.entry(TransferKind::of(&transfers)).or_default().add(&transfers);
        self.totals.push(transfers);
    }

    pub fn add_thread(&mut self, thread: TransferThread) {
        self.threads.insert((thread.process, thread.tid), thread);
        self.told.push(thread);
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
        if selection.is_timed() {
            for transfers in self.totals.since_then(selection.from).filter(|word| selection.has_time(word.at)) {
                sums.entry(TransferKind::of(transfers)).or_default().add(transfers);
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
        let (from, end) = (selection.from.unwrap_or_default(), selection.end());
        let mut spans: BTreeMap<(ProcessRef, Tid), Span<'_>> = BTreeMap::new();
        let told = self.told.iter().filter(|word| selection.is_timed() && selection.has_thread(word.process, word.tid));
        for word in told {
            let span = spans.entry((word.process, word.tid)).or_default();
            let begun = span.latest.map_or_else(|| word.at.saturating_sub(word.observed), |latest| latest.at);
            if word.at <= from {
                span.before = Some(word);
            } else if begun < end {
                span.last = Some(word);
            }
            span.latest = Some(word);
        }
        let all =
            self.threads.values().filter(|word| !selection.is_timed() && selection.has_thread(word.process, word.tid));
        let within = spans.into_values().filter_map(|span| Some(span.last?.since(span.before)));
        all.copied().chain(within).collect()
    }

    pub fn threads_of(&self, process: ProcessRef) -> impl Iterator<Item = &TransferThread> + '_ {
        self.threads.range((process, Tid(0))..=(process, Tid(u32::MAX))).map(|(_, thread)| thread)
    }

    pub fn thread(&self, process: ProcessRef, tid: Tid) -> Option<&TransferThread> {
        self.threads.get(&(process, tid))
    }
}

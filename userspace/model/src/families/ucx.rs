//! Transfers of UCX and UCXX, and the threads that have to do with them.

use std::collections::{BTreeMap, VecDeque};

use crate::{
    History, Library, Nanos, Operation, ProcessRef, StackId, Tid, Transfer, TransferChange, TransferId, TransferThread,
    Transfers,
};

/// Stacks and wakes that are told before their transfers.
const EARLY_MAX: usize = 1 << 16;

/// Transfers that are kept.
const TRANSFERS_MAX: usize = 1 << 20;
/// How often transfers that ended too long ago are looked for: one that has no end may lie before them.
const SWEEP: Nanos = Nanos(1_000_000_000);

/// What became of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub transfer: Transfer,
    /// Where it was asked for.
    pub stack: Option<StackId>,
    /// When its future was handed over, and when and by whom it was set.
    pub woken: Option<Woken>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Woken {
    pub notified: Nanos,
    pub woken: Nanos,
    pub tid: Tid,
}

impl State {
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

/// The key of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind {
    pub process: ProcessRef,
    pub library: Library,
    pub operation: Operation,
}

/// All transfers of a kind that are over or not followed to their ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub count: u64,
    pub bytes: u64,
    pub immediate: u64,
    pub failed: u64,
    pub spent: Nanos,
    /// Of `count`, those of whose ends nothing is known.
    pub unfollowed: u64,
    /// The largest number of which one was told of singly.
    pub every: u32,
}

#[derive(Debug)]
pub struct Ucx {
    history: History,
    transfers: BTreeMap<TransferId, State>,
    early: BTreeMap<TransferId, Early>,
    /// The order in which those came that are early.
    early_order: VecDeque<TransferId>,
    sums: BTreeMap<Kind, Sum>,
    threads: BTreeMap<(ProcessRef, Tid), TransferThread>,
    swept: Nanos,
}

impl Ucx {
    pub fn new(history: History) -> Self {
        Self {
            history,
            transfers: BTreeMap::new(),
            early: BTreeMap::new(),
            early_order: VecDeque::new(),
            sums: BTreeMap::new(),
            threads: BTreeMap::new(),
            swept: Nanos(0),
        }
    }

    /// How many had to be forgotten for it.
    pub fn add(&mut self, at: Nanos, id: TransferId, change: &TransferChange) -> u64 {
        match change {
            TransferChange::Seen(transfer) => {
                let early = self.early.remove(&id).unwrap_or_default();
                let state = self.transfers.entry(id).or_insert_with(|| State {
                    transfer: **transfer,
                    stack: early.stack,
                    woken: early.woken,
                });
                state.transfer = **transfer;
                if self.transfers.len() > self.history.bound(TRANSFERS_MAX) {
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
        let Transfers { process, library, operation, .. } = transfers;
        let sum = self.sums.entry(Kind { process, library, operation }).or_default();
        sum.count = sum.count.saturating_add(transfers.count);
        sum.bytes = sum.bytes.saturating_add(transfers.bytes);
        sum.immediate = sum.immediate.saturating_add(transfers.immediate);
        sum.failed = sum.failed.saturating_add(transfers.failed);
        sum.spent = sum.spent.saturating_add(transfers.spent);
        sum.unfollowed = sum.unfollowed.saturating_add(transfers.unfollowed);
        sum.every = sum.every.max(transfers.every);
    }

    pub fn add_thread(&mut self, thread: TransferThread) {
        self.threads.insert((thread.process, thread.tid), thread);
    }

    pub fn expire(&mut self, now: Nanos) {
        let History::Window { length, .. } = self.history else { return };
        if now.saturating_sub(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        let since = now.saturating_sub(length);
        self.transfers.retain(|_, state| state.ended().is_none_or(|ended| ended >= since));
    }

    /// In the order in which they were first seen.
    pub fn transfers(&self) -> impl Iterator<Item = (TransferId, &State)> + Clone + '_ {
        self.transfers.iter().map(|(id, state)| (*id, state))
    }

    pub fn get(&self, id: TransferId) -> Option<&State> {
        self.transfers.get(&id)
    }

    /// Where it, or what it is a part of, was asked for.
    pub fn stack(&self, state: &State) -> Option<StackId> {
        state.stack.or_else(|| self.get(state.transfer.parent?)?.stack)
    }

    pub fn sums(&self) -> impl Iterator<Item = (Kind, Sum)> + '_ {
        self.sums.iter().map(|(kind, sum)| (*kind, *sum))
    }

    pub fn threads(&self) -> impl Iterator<Item = &TransferThread> + '_ {
        self.threads.values()
    }

    pub fn thread(&self, process: ProcessRef, tid: Tid) -> Option<&TransferThread> {
        self.threads.get(&(process, tid))
    }

    /// Those of a process.
    pub fn threads_of(&self, process: ProcessRef) -> impl Iterator<Item = &TransferThread> + '_ {
        self.threads.range((process, Tid(0))..=(process, Tid(u32::MAX))).map(|(_, thread)| thread)
    }
}

//! Turns of event loops that took long: in a turn, a loop runs the callbacks that are ready, and does not look for input.

use std::collections::{HashMap, VecDeque};

use crate::{History, Nanos, ProcessRef, Sample, Selection, StackId, Tid};

/// A turn that takes longer is kept.
const LONG: Nanos = Nanos(50_000_000);
/// The times of samples of one turn put its beginning this far apart.
const ROUNDING: Nanos = Nanos(2_000);
/// Bounds the turns that are kept, the loops whose present turn is, and the stacks of each turn. A further stack counts
/// as the first.
const KEPT_MAX: usize = 16_384;
const LOOPS_MAX: usize = 16_384;
const STACKS_MAX: usize = 64;

/// A turn, as far as samples saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    pub process: ProcessRef,
    pub tid: Tid,
    /// When it began, and when it was last seen.
    pub from: Nanos,
    pub at: Nanos,
    /// CPU time by stack.
    pub stacks: Vec<(StackId, Nanos)>,
}

impl Turn {
    pub fn length(&self) -> Nanos {
        self.at.saturating_sub(self.from)
    }

    /// Whether it took long, and computed for most of that time.
    fn is_starving(&self) -> bool {
        let computed: u64 = self.stacks.iter().map(|(_, time)| time.0).sum();
        self.length() >= LONG && computed >= self.length().0 / 2
    }

    fn add(&mut self, sample: &Sample) {
        self.at = self.at.max(sample.at);
        let stack = match self.stacks.iter().position(|(stack, _)| *stack == sample.stack) {
            Some(known) => known,
            None if self.stacks.len() >= STACKS_MAX => 0,
            None => {
                self.stacks.push((sample.stack, Nanos(0)));
                self.stacks.len() - 1
            }
        };
        let time = &mut self.stacks[stack].1;
        *time = time.saturating_add(sample.weight);
    }
}

#[derive(Debug)]
pub struct Turns {
    history: History,
    open: HashMap<(ProcessRef, Tid), Turn>,
    /// In the order in which they ended.
    long: VecDeque<Turn>,
}

impl Turns {
    pub fn new(history: History) -> Self {
        Self { history, open: HashMap::new(), long: VecDeque::new() }
    }

    pub(crate) fn add(&mut self, sample: &Sample) {
        let Some(turn_us) = sample.turn_us else { return };
        let since = Nanos(u64::from(turn_us.get()) * 1000);
        let (from, key) = (sample.at.saturating_sub(since), (sample.process, sample.tid));
        if self.open.len() >= LOOPS_MAX && !self.open.contains_key(&key) {
            return;
        }
        let begin = || Turn { process: sample.process, tid: sample.tid, from, at: sample.at, stacks: Vec::new() };
        let turn = self.open.entry(key).or_insert_with(begin);
        if from.saturating_sub(turn.from) > ROUNDING {
            let ended = std::mem::replace(turn, begin());
            turn.add(sample);
            self.keep(ended);
        } else if turn.from.saturating_sub(from) <= ROUNDING {
            turn.add(sample);
        }
        // Else it comes too late: samples of several CPUs are not quite in order.
    }

    fn keep(&mut self, turn: Turn) {
        if !turn.is_starving() || !self.history.covered().has_time(turn.at) {
            return;
        }
        if self.long.len() >= KEPT_MAX {
            self.long.pop_front();
        }
        self.long.push_back(turn);
    }

    /// Forgets turns that ended before the window that ends at `now`.
    pub fn expire(&mut self, now: Nanos) {
        let History::Window { length, .. } = self.history else { return };
        let since = now.saturating_sub(length);
        while self.long.pop_front_if(|turn| turn.at < since).is_some() {}
        self.open.retain(|_, turn| turn.at >= since);
    }

    /// The turns that took long and computed for most of that time.
    pub fn starving<'a>(&'a self, selection: &'a Selection) -> impl Iterator<Item = &'a Turn> + 'a {
        let open = self.open.values().filter(|turn| turn.is_starving());
        self.long.iter().chain(open).filter(|turn| selection.has(turn.process, turn.tid, turn.at))
    }
}

//! Who waits for the GIL, who holds it meanwhile, and for how long.

use std::collections::{BTreeMap, HashMap};

use super::clip::{Spell, clip};
use super::{Past, Sampled, Timed, Times};
use crate::{GilHolder, GilWait, History, Nanos, Place, ProcessRef, Selection, Tid};

/// The key of wait sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GilKey {
    /// Where the thread asked for the GIL.
    pub waiter: Place,
    pub holder: Option<GilHolder>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GilSum {
    pub times: Times,
    pub sampled: Sampled,
}

impl GilSum {
    pub fn add(&mut self, other: Self) {
        self.times.add(other.times);
        self.sampled.add(other.sampled);
    }
}

impl GilWait {
    /// The part within the selected time.
    pub fn clipped(&self, selection: &Selection) -> Option<Self> {
        Some(Spell::from(self).clipped(selection)?.of_wait(self))
    }
}

impl Spell {
    fn of_wait(self, wait: &GilWait) -> GilWait {
        let Self { from, at, count, total, length, stacks } = self;
        GilWait { from, at, count, total, length, stacks, ..*wait }
    }
}

impl From<&GilWait> for Spell {
    fn from(wait: &GilWait) -> Self {
        let &GilWait { from, at, count, total, length, stacks, .. } = wait;
        Self { from, at, count, total, length, stacks }
    }
}

impl Timed for GilWait {
    fn at(&self) -> Nanos {
        self.at
    }
}

#[derive(Clone, Copy, Debug)]
struct Held {
    at: Nanos,
    process: ProcessRef,
    tid: Tid,
    length: Nanos,
}

impl Timed for Held {
    fn at(&self) -> Nanos {
        self.at
    }
}

/// A wait that may have more pieces, and the sum that its pieces were added to.
#[derive(Default)]
struct Open {
    length: Nanos,
    keys: Vec<GilKey>,
}

impl Open {
    fn close(&mut self, sums: &mut BTreeMap<GilKey, GilSum>) {
        for key in self.keys.drain(..) {
            sums.entry(key).or_default().times.add(Times { max: self.length, ..Times::default() });
        }
        self.length = Nanos(0);
    }
}

#[derive(Debug)]
pub struct Gil {
    waits: Past<GilWait>,
    held: Past<Held>,
}

impl Gil {
    pub fn new(history: History) -> Self {
        Self { waits: Past::new(history), held: Past::new(history) }
    }

    pub fn add_wait(&mut self, wait: GilWait) {
        self.waits.push(wait);
    }

    pub fn add_held(&mut self, at: Nanos, process: ProcessRef, tid: Tid, length: Nanos) {
        self.held.push(Held { at, process, tid, length });
    }

    /// Forgets waits and holds older than the window ending at `now`.
    pub fn expire(&mut self, now: Nanos) {
        while self.waits.expire(now).is_some() {}
        while self.held.expire(now).is_some() {}
    }

    /// The time from which on waits and holds are kept.
    pub fn since(&self) -> Nanos {
        self.waits.since().max(self.held.since())
    }

    /// Kept pieces of waits that overlap the time of `selection`, in the order of their ends, clipped to that time.
    pub fn waits<'a>(&'a self, selection: &'a Selection) -> impl Iterator<Item = GilWait> + 'a {
        let waits = self.waits.since_then(selection.from);
        let waits = clip(waits, selection, |wait| (wait.process, wait.tid, Spell::from(wait)));
        waits.into_iter().map(|(wait, spell)| spell.of_wait(wait))
    }

    /// The same as [`Self::waits`], by thread.
    pub fn waits_by_thread(&self, selection: &Selection) -> HashMap<(ProcessRef, Tid), Vec<GilWait>> {
        let mut waits: HashMap<_, Vec<_>> = HashMap::new();
        for wait in self.waits(selection) {
            waits.entry((wait.process, wait.tid)).or_default().push(wait);
        }
        waits
    }

    /// A wait counts at its first piece, and its time counts at each piece. The maximum is the longest whole wait with
    /// a piece under that key.
    pub fn sums(&self, selection: &Selection) -> BTreeMap<GilKey, GilSum> {
        let mut sums: BTreeMap<GilKey, GilSum> = BTreeMap::new();
        let mut open: HashMap<(ProcessRef, Tid), Open> = HashMap::new();
        for wait in self.waits(selection) {
            let key = GilKey { waiter: wait.place(), holder: wait.holder };
            let spell = Spell::from(&wait);
            let times = Times { max: Nanos(0), ..spell.times() };
            sums.entry(key).or_default().add(GilSum { times, sampled: spell.sampled() });
            let whole = open.entry((wait.process, wait.tid)).or_default();
            if wait.count > 0 {
                whole.close(&mut sums);
            }
            whole.length = whole.length.saturating_add(wait.length);
            whole.keys.push(key);
        }
        for whole in open.values_mut() {
            whole.close(&mut sums);
        }
        for sum in sums.values_mut() {
            sum.times = sum.times.settled();
        }
        sums
    }

    /// How long each thread in `selection` held the GIL.
    pub fn held(&self, selection: &Selection) -> BTreeMap<(ProcessRef, Tid), Nanos> {
        let mut sums: BTreeMap<(ProcessRef, Tid), Nanos> = BTreeMap::new();
        for held in self.held.since_then(selection.from).filter(|held| selection.has(held.process, held.tid, held.at)) {
            let sum = sums.entry((held.process, held.tid)).or_default();
            *sum = sum.saturating_add(held.length);
        }
        sums
    }
}

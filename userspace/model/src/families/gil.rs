//! Who waits for the GIL, behind whom, and who holds it.

use std::collections::{BTreeMap, HashMap};

use super::{Past, Timed, Times};
use crate::{GilHolder, GilWait, History, Nanos, Place, ProcessRef, Selection, Tid};

/// What waits are summed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Where the thread asked for the GIL.
    pub waiter: Place,
    pub holder: Option<GilHolder>,
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

/// A wait of which more pieces may come, and what its pieces so far were added to.
#[derive(Default)]
struct Open {
    length: Nanos,
    keys: Vec<Key>,
}

impl Open {
    fn close(&mut self, sums: &mut BTreeMap<Key, Times>) {
        for key in self.keys.drain(..) {
            sums.entry(key).or_default().add(Times { max: self.length, ..Times::default() });
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

    /// Forgets what is older than the window before `now`.
    pub fn expire(&mut self, now: Nanos) {
        while self.waits.expire(now).is_some() {}
        while self.held.expire(now).is_some() {}
    }

    /// Waits and holds from then on are kept.
    pub fn since(&self) -> Nanos {
        self.waits.since().max(self.held.since())
    }

    /// The kept pieces of waits that ended in the time that `selection` has, oldest first.
    pub fn waits<'a>(&'a self, selection: &'a Selection) -> impl Iterator<Item = &'a GilWait> + 'a {
        self.waits.since_then(selection.from).filter(|wait| selection.has(wait.process, wait.tid, wait.at))
    }

    /// The same of each thread.
    pub fn waits_by_thread<'a>(&'a self, selection: &'a Selection) -> HashMap<(ProcessRef, Tid), Vec<&'a GilWait>> {
        let mut waits: HashMap<_, Vec<_>> = HashMap::new();
        for wait in self.waits(selection) {
            waits.entry((wait.process, wait.tid)).or_default().push(wait);
        }
        waits
    }

    /// A wait counts where it began, and its time where it was spent; the longest is the longest whole wait that had a
    /// piece there.
    pub fn sums(&self, selection: &Selection) -> BTreeMap<Key, Times> {
        let mut sums: BTreeMap<Key, Times> = BTreeMap::new();
        let mut open: HashMap<(ProcessRef, Tid), Open> = HashMap::new();
        for wait in self.waits(selection) {
            let key = Key { waiter: wait.place(), holder: wait.holder };
            sums.entry(key).or_default().add(Times { count: wait.count, total: wait.total, max: Nanos(0) });
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
        sums
    }

    /// How long each thread that `selection` has held the GIL.
    pub fn held(&self, selection: &Selection) -> BTreeMap<(ProcessRef, Tid), Nanos> {
        let mut sums: BTreeMap<(ProcessRef, Tid), Nanos> = BTreeMap::new();
        for held in self.held.since_then(selection.from).filter(|held| selection.has(held.process, held.tid, held.at)) {
            let sum = sums.entry((held.process, held.tid)).or_default();
            *sum = sum.saturating_add(held.length);
        }
        sums
    }
}

//! Time that threads did not run: sleeps by thread, stack and reason.

use std::collections::BTreeMap;

use super::{Past, Timed, Times};
use crate::{History, Nanos, Place, Selection, Sleep, WaitReason, Waker};

/// What sleeps are summed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Where the thread went to sleep.
    pub place: Place,
    pub reason: WaitReason,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum<'a> {
    pub times: Times,
    pub wakers: Wakers<'a>,
}

impl Sum<'_> {
    fn of(sleep: &Sleep) -> Sum<'_> {
        let times = Times { count: sleep.count, total: sleep.total, max: sleep.length };
        Sum { times, wakers: Wakers(sleep.waker.iter().map(|waker| (waker, times)).collect()) }
    }
}

impl<'a> Sum<'a> {
    pub fn add(&mut self, other: Sum<'a>) {
        self.times.add(other.times);
        for (waker, times) in other.wakers.0 {
            self.wakers.0.entry(waker).or_default().add(times);
        }
    }
}

/// The sleeps that each waker ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wakers<'a>(BTreeMap<&'a Waker, Times>);

impl<'a> Wakers<'a> {
    /// Those who ended the longest sleeps together first.
    pub fn most(&self) -> Vec<(&'a Waker, Times)> {
        let mut wakers: Vec<_> = self.0.iter().map(|(waker, times)| (*waker, *times)).collect();
        wakers.sort_by_key(|(_, times)| std::cmp::Reverse(times.total));
        wakers
    }
}

impl Timed for Sleep {
    fn at(&self) -> Nanos {
        self.at
    }
}

#[derive(Debug)]
pub struct OffCpu {
    sleeps: Past<Sleep>,
}

impl OffCpu {
    pub fn new(history: History) -> Self {
        Self { sleeps: Past::new(history) }
    }

    pub fn add(&mut self, sleep: Sleep) {
        self.sleeps.push(sleep);
    }

    /// Forgets what is older than the window before `now`.
    pub fn expire(&mut self, now: Nanos) {
        while self.sleeps.expire(now).is_some() {}
    }

    /// Sleeps from then on are kept.
    pub fn since(&self) -> Nanos {
        self.sleeps.since()
    }

    /// The kept sleeps that ended in the time that `selection` has, oldest first.
    pub fn sleeps<'a>(&'a self, selection: &'a Selection) -> impl Iterator<Item = &'a Sleep> + 'a {
        self.sleeps.since_then(selection.from).filter(|sleep| selection.has(sleep.process, sleep.tid, sleep.at))
    }

    pub fn sums<'a>(&'a self, selection: &'a Selection) -> BTreeMap<Key, Sum<'a>> {
        let mut sums: BTreeMap<Key, Sum<'a>> = BTreeMap::new();
        for sleep in self.sleeps(selection) {
            sums.entry(Key { place: sleep.place(), reason: sleep.reason }).or_default().add(Sum::of(sleep));
        }
        sums
    }
}

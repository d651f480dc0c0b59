//! Off-CPU time: sleeps by thread, stack and reason.

use std::collections::BTreeMap;

use super::clip::{Spell, clip};
use super::{Past, Sampled, Timed, Times};
use crate::{History, Nanos, Place, ProcessRef, Selection, Sleep, Tid, WaitReason, Waker};

/// The key of sleep sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SleepKey {
    /// Where the thread went to sleep.
    pub place: Place,
    pub reason: WaitReason,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SleepSum<'a> {
    pub times: Times,
    pub sampled: Sampled,
    pub wakers: Wakers<'a>,
}

impl SleepSum<'_> {
    fn of(sleep: &Sleep, spell: Spell) -> SleepSum<'_> {
        let times = spell.times();
        let wakers = Wakers(sleep.waker.iter().map(|waker| (waker, times)).collect());
        SleepSum { times, sampled: spell.sampled(), wakers }
    }
}

impl<'a> SleepSum<'a> {
    pub fn add(&mut self, other: SleepSum<'a>) {
        self.times.add(other.times);
        self.sampled.add(other.sampled);
        for (waker, times) in other.wakers.0 {
            self.wakers.0.entry(waker).or_default().add(times);
        }
    }
}

/// How much sleep each waker ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wakers<'a>(BTreeMap<&'a Waker, Times>);

impl<'a> Wakers<'a> {
    /// Wakers, sorted by the total length of the sleeps they ended, longest first.
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

    /// Forgets sleeps older than the window ending at `now`.
    pub fn expire(&mut self, now: Nanos) {
        while self.sleeps.expire(now).is_some() {}
    }

    /// The time from which on sleeps are kept.
    pub fn since(&self) -> Nanos {
        self.sleeps.since()
    }

    /// Kept sleeps that overlap the time of `selection`, in the order of their ends, clipped to that time.
    pub fn sleeps<'a>(&'a self, selection: &'a Selection) -> impl Iterator<Item = Sleep> + 'a {
        self.clipped(selection).into_iter().map(|(sleep, spell)| spell.of_sleep(sleep))
    }

    fn clipped<'a>(&'a self, selection: &Selection) -> Vec<(&'a Sleep, Spell)> {
        clip(self.sleeps.since_then(selection.from), selection, |sleep| (sleep.process, sleep.tid, Spell::from(sleep)))
    }

    pub fn sums<'a>(&'a self, selection: &Selection) -> BTreeMap<SleepKey, SleepSum<'a>> {
        let mut sums: BTreeMap<SleepKey, SleepSum<'a>> = BTreeMap::new();
        for (sleep, spell) in self.clipped(selection) {
            sums.entry(SleepKey { place: sleep.place(), reason: sleep.reason })
                .or_default()
                .add(SleepSum::of(sleep, spell));
        }
        for sum in sums.values_mut() {
            sum.times = sum.times.settled();
        }
        sums
    }

    /// Each thread's sleep time by reason. It is exact, even if stacks were sampled.
    pub fn threads(&self, selection: &Selection) -> BTreeMap<(ProcessRef, Tid, WaitReason), Times> {
        let mut sums: BTreeMap<_, Times> = BTreeMap::new();
        for (sleep, spell) in self.clipped(selection) {
            sums.entry((sleep.process, sleep.tid, sleep.reason)).or_default().add(spell.times());
        }
        sums
    }
}

impl Sleep {
    /// The part within the selected time.
    pub fn clipped(&self, selection: &Selection) -> Option<Self> {
        Some(Spell::from(self).clipped(selection)?.of_sleep(self))
    }
}

impl Spell {
    fn of_sleep(self, sleep: &Sleep) -> Sleep {
        let Self { from, at, count, total, length, stacks } = self;
        Sleep { from, at, count, total, length, stacks, ..sleep.clone() }
    }
}

impl From<&Sleep> for Spell {
    fn from(sleep: &Sleep) -> Self {
        let &Sleep { from, at, count, total, length, stacks, .. } = sleep;
        Self { from, at, count, total, length, stacks }
    }
}

//! Off-CPU time: sleeps by thread, stack and reason.

use std::collections::BTreeMap;

use super::clip::{Clipped, Spell, clip};
use super::places::{OfProcess, OfThread, Placed};
use super::{LengthSum, Past, Places, Sampled, Summed, Timed, Times};
use crate::{History, Nanos, Place, ProcessRef, Selection, Sleep, Tid, WaitReason, Waker};

/// The key of sleep sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SleepKey {
    /// Where the thread went to sleep.
    pub place: Place,
    pub reason: WaitReason,
}

impl Placed for SleepKey {
    fn of_thread(&self) -> Self {
        Self { place: self.place.of_thread(), ..*self }
    }

    fn of_process(&self) -> Self {
        Self { place: self.place.of_process(), ..*self }
    }
}

impl OfProcess for SleepKey {
    fn process(&self) -> ProcessRef {
        self.place.process
    }

    fn of_others(&self) -> Self {
        Self { place: self.place.of_others(), ..*self }
    }
}

impl OfThread for SleepKey {
    fn thread(&self) -> (ProcessRef, Tid) {
        (self.place.process, self.place.tid)
    }
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

    fn is_within(&self, selection: &Selection) -> bool {
        Spell::from(self).clipped(selection).is_some()
    }
}

/// Sleeps that are in sums only.
#[derive(Debug, Default)]
pub struct SleepFolded {
    pub times: Times,
    pub lengths: LengthSum,
    sampled: Sampled,
    wakers: Vec<(Waker, Times)>,
}

/// How many wakers a place's folded sleeps keep. A new one replaces the one that ended the least sleep.
const WAKERS_MAX: usize = 16;

impl SleepFolded {
    /// Adds all of a sleep but its total time, which may have to be scaled.
    fn add(&mut self, sleep: Sleep) {
        let spell = Spell::from(&sleep);
        self.times.add(Times { total: Nanos(0), ..spell.times() });
        self.sampled.add(spell.sampled());
        self.lengths.add(sleep.at, sleep.count, sleep.total);
        if let Some(waker) = sleep.waker {
            self.add_waker(waker, spell.times());
        }
    }

    fn add_waker(&mut self, waker: Waker, times: Times) {
        if let Some((_, sum)) = self.wakers.iter_mut().find(|(known, _)| *known == waker) {
            return sum.add(times);
        }
        if self.wakers.len() == WAKERS_MAX {
            let least = self.wakers.iter().enumerate().min_by_key(|(_, (_, sum))| sum.total).map(|(index, _)| index);
            least.map(|index| self.wakers.swap_remove(index));
        }
        self.wakers.push((waker, times));
    }
}

impl Summed for SleepFolded {
    fn weight(&self) -> u64 {
        self.times.total.0
    }

    fn take(&mut self, other: Self) {
        self.times.add(other.times);
        self.sampled.add(other.sampled);
        self.lengths.join(&other.lengths);
        other.wakers.into_iter().for_each(|(waker, times)| self.add_waker(waker, times));
    }
}

#[derive(Debug)]
pub struct OffCpu {
    sleeps: Past<Sleep>,
    folded: Places<SleepKey, SleepFolded>,
    /// The time of folded sleeps that were cut in proportion to the covered time. `folded` does not have it.
    cut: Places<SleepKey, Nanos>,
}

impl OffCpu {
    pub fn new(history: History) -> Self {
        Self { sleeps: Past::new(history), folded: Places::default(), cut: Places::default() }
    }

    pub fn add(&mut self, sleep: Sleep) {
        let Some(oldest) = self.sleeps.push(sleep).filter(|_| self.sleeps.has_sums()) else { return };
        let whole = Spell::from(&oldest);
        let Some(part) = whole.clipped(self.sleeps.covered()) else { return };
        let key = SleepKey { place: oldest.place(), reason: oldest.reason };
        let folded = self.folded.of(key);
        folded.add(part.of_sleep(&oldest));
        let total = if whole.is_cut_to(part) { self.cut.of(key) } else { &mut folded.times.total };
        *total = total.saturating_add(part.total);
    }

    /// Reassigns the sleeps of evicted processes.
    pub(crate) fn reassign(&mut self, resolve: impl Fn(ProcessRef) -> ProcessRef) {
        self.sleeps.iter_mut().for_each(|sleep| sleep.process = resolve(sleep.process));
        self.folded.reassign(&resolve);
        self.cut.reassign(&resolve);
    }

    /// Forgets sleeps older than the window ending at `now`.
    pub fn expire(&mut self, now: Nanos) {
        while self.sleeps.expire(now).is_some() {}
    }

    /// The time from which on sleeps of `selection` are known, one by one or in sums.
    pub fn since(&self, selection: &Selection) -> Nanos {
        self.sleeps.since(selection)
    }

    /// The time from which on sleeps are kept one by one.
    pub fn kept_since(&self) -> Nanos {
        self.sleeps.kept_since()
    }

    /// Returns the number of sleeps that are in sums only, and of places that are only in the sums of their threads.
    pub fn summed(&self) -> (u64, u64) {
        (if self.sleeps.has_sums() { self.sleeps.gone() } else { 0 }, self.folded.gone())
    }

    /// Kept sleeps that overlap the time of `selection`, in the order of their ends, clipped to that time.
    pub fn sleeps<'a>(&'a self, selection: &'a Selection) -> impl Iterator<Item = Sleep> + 'a {
        self.clipped(selection).into_iter().map(|(sleep, spell)| spell.of_sleep(sleep))
    }

    fn clipped<'a>(&'a self, selection: &Selection) -> Clipped<'a, Sleep> {
        self.clipped_with_cut(selection).0
    }

    /// Also returns the sums of folded sleeps that were cut in proportion.
    fn clipped_with_cut<'a>(&'a self, selection: &Selection) -> (Clipped<'a, Sleep>, Vec<(SleepKey, Nanos)>) {
        let folded = self.folded(selection).map(|(key, folded)| (*key, folded.times.total));
        let cut = self.sleeps.of_threads(&self.cut, selection).map(|(key, total)| (*key, *total)).collect();
        let spell = |sleep: &Sleep| (sleep.process, sleep.tid, Spell::from(sleep));
        clip(self.sleeps.since_then(selection.from), folded, cut, selection, spell)
    }

    /// Sleeps of the threads in `selection` that are in sums only; none unless the sums cover its time.
    pub fn folded<'a, 's>(
        &'a self,
        selection: &'s Selection,
    ) -> impl Iterator<Item = (&'a SleepKey, &'a SleepFolded)> + use<'a, 's> {
        self.sleeps.of_threads(&self.folded, selection)
    }

    pub fn sums<'a>(&'a self, selection: &Selection) -> BTreeMap<SleepKey, SleepSum<'a>> {
        let mut sums: BTreeMap<SleepKey, SleepSum<'a>> = BTreeMap::new();
        for (key, folded) in self.folded(selection) {
            let wakers = Wakers(folded.wakers.iter().map(|(waker, times)| (waker, *times)).collect());
            sums.insert(*key, SleepSum { times: folded.times, sampled: folded.sampled, wakers });
        }
        let (clipped, cut) = self.clipped_with_cut(selection);
        for (key, total) in cut {
            sums.entry(key).or_default().times.add(Times { total, ..Times::default() });
        }
        for (sleep, spell) in clipped {
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
        for (key, folded) in self.folded(selection) {
            sums.entry((key.place.process, key.place.tid, key.reason)).or_default().add(folded.times);
        }
        let (clipped, cut) = self.clipped_with_cut(selection);
        for (key, total) in cut {
            let times = sums.entry((key.place.process, key.place.tid, key.reason)).or_default();
            times.add(Times { total, ..Times::default() });
        }
        for (sleep, spell) in clipped {
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

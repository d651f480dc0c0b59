//! Sums by place, with a bounded number of places.

use std::collections::BTreeMap;

use crate::{Nanos, Place, ProcessRef, StackId, Tid};

/// How many places of a family are kept. Beyond that, the lighter half is merged into entries of their threads, which have no
/// stack; if there are too many threads, into entries of their processes. Sums of threads, or at least of processes, stay
/// exact.
const PLACES_MAX: usize = 1 << 15;

/// A stack id that no recording defines. It has no frames.
const NO_STACK: StackId = StackId(u32::MAX);
/// Stands for all threads of a process.
pub(super) const NO_THREAD: Tid = Tid(0);

/// A key of sums.
pub(super) trait Placed: Clone + Ord {
    /// The key for all places of its thread.
    fn of_thread(&self) -> Self;

    /// The key for all threads of its process.
    fn of_process(&self) -> Self;
}

/// A key of one process's sums.
pub(super) trait OfProcess: Placed {
    fn process(&self) -> ProcessRef;

    /// The same key of [`ProcessRef::OTHERS`], without the thread.
    fn of_others(&self) -> Self;
}

/// A key of one thread's sums.
pub(super) trait OfThread: Placed {
    fn thread(&self) -> (ProcessRef, Tid);
}

/// A sum.
pub(super) trait Summed: Default {
    /// The heaviest sums are kept.
    fn weight(&self) -> u64;

    fn take(&mut self, other: Self);
}

impl Summed for u64 {
    fn weight(&self) -> u64 {
        *self
    }

    fn take(&mut self, other: Self) {
        *self = self.saturating_add(other);
    }
}

impl Summed for Nanos {
    fn weight(&self) -> u64 {
        self.0
    }

    fn take(&mut self, other: Self) {
        *self = self.saturating_add(other);
    }
}

impl Place {
    /// The key for all places of a thread.
    pub(super) fn of_all(process: ProcessRef, tid: Tid) -> Self {
        Self { process, tid, stack: NO_STACK }
    }
}

impl OfProcess for Place {
    fn process(&self) -> ProcessRef {
        self.process
    }

    fn of_others(&self) -> Self {
        Self { process: ProcessRef::OTHERS, tid: NO_THREAD, ..*self }
    }
}

impl Placed for Place {
    fn of_thread(&self) -> Self {
        Self::of_all(self.process, self.tid)
    }

    fn of_process(&self) -> Self {
        Self::of_all(self.process, NO_THREAD)
    }
}

/// Merges sums into those of other keys; `other` returns `None` for a key that stays. Returns how many were merged.
pub(super) fn reassign<K: Ord, S: Default>(
    sums: &mut BTreeMap<K, S>,
    other: impl Fn(&K) -> Option<K>,
    mut take: impl FnMut(&mut S, S),
) -> u64 {
    let mut merged = 0;
    for (key, sum) in sums.extract_if(.., |key, _| other(key).is_some()).collect::<Vec<_>>() {
        let Some(other) = other(&key) else { continue };
        take(sums.entry(other).or_default(), sum);
        merged += 1;
    }
    merged
}

/// Sums by place, at most [`PLACES_MAX`] of them, or one for each process.
#[derive(Debug)]
pub(super) struct Places<K, S> {
    sums: BTreeMap<K, S>,
    /// The number of sums at which some are merged. It exceeds [`PLACES_MAX`] if there are too many processes, because a
    /// merge at each new process would take quadratic time.
    full: usize,
    /// How many places were merged into others.
    gone: u64,
}

impl<K, S> Default for Places<K, S> {
    fn default() -> Self {
        Self { sums: BTreeMap::new(), full: PLACES_MAX, gone: 0 }
    }
}

impl<K: Placed, S: Summed> Places<K, S> {
    /// The sum of a place.
    pub(super) fn of(&mut self, key: K) -> &mut S {
        if self.sums.len() >= self.full && !self.sums.contains_key(&key) {
            let is_roomy = |sums: &BTreeMap<K, S>| sums.len() <= PLACES_MAX / 4 * 3;
            self.make_room(K::of_thread);
            if !is_roomy(&self.sums) {
                self.make_room(K::of_process);
            }
            self.full = if is_roomy(&self.sums) { PLACES_MAX } else { self.sums.len() / 2 * 3 };
        }
        self.sums.entry(key).or_default()
    }

    /// Merges the sums of evicted processes by stack.
    pub(super) fn reassign(&mut self, resolve: impl Fn(ProcessRef) -> ProcessRef)
    where
        K: OfProcess,
    {
        let is_other = |key: &K| resolve(key.process()) != key.process();
        self.gone += reassign(&mut self.sums, |key| is_other(key).then(|| key.of_others()), S::take);
        self.full = PLACES_MAX;
    }

    /// All kept sums.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &S)> + '_ {
        self.sums.iter()
    }

    /// How many places were merged into their threads or processes.
    pub(super) fn gone(&self) -> u64 {
        self.gone
    }

    fn make_room(&mut self, other: impl Fn(&K) -> K) {
        let mut keys: Vec<(u64, K)> = self.sums.iter().map(|(key, sum)| (sum.weight(), key.clone())).collect();
        keys.sort_unstable();
        for (_, key) in keys.iter().take(keys.len() / 2) {
            let other = other(key);
            if let Some(sum) = (other != *key).then(|| self.sums.remove(key)).flatten() {
                self.sums.entry(other).or_default().take(sum);
                self.gone += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Count(u64);

    impl Summed for Count {
        fn weight(&self) -> u64 {
            self.0
        }

        fn take(&mut self, other: Self) {
            self.0 += other.0;
        }
    }

    fn places(threads: u32) -> Places<Place, Count> {
        let mut places: Places<Place, Count> = Places::default();
        for number in 0..5 * PLACES_MAX as u32 {
            let (tid, stack) = (Tid(1 + number % threads), StackId(number));
            places.of(Place { process: ProcessRef(number % 2), tid, stack }).0 += 1;
            places.of(Place { process: ProcessRef(0), tid: Tid(1), stack: StackId(7) }).0 += 1;
            assert!(places.sums.len() <= PLACES_MAX);
        }
        places
    }

    #[test]
    fn sums_of_threads_and_the_heaviest_places_stay_exact() {
        let places = places(8);
        let all = 5 * PLACES_MAX as u64;
        let heaviest = Place { process: ProcessRef(0), tid: Tid(1), stack: StackId(7) };
        assert_eq!(places.iter().find(|(key, _)| **key == heaviest).unwrap().1.0, all);
        for tid in 1..=8 {
            let of_thread = places.iter().filter(|(key, _)| key.tid == Tid(tid) && **key != heaviest);
            assert_eq!(of_thread.map(|(_, sum)| sum.0).sum::<u64>(), all / 8, "{tid}");
        }
        assert!(places.gone() > 3 * PLACES_MAX as u64);
    }

    /// Takes minutes if every new process sorts all sums again.
    #[test]
    fn more_processes_than_places_have_a_sum_each() {
        let mut places: Places<Place, Count> = Places::default();
        let processes = 10 * PLACES_MAX as u32;
        for number in 0..processes {
            for stack in 0..2 {
                places.of(Place { process: ProcessRef(number), tid: Tid(1), stack: StackId(stack) }).0 += 1;
            }
        }
        let mut of_processes: BTreeMap<ProcessRef, u64> = BTreeMap::new();
        places.iter().for_each(|(key, sum)| *of_processes.entry(key.process).or_default() += sum.0);
        assert_eq!(of_processes.len(), processes as usize);
        assert!(of_processes.values().all(|sum| *sum == 2));
    }

    #[test]
    fn sums_of_evicted_processes_are_merged_by_stack() {
        let mut places: Places<Place, Count> = Places::default();
        let place = |process, tid, stack| Place { process: ProcessRef(process), tid: Tid(tid), stack: StackId(stack) };
        for process in 0..6 {
            for (tid, stack) in [(10, 1), (11, 1), (10, 2)] {
                places.of(place(process, tid + process, stack)).0 += 1;
            }
        }
        places.reassign(|process| if process.0 < 4 { ProcessRef::OTHERS } else { process });
        let others = ProcessRef::OTHERS.0;
        let found: Vec<_> =
            places.iter().map(|(key, sum)| (*key, sum.0)).filter(|(key, _)| key.process.0 > 4).collect();
        let kept = [(place(5, 15, 1), 1), (place(5, 15, 2), 1), (place(5, 16, 1), 1)];
        assert_eq!(found, [&kept[..], &[(place(others, 0, 1), 8), (place(others, 0, 2), 4)]].concat());
        assert_eq!((places.iter().count(), places.gone()), (8, 12));
    }

    #[test]
    fn more_threads_than_places_leave_the_sums_of_processes() {
        let places = places(1 << 20);
        let sum = |process| places.iter().filter(|(key, _)| key.process == process).map(|(_, sum)| sum.0).sum::<u64>();
        let all = 5 * PLACES_MAX as u64;
        assert_eq!((sum(ProcessRef(0)), sum(ProcessRef(1))), (all / 2 + all, all / 2));
    }
}

//! The watched threads and their watchpoints.

use std::collections::HashMap;
use std::fs::File;
use std::time::{Duration, Instant};

use pyobs_abi::redundancy::{SpotKey, WatchKey};
use pyobs_model::Touched;

use super::calls::Wanted;
use super::pairs::Seen;
use super::slots::{Aim, SLOTS, Slot};
use super::token_bucket::Use;
use super::turns::Timed;

/// Threads with watchpoints at a time, and how long one keeps them without a sample.
const THREADS_MAX: usize = 128;
const IDLE: Duration = Duration::from_secs(2);

/// A watchpoint that is set.
pub struct Armed {
    pub id: u64,
    pub pid: u32,
    pub key: WatchKey,
    pub aim: Aim,
    pub bytes: u64,
    /// Number of calls that are skipped.
    pub passed: u32,
    pub since: Instant,
    pub touched: Option<Touched>,
    /// Other processes may read the memory, which no watchpoint here sees.
    pub is_shared: bool,
    pub traps: Vec<Seen>,
    /// Its traps already counted.
    pub counted: u32,
    pub of: Use,
    /// The instruction of the sample that it was set for.
    pub spot: SpotKey,
    /// If it waits for the result of a call.
    pub result: Option<Wanted>,
    /// If it waits for the results of turns.
    pub timed: Option<Timed>,
}

impl Armed {
    /// Records its number of traps so far. Returns how many are new.
    pub fn count(&mut self, traps: u32) -> u64 {
        let new = traps.saturating_sub(self.counted);
        self.counted = self.counted.max(traps);
        new.into()
    }
}

struct Watchpoint {
    slot: Slot,
    armed: Option<Armed>,
    waiting: Waiting,
}

/// Number of samples that have wanted a watchpoint since it was last free. Each gets it with the same
/// probability.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waiting(u64);

impl Waiting {
    /// Whether the newest one gets it (reservoir sampling: the n-th with a probability of 1 in `n`).
    fn has_it(&mut self, random: u64) -> bool {
        self.0 += 1;
        random.is_multiple_of(self.0 + 1)
    }
}

struct Thread {
    watchpoints: Vec<Watchpoint>,
    /// How many watchpoints it can have; fewer if others use some.
    room: usize,
    used: Instant,
}

/// Whether a thread can have one more watchpoint.
pub enum Room {
    Free,
    /// This one has to be replaced; the other value counts the samples that have wanted it.
    Replaces(u64, Waiting),
    None,
}

/// By tid.
#[derive(Default)]
pub struct Threads(HashMap<u32, Thread>);

impl Threads {
    pub fn has_armed(&self) -> bool {
        self.all().next().is_some()
    }

    /// Whether one of the thread's watchpoints is on the place of a result.
    pub fn awaits_result(&self, tid: u32) -> bool {
        self.of_thread(tid).any(|armed| armed.of == Use::Result)
    }

    /// Whether one of the thread's watchpoints times turns.
    pub fn is_timed(&self, tid: u32) -> bool {
        self.of_thread(tid).any(|armed| armed.timed.is_some())
    }

    fn of_thread(&self, tid: u32) -> impl Iterator<Item = &Armed> {
        let watchpoints = self.0.get(&tid).into_iter().flat_map(|thread| &thread.watchpoints);
        watchpoints.filter_map(|watchpoint| watchpoint.armed.as_ref())
    }

    fn all(&self) -> impl Iterator<Item = &Armed> {
        self.0.values().flat_map(|thread| &thread.watchpoints).filter_map(|watchpoint| watchpoint.armed.as_ref())
    }

    pub fn count(&self, which: impl Fn(&Armed) -> bool) -> u64 {
        self.all().filter(|armed| which(armed)).count() as u64
    }

    pub fn armed(&mut self, tid: u32, id: u64) -> Option<&mut Armed> {
        let watchpoints = &mut self.0.get_mut(&tid)?.watchpoints;
        watchpoints.iter_mut().filter_map(|watchpoint| watchpoint.armed.as_mut()).find(|armed| armed.id == id)
    }

    /// Makes room for a watchpoint of the thread: opens a new one, or takes one that is off, or by chance one
    /// that is on. The result of a call takes one of memory, because it needs it for the rest of that call only.
    /// `taken` counts watchpoints used by others.
    pub fn room(&mut self, tid: u32, (aim, of): (Aim, Use), mut random: u64, program: &File, taken: &mut u64) -> Room {
        if self.0.len() >= THREADS_MAX && !self.0.contains_key(&tid) {
            return Room::None;
        }
        let new = || Thread { watchpoints: Vec::new(), room: SLOTS, used: Instant::now() };
        let Thread { watchpoints, room, used } = self.0.entry(tid).or_insert_with(new);
        *used = Instant::now();
        let near = |armed: &Armed| armed.key.address.abs_diff(aim.address) < 8;
        if watchpoints.iter().any(|watchpoint| watchpoint.armed.as_ref().is_some_and(near)) {
            return Room::None;
        }
        if watchpoints.iter().any(|watchpoint| watchpoint.armed.is_none()) {
            return Room::Free;
        }
        if watchpoints.len() < *room {
            match Slot::open(tid, aim, program) {
                Ok(slot) => {
                    watchpoints.push(Watchpoint { slot, armed: None, waiting: Waiting::default() });
                    return Room::Free;
                }
                Err(error) => {
                    if error.raw_os_error() == Some(libc::ENOSPC) {
                        *taken += 1;
                        *room = watchpoints.len();
                    }
                }
            }
        }
        // All are on.
        let count = watchpoints.len();
        for index in 0..count {
            let number = (random as usize).wrapping_add(index) % count;
            let watchpoint = &mut watchpoints[number];
            random = random.rotate_left(17).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let Some(armed) = &watchpoint.armed else { continue };
            let gives_way = match of {
                Use::Result => armed.of == Use::Memory,
                Use::Memory => watchpoint.waiting.has_it(random),
            };
            if gives_way {
                return Room::Replaces(armed.id, watchpoint.waiting);
            }
        }
        Room::None
    }

    /// Moves a watchpoint of the thread that is off to a new address. Returns false if the thread no longer
    /// exists.
    pub fn set(&mut self, armed: Armed, waiting: Waiting) -> bool {
        let free = self
            .0
            .get_mut(&armed.key.tid)
            .and_then(|thread| thread.watchpoints.iter_mut().find(|watchpoint| watchpoint.armed.is_none()));
        let Some(watchpoint) = free else { return false };
        if watchpoint.slot.turn(armed.aim).and_then(|()| watchpoint.slot.on()).is_err() {
            return false;
        }
        (watchpoint.armed, watchpoint.waiting) = (Some(armed), waiting);
        true
    }

    /// Removes watchpoints. `is_over` tells which have switched themselves off and will never trap again.
    pub fn take(&mut self, which: impl Fn(&Armed) -> bool, is_over: impl Fn(&Armed) -> bool) -> Vec<Armed> {
        let mut taken = Vec::new();
        for thread in self.0.values_mut() {
            thread.watchpoints.retain_mut(|watchpoint| {
                let Some(armed) = watchpoint.armed.take_if(|armed| which(armed)) else { return true };
                // Fails if the thread has ended, which switches it off too. Check `is_over` only afterwards,
                // when its state no longer changes.
                let _ = watchpoint.slot.off();
                let is_over = is_over(&armed);
                taken.push(armed);
                !is_over
            });
        }
        taken
    }

    /// Closes a thread's watchpoints, all of which must be off.
    pub fn forget(&mut self, tid: u32) {
        self.0.remove(&tid);
    }

    pub fn forget_idle(&mut self) {
        self.0.retain(|_, thread| {
            thread.used.elapsed() < IDLE || thread.watchpoints.iter().any(|watchpoint| watchpoint.armed.is_some())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_has_the_watchpoint_with_the_same_chance() {
        const SAMPLES: usize = 12;
        const ROUNDS: usize = 120_000;
        let mut random = 1_u64;
        let mut had = [0; SAMPLES];
        for _ in 0..ROUNDS {
            let (mut waiting, mut has) = (Waiting::default(), 0);
            for sample in 1..SAMPLES {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if waiting.has_it(random >> 33) {
                    has = sample;
                }
            }
            had[has] += 1;
        }
        let even = ROUNDS / SAMPLES;
        assert!(had.iter().all(|count: &usize| count.abs_diff(even) < even / 20), "{had:?}");
    }
}

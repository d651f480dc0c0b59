//! The watched threads and their watchpoints.

use std::collections::HashMap;
use std::fs::File;
use std::time::{Duration, Instant};

use pyobs_abi::redundancy::{SpotKey, WatchKey};
use pyobs_model::Touched;

use super::pairs::Seen;
use super::slots::{Aim, SLOTS, Slot};

/// Threads that have watchpoints at the most, and how long one keeps them without a sample.
const THREADS_MAX: usize = 128;
const IDLE: Duration = Duration::from_secs(2);

/// A watchpoint that is set.
pub struct Armed {
    pub id: u64,
    pub pid: u32,
    pub key: WatchKey,
    pub aim: Aim,
    pub bytes: u64,
    pub since: Instant,
    pub touched: Option<Touched>,
    /// Other processes may read it, which no watchpoint here sees.
    pub is_shared: bool,
    pub traps: Vec<Seen>,
    /// Its traps that are in the counts.
    pub counted: u32,
    /// It is where the result of this instruction goes.
    pub result: Option<SpotKey>,
}

impl Armed {
    /// Takes note that it has had so many traps. Returns how many are new.
    pub fn count(&mut self, traps: u32) -> u64 {
        let new = traps.saturating_sub(self.counted);
        self.counted = self.counted.max(traps);
        new.into()
    }
}

struct Watchpoint {
    slot: Slot,
    armed: Option<Armed>,
    /// Samples that it has stayed on for.
    survived: u64,
}

struct Thread {
    watchpoints: Vec<Watchpoint>,
    /// How many it can have: fewer where others have taken some.
    room: usize,
    used: Instant,
}

/// A slot that is off, or will be.
pub struct Free {
    pub number: usize,
    /// The watchpoint that has to give way.
    pub replaced: Option<u64>,
}

/// By tid.
#[derive(Default)]
pub struct Threads(HashMap<u32, Thread>);

impl Threads {
    pub fn has_armed(&self) -> bool {
        self.all().next().is_some()
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

    /// A slot of the thread: a new one, one that is off, or by chance one that is on. `taken` counts those that others have.
    pub fn free_slot(&mut self, tid: u32, aim: Aim, mut random: u64, program: &File, taken: &mut u64) -> Option<Free> {
        if self.0.len() >= THREADS_MAX && !self.0.contains_key(&tid) {
            return None;
        }
        let new = || Thread { watchpoints: Vec::new(), room: SLOTS, used: Instant::now() };
        let Thread { watchpoints, room, used } = self.0.entry(tid).or_insert_with(new);
        *used = Instant::now();
        let near = |armed: &Armed| armed.key.address.abs_diff(aim.address) < 8;
        if watchpoints.iter().any(|watchpoint| watchpoint.armed.as_ref().is_some_and(near)) {
            return None;
        }
        if let Some(number) = watchpoints.iter().position(|watchpoint| watchpoint.armed.is_none()) {
            return Some(Free { number, replaced: None });
        }
        if watchpoints.len() < *room {
            match Slot::open(tid, aim, program) {
                Ok(slot) => {
                    watchpoints.push(Watchpoint { slot, armed: None, survived: 0 });
                    return Some(Free { number: watchpoints.len() - 1, replaced: None });
                }
                Err(error) => {
                    if error.raw_os_error() == Some(libc::ENOSPC) {
                        *taken += 1;
                        *room = watchpoints.len();
                    }
                }
            }
        }
        // All are on. Each gives way by a chance that keeps every sample equally likely to have one.
        let count = watchpoints.len();
        for index in 0..count {
            let number = (random as usize).wrapping_add(index) % count;
            let watchpoint = &mut watchpoints[number];
            watchpoint.survived += 1;
            random = random.rotate_left(17).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            if random.is_multiple_of(watchpoint.survived + 1) {
                return Some(Free { number, replaced: watchpoint.armed.as_ref().map(|armed| armed.id) });
            }
        }
        None
    }

    /// Turns a slot of the thread, which is off, to what is watched. Returns whether the thread is still there.
    pub fn set(&mut self, number: usize, armed: Armed) -> bool {
        let tid = armed.key.tid;
        let Some(watchpoint) = self.0.get_mut(&tid).and_then(|thread| thread.watchpoints.get_mut(number)) else {
            return false;
        };
        if watchpoint.slot.turn(armed.aim).and_then(|()| watchpoint.slot.on()).is_err() {
            return false;
        }
        (watchpoint.armed, watchpoint.survived) = (Some(armed), 0);
        true
    }

    /// Takes watchpoints off.
    pub fn take(&mut self, which: impl Fn(&Armed) -> bool) -> Vec<Armed> {
        let mut over = Vec::new();
        for watchpoint in self.0.values_mut().flat_map(|thread| &mut thread.watchpoints) {
            if watchpoint.armed.as_ref().is_some_and(&which) {
                // One whose thread is gone is off.
                let _ = watchpoint.slot.off();
                over.extend(watchpoint.armed.take());
            }
        }
        over
    }

    /// Closes what a thread has, all of which is off.
    pub fn forget(&mut self, tid: u32) {
        self.0.remove(&tid);
    }

    pub fn forget_idle(&mut self) {
        self.0.retain(|_, thread| {
            thread.used.elapsed() < IDLE || thread.watchpoints.iter().any(|watchpoint| watchpoint.armed.is_some())
        });
    }
}

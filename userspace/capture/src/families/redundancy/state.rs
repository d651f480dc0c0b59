//! What the thread that sets watchpoints knows.

use std::collections::HashMap;

use pyobs_abi::redundancy::SpotKey;
use pyobs_model::Watchpoints;

use super::code::Code;
use super::frames::Functions;
use super::place::Place;
use super::shares::Shares;
use super::threads::Threads;
use super::token_bucket::{TokenBucket, Use};
use super::turns::Turns;

pub struct State {
    pub places: HashMap<u32, Place>,
    pub threads: Threads,
    pub code: Code,
    pub counts: Watchpoints,
    /// The number of the next watchpoint.
    pub next: u64,
    random: u64,
    pub bucket: TokenBucket,
    pub shares: Shares,
    pub functions: Functions,
    pub turns: Turns,
}

impl Default for State {
    fn default() -> Self {
        Self {
            places: HashMap::new(),
            threads: Threads::default(),
            code: Code::default(),
            counts: Watchpoints::default(),
            next: 1,
            random: 0x9e37_79b9_7f4a_7c15,
            bucket: TokenBucket::default(),
            shares: Shares::default(),
            functions: Functions::default(),
            turns: Turns::default(),
        }
    }
}

impl State {
    /// Forgets a process that has ended or runs another program now.
    pub fn forget(&mut self, pid: u32) {
        self.places.remove(&pid);
        self.code.forget(pid);
        self.functions.forget(pid);
        self.turns.forget(pid);
    }

    pub fn spend(&mut self, of: Use, spot: SpotKey, traps: u64) {
        self.bucket.spend(spot.pid, of, traps);
        if of == Use::Memory {
            self.shares.spend(spot, traps);
        }
    }

    /// xorshift: its numbers choose what is watched and need not be unpredictable.
    pub fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

//! Limits how often a process's memory map may be read.
//!
//! The kernel writes the whole map at each read, which takes a tenth of a second for 200,000 mappings. A
//! process can change its map at will, so reading is limited to a share of the time, not by the number of
//! changes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Reading a process's map may use one part in this many of the time.
const SHARE: u32 = 50;
/// The initial and largest saving, so that a program that loads hundreds of libraries is followed closely.
const SAVED_MAX: Duration = Duration::from_millis(50);
/// Maps with at most this many lines are read at every notice.
const LINES_FREE: usize = 400;

/// The balance when a map was last read.
struct Account {
    /// Negative means debt.
    saved: i64,
    at: Instant,
}

/// By process; one without an entry has the full saving.
#[derive(Default)]
pub struct TokenBuckets(HashMap<u32, Account>);

impl TokenBuckets {
    /// When a process's map may be read again.
    pub fn next(&self, pid: u32, now: Instant) -> Instant {
        let debt = self.0.get(&pid).map_or(0, |account| account.saved.min(0).unsigned_abs());
        self.0.get(&pid).map_or(now, |account| account.at + Duration::from_nanos(debt) * SHARE).max(now)
    }

    /// Charges the CPU time that reading a map with this number of lines took.
    pub fn spend(&mut self, pid: u32, lines: usize, took: Duration, now: Instant) {
        if lines <= LINES_FREE {
            return;
        }
        let most = SAVED_MAX.as_nanos() as i64;
        // A full account equals no account. This also removes processes that have ended.
        self.0.retain(|other, account| *other == pid || account.saved_at(now) < most);
        let account = self.0.entry(pid).or_insert(Account { saved: most, at: now });
        account.saved = account.saved_at(now) - took.as_nanos() as i64;
        account.at = now;
    }
}

impl Account {
    fn saved_at(&self, now: Instant) -> i64 {
        let gained = (now.saturating_duration_since(self.at) / SHARE).as_nanos() as i64;
        self.saved.saturating_add(gained).min(SAVED_MAX.as_nanos() as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a map whenever allowed during `span`; returns how often.
    fn reads(lines: usize, took: Duration, span: Duration) -> u32 {
        let (mut map_reads, start) = (TokenBuckets::default(), Instant::now());
        let (mut now, mut reads) = (start, 0);
        while now < start + span {
            now = map_reads.next(7, now);
            map_reads.spend(7, lines, took, now);
            now += Duration::from_millis(10);
            reads += 1;
        }
        reads
    }

    #[test]
    fn a_large_map_costs_a_share_of_the_time() {
        let (span, took) = (Duration::from_secs(100), Duration::from_millis(100));
        let cost = took * reads(200_000, took, span);
        assert!(cost <= span / SHARE + SAVED_MAX + 2 * took, "{cost:?}");
        assert!(cost >= span / SHARE, "{cost:?}");
    }

    #[test]
    fn a_small_map_is_read_each_time_and_a_loader_is_followed() {
        assert_eq!(reads(200, Duration::from_millis(1), Duration::from_secs(10)), 1000);
        assert_eq!(reads(2000, Duration::from_millis(1), Duration::from_millis(400)), 40);
    }
}

//! Shares watchpoints among the instructions of a process. Each may spend what its own samples have earned, so one whose
//! watchpoints trap often does not use up what another needs, and what is decided is left alone.

use std::collections::HashMap;

use pyobs_abi::redundancy::SpotKey;

/// The most that an instruction can save, in traps.
const SAVED_MAX: f64 = 40.0;
/// After this many pairs of array accesses, or results, more would hardly change what they say: the share of equal ones is
/// known within three points, or six, with a certainty of 95 %.
const PAIRS_ENOUGH: u32 = 1000;
const RESULTS_ENOUGH: u32 = 250;
/// Up to this many results, three of four samples of a call with repeated arguments watch its result; after that, one
/// of four, until enough results were compared.
const RESULTS_FIRST: u32 = 30;
/// A decision holds until the instruction's share of the samples has changed by more than this fraction of it.
const CHANGE: f64 = 0.5;
/// The samples of a process over which shares are taken: the present and the previous period of this many.
const PERIOD: u32 = 1000;
/// Instructions kept per process; further ones have no share of their own.
const SPOTS_MAX: usize = 4096;

/// What was seen of one kind at an instruction.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    count: u32,
    /// The instruction's share of the samples when there were enough.
    decided_at: Option<f64>,
}

impl Seen {
    fn add(&mut self, enough: u32, share: f64) {
        self.count += 1;
        if self.count >= enough {
            self.decided_at.get_or_insert(share);
        }
    }

    /// Whether it is decided. Starts anew if the share is a different one now.
    fn is_decided(&mut self, share: f64) -> bool {
        if self.decided_at.is_some_and(|then| (share - then).abs() > CHANGE * then) {
            *self = Self::default();
        }
        self.decided_at.is_some()
    }
}

#[derive(Debug, Default)]
struct Spot {
    /// In traps; negative after a watchpoint that trapped more often than was earned.
    credit: f64,
    /// Samples in the present and the previous period.
    samples: [u32; 2],
    pairs: Seen,
    results: Seen,
}

#[derive(Debug, Default)]
struct Process {
    samples: [u32; 2],
    /// By code object and position.
    spots: HashMap<(u64, u64), Spot>,
}

#[derive(Debug, Default)]
pub struct Shares {
    processes: HashMap<u32, Process>,
}

impl Shares {
    /// Credits the instruction of a sample with what the sample has earned.
    pub fn sampled(&mut self, key: SpotKey, earned: f64) {
        let process = self.processes.entry(key.pid).or_default();
        process.samples[0] += 1;
        if process.samples[0] > PERIOD {
            process.samples = [0, process.samples[0]];
            process.spots.retain(|_, spot| {
                spot.samples = [0, spot.samples[0]];
                spot.samples[1] > 0 || spot.pairs.decided_at.is_some()
            });
        }
        if process.spots.len() < SPOTS_MAX || process.spots.contains_key(&(key.code, key.detail)) {
            let spot = process.spots.entry((key.code, key.detail)).or_default();
            spot.credit = (spot.credit + earned).min(SAVED_MAX);
            spot.samples[0] += 1;
        }
    }

    /// Whether memory may be watched. `is_plenty` says that the process has more traps left than its instructions need.
    pub fn may_watch(&mut self, key: SpotKey, is_plenty: bool) -> bool {
        self.spot(key).is_none_or(|(spot, share)| !spot.pairs.is_decided(share) && (is_plenty || spot.credit > 0.0))
    }

    /// Of four samples of a call whose arguments repeat, how many should watch its result instead of memory.
    pub fn quarters_for_result(&mut self, key: SpotKey) -> u64 {
        let Some((spot, share)) = self.spot(key) else { return 3 };
        if spot.results.is_decided(share) {
            0
        } else if spot.results.count < RESULTS_FIRST {
            3
        } else {
            1
        }
    }

    pub fn spend(&mut self, key: SpotKey, traps: u64) {
        if let Some((spot, _)) = self.spot(key) {
            spot.credit -= traps as f64;
        }
    }

    /// Counts a pair of accesses to an array.
    pub fn paired(&mut self, key: SpotKey) {
        if let Some((spot, share)) = self.spot(key) {
            spot.pairs.add(PAIRS_ENOUGH, share);
        }
    }

    /// Counts a result that was compared.
    pub fn returned(&mut self, key: SpotKey) {
        if let Some((spot, share)) = self.spot(key) {
            spot.results.add(RESULTS_ENOUGH, share);
        }
    }

    pub fn forget_but(&mut self, is_there: impl Fn(u32) -> bool) {
        self.processes.retain(|pid, _| is_there(*pid));
    }

    /// An instruction, and its share of its process's samples.
    fn spot(&mut self, key: SpotKey) -> Option<(&mut Spot, f64)> {
        let process = self.processes.get_mut(&key.pid)?;
        let spot = process.spots.get_mut(&(key.code, key.detail))?;
        let all: u32 = process.samples.iter().sum();
        let own: u32 = spot.samples.iter().sum();
        Some((spot, f64::from(own) / f64::from(all.max(1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOT: SpotKey = SpotKey { pid: 7, padding: 0, code: 0x1000, detail: 2 };
    const RARE: SpotKey = SpotKey { detail: 4, ..HOT };

    /// One sample in 25 is at `RARE`. A watchpoint of `HOT` costs more than its samples earn.
    #[test]
    fn a_line_with_a_small_part_of_the_time_gets_its_part() {
        let (mut shares, mut watched) = (Shares::default(), HashMap::new());
        for number in 0..10_000 {
            let (key, cost) = if number % 25 == 0 { (RARE, 10) } else { (HOT, 67) };
            shares.sampled(key, 4.0);
            if shares.may_watch(key, false) {
                shares.spend(key, cost);
                *watched.entry(key.detail).or_insert(0_u32) += 1;
            }
        }
        assert_eq!(watched[&RARE.detail], 400 * 4 / 10);
        assert!(watched[&HOT.detail].abs_diff(9600 * 4 / 67) < 3, "{watched:?}");
    }

    #[test]
    fn what_is_plenty_need_not_be_earned() {
        let mut shares = Shares::default();
        shares.sampled(HOT, 4.0);
        shares.spend(HOT, 10);
        assert!(!shares.may_watch(HOT, false) && shares.may_watch(HOT, true));
    }

    #[test]
    fn what_is_decided_is_left_alone_until_its_share_changes_by_half() {
        let mut shares = Shares::default();
        let sample = |shares: &mut Shares, every: u32| {
            for number in 0..4 * PERIOD {
                shares.sampled(if number % every == 0 { HOT } else { RARE }, 4.0);
            }
        };
        sample(&mut shares, 10);
        for _ in 0..PAIRS_ENOUGH {
            assert!(shares.may_watch(HOT, true));
            shares.paired(HOT);
        }
        for _ in 0..RESULTS_ENOUGH {
            assert_ne!(shares.quarters_for_result(HOT), 0);
            shares.returned(HOT);
        }
        assert_eq!((shares.may_watch(HOT, true), shares.quarters_for_result(HOT)), (false, 0));
        sample(&mut shares, 8);
        assert_eq!((shares.may_watch(HOT, true), shares.quarters_for_result(HOT)), (false, 0));
        sample(&mut shares, 4);
        assert_eq!((shares.may_watch(HOT, true), shares.quarters_for_result(HOT)), (true, 3));
    }

    #[test]
    fn further_instructions_and_processes_are_bounded_by_the_rest() {
        let mut shares = Shares::default();
        for number in 0..2 * SPOTS_MAX as u64 {
            shares.sampled(SpotKey { code: number, ..HOT }, 4.0);
        }
        assert!(shares.processes[&HOT.pid].spots.len() <= SPOTS_MAX);
        assert!(shares.may_watch(SpotKey { code: u64::MAX, ..HOT }, false));
        shares.forget_but(|pid| pid != HOT.pid);
        assert!(shares.processes.is_empty());
    }
}

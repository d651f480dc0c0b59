//! Limits traps to a share of a watched process's run time. A process that seldom runs is not slowed down
//! more than one that always runs, and does not pay for the traps of another.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::time::Duration;

/// Traps earned per sample of a process, and the most per second of its CPU time. With exception and program,
/// a trap costs about 30 µs.
const PER_SAMPLE: f64 = 4.0;
const PER_SECOND: f64 = 800.0;
/// The most that can be saved.
const AT_ONCE: f64 = 100.0;
/// The share of all that only results of calls may use, which cost one trap each.
const FOR_RESULTS: f64 = 0.25;
/// Setting and removing a watchpoint costs as much as this many traps, because each interrupts the thread's
/// CPU.
pub const SETTING: u64 = 3;

/// What a watchpoint observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Memory,
    /// The result of a call.
    Result,
}

/// Traps still allowed. An overdraft is paid back first.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    memory: f64,
    results: f64,
}

impl Left {
    const FULL: Self = Self { memory: AT_ONCE * (1.0 - FOR_RESULTS), results: AT_ONCE * FOR_RESULTS };

    fn add(&mut self, traps: f64) {
        self.memory = (self.memory + traps * (1.0 - FOR_RESULTS)).min(Self::FULL.memory);
        self.results = (self.results + traps * FOR_RESULTS).min(Self::FULL.results);
    }

    /// A result uses what is reserved first.
    fn spend(&mut self, of: Use, traps: f64) {
        match of {
            Use::Result if self.results > 0.0 || self.memory <= 0.0 => self.results -= traps,
            Use::Result | Use::Memory => self.memory -= traps,
        }
    }

    fn is_spent(self, of: Use) -> bool {
        self.memory <= 0.0 && (of == Use::Memory || self.results <= 0.0)
    }
}

#[derive(Debug)]
pub struct TokenBucket {
    /// Per second of CPU time.
    rate: f64,
    /// Of all processes together, per second of wall time.
    all: Left,
    /// When the last sample was taken, in nanoseconds.
    earned_at: u64,
    processes: HashMap<u32, Process>,
}

#[derive(Debug, Default)]
struct Process {
    left: Left,
    ran: Duration,
}

impl Default for TokenBucket {
    fn default() -> Self {
        Self { rate: 0.0, all: Left::FULL, earned_at: 0, processes: HashMap::new() }
    }
}

impl TokenBucket {
    /// Sets the sampling rate, per second of CPU time.
    pub fn sampled_at(&mut self, rate_hz: f64) {
        self.rate = (PER_SAMPLE * rate_hz).min(PER_SECOND);
    }

    /// Credits a sampled process, which has used `ran` of CPU time since it began. Samples of different CPUs
    /// may arrive out of order. Returns the number of traps it earned.
    pub fn earn(&mut self, pid: u32, ran: Duration, at: u64) -> f64 {
        let since = at.saturating_sub(self.earned_at) as f64 / 1e9;
        self.earned_at = self.earned_at.max(at);
        self.all.add(since * PER_SECOND);
        let process = self.processes.entry(pid).or_default();
        let earned = ran.saturating_sub(process.ran).as_secs_f64() * self.rate;
        process.ran = ran;
        process.left.add(earned);
        earned
    }

    pub fn spend(&mut self, pid: u32, of: Use, traps: u64) {
        self.all.spend(of, traps as f64);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.left.spend(of, traps as f64);
        }
    }

    pub fn is_spent(&self, pid: u32, of: Use) -> bool {
        self.all.is_spent(of) || self.processes.get(&pid).is_none_or(|process| process.left.is_spent(of))
    }

    /// Whether at least half of what a process can save for watching memory is there.
    pub fn is_half_full(&self, pid: u32) -> bool {
        let half = |left: Left| left.memory >= Left::FULL.memory / 2.0;
        half(self.all) && self.processes.get(&pid).is_some_and(|process| half(process.left))
    }

    pub fn forget_but(&mut self, is_there: impl Fn(u32) -> bool) {
        self.processes.retain(|pid, _| is_there(*pid));
    }
}

/// The CPU time of all threads of a process so far; `None` once it is gone.
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let mut clock = 0;
    // SAFETY: the clock's number is written to what is ours.
    let found = unsafe { libc::clock_getcpuclockid(libc::pid_t::try_from(pid).ok()?, &raw mut clock) };
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the time is written to what is ours, and is not read unless it was.
    let time = unsafe {
        if found != 0 || libc::clock_gettime(clock, time.as_mut_ptr()) != 0 {
            return None;
        }
        time.assume_init()
    };
    Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: u32 = 7;

    /// A bucket at this rate, used up.
    fn at(rate: f64) -> TokenBucket {
        let mut bucket = TokenBucket::default();
        bucket.sampled_at(rate);
        bucket
    }

    /// Spends all that a process may use, on memory first.
    fn all_of(bucket: &mut TokenBucket, pid: u32) -> u64 {
        [Use::Memory, Use::Result].into_iter().map(|of| spent_on(bucket, pid, of)).sum()
    }

    fn spent_on(bucket: &mut TokenBucket, pid: u32, of: Use) -> u64 {
        let mut spent = 0;
        while !bucket.is_spent(pid, of) {
            bucket.spend(pid, of, 1);
            spent += 1;
        }
        spent
    }

    /// Traps per second available to processes that each run a share of every hundredth of a second and are
    /// sampled then.
    fn spent_a_second(rate: f64, share: f64, processes: u32) -> f64 {
        const SECONDS: u32 = 20;
        let (mut bucket, mut spent) = (at(rate), 0);
        for number in 1..=SECONDS * 100 {
            let time = Duration::from_millis(10) * number;
            for pid in 0..processes {
                bucket.earn(pid, time.mul_f64(share), time.as_nanos() as u64);
                spent += all_of(&mut bucket, pid);
            }
        }
        (spent as f64 - AT_ONCE) / f64::from(SECONDS)
    }

    #[test]
    fn it_is_for_each_sample_and_bounded() {
        assert!((spent_a_second(100.0, 1.0, 1) - 100.0 * PER_SAMPLE).abs() < 6.0);
        assert!((spent_a_second(1000.0, 1.0, 1) - PER_SECOND).abs() < 6.0);
        assert!((spent_a_second(1000.0, 1.0, 16) - PER_SECOND).abs() < 6.0);
    }

    #[test]
    fn a_program_that_runs_a_tenth_of_the_time_gets_a_tenth() {
        for rate in [100.0, 1000.0] {
            let (all, some) = (spent_a_second(rate, 1.0, 1), spent_a_second(rate, 0.1, 1));
            assert!((some - all / 10.0).abs() < 6.0, "{some} of {all}");
        }
    }

    #[test]
    fn processes_do_not_share_what_they_earn() {
        let mut bucket = at(100.0);
        bucket.earn(PID, Duration::from_secs(1), 1_000_000_000);
        bucket.earn(PID + 1, Duration::from_millis(10), 1_000_000_000);
        assert_eq!(all_of(&mut bucket, PID + 1), PER_SAMPLE as u64);
        assert!(!bucket.is_spent(PID, Use::Memory) && bucket.is_spent(PID + 2, Use::Result));
    }

    #[test]
    fn a_quarter_is_only_for_results() {
        let mut bucket = at(100.0);
        bucket.earn(PID, Duration::from_secs(5), 5_000_000_000);
        assert_eq!(spent_on(&mut bucket, PID, Use::Memory), 75);
        bucket.spend(PID, Use::Memory, 1000);
        assert_eq!(spent_on(&mut bucket, PID, Use::Result), 25);
        let mut bucket = at(100.0);
        bucket.earn(PID, Duration::from_secs(5), 5_000_000_000);
        assert_eq!(spent_on(&mut bucket, PID, Use::Result), 100, "results may use the rest too");
        assert!(bucket.is_spent(PID, Use::Memory));
    }

    #[test]
    fn what_came_beyond_is_paid_back() {
        let mut bucket = at(100.0);
        bucket.earn(PID, Duration::from_secs(1), 1_000_000_000);
        bucket.spend(PID, Use::Memory, 75 + 6);
        bucket.earn(PID, Duration::from_millis(1010), 2_000_000_000);
        assert!(bucket.is_spent(PID, Use::Memory));
        bucket.earn(PID, Duration::from_millis(1030), 2_000_000_000);
        assert_eq!(spent_on(&mut bucket, PID, Use::Memory), 3);
    }

    #[test]
    fn samples_that_come_late_earn_nothing_twice() {
        let mut bucket = at(100.0);
        bucket.earn(PID, Duration::from_secs(5), 5_000_000_000);
        all_of(&mut bucket, PID);
        bucket.earn(PID, Duration::from_secs(5), 4_000_000_000);
        assert!(bucket.is_spent(PID, Use::Memory));
    }

    #[test]
    fn another_process_by_the_same_number_starts_anew() {
        let mut bucket = at(100.0);
        bucket.earn(PID, Duration::from_secs(5), 5_000_000_000);
        all_of(&mut bucket, PID);
        bucket.earn(PID, Duration::from_millis(10), 6_000_000_000);
        assert!(bucket.is_spent(PID, Use::Memory));
        bucket.earn(PID, Duration::from_millis(30), 6_000_000_000);
        assert!(!bucket.is_spent(PID, Use::Memory));
        bucket.forget_but(|pid| pid != PID);
        assert!(bucket.is_spent(PID, Use::Memory));
    }

    #[test]
    fn a_process_is_as_old_as_it_says_itself() {
        use rustix::time::{ClockId, clock_gettime};
        let own = || {
            let time = clock_gettime(ClockId::ProcessCPUTime);
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        };
        let (before, ran, after) = (own(), cpu_time(std::process::id()).unwrap(), own());
        assert!(before <= ran && ran <= after, "{before:?} {ran:?} {after:?}");
        assert_eq!(cpu_time(u32::MAX), None);
    }
}

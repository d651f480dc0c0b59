//! The perf events that drive the samples, one per CPU.
//!
//! They count CPU time (`cpu-clock`), so that each tick stands for a known time. Hardware cycles would not:
//! their period changes with the CPU's frequency, and an idle CPU has none.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use perf_event_open::config::{Cpu, Opts, Priv, Proc, SampleOn};
use perf_event_open::count::Counter;
use perf_event_open::event::sw::Software;
use pyobs_model::Nanos;

use crate::machine;

/// The event that drives the samples.
pub const CLOCK: &str = "cpu-clock";
/// `PERF_EVENT_IOC_PERIOD` (<https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/perf_event.h>).
const SET_PERIOD: libc::Ioctl = 0x4008_2404;
/// The period changes at the first wake-up of user space after this time, which is a fifth of a second if nothing else
/// wakes it, but not before this many ticks: a change restarts the period, so changes more frequent than ticks would
/// leave none.
const JITTER_EVERY: Duration = Duration::from_millis(150);
const JITTER_TICKS: u64 = 8;
/// The rate changes by at most this share. A program in step with the ticks is sampled at the same point until
/// the next change, so its samples are not independent: the larger the changes, the more rarely it is in step.
const JITTER: f64 = 0.3;

/// Runs a BPF program on every tick of every CPU, until it is dropped.
pub struct Ticks {
    counters: Vec<Counter>,
    rate_hz: u32,
    period: Period,
    random: u64,
}

/// How the CPUs tick.
#[derive(Clone, Copy, Debug)]
pub struct Period {
    /// Time between two ticks.
    pub length: Nanos,
    /// The first tick comes one `length` later.
    pub since: Nanos,
    /// The time that the first tick stands for.
    pub first: Nanos,
}

impl Period {
    /// No tick came before.
    fn start(length: Nanos, since: Nanos) -> Self {
        Self { length, since, first: Nanos(length.0 + length.0 / 2) }
    }

    /// The last tick before a change stands for the time up to half of its period after it, whenever the
    /// change comes. The first tick after the change stands for the rest, so that no time is lost or counted
    /// twice. Averaging would be biased: changes come when user space runs, often right after a tick that
    /// woke it.
    fn change(self, length: Nanos, since: Nanos) -> Self {
        let past_the_last_tick = since.saturating_sub(self.since).0 % self.length.0.max(1);
        let first = (past_the_last_tick + length.0 + length.0 / 2).saturating_sub(self.length.0 / 2);
        Self { length, since, first: Nanos(first) }
    }
}

impl Ticks {
    /// The ticks do not run yet.
    pub fn new(program: BorrowedFd<'_>, cpus: &[u32], rate_hz: u32) -> io::Result<Self> {
        let program = File::from(program.try_clone_to_owned()?);
        // Any number except zero.
        let random = machine::monotonic().0 | 1;
        let period = Period::start(Nanos(0), machine::monotonic());
        let mut ticks = Self { counters: Vec::new(), rate_hz, period, random };
        ticks.period.length = ticks.next_period();
        let counter = |cpu: &u32| counter(*cpu, ticks.period.length, &program);
        ticks.counters = cpus.iter().map(counter).collect::<io::Result<_>>()?;
        Ok(ticks)
    }

    /// `report` tells the program the period before the first tick.
    pub fn start(&mut self, report: impl FnOnce(Period)) -> io::Result<()> {
        self.period = Period::start(self.period.length, machine::monotonic());
        report(self.period);
        self.counters.iter().try_for_each(Counter::enable)
    }

    /// Changes the period slightly a few times a second. With a fixed one, a program with the same period
    /// would always be sampled at the same point.
    pub fn jitter(&mut self, report: impl FnOnce(Period)) {
        let age = machine::monotonic().saturating_sub(self.period.since);
        if age < self.next_change() {
            return;
        }
        let length = self.next_period();
        self.period = self.period.change(length, machine::monotonic());
        report(self.period);
        for counter in &self.counters {
            let value = length.0;
            // SAFETY: the descriptor is that of a perf event, and the kernel reads eight bytes, which live
            // here. If this fails, the event keeps its period.
            let _ = unsafe { libc::ioctl(counter.file().as_raw_fd(), SET_PERIOD, &raw const value) };
        }
    }

    /// Age at which the period is changed.
    fn next_change(&self) -> Nanos {
        Nanos(self.period.length.0 * JITTER_TICKS).max(Nanos(JITTER_EVERY.as_nanos() as u64))
    }

    fn next_period(&mut self) -> Nanos {
        period(self.rate_hz, self.next_random() * JITTER)
    }

    /// From -1 to 1 (xorshift64: Marsaglia, "Xorshift RNGs", 2003).
    fn next_random(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}

fn period(rate_hz: u32, change: f64) -> Nanos {
    Nanos((1e9 / (f64::from(rate_hz.max(1)) * (1.0 + change))) as u64)
}

fn counter(cpu: u32, period: Nanos, program: &File) -> io::Result<Counter> {
    // Ticks on an idle CPU would run the program for nothing.
    let exclude = Priv { idle: true, ..Priv::default() };
    let opts = Opts { exclude, sample_on: SampleOn::Count(period.0), ..Opts::default() };
    let counter = Counter::new(Software::CpuClock, (Proc::ALL, Cpu(cpu)), opts)?;
    counter.attach_bpf(program)?;
    Ok(counter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(rate_hz: u32) -> Ticks {
        let period = Period::start(period(rate_hz, 0.0), Nanos(0));
        Ticks { counters: Vec::new(), rate_hz, period, random: 1 }
    }

    #[test]
    fn no_time_is_left_out_or_counted_twice_whenever_the_period_changes() {
        for pasts in [[0, 0, 0], [9_999, 9_999, 9_999], [1, 5_000, 700]] {
            let (mut present, mut reported, mut last) = (Period::start(Nanos(10_000), Nanos(0)), 0, 0);
            for (number, past) in pasts.into_iter().enumerate() {
                // Four ticks, then the change.
                reported += present.first.0 + 3 * present.length.0;
                last = present.since.0 + 4 * present.length.0;
                assert_eq!(reported, last + present.length.0 / 2, "{pasts:?}, change {number}");
                present = present.change(Nanos(10_000 + 500 * number as u64), Nanos(last + past));
            }
            assert!(last > 0);
        }
    }

    #[test]
    fn changes_are_rarer_than_ticks_at_every_rate() {
        for rate in [1, 4, 20, 99, 20_000] {
            let ticks = ticks(rate);
            assert!(ticks.next_change().0 >= 8 * ticks.period.length.0, "{rate} Hz");
        }
        assert_eq!(ticks(99).next_change(), Nanos(150_000_000));
    }

    #[test]
    fn rates_are_the_requested_one_on_the_average() {
        let mut ticks = ticks(100);
        let mut rate = || 1.0 / ticks.next_period().as_secs_f64();
        let rates: Vec<f64> = (0..10_000).map(|_| rate()).collect();
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        assert!((mean - 100.0).abs() < 1.0, "{mean}");
        assert!(rates.iter().all(|rate| (69.9..130.1).contains(rate)));
        assert!(rates.iter().any(|rate| *rate < 71.0) && rates.iter().any(|rate| *rate > 129.0));
    }

    /// A function runs for the first half of each turn, at the sampler's rate, for 12 s. The rate changes five times a
    /// second.
    #[test]
    fn turns_at_the_rate_deviate_little_more_than_independent_samples() {
        const RUNS: u32 = 200;
        let mut ticks = ticks(99);
        let deviation = |ticks: &mut Ticks| {
            let mut length = ticks.next_period().as_secs_f64();
            let (mut now, mut changed) = (ticks.next_random().abs() / 99.0, 0.0);
            let (mut first, mut all) = (0.0, 0.0);
            while now < 12.0 {
                all += length;
                first += if (now * 99.0).fract() < 0.5 { length } else { 0.0 };
                if now - changed >= 0.2 {
                    length = ticks.next_period().as_secs_f64();
                    changed = now;
                }
                now += length;
            }
            first / all - 0.5
        };
        let squares: f64 = (0..RUNS).map(|_| deviation(&mut ticks).powi(2)).sum();
        let seen = (squares / f64::from(RUNS)).sqrt();
        let independent = (0.25_f64 / (12.0 * 99.0)).sqrt();
        assert!(seen < 1.4 * independent, "{seen} against {independent}");
    }
}

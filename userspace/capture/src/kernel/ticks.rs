//! The perf events that drive the samples, one a CPU.
//!
//! They count the CPU's time (`cpu-clock`), so that each tick stands for a known length of it. Hardware cycles would not: their
//! period changes with the frequency of the CPU, and a CPU without work has none.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use perf_event_open::config::{Cpu, Opts, Priv, Proc, SampleOn};
use perf_event_open::count::Counter;
use perf_event_open::event::sw::Software;
use pyobs_model::Nanos;

use crate::machine;

/// What drives the samples.
pub const CLOCK: &str = "cpu-clock";
/// `PERF_EVENT_IOC_PERIOD` (include/uapi/linux/perf_event.h).
const SET_PERIOD: libc::Ioctl = 0x4008_2404;
/// The period changes this often, by at most this share.
const JITTER_EVERY: Duration = Duration::from_millis(250);
const JITTER: f64 = 0.1;

/// Runs a BPF program on every tick of every CPU, until it is dropped.
pub struct Ticks {
    counters: Vec<Counter>,
    rate_hz: u32,
    changed: Instant,
    random: u64,
}

/// Between two ticks, and since when.
#[derive(Clone, Copy, Debug)]
pub struct Period {
    pub length: Nanos,
    pub since: Nanos,
}

impl Ticks {
    /// The ticks do not run yet.
    pub fn new(program: BorrowedFd<'_>, cpus: &[u32], rate_hz: u32) -> io::Result<Self> {
        let program = File::from(program.try_clone_to_owned()?);
        let counters =
            cpus.iter().map(|cpu| counter(*cpu, period(rate_hz, 0.0), &program)).collect::<io::Result<_>>()?;
        // Any number but zero.
        let random = machine::monotonic().0 | 1;
        Ok(Self { counters, rate_hz, changed: Instant::now(), random })
    }

    /// `tell` tells the program the period before the first tick.
    pub fn start(&mut self, tell: impl FnOnce(Period)) -> io::Result<()> {
        tell(Period { length: period(self.rate_hz, 0.0), since: machine::monotonic() });
        self.counters.iter().try_for_each(Counter::enable)
    }

    /// Changes the period a little a few times a second. With a fixed one, a program that does something as often would always be
    /// sampled at the same point of it.
    pub fn jitter(&mut self, tell: impl FnOnce(Period)) {
        if self.changed.elapsed() < JITTER_EVERY {
            return;
        }
        self.changed = Instant::now();
        let length = period(self.rate_hz, self.next_random() * JITTER);
        tell(Period { length, since: machine::monotonic() });
        for counter in &self.counters {
            let value = length.0;
            // SAFETY: the descriptor is that of a perf event, and the kernel reads eight bytes, which live here. An event that keeps
            // its period ticks on.
            let _ = unsafe { libc::ioctl(counter.file().as_raw_fd(), SET_PERIOD, &raw const value) };
        }
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
    Nanos((1e9 / f64::from(rate_hz.max(1)) * (1.0 + change)) as u64)
}

fn counter(cpu: u32, period: Nanos, program: &File) -> io::Result<Counter> {
    // Ticks on a CPU without work would run the program for nothing.
    let exclude = Priv { idle: true, ..Priv::default() };
    let opts = Opts { exclude, sample_on: SampleOn::Count(period.0), ..Opts::default() };
    let counter = Counter::new(Software::CpuClock, (Proc::ALL, Cpu(cpu)), opts)?;
    counter.attach_bpf(program)?;
    Ok(counter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_the_rate_s_on_the_average() {
        let mut ticks = Ticks { counters: Vec::new(), rate_hz: 100, changed: Instant::now(), random: 1 };
        let lengths: Vec<f64> = (0..10_000).map(|_| period(100, ticks.next_random() * JITTER).as_secs_f64()).collect();
        let mean = lengths.iter().sum::<f64>() / lengths.len() as f64;
        assert!((mean - 0.01).abs() < 1e-4, "{mean}");
        assert!(lengths.iter().all(|length| (0.009..=0.011).contains(length)));
        assert!(lengths.iter().any(|length| *length < 0.0091) && lengths.iter().any(|length| *length > 0.0109));
    }
}

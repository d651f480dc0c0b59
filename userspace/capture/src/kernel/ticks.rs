//! The perf events that drive the samples, one a CPU.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use perf_event_open::config::{Cpu, Opts, Priv, Proc, SampleOn};
use perf_event_open::count::Counter;
use perf_event_open::event::hw::Hardware;
use perf_event_open::event::sw::Software;

/// What drives the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    Cycles,
    CpuClock,
}

impl Clock {
    pub fn name(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::CpuClock => "cpu-clock",
        }
    }
}

/// Runs a BPF program on every tick of every CPU, until it is dropped.
pub struct Ticks {
    clock: Clock,
    _counters: Vec<Counter>,
}

impl Ticks {
    /// By hardware cycles where there are any, else by the CPU clock.
    pub fn start(program: BorrowedFd<'_>, cpus: &[u32], rate_hz: u32) -> io::Result<Self> {
        let program = File::from(program.try_clone_to_owned()?);
        let all = |clock: Clock| cpus.iter().map(|cpu| tick(clock, *cpu, rate_hz, &program)).collect::<io::Result<_>>();
        let (clock, counters) = match all(Clock::Cycles) {
            Ok(counters) => (Clock::Cycles, counters),
            Err(_) => (Clock::CpuClock, all(Clock::CpuClock)?),
        };
        Ok(Self { clock, _counters: counters })
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }
}

fn tick(clock: Clock, cpu: u32, rate_hz: u32, program: &File) -> io::Result<Counter> {
    // A CPU without work has no cycles; the CPU clock goes on there, and each tick would run the program for nothing.
    let exclude = Priv { idle: clock == Clock::CpuClock, ..Priv::default() };
    let opts = Opts { exclude, sample_on: SampleOn::Freq(rate_hz.into()), ..Opts::default() };
    let target = (Proc::ALL, Cpu(cpu));
    let counter = match clock {
        Clock::Cycles => Counter::new(Hardware::CpuCycle, target, opts),
        Clock::CpuClock => Counter::new(Software::CpuClock, target, opts),
    }?;
    counter.attach_bpf(program)?;
    counter.enable()?;
    Ok(counter)
}

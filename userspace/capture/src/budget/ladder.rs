//! The measures that each family offers, step by step.

use super::{ALLOWED_SHARE_MIN, Spender};
use pyobs_model::Family;

/// One step: what is given up, and how that affects the figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    /// As shown in the table of measures and in timelines.
    pub name: &'static str,
    /// A part of a sentence.
    pub what: &'static str,
    pub effect: &'static str,
    /// The harm of this step relative to other steps, beyond that of the earlier steps.
    pub harm: f64,
    /// The share of the family's work that remains; its cost shrinks by about as much.
    pub keeps: f64,
    /// Whether it cannot be reverted, because what is missed in the meantime would be missing for good.
    pub is_final: bool,
}

const fn measure(name: &'static str, what: &'static str, effect: &'static str, harm: f64, one_in: u32) -> Measure {
    Measure { name, what, effect, harm, keeps: 1.0 / one_in as f64, is_final: false }
}

/// Detaches a family's probes.
const fn probes_off(what: &'static str, effect: &'static str) -> Measure {
    Measure { name: "probes off", what, effect, harm: 256.0, keeps: 0.0, is_final: true }
}

const FEWER_SAMPLES: &str = "shares of time rest on fewer samples";
/// Approximate minimum of samples per second and CPU. With fewer, a function that runs for some seconds may
/// get none, and no error estimate would show it.
const RATE_MIN_HZ: f64 = 3.0;
/// Each halves the number of samples.
const SAMPLES: &[Measure] = &[
    measure("samples 1/2", "one sample in 2 is taken", FEWER_SAMPLES, 8.0, 2),
    measure("samples 1/4", "one sample in 4 is taken", FEWER_SAMPLES, 12.0, 4),
    measure("samples 1/8", "one sample in 8 is taken", FEWER_SAMPLES, 16.0, 8),
    measure("samples 1/16", "one sample in 16 is taken", FEWER_SAMPLES, 24.0, 16),
    measure("samples 1/32", "one sample in 32 is taken", FEWER_SAMPLES, 32.0, 32),
    measure("samples 1/64", "one sample in 64 is taken", FEWER_SAMPLES, 48.0, 64),
    measure("samples 1/128", "one sample in 128 is taken", FEWER_SAMPLES, 64.0, 128),
    measure("samples 1/256", "one sample in 256 is taken", FEWER_SAMPLES, 96.0, 256),
    measure("samples 1/512", "one sample in 512 is taken", FEWER_SAMPLES, 128.0, 512),
    measure("samples 1/1024", "one sample in 1024 is taken", FEWER_SAMPLES, 192.0, 1024),
];

/// The measures that leave enough samples at this rate.
pub(super) fn samples(rate_hz: u32) -> &'static [Measure] {
    let steps = SAMPLES.iter().take_while(|measure| f64::from(rate_hz) * measure.keeps >= RATE_MIN_HZ).count();
    &SAMPLES[..steps]
}

const FEWER_STACKS: &str = "the time that threads waited stays exact, and its lines rest on fewer stacks";
pub(super) const SLEEPS: &[Measure] = &[
    measure("stacks 1/8", "stacks of sleeps are taken 8 times as seldom", FEWER_STACKS, 1.0, 8),
    measure("stacks 1/64", "stacks of sleeps are taken 64 times as seldom", FEWER_STACKS, 2.0, 64),
    measure("stacks 1/512", "stacks of sleeps are taken 512 times as seldom", FEWER_STACKS, 4.0, 512),
];

const FEWER_WATCHPOINTS: &str = "pairs of accesses rest on fewer watchpoints";
pub(super) const WATCHPOINTS: &[Measure] = &[
    measure("watchpoints 1/4", "one watchpoint in 4 is set", FEWER_WATCHPOINTS, 2.0, 4),
    measure("watchpoints 1/16", "one watchpoint in 16 is set", FEWER_WATCHPOINTS, 4.0, 16),
    measure("watchpoints 1/64", "one watchpoint in 64 is set", FEWER_WATCHPOINTS, 6.0, 64),
];

const LIVES_ON: &str = "what lived then is shown as alive";
pub(super) const MEM_INFOS: &[Measure] = &[probes_off("MemInfos are not followed any more", LIVES_ON)];
pub(super) const LIBRARIES: &[Measure] = &[probes_off("arenas of libraries are not followed any more", LIVES_ON)];

/// Following a transfer to its end takes three to seven traps, most of them at instructions that the kernel
/// single-steps. Counting it takes one, at an instruction that the kernel emulates (docs/families/ucx.md).
pub(super) const TRANSFERS: &[Measure] = &[
    measure(
        "counted only",
        "transfers are counted when they are submitted",
        "their ends and stages are unknown",
        16.0,
        8,
    ),
    probes_off("transfers are not followed any more", "what was under way then has no end"),
];

const LARGER_STEPS: &str = "small parts of the memory are attributed to other lines";
/// The comparison at each fault stays, so this saves less than it says.
pub(super) const FAULTS: &[Measure] = &[
    measure("growth 1/4", "growth is sampled in steps 4 times as large", LARGER_STEPS, 2.0, 4),
    measure("growth 1/16", "growth is sampled in steps 16 times as large", LARGER_STEPS, 4.0, 16),
];

/// The measures of one family, and how many are taken.
pub(super) struct Ladder {
    pub(super) family: Spender,
    measures: &'static [Measure],
    is_bound: bool,
    pub(super) level: usize,
}

impl Ladder {
    pub(super) fn new(family: Spender, measures: &'static [Measure], is_bound: bool) -> Self {
        Self { family, measures, is_bound, level: 0 }
    }

    /// The family's name for the user.
    pub(super) fn name(&self) -> &'static str {
        match self.family {
            Spender::Samples => Family::Cpu.name(),
            Spender::Sleeps => Family::OffCpu.name(),
            Spender::Watchpoints => Family::Redundancy.name(),
            Spender::Calls => Family::Eval.name(),
            Spender::MemInfos => Family::Nrt.name(),
            Spender::Libraries => Family::Arena.name(),
            Spender::Transfers => Family::Ucx.name(),
            Spender::Faults => Family::Heap.name(),
            Spender::Rest => "pyobs",
        }
    }

    /// The family's own share of the budget: while it costs no more, giving something up would not help.
    pub(super) fn reserve(&self) -> f64 {
        match self.next() {
            Some(measure) if measure.is_final => ALLOWED_SHARE_MIN,
            _ if self.family == Spender::Samples => 0.5,
            _ => 0.0,
        }
    }

    pub(super) fn measure(&self, level: usize) -> Option<&'static Measure> {
        level.checked_sub(1).and_then(|last| self.measures.get(last))
    }

    pub(super) fn keeps(&self) -> f64 {
        self.measure(self.level).map_or(1.0, |measure| measure.keeps)
    }

    /// The next measure to take.
    pub(super) fn next(&self) -> Option<&'static Measure> {
        self.measures.get(self.level).filter(|_| self.is_bound)
    }

    /// What would be kept without the last measure; `None` if no measure is taken or the last is final.
    pub(super) fn previous(&self) -> Option<f64> {
        let before = self.level.checked_sub(1)?;
        let last = self.measure(self.level).filter(|measure| !measure.is_final);
        last.map(|_| self.measure(before).map_or(1.0, |measure| measure.keeps))
    }

    /// Harm of the last measure taken.
    pub(super) fn harm(&self) -> f64 {
        self.measure(self.level).map_or(0.0, |measure| measure.harm)
    }
}

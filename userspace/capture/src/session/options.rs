//! What the user asks of a capture.

use std::ffi::OsString;

use pyobs_model::Family;

use crate::families::arena::library::description::Named;
use crate::families::eval::chosen::Chosen;
pub use crate::placements::Matching;

/// Which processes are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    All,
    /// Those that run in certain places, whenever they start.
    Matching(Matching),
    /// These and their children.
    Pids(Vec<u32>),
    /// A process that waits to exec another program, from the exec on, and its children. The program is
    /// resolved as by execvp(3).
    Launched {
        pid: u32,
        program: OsString,
    },
}

impl Targets {
    /// Whether processes are watched that no one started or named.
    pub fn is_everybody(&self) -> bool {
        matches!(self, Self::All | Self::Matching(_))
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    pub targets: Targets,
    /// Samples per second and CPU.
    pub rate_hz: u32,
    pub probes: Vec<Family>,
    /// Those of them that the user requested by name.
    pub named: Vec<Family>,
    /// The share of all CPUs together that pyobs may use, in percent.
    pub budget: f64,
    /// Whether the budget binds the sampling rate, and the families that watch sleeps. It does not bind what
    /// the user requested by name without giving a budget.
    pub budget_binds_rate: bool,
    pub budget_binds_sleeps: bool,
    /// For the family `eval`: the functions whose calls are counted; empty for the most called ones.
    pub functions: Vec<Chosen>,
    /// For the family `arena`: the libraries whose arenas are followed besides CPython's.
    pub libraries: Vec<Named>,
    /// Whether the budget also binds these libraries and functions: only if the user gave one.
    pub budget_binds_calls: bool,
    pub walk: Walk,
    /// Whether to use the kernel's iterators if it has them; `false` is for tests.
    pub iterators: bool,
}

impl Options {
    /// The budget in percent of one core.
    pub fn budget_of_a_core(&self) -> f64 {
        self.budget * aya::util::online_cpus().map_or(1, |cpus| cpus.len()) as f64
    }
}

/// How stacks are walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// As this kernel allows.
    Best,
    /// As on a kernel without `bpf_loop`.
    Bounded,
    /// With `bpf_loop`, copying this many pages of each stack for [`super::Session::copies`]. For tests.
    Copied { pages: u32 },
}

impl Walk {
    /// How many pages of each stack are copied.
    pub fn pages(self) -> u32 {
        if let Self::Copied { pages } = self { pages } else { 0 }
    }
}

//! What a capture is asked for.

use std::ffi::OsString;

use pyobs_model::Family;

use crate::families::arena::library::description::Named;
use crate::families::eval::chosen::Chosen;

/// Which processes are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    All,
    /// These and the children that they start.
    Pids(Vec<u32>),
    /// A process that waits to become another program, from then on, and the children that it starts. The program as execvp(3)
    /// finds it.
    Launched {
        pid: u32,
        program: OsString,
    },
}

#[derive(Clone, Debug)]
pub struct Options {
    pub targets: Targets,
    /// Samples per second and CPU.
    pub rate_hz: u32,
    pub probes: Vec<Family>,
    /// The share of all CPUs together that pyobs may cost, in percent.
    pub budget: f64,
    /// Whether the budget binds the sampling rate, and whether it binds the families that watch sleeps: not what the user asked
    /// for by name without typing a budget.
    pub budget_binds_rate: bool,
    pub budget_binds_sleeps: bool,
    /// Of the family `eval`: the functions whose calls are counted; the most called ones when there is none.
    pub functions: Vec<Chosen>,
    /// Of the family `arena`: the libraries whose arenas are followed beside CPython's own.
    pub libraries: Vec<Named>,
    /// Whether the budget binds these, and the calls of these functions, too: when the user typed one.
    pub budget_binds_calls: bool,
    pub walk: Walk,
    pub addresses: Addresses,
    /// Whether the kernel's iterators are used where it has them; `false` is for tests.
    pub iterators: bool,
}

impl Options {
    /// The budget in percent of one core.
    pub fn budget_of_a_core(&self) -> f64 {
        self.budget * aya::util::online_cpus().map_or(1, |cpus| cpus.len()) as f64
    }
}

/// Where the family `redundancy` has the addresses of accesses from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// From the processor's own samples where it takes any, else from the code behind samples of the clock.
    Best,
    /// From faults of pages, in the place of the processor's samples. For tests.
    Faults,
}

/// How stacks are walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// As this kernel can.
    Best,
    /// As on a kernel without `bpf_loop`.
    Bounded,
    /// With `bpf_loop`, and so many pages of each stack are copied for [`super::Session::copies`]. For tests.
    Copied { pages: u32 },
}

impl Walk {
    /// How many pages of each stack are copied.
    pub fn pages(self) -> u32 {
        if let Self::Copied { pages } = self { pages } else { 0 }
    }
}

//! Extension modules that probes are put on, and what these may cost.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use pyobs_model::Nanos;

use crate::elf::Elf;
use crate::files;
use crate::kernel::uprobes::{Scope, TrapCosts, Uprobes, close_later};
use crate::process_maps::Mapping;
use crate::skim::read_loaded;

/// A file that a process has mapped.
pub struct Extension {
    file: File,
    bytes: Vec<u8>,
}

impl Extension {
    pub fn open(pid: u32, mapping: &Mapping) -> Result<Self, String> {
        let (file, size) = files::open(pid, mapping).map_err(|error| error.to_string())?.ok_or("it is no file")?;
        let bytes = read_loaded(&file, size).ok_or("it cannot be read")?;
        Ok(Self { file, bytes })
    }

    pub fn elf(&self) -> Result<Elf<'_>, String> {
        Elf::parse(&self.bytes).map_err(|error| error.to_string())
    }

    /// Runs a program at an address of the file, whoever comes there.
    pub fn attach(
        &self,
        uprobes: Uprobes,
        program: &OwnedFd,
        elf: &Elf<'_>,
        address: u64,
        cookie: u64,
    ) -> Result<OwnedFd, String> {
        let offset = address.wrapping_sub(elf.code_delta().ok_or("it has no code")?);
        // Resolved by the kernel in our own process.
        let path = CString::new(format!("/proc/self/fd/{}", self.file.as_raw_fd())).unwrap_or_default();
        let attached = uprobes.attach(program.as_fd(), &path, offset, Scope::Everybody, cookie);
        attached.map_err(|error| error.to_string())
    }
}

/// Files that have probes.
const FILES_MAX: usize = 64;

/// The probes of a family. They are closed beside the work: each takes the kernel milliseconds.
#[derive(Default)]
pub struct Probes {
    files: usize,
    all: Vec<OwnedFd>,
}

impl Probes {
    /// Whether one more file may have some.
    pub fn has_room(&self) -> bool {
        self.files < FILES_MAX
    }

    pub fn add(&mut self, of_a_file: Vec<OwnedFd>) {
        self.files += 1;
        self.all.extend(of_a_file);
    }

    /// Takes them away where they cost more than they may. Returns a sentence when it does; `what` is followed no more.
    pub fn hold_budget(&mut self, meter: &mut Meter, run_time: Duration, runs: u64, what: &str) -> Option<String> {
        let (share, budget) = meter.exceeds(run_time, runs)?;
        close_later(std::mem::take(&mut self.all));
        Some(format!(
            "{what} are not followed any more: that cost {share:.2} % of a core, and {budget:.2} % are allowed; what lived \
             then is told as alive"
        ))
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        close_later(std::mem::take(&mut self.all));
    }
}

/// More than any function has that is worth a probe.
const SIZE_MAX: u64 = 64 << 10;

/// The addresses of a function's return instructions.
pub fn returns(elf: &Elf<'_>, start: u64, size: u64) -> Vec<u64> {
    let Some(code) = elf.bytes(start, size.min(SIZE_MAX)).filter(|_| elf.is_code(start)) else { return Vec::new() };
    let instructions = Decoder::with_ip(64, code, start, DecoderOptions::NONE).into_iter();
    let returns = instructions.filter(|instruction| instruction.flow_control() == FlowControl::Return);
    returns.map(|instruction| instruction.ip()).collect()
}

/// Over which time the budget is held.
const SPAN: Duration = Duration::from_secs(2);

/// What hits cost.
pub struct Meter {
    costs: TrapCosts,
    /// The share of one core that hits may cost, in percent, if there is a bound.
    budget: Option<f64>,
    hits: u64,
    /// The hits at the beginning of the present span, and when that was.
    span: (u64, Instant),
    over: bool,
}

impl Meter {
    pub fn new(uprobes: Uprobes, budget: Option<f64>) -> io::Result<Self> {
        Ok(Self { costs: uprobes.trap_costs()?, budget, hits: 0, span: (0, Instant::now()), over: false })
    }

    pub fn hit(&mut self) {
        self.hits += 1;
    }

    /// What hits have cost so far besides their programs.
    pub fn trap_cost(&self) -> Nanos {
        Nanos(self.hits.saturating_mul(self.costs.stepped.into()))
    }

    /// Whether they have cost more than they may.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// The shares of a core that they cost and may cost, when they cost too much from now on.
    fn exceeds(&mut self, run_time: Duration, runs: u64) -> Option<(f64, f64)> {
        let program_cost = u64::try_from(run_time.as_nanos()).unwrap_or(u64::MAX).checked_div(runs)?;
        let (before, since) = self.span;
        let elapsed = since.elapsed();
        if self.over || elapsed < SPAN {
            return None;
        }
        self.span = (self.hits, Instant::now());
        let each = u64::from(self.costs.stepped).saturating_add(program_cost);
        let spent = (self.hits - before).saturating_mul(each) as f64 / 1e9;
        let share = spent / elapsed.as_secs_f64() * 100.0;
        let budget = self.budget.filter(|budget| share > *budget)?;
        self.over = true;
        Some((share, budget))
    }
}

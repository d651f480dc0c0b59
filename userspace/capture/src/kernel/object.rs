//! The BPF object: loading it, its maps, its programs.

mod messages;
mod programs;
mod refusal;
#[cfg(test)]
mod stack_depth;
pub mod system_calls;

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use aya::maps::{Array, ArrayOfMaps, HashMap, Map, MapData, PerCpuArray, RingBuf};
use aya::programs::{BtfTracePoint, Iter, PerfEvent, Program, ProgramError, ProgramFd, RawTracePoint, UProbe};
use aya::{Ebpf, EbpfError, EbpfLoader};
use pyobs_abi::control;
use pyobs_abi::process::{Layout, Process};
use pyobs_abi::record::Loss;
use pyobs_model::Nanos;

use super::btf::{Btf, BtfError, Offsets};
use super::features::Features;
use super::interrupts::EntryCode;
use super::iterators;
use super::program::ProgramSpec;
use super::ticks::{Period, Ticks};
use super::tracefs::Attached;
use crate::native::store::{MappingTable, Tables};

use messages::Messages;
use programs::Known;
use system_calls::Later;

pub use programs::Verified;
pub use refusal::{Refusal, innermost};

static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("PYOBS_BPF_OBJECT"));

/// Size of the ring buffer: half a second of records from 8 CPUs at 1 kHz, with stacks of 60 frames. Records
/// beyond that are lost and counted.
pub const RING_BYTES: u32 = 4 << 20;
/// The programs at forks, execs and exits, and their tracepoints.
pub const LIFECYCLE: [(&str, &str); 3] = [
    ("process_fork", "sched_process_fork"),
    ("process_exec", "sched_process_exec"),
    ("process_exit", "sched_process_exit"),
];
/// The programs at the kernel's tracepoints of mappings. Linux has the first one from 6.1 on.
pub const MAPPINGS: [(&str, &str); 2] = [("memory_unmapped", "ma_write"), ("memory_mapped", "vm_unmapped_area")];
/// The sampler.
pub const SAMPLER: &str = "cpu_sample";
/// The sampler that also sends a copy of each stack.
pub const SAMPLER_COPIED: &str = "cpu_sample_copied";

#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    #[error(transparent)]
    Btf(#[from] BtfError),
    #[error("the kernel does not take pyobs's BPF object: {}; `pyobs doctor` says what this machine lacks", innermost(.0))]
    Load(#[source] EbpfError),
    #[error(transparent)]
    Program(Refusal),
    #[error("the BPF object has no {0}; this build of pyobs is broken")]
    Missing(&'static str),
    #[error("the kernel's type information has no {0}; `pyobs doctor` says what this machine lacks")]
    NoType(&'static str),
    #[error("the BPF map {name} cannot be used: {error}")]
    Map { name: &'static str, error: aya::maps::MapError },
    #[error(
        "the kernel gives no hardware breakpoint (perf_event_open): {0}; `pyobs doctor` says what this machine lacks"
    )]
    Breakpoint(#[source] std::io::Error),
    #[error("the kernel refuses to trace system calls (perf_event_open): {0}")]
    SystemCalls(#[source] std::io::Error),
    #[error("cannot find the machine's CPUs: {0}")]
    Cpus(String),
    #[error(
        "the kernel refuses to sample the CPUs (perf_event_open): {0}; `pyobs doctor` says what this machine lacks"
    )]
    Ticks(#[source] std::io::Error),
}

/// The loaded object. Dropping it detaches and removes everything: nothing is pinned.
pub struct Object {
    ebpf: Ebpf,
    messages: Messages,
    known: Vec<Known>,
    /// The sampler that is attached, or will be.
    sampler: &'static str,
    /// The programs at single system calls.
    attached_calls: Option<Attached>,
    /// Those to be attached when a family needs them.
    later_calls: Option<Later>,
    ticks: Option<Ticks>,
    pub records: RingBuf<MapData>,
    pub processes: HashMap<MapData, u32, Process>,
    pub layouts: Array<MapData, Layout>,
    pub control: Array<MapData, u64>,
    losses: PerCpuArray<MapData, u64>,
}

/// What the families contribute to the object.
pub struct Contents {
    pub programs: Vec<ProgramSpec>,
    /// Sizes of maps that differ from those in the object file, in entries.
    pub sizes: Vec<(&'static str, u32)>,
    /// The programs' constants: offsets of fields in kernel structures.
    pub offsets: Vec<Offsets>,
}

/// A walk in interrupt context may interrupt another, and both may interrupt one in a probe.
const WALKS_PER_CPU: u32 = 3;

/// CPU numbers are below the number of possible CPUs.
fn walk_states() -> Result<u32, ObjectError> {
    let cpus = aya::util::nr_cpus().map_err(|(what, error)| ObjectError::Cpus(format!("{what}: {error}")))?;
    Ok(u32::try_from(cpus).unwrap_or(u32::MAX).saturating_mul(WALKS_PER_CPU))
}

impl Object {
    /// Creates the maps. `copy_pages` is for [`SAMPLER_COPIED`].
    pub fn open(features: Features, copy_pages: u32, contents: Contents) -> Result<Self, ObjectError> {
        let btf = Btf::of_running_kernel()?;
        let fsbase = btf.offset("task_struct", "thread")? + btf.offset("thread_struct", "fsbase")?;
        let (tgid, pid) = (btf.offset("task_struct", "tgid")?, btf.offset("task_struct", "pid")?);
        let signal = btf.offset("task_struct", "signal")?;
        let live = btf.offset("signal_struct", "live")?;
        let state = btf.offset("task_struct", "__state").or_else(|_| btf.offset("task_struct", "state"))?;
        let interrupts = EntryCode::of_running_kernel();
        let mut offsets = Vec::new();
        for of in contents.offsets {
            offsets.extend(of(&btf)?);
        }
        let known = contents.programs.into_iter().map(|spec| Known::new(spec, &btf)).collect();
        drop(btf);
        let level = messages::level();
        let mut loader = EbpfLoader::new();
        for (map, size) in contents.sizes {
            loader.map_max_entries(map, size);
        }
        for (name, offset) in &offsets {
            loader.override_global(name, offset, true);
        }
        let mut ebpf = loader
            // Otherwise aya would parse all of the kernel's BTF again, for relocations that rustc does not
            // emit.
            .btf(None)
            .override_global("TASK_FSBASE", &fsbase, true)
            .override_global("TASK_TGID", &tgid, true)
            .override_global("TASK_PID", &pid, true)
            .override_global("TASK_SIGNAL", &signal, true)
            .override_global("SIGNAL_LIVE", &live, true)
            .override_global("TASK_STATE", &state, true)
            .override_global("INTERRUPT_START", &interrupts.start, true)
            .override_global("INTERRUPT_END", &interrupts.end, true)
            .override_global("HAS_LOOP", &u32::from(features.loops), true)
            .override_global("HAS_FIND_VMA", &u32::from(features.find_vma), true)
            .override_global("COPY_PAGES", &copy_pages, true)
            .override_global(aya_log::LEVEL, &level, true)
            .map_max_entries(messages::MAP, messages::ring_bytes(level))
            .map_max_entries("RECORDS", RING_BYTES)
            .map_max_entries("WALKS", walk_states()?)
            .map_max_entries("CHECKS", walk_states()?)
            .map_max_entries("RULES", walk_states()?)
            .load(OBJECT)
            .map_err(ObjectError::Load)?;
        Ok(Self {
            records: take(&mut ebpf, "RECORDS")?,
            processes: take(&mut ebpf, "PROCESSES")?,
            layouts: take(&mut ebpf, "LAYOUTS")?,
            control: take(&mut ebpf, "CONTROL")?,
            losses: take(&mut ebpf, "LOSSES")?,
            messages: Messages::of(&mut ebpf, level),
            ebpf,
            known,
            sampler: SAMPLER,
            attached_calls: None,
            later_calls: None,
            ticks: None,
        })
    }

    /// Starts following forks, execs and exits.
    pub fn attach_lifecycle(&mut self) -> Result<(), ObjectError> {
        self.attach_tracepoints(&LIFECYCLE)
    }

    /// Starts reporting mappings to the families with these bits without programs at system calls.
    pub fn attach_mappings(&mut self, families: u64) -> Result<(), ObjectError> {
        self.attach_tracepoints(&MAPPINGS)?;
        self.set(control::AT_MAPPINGS, families)
    }

    /// Logs the programs' debug messages, if they are enabled.
    pub fn log_messages(&mut self) {
        self.messages.log();
    }

    /// Enables the programs of the families with these bits.
    pub fn turn_on(&mut self, bits: u64) -> Result<(), ObjectError> {
        self.set(control::FAMILIES, bits)
    }

    /// Sets an element of the array `CONTROL`.
    pub fn set(&mut self, index: u32, value: u64) -> Result<(), ObjectError> {
        self.control.set(index, value, 0).map_err(|error| ObjectError::Map { name: "CONTROL", error })
    }

    /// Sets the minimum gap between wake-ups by the kernel side for stacks with new code.
    pub fn set_wake_gap(&mut self, gap: Duration) {
        // If the map refuses the new value, the old one stays.
        let _ = self.control.set(control::WAKE_GAP, gap.as_nanos() as u64, 0);
    }

    /// Lets the system call programs report executable mappings: those of all processes, or of the watched
    /// ones.
    pub fn report_mappings(&mut self, of_everybody: bool) -> Result<(), ObjectError> {
        let whom = if of_everybody { control::mappings_of::ALL } else { control::mappings_of::WATCHED };
        self.set(control::REPORT_MAPPINGS, whom)
    }

    /// Loads programs and attaches each to a tracepoint.
    pub fn attach_tracepoints(&mut self, programs: &[(&'static str, &'static str)]) -> Result<(), ObjectError> {
        for &(name, tracepoint) in programs {
            self.load(name)?;
            let program: &mut RawTracePoint = program(&mut self.ebpf, name)?;
            program.attach(tracepoint).map_err(refused(name))?;
        }
        Ok(())
    }

    /// Attaches a program with typed arguments (BTF).
    pub fn attach_typed(&mut self, name: &'static str) -> Result<(), ObjectError> {
        self.load(name)?;
        let program: &mut BtfTracePoint = program(&mut self.ebpf, name)?;
        program.attach().map(drop).map_err(refused(name))
    }

    /// Takes a map. Call once per map.
    pub fn take<M: TryFrom<Map, Error = aya::maps::MapError>>(&mut self, name: &'static str) -> Result<M, ObjectError> {
        take(&mut self.ebpf, name)
    }

    /// Runs a loaded iterator and returns all that it writes; `None` if it fails.
    pub fn iterate(&mut self, name: &'static str) -> Option<Vec<u8>> {
        let program: &mut Iter = program(&mut self.ebpf, name).ok()?;
        iterators::run(program).ok()
    }

    /// Loads a program for uprobes.
    pub fn load_uprobe(&mut self, name: &'static str) -> Result<OwnedFd, ObjectError> {
        self.load(name)?;
        let program: &mut UProbe = program(&mut self.ebpf, name)?;
        descriptor(program.fd(), name)
    }

    /// Loads a program for perf events.
    pub fn load_perf_event(&mut self, name: &'static str) -> Result<OwnedFd, ObjectError> {
        self.load(name)?;
        let program: &mut PerfEvent = program(&mut self.ebpf, name)?;
        descriptor(program.fd(), name)
    }

    /// The name of the sampler that is attached, or will be.
    pub fn sampler(&self) -> &'static str {
        self.sampler
    }

    /// Total run time of these programs, and the number of runs.
    pub fn run_time_of(&self, names: &[&str]) -> (Duration, u64) {
        let programs = names.iter().filter_map(|name| self.ebpf.program(name)?.info().ok());
        programs.fold((Duration::ZERO, 0), |(time, runs), info| (time + info.run_time(), runs + info.run_count()))
    }

    /// The maps of unwind tables and mappings. Call once.
    pub fn take_native(&mut self) -> Result<(Tables, MappingTable), ObjectError> {
        let rows: ArrayOfMaps<MapData, MapData> = take(&mut self.ebpf, "ROWS")?;
        let tables = Tables::new(rows, take(&mut self.ebpf, "FILES")?);
        Ok((tables, MappingTable::new(take(&mut self.ebpf, "MAPPINGS")?)))
    }

    /// Loads the sampler to be attached.
    pub fn load_sampler(&mut self, name: &'static str) -> Result<(), ObjectError> {
        self.load(name)?;
        self.sampler = name;
        Ok(())
    }

    /// Starts sampling every CPU. Returns the start time.
    pub fn attach_sampler(&mut self, rate_hz: u32) -> Result<Nanos, ObjectError> {
        let name = self.sampler;
        let program: &mut PerfEvent = program(&mut self.ebpf, name)?;
        let fd = program.fd().map_err(refused(name))?;
        let cpus = online_cpus()?;
        let mut ticks = Ticks::new(fd.as_fd(), &cpus, rate_hz).map_err(ObjectError::Ticks)?;
        let (control, mut since) = (&mut self.control, Nanos(0));
        let begun = ticks.start(|period| {
            since = period.since;
            report_period(control, period);
        });
        begun.map_err(ObjectError::Ticks)?;
        self.ticks = Some(ticks);
        Ok(since)
    }

    /// Keeps the sampling clock from beating with periodic programs. Call a few times a second.
    pub fn jitter_ticks(&mut self) {
        if let Some(ticks) = &mut self.ticks {
            ticks.jitter(|period| report_period(&mut self.control, period));
        }
    }

    /// Makes the kernel side keep this share of the samples, chosen at random. Returns whether it does.
    pub fn keep_samples(&mut self, share: f64) -> bool {
        let keep = if share >= 1.0 { 0 } else { (share * 2_f64.powi(32)).max(1.0) as u64 };
        self.control.set(control::KEEP, keep, 0).is_ok()
    }

    /// Stops sampling; records in the ring buffer stay.
    pub fn detach_sampler(&mut self) {
        self.ticks = None;
    }

    /// Total run time of all programs; needs the kernel's BPF statistics.
    pub fn run_time(&self) -> Duration {
        self.ebpf.programs().filter_map(|(_, program)| program.info().ok()).map(|info| info.run_time()).sum()
    }

    /// Sums of the kernel side's loss counters since loading, by [`Loss`].
    pub fn losses(&self) -> [u64; Loss::COUNT] {
        std::array::from_fn(|index| self.losses.get(&(index as u32), 0).map_or(0, |values| values.iter().sum()))
    }
}

fn report_period(control: &mut Array<MapData, u64>, period: Period) {
    // If the map refuses a new value, the old one stays.
    let _ = control.set(control::PERIOD, period.length.0, 0);
    let _ = control.set(control::TICKS_SINCE, period.since.0, 0);
    let _ = control.set(control::FIRST_TICK, period.first.0, 0);
}

fn online_cpus() -> Result<Vec<u32>, ObjectError> {
    aya::util::online_cpus().map_err(|(what, error)| ObjectError::Cpus(format!("{what}: {error}")))
}

fn refused(name: &'static str) -> impl Fn(ProgramError) -> ObjectError {
    move |error| ObjectError::Program(Refusal::new(name, &error))
}

/// Duplicates a loaded program's descriptor.
fn descriptor(program: Result<&ProgramFd, ProgramError>, name: &'static str) -> Result<OwnedFd, ObjectError> {
    program.and_then(|program| Ok(program.as_fd().try_clone_to_owned()?)).map_err(refused(name))
}

fn program<'a, P>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut P, ObjectError>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let program = ebpf.program_mut(name).ok_or(ObjectError::Missing(name))?;
    program.try_into().map_err(refused(name))
}

fn take<M: TryFrom<Map, Error = aya::maps::MapError>>(ebpf: &mut Ebpf, name: &'static str) -> Result<M, ObjectError> {
    let map = ebpf.take_map(name).ok_or(ObjectError::Missing(name))?;
    map.try_into().map_err(|error| ObjectError::Map { name, error })
}

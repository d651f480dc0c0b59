//! The BPF object: loading it, its maps, its programs.

mod accesses;
mod calls;
mod transfers;
mod waits;

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use aya::maps::{Array, ArrayOfMaps, HashMap, Map, MapData, PerCpuArray, RingBuf};
use aya::programs::{BtfTracePoint, Iter, PerfEvent, Program, ProgramError, RawTracePoint, UProbe};
use aya::{Ebpf, EbpfError, EbpfLoader};
use pyobs_abi::arena::library::Site;
use pyobs_abi::control;
use pyobs_abi::offcpu::Sleeper;
use pyobs_abi::process::{Layout, Process};
use pyobs_abi::shm::Row;

use super::addresses::Addresses;
use super::btf::{Btf, BtfError};
use super::interrupts::EntryCode;
use super::iterators;
use super::sparse;
use super::ticks::{Clock, Ticks};
use super::tracefs::Attached;
use crate::families::arena::library;
use crate::families::{eval, nrt, redundancy, shm};
use crate::native::store::{MappingTable, Tables};

static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("PYOBS_BPF_OBJECT"));

/// Bytes of the ring: half a second of 8 CPUs at 1 kHz with stacks of 60 frames.
const RING_BYTES: u32 = 4 << 20;
/// Programs at the ends of processes' lives, and the tracepoints they hang on.
const LIFE_PROGRAMS: [(&str, &str); 3] = [
    ("process_fork", "sched_process_fork"),
    ("process_exec", "sched_process_exec"),
    ("process_exit", "sched_process_exit"),
];
/// Those for the beginning and the end of a Python function.
const CALLS: [&str; 2] = ["eval_call_enter", "eval_call_exit"];
/// Those of the family `shm`.
const SHM: [(&str, &str); 4] = [
    ("shm_evict", "mm_filemap_delete_from_page_cache"),
    ("shm_exit", "sched_process_exit"),
    ("shm_exec", "sched_process_exec"),
    ("shm_fork", "sched_process_fork"),
];
/// The iterators over what processes have, and what each is over.
const ITERATORS: [(&str, &str); 2] = [("shm_iterate_mappings", "task_vma"), ("shm_iterate_descriptors", "task_file")];
/// Those for the birth, with the sampler of the same kind, and the death of a MemInfo.
const NRT_BIRTH: [(&str, &str); 2] = [(SAMPLER, "nrt_birth"), (SAMPLER_BOUNDED, "nrt_birth_bounded")];
const NRT_DEATH: &str = "nrt_death";
/// Those for arenas of libraries: for beginnings that are remembered, and for all hits, with the sampler of the same kind.
const LIBRARY_ENTER: &str = "arena_library_enter";
const LIBRARY_HIT: [(&str, &str); 2] = [(SAMPLER, "arena_library_hit"), (SAMPLER_BOUNDED, "arena_library_hit_bounded")];
/// The sampler.
pub const SAMPLER: &str = "cpu_sample";
/// The sampler for kernels without `bpf_loop` (before 5.17).
pub const SAMPLER_BOUNDED: &str = "cpu_sample_bounded";
/// The sampler that sends registers as well, for the family `redundancy`; it needs `bpf_loop`.
pub const SAMPLER_REDUNDANCY: &str = "redundancy_sample";
/// The sampler that sends the stacks themselves with their samples.
pub const SAMPLER_COPIED: &str = "cpu_sample_copied";

#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    #[error(transparent)]
    Btf(#[from] BtfError),
    #[error("the kernel does not take pyobs's BPF object: {}; `pyobs doctor` says what this machine lacks", innermost(.0))]
    Load(#[source] EbpfError),
    #[error("the kernel refuses the BPF program {name}: {}; `pyobs doctor` says what this machine lacks", innermost(.error))]
    Program {
        name: &'static str,
        #[source]
        error: ProgramError,
    },
    #[error("the BPF object has no {0}; this build of pyobs is broken")]
    Missing(&'static str),
    #[error("the kernel's type information has no {0}; `pyobs doctor` says what this machine lacks")]
    NoType(&'static str),
    #[error("the BPF map {name} cannot be used: {error}")]
    Map { name: &'static str, error: aya::maps::MapError },
    #[error("the kernel has no bpf_loop, which watchpoints need; kernels from 5.17 on have it")]
    NoLoop,
    #[error(
        "the kernel gives no hardware breakpoint (perf_event_open): {0}; `pyobs doctor` says what this machine lacks"
    )]
    Breakpoint(#[source] std::io::Error),
    #[error("cannot find the machine's CPUs: {0}")]
    Cpus(String),
    #[error(
        "the kernel refuses to sample the CPUs (perf_event_open): {0}; `pyobs doctor` says what this machine lacks"
    )]
    Ticks(#[source] std::io::Error),
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    // A verifier log runs over thousands of lines; the first says what is wrong.
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// The loaded object. Dropping it detaches and removes everything: nothing is pinned.
pub struct Object {
    ebpf: Ebpf,
    sampler: &'static str,
    /// Their numbers in the kernel's BTF.
    iterators: [Option<u32>; ITERATORS.len()],
    /// And those of the tracepoints of system calls and of threads' sleeps.
    calls: [Option<u32>; calls::TYPES.len()],
    waits: [Option<u32>; waits::TYPES.len()],
    has_iterators: bool,
    /// The programs at single system calls.
    attached_calls: Option<Attached>,
    ticks: Option<Ticks>,
    addresses: Option<Addresses>,
    pub records: RingBuf<MapData>,
    pub processes: HashMap<MapData, u32, Process>,
    pub layouts: Array<MapData, Layout>,
    pub control: Array<MapData, u64>,
    losses: PerCpuArray<MapData, u64>,
    sleeps: Array<MapData, Sleeper>,
}

/// What is on of that which has large maps.
#[derive(Clone, Copy, Debug)]
pub struct Wants {
    /// The family `eval`.
    pub calls: bool,
    /// Arenas of libraries.
    pub libraries: bool,
    /// The family `ucx`.
    pub transfers: bool,
    /// The family `redundancy`.
    pub watches: bool,
}

/// A walk in interrupt context may interrupt another, and either one in a probe.
const WALKS_PER_CPU: u32 = 3;

/// A CPU's number is below that of the possible CPUs.
fn walk_states() -> Result<u32, ObjectError> {
    let cpus = aya::util::nr_cpus().map_err(|(what, error)| ObjectError::Cpus(format!("{what}: {error}")))?;
    Ok(u32::try_from(cpus).unwrap_or(u32::MAX).saturating_mul(WALKS_PER_CPU))
}

impl Object {
    /// Loads every program and attaches those of processes' lives.
    ///
    /// Of `samplers` the first that this kernel takes is used; `copy_pages` is for [`SAMPLER_COPIED`]. What is not wanted
    /// takes no memory.
    pub fn load(samplers: &[&'static str], copy_pages: u32, wants: Wants) -> Result<Self, ObjectError> {
        let btf = Btf::of_running_kernel()?;
        let fsbase = btf.offset("task_struct", "thread")? + btf.offset("thread_struct", "fsbase")?;
        let (tgid, pid) = (btf.offset("task_struct", "tgid")?, btf.offset("task_struct", "pid")?);
        let signal = btf.offset("task_struct", "signal")?;
        let live = btf.offset("signal_struct", "live")?;
        let state = btf.offset("task_struct", "__state").or_else(|_| btf.offset("task_struct", "state"))?;
        let interrupts = EntryCode::of_running_kernel();
        let files = shm::offsets::of(&btf)?;
        let iterators = ITERATORS.map(|(_, kind)| iterators::number(&btf, kind));
        let calls = calls::TYPES.map(|name| btf.typedef(name));
        let waits = waits::TYPES.map(|name| btf.typedef(name));
        drop(btf);
        let mut loader = EbpfLoader::new();
        if !wants.calls {
            // Of no use, these take no memory.
            for map in ["EVAL_CALLS", "EVAL_NEW", "EVAL_OPEN"] {
                loader.map_max_entries(map, 1);
            }
        }
        if !wants.libraries {
            loader.map_max_entries("ARENA_CALLS", 1);
        }
        if !wants.transfers {
            for map in transfers::MAPS {
                loader.map_max_entries(map, 1);
            }
        }
        for (map, size, least) in redundancy::SIZES {
            loader.map_max_entries(map, if wants.watches { size } else { least });
        }
        for (name, offset) in &files {
            loader.override_global(name, offset, true);
        }
        let mut ebpf = loader
            // aya would parse all of the kernel's BTF again, for relocations that rustc does not emit.
            .btf(None)
            .override_global("TASK_FSBASE", &fsbase, true)
            .override_global("TASK_TGID", &tgid, true)
            .override_global("TASK_PID", &pid, true)
            .override_global("TASK_SIGNAL", &signal, true)
            .override_global("SIGNAL_LIVE", &live, true)
            .override_global("TASK_STATE", &state, true)
            .override_global("INTERRUPT_START", &interrupts.start, true)
            .override_global("INTERRUPT_END", &interrupts.end, true)
            .override_global("COPY_PAGES", &copy_pages, true)
            .map_max_entries("RECORDS", RING_BYTES)
            .map_max_entries("WALKS", walk_states()?)
            .load(OBJECT)
            .map_err(ObjectError::Load)?;
        let sampler = load_sampler(&mut ebpf, samplers)?;
        for (name, tracepoint) in LIFE_PROGRAMS {
            let program: &mut RawTracePoint = program(&mut ebpf, name)?;
            let fail = |error| ObjectError::Program { name, error };
            program.load().map_err(fail)?;
            program.attach(tracepoint).map_err(fail)?;
        }
        Ok(Self {
            records: take(&mut ebpf, "RECORDS")?,
            processes: take(&mut ebpf, "PROCESSES")?,
            layouts: take(&mut ebpf, "LAYOUTS")?,
            control: take(&mut ebpf, "CONTROL")?,
            losses: take(&mut ebpf, "LOSSES")?,
            sleeps: take(&mut ebpf, "SLEEPS")?,
            ebpf,
            sampler,
            iterators,
            calls,
            waits,
            has_iterators: false,
            attached_calls: None,
            ticks: None,
            addresses: None,
        })
    }

    /// Has the kernel side call for stacks that may be new only so often.
    pub fn call_at_most_each(&mut self, gap: Duration) {
        // A number that is not taken leaves the old one.
        let _ = self.control.set(control::CALL_GAP, gap.as_nanos() as u64, 0);
    }

    /// Has the kernel side look at what one in so many samples of native code accesses.
    pub fn look_at_one_in(&mut self, so_many: u32) {
        // A number that is not taken leaves the old one.
        let _ = self.control.set(control::LOOK_EVERY, u64::from(so_many), 0);
    }

    /// Has the programs at system calls tell of executable mappings: those of all processes, or of the watched ones.
    pub fn tell_mappings(&mut self, of_everybody: bool) -> Result<(), ObjectError> {
        let whom = if of_everybody { control::tells::EVERYBODY } else { control::tells::WATCHED };
        let map = |error| ObjectError::Map { name: "CONTROL", error };
        self.control.set(control::TELLS_MAPPINGS, whom, 0).map_err(map)
    }

    /// Starts to look at what processes share, and takes the maps of that; to be called once.
    pub fn attach_segments(&mut self, with_iterators: bool) -> Result<shm::Maps, ObjectError> {
        self.attach_tracepoints(SHM.into_iter())?;
        self.has_iterators = with_iterators && self.load_iterators().is_some();
        Ok(shm::Maps { segments: take(&mut self.ebpf, "SHM_SEGMENTS")?, holders: take(&mut self.ebpf, "SHM_HOLDERS")? })
    }

    /// Not every kernel has them: task_vma came with 5.12.
    fn load_iterators(&mut self) -> Option<()> {
        for ((name, kind), number) in ITERATORS.into_iter().zip(self.iterators) {
            let program: &mut Iter = program(&mut self.ebpf, name).ok()?;
            iterators::load(program, kind, number?).ok()?;
        }
        Some(())
    }

    /// Whether [`Self::iterate_segments`] tells.
    pub fn has_iterators(&self) -> bool {
        self.has_iterators
    }

    /// What all processes have of segments now; `None` where the kernel does not tell.
    pub fn iterate_segments(&mut self) -> Option<Vec<Row>> {
        if !self.has_iterators {
            return None;
        }
        let mut rows = Vec::new();
        for (name, _) in ITERATORS {
            let program: &mut Iter = program(&mut self.ebpf, name).ok()?;
            let Ok(bytes) = iterators::run(program) else {
                self.has_iterators = false;
                return None;
            };
            rows.extend(bytes.chunks_exact(size_of::<Row>()).filter_map(|bytes| crate::record::read::<Row>(bytes, 0)));
        }
        Some(rows)
    }

    fn attach_tracepoints(
        &mut self,
        programs: impl Iterator<Item = (&'static str, &'static str)>,
    ) -> Result<(), ObjectError> {
        for (name, tracepoint) in programs {
            let program: &mut RawTracePoint = program(&mut self.ebpf, name)?;
            let fail = |error| ObjectError::Program { name, error };
            program.load().map_err(fail)?;
            program.attach(tracepoint).map_err(fail)?;
        }
        Ok(())
    }

    /// Attaches a program whose arguments the kernel knows the types of: `of` is the tracepoint's own type, with this number.
    fn attach_typed(&mut self, name: &'static str, of: &'static str, number: Option<u32>) -> Result<(), ObjectError> {
        let number = number.ok_or(ObjectError::NoType(of))?;
        let program: &mut BtfTracePoint = program(&mut self.ebpf, name)?;
        let fail = |error| ObjectError::Program { name, error };
        let types = sparse::typedef(of, number).map_err(|error| fail(error.into()))?;
        program.load(of.trim_start_matches("btf_trace_"), &types).map_err(fail)?;
        program.attach().map_err(fail)?;
        Ok(())
    }

    /// Loads the programs that count calls and takes their maps; to be called once.
    pub fn take_calls(&mut self) -> Result<(eval::Programs, eval::Maps), ObjectError> {
        let [enter, exit] = CALLS;
        let programs = eval::Programs { enter: self.load_uprobe(enter)?, exit: self.load_uprobe(exit)? };
        let maps = eval::Maps {
            calls: take(&mut self.ebpf, "EVAL_CALLS")?,
            new: take(&mut self.ebpf, "EVAL_NEW")?,
            state: take(&mut self.ebpf, "EVAL_STATE")?,
        };
        Ok((programs, maps))
    }

    /// Loads the programs for MemInfos.
    pub fn load_nrt(&mut self) -> Result<nrt::Programs, ObjectError> {
        let birth = NRT_BIRTH.iter().find(|(sampler, _)| *sampler == self.sampler);
        let birth = birth.map_or(NRT_BIRTH[0].1, |(_, name)| name);
        Ok(nrt::Programs { birth: self.load_uprobe(birth)?, death: self.load_uprobe(NRT_DEATH)? })
    }

    /// How long these have run, and how often.
    pub fn nrt_run_time(&self) -> (Duration, u64) {
        self.run_time_of(NRT_BIRTH.iter().map(|(_, name)| *name).chain([NRT_DEATH]))
    }

    /// Loads the programs for arenas of libraries, and takes the map of their sites; to be called once.
    pub fn take_libraries(&mut self) -> Result<(library::Programs, Array<MapData, Site>), ObjectError> {
        let hit = LIBRARY_HIT.iter().find(|(sampler, _)| *sampler == self.sampler);
        let hit = hit.map_or(LIBRARY_HIT[0].1, |(_, name)| name);
        let programs = library::Programs { enter: self.load_uprobe(LIBRARY_ENTER)?, hit: self.load_uprobe(hit)? };
        Ok((programs, take(&mut self.ebpf, "ARENA_SITES")?))
    }

    /// How long these have run, and how often.
    pub fn libraries_run_time(&self) -> (Duration, u64) {
        self.run_time_of(LIBRARY_HIT.iter().map(|(_, name)| *name).chain([LIBRARY_ENTER]))
    }

    fn load_uprobe(&mut self, name: &'static str) -> Result<OwnedFd, ObjectError> {
        let program: &mut UProbe = program(&mut self.ebpf, name)?;
        let loaded = program.load().and_then(|()| Ok(program.fd()?.as_fd().try_clone_to_owned()?));
        loaded.map_err(|error| ObjectError::Program { name, error })
    }

    /// How long the programs that count calls have run, and how often.
    pub fn calls_run_time(&self) -> (Duration, u64) {
        self.run_time_of(CALLS.into_iter())
    }

    /// The same of those that run for samples.
    pub fn samples_run_time(&self) -> (Duration, u64) {
        self.run_time_of([self.sampler].into_iter().chain(accesses::PROGRAMS))
    }

    fn run_time_of(&self, names: impl Iterator<Item = &'static str>) -> (Duration, u64) {
        let programs = names.filter_map(|name| self.ebpf.program(name)?.info().ok());
        programs.fold((Duration::ZERO, 0), |(time, runs), info| (time + info.run_time(), runs + info.run_count()))
    }

    /// The maps of unwind tables and mappings; to be taken once.
    pub fn take_native(&mut self) -> Result<(Tables, MappingTable), ObjectError> {
        let rows: ArrayOfMaps<MapData, MapData> = take(&mut self.ebpf, "ROWS")?;
        let tables = Tables::new(rows, take(&mut self.ebpf, "FILES")?);
        Ok((tables, MappingTable::new(take(&mut self.ebpf, "MAPPINGS")?)))
    }

    /// Starts sampling every CPU.
    pub fn attach_sampler(&mut self, rate_hz: u32) -> Result<Clock, ObjectError> {
        let name = self.sampler;
        let program: &mut PerfEvent = program(&mut self.ebpf, name)?;
        let fd = program.fd().map_err(|error| ObjectError::Program { name, error })?;
        let cpus = online_cpus()?;
        let ticks = Ticks::start(fd.as_fd(), &cpus, rate_hz).map_err(ObjectError::Ticks)?;
        let clock = ticks.clock();
        self.ticks = Some(ticks);
        Ok(clock)
    }

    /// Stops sampling; what is in the ring stays.
    pub fn detach_sampler(&mut self) {
        self.ticks = None;
        self.addresses = None;
    }

    /// Nanoseconds that the programs have run; needs the kernel's BPF statistics to be on.
    pub fn run_time(&self) -> Duration {
        self.ebpf.programs().filter_map(|(_, program)| program.info().ok()).map(|info| info.run_time()).sum()
    }

    /// Sums of the kernel side's loss counters since it was loaded, by `pyobs_abi::record::loss`.
    pub fn losses(&self) -> [u64; pyobs_abi::record::loss::COUNT as usize] {
        std::array::from_fn(|index| self.losses.get(&(index as u32), 0).map_or(0, |values| values.iter().sum()))
    }
}

fn online_cpus() -> Result<Vec<u32>, ObjectError> {
    aya::util::online_cpus().map_err(|(what, error)| ObjectError::Cpus(format!("{what}: {error}")))
}

/// Loads the first sampler that this kernel takes.
fn load_sampler(ebpf: &mut Ebpf, samplers: &[&'static str]) -> Result<&'static str, ObjectError> {
    let mut failure = None;
    for name in samplers.iter().copied() {
        let program: &mut PerfEvent = program(ebpf, name)?;
        match program.load() {
            Ok(()) => return Ok(name),
            // The first refusal says more about the machine than that of the fallback.
            Err(error) => {
                failure.get_or_insert(ObjectError::Program { name, error });
            }
        }
    }
    Err(failure.unwrap_or(ObjectError::Missing(SAMPLER)))
}

fn program<'a, P>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut P, ObjectError>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let program = ebpf.program_mut(name).ok_or(ObjectError::Missing(name))?;
    program.try_into().map_err(|error| ObjectError::Program { name, error })
}

fn take<M: TryFrom<Map, Error = aya::maps::MapError>>(ebpf: &mut Ebpf, name: &'static str) -> Result<M, ObjectError> {
    let map = ebpf.take_map(name).ok_or(ObjectError::Missing(name))?;
    map.try_into().map_err(|error| ObjectError::Map { name, error })
}

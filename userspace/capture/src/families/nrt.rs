//! The family `nrt`: MemInfos of Numba's runtime on the CPU.
//!
//! Probes are on `_nrt_python`, the extension module that holds the runtime: on each return of the functions that make a
//! MemInfo, where rax has its address, and on the beginning of `NRT_dealloc`, which all frees come through. Other functions
//! of the runtime are inlined, in it or in compiled code, and never entered. There are no return probes: they replace return
//! addresses on the program's stack.

mod returns;

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use pyobs_abi::nrt::Death;
use pyobs_model::{Event, MemInfoChange, MemInfoId, Nanos, Reason};

use crate::elf::Elf;
use crate::files::{self, FileId};
use crate::kernel::uprobes::{Scope, TrapCosts, Uprobes, close_later};
use crate::process_maps::Mapping;
use crate::record::Stack;
use crate::skim::read_loaded;

/// Of numba/core/runtime/nrt.cpp: what returns a new MemInfo.
const BIRTHS: [&str; 12] = [
    "NRT_MemInfo_new",
    "NRT_MemInfo_alloc",
    "NRT_MemInfo_alloc_external",
    "NRT_MemInfo_alloc_safe",
    "NRT_MemInfo_alloc_dtor",
    "NRT_MemInfo_alloc_dtor_safe",
    "NRT_MemInfo_alloc_aligned",
    "NRT_MemInfo_alloc_safe_aligned",
    "NRT_MemInfo_alloc_safe_aligned_external",
    "NRT_MemInfo_new_varsize",
    "NRT_MemInfo_new_varsize_dtor",
    "NRT_MemInfo_varsize_alloc",
];
const DEATH: &str = "NRT_dealloc";
const MODULE: &str = "_nrt_python";
/// Files that have probes.
const FILES_MAX: usize = 16;
const LIVE_MAX: usize = 1 << 20;
/// Over which time the budget is held.
const SPAN: Duration = Duration::from_secs(2);

pub struct Programs {
    pub birth: OwnedFd,
    pub death: OwnedFd,
}

pub struct Nrt {
    programs: Programs,
    uprobes: Uprobes,
    costs: TrapCosts,
    /// The share of one core that hits may cost, in percent, if there is a bound.
    budget: Option<f64>,
    probes: HashMap<FileId, Vec<OwnedFd>>,
    seen: HashSet<FileId>,
    start: Nanos,
    live: HashMap<(u32, u64), MemInfoId>,
    next: u32,
    hits: u64,
    /// The hits at the beginning of the present span, and when that was.
    span: (u64, Instant),
    over: bool,
    /// What a run of a program has cost so far, in nanoseconds.
    program_cost: u64,
}

impl Nrt {
    pub fn new(programs: Programs, budget: Option<f64>, start: Nanos) -> io::Result<Self> {
        let uprobes = Uprobes::of_this_kernel()?;
        Ok(Self {
            programs,
            costs: uprobes.trap_costs()?,
            uprobes,
            budget,
            probes: HashMap::new(),
            seen: HashSet::new(),
            start,
            live: HashMap::new(),
            next: 0,
            hits: 0,
            span: (0, Instant::now()),
            over: false,
            program_cost: 0,
        })
    }

    /// Puts probes on the runtime where a process has it. Returns what cannot be done, in words.
    pub fn follow<'a>(&mut self, mappings: impl Iterator<Item = (u32, &'a Mapping)>) -> Vec<String> {
        let mut notes = Vec::new();
        if self.over {
            return notes;
        }
        for (pid, mapping) in mappings.filter(|(_, mapping)| mapping.name.starts_with(MODULE)) {
            let Some(file) = mapping.file else { continue };
            if self.probes.len() >= FILES_MAX || !self.seen.insert(file) {
                continue;
            }
            match self.put(pid, mapping) {
                Ok(probes) => {
                    self.probes.insert(file, probes);
                }
                Err(why) => notes.push(format!("MemInfos of {} are not seen: {why}", mapping.name)),
            }
        }
        notes
    }

    fn put(&self, pid: u32, mapping: &Mapping) -> Result<Vec<OwnedFd>, String> {
        let words = |error: io::Error| error.to_string();
        let (file, size) = files::open(pid, mapping).map_err(words)?.ok_or("it is no file")?;
        let bytes = read_loaded(&file, size).ok_or("it cannot be read")?;
        let elf = Elf::parse(&bytes).map_err(|error| error.to_string())?;
        let delta = elf.code_delta().ok_or("it has no code")?;
        let sites = Sites::of(&elf);
        let death = sites.death.ok_or(format!("it has no {DEATH}"))?;
        if sites.births.is_empty() {
            return Err("it is stripped of the symbols of its functions".to_owned());
        }
        let path = path(&file);
        let attach = |program: &OwnedFd, address: u64| {
            self.uprobes.attach(program.as_fd(), &path, address.wrapping_sub(delta), Scope::Everybody, 0)
        };
        // The end first: one that is seen to be born is then seen to die.
        let mut probes = vec![attach(&self.programs.death, death).map_err(words)?];
        for address in sites.births {
            probes.push(attach(&self.programs.birth, address).map_err(words)?);
        }
        Ok(probes)
    }

    /// A MemInfo was made. Returns its number, with the size of its data.
    pub fn born(&mut self, stack: &Stack, events: &mut Vec<Event>) -> Option<(MemInfoId, u64)> {
        self.hits += 1;
        let header = &stack.sample.header;
        let [address, bytes] = stack.sample.detail;
        let key = (header.pid, address);
        // A function that returns what another has returned to it.
        if self.live.contains_key(&key) {
            return None;
        }
        if self.live.len() >= LIVE_MAX {
            let at = Nanos(header.time).saturating_sub(self.start);
            events.push(Event::Loss { at, reason: Reason::MemInfoTableFull, count: 1 });
            return None;
        }
        let id = MemInfoId(self.next);
        self.next = self.next.wrapping_add(1);
        self.live.insert(key, id);
        Some((id, bytes))
    }

    pub fn died(&mut self, death: &Death, events: &mut Vec<Event>) {
        self.hits += 1;
        if let Some(id) = self.live.remove(&(death.header.pid, death.address)) {
            let at = Nanos(death.header.time).saturating_sub(self.start);
            events.push(Event::MemInfo { at, id, change: MemInfoChange::Died });
        }
    }

    /// A process has ended, or is another program now.
    pub fn ended(&mut self, pid: u32) {
        self.live.retain(|(of, _), _| *of != pid);
    }

    /// What hits have cost so far besides their programs.
    pub fn trap_cost(&self) -> Nanos {
        Nanos(self.hits.saturating_mul(self.costs.stepped.into()))
    }

    /// Takes the probes away when they cost more than they may. Returns a sentence when it does.
    pub fn hold_budget(&mut self, run_time: Duration, runs: u64) -> Option<String> {
        self.program_cost = u64::try_from(run_time.as_nanos()).unwrap_or(u64::MAX).checked_div(runs)?;
        let (before, since) = self.span;
        let elapsed = since.elapsed();
        if self.over || elapsed < SPAN {
            return None;
        }
        self.span = (self.hits, Instant::now());
        let each = u64::from(self.costs.stepped).saturating_add(self.program_cost);
        let spent = (self.hits - before).saturating_mul(each) as f64 / 1e9;
        let share = spent / elapsed.as_secs_f64() * 100.0;
        let budget = self.budget.filter(|budget| share > *budget)?;
        self.over = true;
        close_later(self.probes.drain().flat_map(|(_, probes)| probes).collect());
        Some(format!(
            "MemInfos are not followed any more: that cost {share:.2} % of a core, and {budget:.2} % are allowed; what lived \
             then is told as alive"
        ))
    }
}

impl Drop for Nrt {
    fn drop(&mut self) {
        close_later(self.probes.drain().flat_map(|(_, probes)| probes).collect());
    }
}

/// Where probes belong, as addresses of the file.
struct Sites {
    births: Vec<u64>,
    death: Option<u64>,
}

impl Sites {
    fn of(elf: &Elf<'_>) -> Self {
        let mut sites = Self { births: Vec::new(), death: None };
        for (name, symbol) in elf.symbols() {
            if name == DEATH.as_bytes() {
                sites.death = Some(symbol.address);
            } else if BIRTHS.iter().any(|birth| birth.as_bytes() == name) {
                sites.births.extend(returns::of(elf, symbol.address, symbol.size));
            }
        }
        sites.births.sort_unstable();
        sites.births.dedup();
        sites
    }
}

fn path(file: &File) -> CString {
    // Resolved by the kernel in our own process.
    CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default()
}

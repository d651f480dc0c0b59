//! The family `nrt`: MemInfos of Numba's runtime on the CPU.
//!
//! Probes are on `_nrt_python`, the extension module that contains the runtime. They sit at each return of
//! the functions that create a MemInfo, where rax has its address, and at the beginning of `NRT_dealloc`,
//! which all frees pass through. Other runtime functions are inlined into the module or into compiled code
//! and never called. Return probes (uretprobes) are avoided, because they replace return addresses on the
//! program's stack.

mod collector;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::ops::Bound;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use pyobs_abi::nrt::{Death, data};
use pyobs_abi::record;
use pyobs_model::{Event, Family, MemInfoChange, MemInfoId, Nanos, Reason};

use super::extension::{Extension, Meter, Probes, returns};
use crate::elf::Elf;
use crate::family::FamilySpec;
use crate::files::FileId;
use crate::kernel::object::{Object, ObjectError};
use crate::kernel::probed_files::Probe;
use crate::kernel::program::ProgramSpec;
use crate::kernel::uprobes::Uprobes;
use crate::memory::{Memory, ProcessMemory, Range, is_gone};
use crate::pipeline::decode::Stack;
use crate::process_maps::Mapping;

const BIRTH_PROGRAM: &str = "nrt_birth";
const DEATH_PROGRAM: &str = "nrt_death";

pub const SPEC: FamilySpec = FamilySpec {
    puts_probes: true,
    stacks: &[record::NRT_BIRTH],
    records: &[record::NRT_DEATH],
    start: collector::start,
    programs: &[ProgramSpec::new(BIRTH_PROGRAM, &[Family::Nrt]), ProgramSpec::new(DEATH_PROGRAM, &[Family::Nrt])],
    ..FamilySpec::new(Family::Nrt, "memory that Numba counts references to")
};

/// Functions that return a new MemInfo
/// (<https://github.com/numba/numba/blob/0.60.0/numba/core/runtime/nrt.cpp>).
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
const LIVE_MAX: usize = 1 << 20;
/// How often reference counts are read, and how many at a time. A thousand take about 100 µs.
const INSPECT_EVERY: Duration = Duration::from_secs(1);
const CHECKS: usize = 4096;
/// Larger values are not reference counts.
const REFERENCES_MAX: u64 = 1 << 32;

struct Live {
    id: MemInfoId,
    references: u64,
}

pub struct Programs {
    birth: OwnedFd,
    death: OwnedFd,
}

impl Programs {
    pub fn load(object: &mut Object) -> Result<Self, ObjectError> {
        Ok(Self { birth: object.load_uprobe(BIRTH_PROGRAM)?, death: object.load_uprobe(DEATH_PROGRAM)? })
    }

    /// Total run time of the programs.
    pub fn run_time(object: &Object) -> Duration {
        object.run_time_of(&[BIRTH_PROGRAM, DEATH_PROGRAM]).0
    }
}

pub struct Nrt {
    programs: Programs,
    uprobes: Uprobes,
    meter: Meter,
    probes: Probes,
    seen: HashSet<FileId>,
    start: Nanos,
    /// By pid and address.
    live: BTreeMap<(u32, u64), Live>,
    inspected: Instant,
    /// The key of the last MemInfo inspected; the next round continues after it.
    inspected_last: (u32, u64),
    next: u32,
}

impl Nrt {
    /// Sets the time on the kernel's clock at which the recording begins.
    pub fn starts_at(&mut self, start: Nanos) {
        self.start = start;
    }

    pub fn new(programs: Programs, start: Nanos) -> io::Result<Self> {
        let uprobes = Uprobes::of_this_kernel()?;
        Ok(Self {
            programs,
            meter: Meter::new(uprobes)?,
            uprobes,
            probes: Probes::default(),
            seen: HashSet::new(),
            start,
            live: BTreeMap::new(),
            inspected: Instant::now(),
            inspected_last: (0, 0),
            next: 0,
        })
    }

    /// Attaches probes to the runtime of each process that has it. Returns failures in words.
    pub fn follow<'a>(&mut self, mappings: impl Iterator<Item = (u32, &'a Mapping)>) -> Vec<String> {
        let mut notes = Vec::new();
        if self.probes.is_closed() {
            return notes;
        }
        for (pid, mapping) in mappings.filter(|(_, mapping)| mapping.name.starts_with(MODULE)) {
            let Some(file) = mapping.file else { continue };
            if !self.probes.has_room() || !self.seen.insert(file) {
                continue;
            }
            match self.put(pid, mapping) {
                Ok(probes) => self.probes.add(probes),
                Err(why) => notes.push(format!("MemInfos of {} are not seen: {why}", mapping.name)),
            }
        }
        notes
    }

    /// A file was written to, so that its probes are gone. The next process that maps it gets new ones.
    pub fn rewritten(&mut self, file: FileId) {
        if self.seen.remove(&file) {
            self.probes.forget_one();
        }
    }

    fn put(&self, pid: u32, mapping: &Mapping) -> Result<Vec<Probe>, String> {
        let extension = Extension::open(pid, mapping)?;
        let elf = extension.elf()?;
        let sites = Sites::of(&elf);
        let death = sites.death.ok_or(format!("it has no {DEATH}"))?;
        if sites.births.is_empty() {
            return Err("it is stripped of the symbols of its functions".to_owned());
        }
        // Frees first, so that every MemInfo seen at birth is seen at death too.
        let mut probes = vec![extension.attach(self.uprobes, &self.programs.death, &elf, death, 0)?];
        for address in sites.births {
            probes.push(extension.attach(self.uprobes, &self.programs.birth, &elf, address, 0)?);
        }
        Ok(probes)
    }

    /// Handles the creation of a MemInfo. Returns its number, the address of its data (0 if unknown) and the
    /// data's size.
    pub fn born(&mut self, stack: &Stack, events: &mut Vec<Event>) -> Option<(MemInfoId, (u64, u64))> {
        self.meter.hit();
        let header = &stack.sample.header;
        let [address, extent] = stack.sample.detail;
        let key = (header.pid, address);
        // Already seen: an outer function returns what an inner one returned to it.
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
        self.live.insert(key, Live { id, references: 0 });
        Some((id, data(address, extent)))
    }

    pub fn died(&mut self, death: &Death, events: &mut Vec<Event>) {
        self.meter.hit();
        if let Some(Live { id, .. }) = self.live.remove(&(death.header.pid, death.address)) {
            let at = Nanos(death.header.time).saturating_sub(self.start);
            events.push(Event::MemInfo { at, id, change: MemInfoChange::Died });
        }
    }

    /// Call regularly: reads the reference counts of some MemInfos, at the end those of all.
    pub fn tick(&mut self, now: Nanos, at_the_end: bool, events: &mut Vec<Event>) {
        if at_the_end {
            let all: Vec<(u32, u64)> = self.live.keys().copied().collect();
            return self.inspect(now, &all, events);
        }
        if self.inspected.elapsed() >= INSPECT_EVERY {
            self.inspected = Instant::now();
            let after = (Bound::Excluded(self.inspected_last), Bound::Unbounded);
            let next: Vec<(u32, u64)> = self.live.range(after).map(|(key, _)| *key).take(CHECKS).collect();
            self.inspected_last = if next.len() < CHECKS { (0, 0) } else { next[CHECKS - 1] };
            self.inspect(now, &next, events);
        }
    }

    /// Reads each MemInfo's first word, its reference count. The program keeps running, so a MemInfo freed in
    /// the meantime may contain anything.
    fn inspect(&mut self, at: Nanos, keys: &[(u32, u64)], events: &mut Vec<Event>) {
        for of_one in keys.chunk_by(|one, other| one.0 == other.0) {
            let memory = ProcessMemory::new(of_one[0].0);
            let mut words = vec![[0; 8]; of_one.len()];
            let mut ranges: Vec<Range<'_>> =
                of_one.iter().zip(&mut words).map(|(key, word)| (key.1, word.as_mut_slice())).collect();
            let together = memory.read_many(&mut ranges);
            if together.as_ref().is_err_and(is_gone) {
                continue;
            }
            for (key, word) in of_one.iter().zip(words) {
                let count = if together.is_ok() { Ok(u64::from_ne_bytes(word)) } else { memory.read_u64(key.1) };
                let Some(live) = self.live.get_mut(key) else { continue };
                match count {
                    Ok(count) if (1..REFERENCES_MAX).contains(&count) => {
                        if std::mem::replace(&mut live.references, count) != count {
                            let change = MemInfoChange::Referenced(count);
                            events.push(Event::MemInfo { at, id: live.id, change });
                        }
                    }
                    // It was about to be freed.
                    Ok(0) => {}
                    Ok(_) | Err(_) => events.push(Event::Loss { at, reason: Reason::MemInfoUnreadable, count: 1 }),
                }
            }
        }
    }

    /// Forgets a process that has ended or runs another program now.
    pub fn ended(&mut self, pid: u32) {
        self.live.retain(|(of, _), _| *of != pid);
    }

    /// What hits have cost so far besides the run time of their programs.
    pub fn trap_cost(&self) -> Nanos {
        self.meter.trap_cost()
    }

    /// Detaches the probes for good.
    pub fn close(&mut self) {
        self.probes.close();
    }
}

/// Addresses in the file to probe.
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
                sites.births.extend(returns(elf, symbol.address, symbol.size));
            }
        }
        sites.births.sort_unstable();
        sites.births.dedup();
        sites
    }
}

//! The programs at page faults, and their tables.

use std::time::Duration;

use aya::maps::{Array, HashMap, MapData};
use pyobs_abi::control;
use pyobs_abi::heap::{FILTERS, Filter, Growth, filter_bit, page_key};
use pyobs_model::Family;

use crate::kernel::btf::{Btf, BtfError};
use crate::kernel::object::{Object, ObjectError};
use crate::kernel::program::ProgramSpec;

const FAMILIES: &[Family] = &[Family::Heap];
pub const PROGRAMS: [ProgramSpec; 2] =
    [ProgramSpec::new("heap_fault", FAMILIES), ProgramSpec::new("heap_fault_in_kernel", FAMILIES)];
/// Their tracepoints; arm64 has no such ones.
const TRACEPOINTS: [&str; 2] = ["page_fault_user", "page_fault_kernel"];
/// The index of anonymous pages among a process's counters (`MM_ANONPAGES`):
/// <https://github.com/torvalds/linux/blob/v6.1/include/linux/mm_types_task.h>
const ANONYMOUS: u32 = 1;

/// From Linux 6.2 on, each counter of a process is a `percpu_counter`; before, all are in one structure.
pub fn offsets(btf: &Btf) -> Result<Vec<(&'static str, u32)>, BtfError> {
    let counters = btf.offset("mm_struct", "rss_stat")?;
    let (own, is_per_cpu) = match btf.offset("mm_rss_stat", "count") {
        Ok(counts) => (counts + ANONYMOUS * size_of::<u64>() as u32, 0),
        Err(_) => (ANONYMOUS * btf.size("percpu_counter")? + btf.offset("percpu_counter", "count")?, 1),
    };
    Ok(vec![
        ("TASK_MM", btf.offset("task_struct", "mm")?),
        ("MM_ANONYMOUS", counters + own),
        ("MM_IS_PER_CPU", is_per_cpu),
        ("TASK_PAGEFAULT_DISABLED", btf.offset("task_struct", "pagefault_disabled")?),
    ])
}

/// What the kernel side knows of the growth of processes.
pub struct Tables {
    growth: HashMap<MapData, u32, Growth>,
    pages: HashMap<MapData, u64, u64>,
    filters: Array<MapData, Filter>,
}

impl Tables {
    /// Starts sampling faults. Call once.
    pub fn attach(object: &mut Object) -> Result<Self, ObjectError> {
        // Load both before attaching either: if the kernel refuses one, the other must not run alone.
        PROGRAMS.iter().try_for_each(|program| object.load(program.name))?;
        let [user, kernel] = [0, 1].map(|index: usize| (PROGRAMS[index].name, TRACEPOINTS[index]));
        object.attach_tracepoints(&[user, kernel])?;
        Ok(Self {
            growth: object.take("HEAP_GROWTH")?,
            pages: object.take("HEAP_PAGES")?,
            filters: object.take("HEAP_FILTERS")?,
        })
    }

    /// Forgets a sampled page. The kernel side may have done so already.
    pub fn forget(&mut self, pid: u32, address: u64) {
        let _ = self.pages.remove(&page_key(pid, address));
    }

    /// A sampled page is at another address now.
    pub fn shift(&mut self, pid: u32, from: u64, to: u64) {
        self.forget(pid, from);
        // If the table is full, only the next fault at this page goes unnoticed, as it does until the next `filter`.
        let _ = self.pages.insert(page_key(pid, to), 0, 0);
    }

    /// Starts sampling the growth of a process. Returns false if the table is full.
    pub fn follow(&mut self, pid: u32) -> bool {
        const NEW_ONLY: u64 = 1;
        let made = self.growth.insert(pid, Growth::NEW, NEW_ONLY);
        made.is_ok() || self.growth.get(&pid, 0).is_ok()
    }

    /// Drops from a process's filter what is not sampled any more. `pages` are those of all processes that share it.
    pub fn filter(&mut self, pid: u32, pages: impl Iterator<Item = u64>) {
        let mut filter: Filter = [0; 128];
        for (word, bit) in pages.map(filter_bit) {
            filter[word] |= bit;
        }
        let _ = self.filters.set(pid % FILTERS, filter, 0);
    }

    pub fn forget_process(&mut self, pid: u32) {
        let _ = self.growth.remove(&pid);
    }
}

/// Makes the steps this many times as large.
pub fn set_steps(object: &mut Object, times: u64) -> bool {
    object.set(control::HEAP_STEPS, times).is_ok()
}

/// Total run time of the programs.
pub fn run_time(object: &Object) -> Duration {
    object.run_time_of(&PROGRAMS.map(|program| program.name)).0
}

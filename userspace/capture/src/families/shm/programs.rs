//! The programs that watch shared memory.

use pyobs_abi::shm::Row;
use pyobs_model::Family;

use super::Maps;
use crate::bytes;
use crate::kernel::object::{Object, ObjectError};
use crate::kernel::program::ProgramSpec;

/// The programs that always run, and their tracepoints.
const ATTACHED: [(&str, &str); 4] = [
    ("shm_evict", "mm_filemap_delete_from_page_cache"),
    ("shm_exit", "sched_process_exit"),
    ("shm_exec", "sched_process_exec"),
    ("shm_fork", "sched_process_fork"),
];
/// The iterators over what processes hold, with their types.
const ITERATORS: [(&str, &str); 2] = [("shm_iterate_mappings", "task_vma"), ("shm_iterate_descriptors", "task_file")];
const FAMILIES: &[Family] = &[Family::Shm];
pub const PROGRAMS: [ProgramSpec; 6] = [
    ProgramSpec::new(ATTACHED[0].0, FAMILIES),
    ProgramSpec::new(ATTACHED[1].0, FAMILIES),
    ProgramSpec::new(ATTACHED[2].0, FAMILIES),
    ProgramSpec::new(ATTACHED[3].0, FAMILIES),
    ProgramSpec::new(ITERATORS[0].0, FAMILIES).optional().iterator(ITERATORS[0].1),
    ProgramSpec::new(ITERATORS[1].0, FAMILIES).optional().iterator(ITERATORS[1].1),
];

/// Starts watching shared memory and takes its maps. Call once.
pub fn attach(object: &mut Object) -> Result<Maps, ObjectError> {
    object.attach_tracepoints(&ATTACHED)?;
    Ok(Maps {
        segments: object.take("SHM_SEGMENTS")?,
        holders: object.take("SHM_HOLDERS")?,
        found: object.take("SHM_FOUND")?,
    })
}

/// Iterators over the segments that all processes hold, if the kernel supports them.
#[derive(Clone, Copy, Debug)]
pub struct Iterators {
    work: bool,
}

impl Iterators {
    /// Not every kernel has both: `task_vma` came with 5.12.
    pub fn load(object: &mut Object) -> Self {
        Self { work: ITERATORS.into_iter().all(|(name, _)| object.load(name).is_ok()) }
    }

    pub const NONE: Self = Self { work: false };

    pub fn work(self) -> bool {
        self.work
    }

    /// What all processes hold now; `None` if the kernel does not support the iterators.
    pub fn run(&mut self, object: &mut Object) -> Option<Vec<Row>> {
        if !self.work {
            return None;
        }
        let mut rows = Vec::new();
        for (name, _) in ITERATORS {
            let Some(written) = object.iterate(name) else {
                self.work = false;
                return None;
            };
            rows.extend(bytes::rows::<Row>(&written));
        }
        Some(rows)
    }
}

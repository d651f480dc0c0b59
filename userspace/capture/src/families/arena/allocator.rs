//! Where an interpreter keeps its objects: the differences between CPython's allocators.

use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;

use pyobs_model::Filled;

use super::pools::{self, Shape};
use super::{scan, segments};
use crate::cpython::attached::Attached;
use crate::cpython::version::Version;
use crate::machine;
use crate::memory::ProcessMemory;

/// Bytes read of a process's environment.
const ENVIRONMENT_MAX: u64 = 1 << 20;

/// The names of CPython's own kinds of arenas, reserved: no library may use them.
pub const OWN: [&str; 2] = ["pymalloc", "mimalloc"];

pub struct Kinds {
    pub pymalloc: Arc<str>,
    pub mimalloc: Arc<str>,
}

impl Default for Kinds {
    fn default() -> Self {
        let [pymalloc, mimalloc] = OWN.map(Arc::from);
        Self { pymalloc, mimalloc }
    }
}

impl Kinds {
    pub fn of(&self, allocator: Allocator) -> Arc<str> {
        Arc::clone(match allocator {
            Allocator::Pymalloc(_) => &self.pymalloc,
            Allocator::Mimalloc(_) => &self.mimalloc,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocator {
    Pymalloc(Shape),
    Mimalloc(segments::Shape),
}

impl Allocator {
    pub fn of(version: Version, free_threaded: bool) -> Self {
        if free_threaded { Self::Mimalloc(segments::Shape::of(true)) } else { Self::Pymalloc(Shape::of(version)) }
    }

    /// The allocator of a process, which its environment may have selected.
    pub fn of_process(pid: u32, python: &Attached) -> Self {
        match Self::of(python.number, python.layout.free_threaded) {
            Self::Pymalloc(_) if python.number.since(13) && asks_for_mimalloc(pid) => {
                Self::Mimalloc(segments::Shape::of(false))
            }
            usual => usual,
        }
    }

    /// The shape of its arenas, if CPython's own allocator creates them.
    pub fn shape(self) -> Option<Shape> {
        match self {
            Self::Pymalloc(shape) => Some(shape),
            Self::Mimalloc(_) => None,
        }
    }

    /// Finds the arenas of a process, with their sizes. `None` if its memory cannot be read.
    pub fn find(self, pid: u32) -> Option<Vec<(u64, u64)>> {
        match self {
            Self::Pymalloc(shape) => Some(scan::find(pid, &shape).into_iter().map(|at| (at, shape.arena)).collect()),
            Self::Mimalloc(_) => {
                Some(segments::find(pid)?.into_iter().map(|(at, segment)| (at, segment.bytes)).collect())
            }
        }
    }

    /// Inspects arenas of a process, given by their addresses and sizes; `None` for memory that is not one.
    pub fn inspect(self, pid: u32, arenas: &[(u64, u64)]) -> Vec<std::io::Result<Option<Filled>>> {
        match self {
            Self::Pymalloc(shape) => {
                let addresses: Vec<u64> = arenas.iter().map(|(address, _)| *address).collect();
                pools::inspect(&ProcessMemory::new(pid), &addresses, &shape)
            }
            Self::Mimalloc(shape) => {
                arenas.iter().map(|(address, bytes)| segments::inspect(pid, *address, *bytes, shape)).collect()
            }
        }
    }
}

/// Whether the environment has `PYTHONMALLOC=mimalloc` or `mimalloc_debug` (3.13+).
fn asks_for_mimalloc(pid: u32) -> bool {
    let mut environment = Vec::new();
    let file = File::open(format!("/proc/{}/environ", machine::living_thread(pid)));
    let is_read = file.and_then(|file| file.take(ENVIRONMENT_MAX).read_to_end(&mut environment)).is_ok();
    is_read && environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(b"PYTHONMALLOC=mimalloc"))
}

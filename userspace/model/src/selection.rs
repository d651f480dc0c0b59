//! The part of the history that a view, a report or an export covers.

use std::collections::BTreeSet;

use crate::families::heap::HeapTime;
use crate::{Nanos, ProcessRef, Tid};

/// All conditions that are set must hold; the default selects everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    pub processes: Option<BTreeSet<ProcessRef>>,
    pub tid: Option<Tid>,
    /// Inclusive.
    pub from: Option<Nanos>,
    /// Exclusive.
    pub to: Option<Nanos>,
    /// The start advances with time, as for the last ten seconds. What takes longer to prove is then examined over all
    /// kept time.
    pub is_moving: bool,
    /// The moment of a process's memory. By default the latest, or the peak of a process that has ended.
    pub memory: Option<HeapTime>,
}

impl Selection {
    pub fn has_process(&self, process: ProcessRef) -> bool {
        self.processes.as_ref().is_none_or(|set| set.contains(&process))
    }

    pub fn has_thread(&self, process: ProcessRef, tid: Tid) -> bool {
        self.has_process(process) && self.tid.is_none_or(|own| own == tid)
    }

    pub fn has_time(&self, at: Nanos) -> bool {
        self.from.is_none_or(|from| at >= from) && self.to.is_none_or(|to| at < to)
    }

    pub fn has(&self, process: ProcessRef, tid: Tid, at: Nanos) -> bool {
        self.has_thread(process, tid) && self.has_time(at)
    }

    /// The selection for facts that take long to prove, or that persist.
    pub fn lasting(&self) -> Self {
        Self { from: self.from.filter(|_| !self.is_moving), ..self.clone() }
    }

    /// The end of its time.
    pub fn end(&self) -> Nanos {
        self.to.unwrap_or(Nanos(u64::MAX))
    }

    /// Whether it restricts time, so that sums over all time do not answer it.
    pub fn is_timed(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }
}

//! The report's `processes[].memory`: the resident memory of a process.

use serde::Serialize;

use crate::{Nanos, Resident};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Memory {
    pub looked_s: f64,
    /// The process's RSS as the kernel counts it.
    pub rss_bytes: u64,
    /// Parts of it: anonymous pages, file pages, shared memory.
    pub anonymous_bytes: u64,
    pub files_bytes: u64,
    pub shared_bytes: u64,
    /// Pages of segments, and the same with each page divided by the number of processes that map it.
    pub segments_bytes: u64,
    pub share_bytes: u64,
    /// `rss_bytes` with `share_bytes` instead of `segments_bytes`. Summed over all processes, it counts each page of a
    /// segment once.
    pub counted_once_bytes: u64,
}

impl From<(Nanos, Resident)> for Memory {
    fn from((at, resident): (Nanos, Resident)) -> Self {
        let Resident { total, anonymous, files, shared, segments, share } = resident;
        Self {
            looked_s: at.as_secs_f64(),
            rss_bytes: total,
            anonymous_bytes: anonymous,
            files_bytes: files,
            shared_bytes: shared,
            segments_bytes: segments,
            share_bytes: share,
            counted_once_bytes: resident.counted_once(),
        }
    }
}

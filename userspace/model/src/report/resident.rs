//! The report's `processes[].memory`: what of a process's memory is there.

use serde::Serialize;

use crate::{Nanos, Resident};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Memory {
    pub looked_s: f64,
    /// What the kernel counts as the process's.
    pub rss_bytes: u64,
    /// Of that: its own, pages of files, and memory to be shared.
    pub anonymous_bytes: u64,
    pub files_bytes: u64,
    pub shared_bytes: u64,
    /// Of it what lies in segments, and that divided by the number of processes that have each page.
    pub segments_bytes: u64,
    pub share_bytes: u64,
    /// `rss_bytes` with `share_bytes` in place of `segments_bytes`: what all processes have of it together counts each page
    /// of a segment once.
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

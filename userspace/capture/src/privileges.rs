//! Gives up the rights that attaching took, once everything is attached.
//!
//! Capabilities belong to threads: [`drop_after_attach`] binds the calling thread and those it starts afterwards, so it
//! is called before other threads exist, or on each of them.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use thiserror::Error;

use crate::{blocking, rights};

/// Memory and files of the watched processes, through `process_vm_readv` and `/proc/PID/root`.
const READING: CapabilitySet = CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_READ_SEARCH);

const NICENESS: i32 = -10;

/// What else the rest of the run needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    #[default]
    Reading,
    /// New files in a folder that is not root's: SQLite makes and removes its journal beside the recording, and
    /// `sudo pyobs record` in a user's folder could do neither without CAP_DAC_OVERRIDE.
    WritingAnywhere,
}

/// What is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    pub kept: CapabilitySet,
}

#[derive(Debug, Error)]
#[error("rights that are needed no more could not be given up ({step}): {error}; try `pyobs doctor`")]
pub struct DropError {
    step: &'static str,
    error: io::Error,
}

/// Keeps only what reading needs, for this thread, its later threads and everything they might execute.
///
/// `kernel` is (major, minor). Perf events, links and maps that are open go on working; new ones cannot be had.
pub fn drop_after_attach(kernel: (u32, u32), keep: Keep) -> Result<Dropped, DropError> {
    drop_all_but(wanted(kernel, keep))
}

/// As [`drop_after_attach`], for a thread that goes on putting probes on processes that come later, or in windows of
/// time. A probe on user space is a perf event, and CAP_PERFMON does not do for this kind: the kernel asks for
/// CAP_SYS_ADMIN (tried on 6.18; kernel/events/core.c, perf_uprobe_event_init).
pub fn drop_but_probing(kernel: (u32, u32), keep: Keep) -> Result<Dropped, DropError> {
    drop_all_but(wanted(kernel, keep) | CapabilitySet::SYS_ADMIN)
}

/// As [`drop_after_attach`], for a thread that goes on setting watchpoints on other processes' threads: perf events, which
/// CAP_PERFMON usually does for.
pub fn drop_but_watching(kernel: (u32, u32)) -> Result<Dropped, DropError> {
    // Before 5.8 there is no CAP_PERFMON.
    let watching = if kernel < (5, 8) { CapabilitySet::SYS_ADMIN } else { rights::for_perf_events() };
    drop_all_but(wanted(kernel, Keep::Reading) | watching | CapabilitySet::SYS_NICE)
}

/// Puts the calling thread before others in the queue for a CPU, where it may: a process that lives for 50 ms on a busy
/// machine is gone before one of many equals gets its turn. What pyobs uses is bounded by its budget.
pub fn go_first() {
    // Without the right to it, it is as all others are.
    let _ = rustix::process::setpriority_process(None, NICENESS);
}

fn drop_all_but(wanted: CapabilitySet) -> Result<Dropped, DropError> {
    let failed = |step| move |error: rustix::io::Errno| DropError { step, error: error.into() };
    let held = capabilities(None).map_err(failed("capget"))?;
    let kept = held.permitted & wanted;

    clear_ambient_capability_set().map_err(failed("clearing the ambient set"))?;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        for capability in every_capability() {
            // An error is that of a number beyond the kernel's last capability.
            if capability_is_in_bounding_set(capability).unwrap_or(false) {
                remove_capability_from_bounding_set(capability).map_err(failed("emptying the bounding set"))?;
            }
        }
    }
    set_no_new_privs(true).map_err(failed("no_new_privs"))?;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(failed("capset"))?;
    // It still has those rights that this thread had.
    blocking::renew();
    Ok(Dropped { kept })
}

fn wanted(kernel: (u32, u32), keep: Keep) -> CapabilitySet {
    let mut wanted = READING;
    // More memory for unwind tables. Before 5.19 kernel.unprivileged_bpf_disabled also forbids to read and write maps
    // that are open.
    wanted |= CapabilitySet::BPF;
    // /proc/PID/map_files.
    wanted |= if kernel < (5, 9) { CapabilitySet::SYS_ADMIN } else { CapabilitySet::CHECKPOINT_RESTORE };
    if keep == Keep::WritingAnywhere {
        wanted |= CapabilitySet::DAC_OVERRIDE;
    }
    wanted
}

fn every_capability() -> impl Iterator<Item = CapabilitySet> {
    (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernels_need_more() {
        let new = wanted((6, 1), Keep::Reading);
        assert_eq!(new, READING | CapabilitySet::BPF | CapabilitySet::CHECKPOINT_RESTORE);
        assert!(wanted((5, 8), Keep::Reading).contains(CapabilitySet::SYS_ADMIN));
        assert!(wanted((6, 1), Keep::WritingAnywhere).contains(CapabilitySet::DAC_OVERRIDE));
    }
}

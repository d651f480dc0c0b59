//! Drops the privileges used for attaching, once everything is attached.
//!
//! Capabilities belong to threads: [`drop_after_attach`] affects the calling thread and those it starts
//! afterwards, so it is called before other threads exist, or on each of them.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use thiserror::Error;

use crate::{blocking, rights};

/// Needed for the memory and files of watched processes (`process_vm_readv`, `/proc/PID/root`).
const READING: CapabilitySet = CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_READ_SEARCH);

const NICENESS: i32 = -10;

/// What else the rest of the run needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    #[default]
    Reading,
    /// New files in a folder that does not belong to root. SQLite creates and removes its journal next to the
    /// recording, and without CAP_DAC_OVERRIDE `sudo pyobs record` in a user's folder could do neither.
    WritingAnywhere,
}

/// What is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    pub kept: CapabilitySet,
}

#[derive(Debug, Error)]
#[error("privileges that are no longer needed could not be dropped ({step}): {error}; try `pyobs doctor`")]
pub struct DropError {
    step: &'static str,
    error: io::Error,
}

/// Keeps only what reading needs, for this thread, its later threads and everything that they exec.
///
/// `kernel` is (major, minor). Open perf events, links and maps keep working; new ones cannot be created.
pub fn drop_after_attach(kernel: (u32, u32), keep: Keep) -> Result<Dropped, DropError> {
    drop_all_but(wanted(kernel, keep))
}

/// Like [`drop_after_attach`], for a thread that keeps attaching probes, to later processes or in time
/// windows. A user-space probe is a perf event for which CAP_PERFMON is not enough: the kernel requires
/// CAP_SYS_ADMIN (tried on 6.18; `perf_uprobe_event_init` in
/// <https://github.com/torvalds/linux/blob/v6.1/kernel/events/core.c>).
pub fn drop_but_probing(kernel: (u32, u32), keep: Keep) -> Result<Dropped, DropError> {
    drop_all_but(wanted(kernel, keep) | CapabilitySet::SYS_ADMIN)
}

/// Keeps only what a perf event with a program takes, for a thread that does nothing but open these.
pub fn drop_but_tracing(kernel: (u32, u32)) -> Result<Dropped, DropError> {
    drop_all_but(for_perf_events(kernel) | CapabilitySet::BPF)
}

/// Keeps nothing, or only what new files in any folder take. For a thread that does nothing but write files.
pub fn drop_all(but_writing: bool) -> Result<Dropped, DropError> {
    drop_all_but(if but_writing { CapabilitySet::DAC_OVERRIDE } else { CapabilitySet::empty() })
}

/// Like [`drop_after_attach`], for a thread that keeps setting watchpoints on other processes' threads. These
/// are perf events for which CAP_PERFMON is usually enough.
pub fn drop_but_watching(kernel: (u32, u32)) -> Result<Dropped, DropError> {
    drop_all_but(wanted(kernel, Keep::Reading) | for_perf_events(kernel) | CapabilitySet::SYS_NICE)
}

fn for_perf_events(kernel: (u32, u32)) -> CapabilitySet {
    // CAP_PERFMON exists since 5.8.
    if kernel < (5, 8) { CapabilitySet::SYS_ADMIN } else { rights::for_perf_events() }
}

/// Raises the calling thread's priority, if allowed: on a busy machine, a process that lives for 50 ms is
/// gone before one of many equal threads gets its turn. The budget limits what pyobs uses.
pub fn go_first() {
    // Without the privilege, the priority stays the default.
    let _ = rustix::process::setpriority_process(None, NICENESS);
}

fn drop_all_but(wanted: CapabilitySet) -> Result<Dropped, DropError> {
    let failed = |step| move |error: rustix::io::Errno| DropError { step, error: error.into() };
    let held = capabilities(None).map_err(failed("capget"))?;
    let kept = held.permitted & wanted;

    clear_ambient_capability_set().map_err(failed("clearing the ambient set"))?;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        for capability in every_capability() {
            // Fails for numbers beyond the kernel's last capability.
            if capability_is_in_bounding_set(capability).unwrap_or(false) {
                remove_capability_from_bounding_set(capability).map_err(failed("emptying the bounding set"))?;
            }
        }
    }
    set_no_new_privs(true).map_err(failed("no_new_privs"))?;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(failed("capset"))?;
    // The helper thread still has this thread's former privileges.
    blocking::renew();
    Ok(Dropped { kept })
}

fn wanted(kernel: (u32, u32), keep: Keep) -> CapabilitySet {
    let mut wanted = READING;
    // For more memory for unwind tables. Before 5.19, kernel.unprivileged_bpf_disabled also forbids reading
    // and writing open maps without it.
    wanted |= CapabilitySet::BPF;
    // For /proc/PID/map_files.
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

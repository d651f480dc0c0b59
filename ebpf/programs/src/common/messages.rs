//! Debug messages of the BPF programs, through aya-log.
//!
//! They are off unless `RUST_LOG` enables the target `bpf`. User space sets the level before it loads the programs, in
//! a map that the verifier reads as a constant. So code that is off is neither verified nor loaded, and only the read
//! of the level remains.
//!
//! Stack: one message needs more than 200 bytes, so each is a subprogram that calls no other (see [`crate::calls`]).

use aya_log_ebpf::{
    debug,
    macro_support::{Level, level_enabled},
};

/// Check this before calling a message: the check inside it would leave the call in the program.
#[inline(always)]
pub fn are_on() -> bool {
    level_enabled(Level::Debug)
}

#[inline(never)]
pub fn forked(pid: u32, child: u32) {
    debug!((), target: "bpf", "process {} forked process {}", pid, child);
}

#[inline(never)]
pub fn executed(pid: u32) {
    debug!((), target: "bpf", "process {} executed a program", pid);
}

#[inline(never)]
pub fn exited(pid: u32) {
    debug!((), target: "bpf", "process {} exited", pid);
}

/// The outcomes are numbers of `pyobs_abi::stack::walk` and `pyobs_abi::stack::native`. Names would multiply the paths
/// that the verifier follows.
#[inline(never)]
pub fn incomplete(pid: u32, tid: u32, python: u32, native: u32) {
    debug!(
        (),
        target: "bpf",
        "incomplete stack of process {}, thread {}: outcome {} of the Python walk, {} of the native one",
        pid,
        tid,
        python,
        native,
    );
}

#[inline(never)]
pub fn displaced(tid: u32, by: u32) {
    debug!((), target: "bpf", "sleeping thread {} lost its slot to thread {}", tid, by);
}

#[inline(never)]
pub fn segment(pid: u32, device: u32, inode: u64) {
    debug!((), target: "bpf", "process {} has a new segment, inode {} of device {:x}", pid, inode, device);
}

//! The programs at system calls.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use aya::programs::{Program, TracePoint};

use super::{Object, ObjectError, descriptor, program};
use crate::kernel::tracefs::{Attached, Calls};

/// The programs at tracepoints of single calls, for entry and exit.
pub const SINGLE: [&str; 2] = ["calls_begin", "calls_end"];
/// The programs at the tracepoints of all calls, and the types of these.
pub const ALL: [&str; 2] = ["calls_begin_all", "calls_end_all"];
pub const TYPES: [&str; 2] = ["btf_trace_sys_enter", "btf_trace_sys_exit"];

/// Names of system calls as in the kernel's tracepoints; some stand for several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Points {
    pub beginnings: Vec<&'static str>,
    pub ends: Vec<&'static str>,
}

impl Points {
    /// The names of the entry and exit tracepoints, without duplicates.
    fn tracepoints(self) -> [Vec<String>; 2] {
        [("sys_enter_", self.beginnings), ("sys_exit_", self.ends)].map(|(kind, mut calls)| {
            calls.sort_unstable();
            calls.dedup();
            calls.into_iter().map(|name| format!("{kind}{name}")).collect()
        })
    }
}

impl Object {
    /// Starts watching these system calls. Call once.
    pub fn attach_system_calls(&mut self, points: Points) -> Result<(), ObjectError> {
        // The fallback is for a missing tracefs without the right to mount one, and for kernels without these
        // tracepoints.
        if self.attach_single_calls(points)?.is_ok() { Ok(()) } else { self.attach_all_calls() }
    }

    fn attach_single_calls(&mut self, points: Points) -> Result<io::Result<()>, ObjectError> {
        let points = points.tracepoints();
        let room = points.iter().map(Vec::len).sum::<usize>() as u32;
        let (calls, mut attached) = match Calls::open().and_then(|calls| Ok((calls, Attached::new(room)?))) {
            Ok(both) => both,
            Err(error) => return Ok(Err(error)),
        };
        for (name, points) in SINGLE.into_iter().zip(points) {
            self.load(name)?;
            let program: &mut TracePoint = program(&mut self.ebpf, name)?;
            let program = File::from(descriptor(program.fd(), name)?);
            if let Err(error) = points.iter().try_for_each(|point| calls.attach(&program, point, &mut attached)) {
                return Ok(Err(error));
            }
        }
        self.attached_calls = Some(attached);
        Ok(Ok(()))
    }

    /// Number of these calls at which no program ran (`trace_call_bpf` in
    /// <https://github.com/torvalds/linux/blob/v6.1/kernel/trace/bpf_trace.c>).
    pub fn missed_calls(&self) -> u64 {
        SINGLE.iter().filter_map(|name| missed(self.ebpf.program(name)?)).sum()
    }

    fn attach_all_calls(&mut self) -> Result<(), ObjectError> {
        ALL.into_iter().try_for_each(|name| self.attach_typed(name))
    }
}

/// Reads a counter of the program that aya does not offer.
fn missed(program: &Program) -> Option<u64> {
    let fd = program.fd().ok()?.as_fd().as_raw_fd();
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_has_one_tracepoint() {
        let points = Points { beginnings: vec!["munmap", "close", "munmap"], ends: vec!["mmap"] };
        let [beginnings, ends] = points.tracepoints();
        assert_eq!(beginnings, ["sys_enter_close", "sys_enter_munmap"]);
        assert_eq!(ends, ["sys_exit_mmap"]);
    }
}

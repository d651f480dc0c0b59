//! The programs at system calls.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use aya::programs::{Program, TracePoint};
use pyobs_abi::calls::{ARENA_BEGIN, ARENA_END, CODE_END, SHM_BEGIN, SHM_END};

use super::{Object, ObjectError, descriptor, program};
use crate::kernel::tracefs::{Attached, Calls};

/// Those at tracepoints of single calls, for their beginnings and their ends.
pub(super) const SINGLE: [&str; 2] = ["calls_begin", "calls_end"];
/// Those at tracepoints of all calls, and the types of these.
pub(super) const ALL: [&str; 2] = ["calls_begin_all", "calls_end_all"];
pub(super) const TYPES: [&str; 2] = ["btf_trace_sys_enter", "btf_trace_sys_exit"];

impl Object {
    /// Starts to look at the system calls that these families need, and at those that give a process new code; to be called
    /// once.
    pub fn attach_system_calls(&mut self, probes: &[&str]) -> Result<(), ObjectError> {
        // With no tracefs, and no right to mount one, or a kernel that has no such tracepoints.
        if self.attach_single_calls(probes)?.is_ok() { Ok(()) } else { self.attach_all_calls() }
    }

    fn attach_single_calls(&mut self, probes: &[&str]) -> Result<io::Result<()>, ObjectError> {
        let points = points(probes);
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

    /// At how many of these calls no program ran (kernel/trace/bpf_trace.c, trace_call_bpf).
    pub fn missed_calls(&self) -> u64 {
        SINGLE.iter().filter_map(|name| missed(self.ebpf.program(name)?)).sum()
    }

    fn attach_all_calls(&mut self) -> Result<(), ObjectError> {
        ALL.into_iter().try_for_each(|name| self.attach_typed(name))
    }
}

/// What the kernel tells of the program, which aya does not.
fn missed(program: &Program) -> Option<u64> {
    let fd = program.fd().ok()?.as_fd().as_raw_fd();
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?.trim().parse().ok()
}

/// The names of the tracepoints for beginnings and ends, each once.
fn points(probes: &[&str]) -> [Vec<String>; 2] {
    let of = |family: &str, calls: &'static [&'static str]| if probes.contains(&family) { calls } else { &[] };
    let begin = [of("shm", &SHM_BEGIN), of("arena", &ARENA_BEGIN)];
    let end = [of("shm", &SHM_END), of("arena", &ARENA_END), &CODE_END];
    [("sys_enter_", &begin[..]), ("sys_exit_", &end[..])].map(|(kind, calls)| {
        let mut names: Vec<_> = calls.concat();
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(|name| format!("{kind}{name}")).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_families_need_is_looked_at_and_once() {
        assert_eq!(points(&["cpu", "arena"])[0], ["sys_enter_munmap"]);
        assert_eq!(points(&["arena"])[1], ["sys_exit_mmap", "sys_exit_mprotect", "sys_exit_pkey_mprotect"]);
        assert_eq!(points(&["shm"])[0], points(&["shm", "arena"])[0]);
        assert_eq!(points(&["shm"])[1].len(), SHM_END.len() + CODE_END.len() - 1);
    }
}

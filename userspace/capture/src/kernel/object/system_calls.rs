//! The programs at system calls.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use aya::programs::{Program, TracePoint};

use pyobs_abi::control;

use super::{Object, ObjectError, descriptor, program};
use crate::kernel::release;
use crate::kernel::tracefs::{self, Attached, Calls};
use crate::privileges;

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

/// Loaded programs, the numbers of the tracepoints that each is for, and room for what attaches them.
pub(super) struct Ready {
    programs: Vec<(File, Vec<u64>)>,
    attached: Attached,
}

impl Ready {
    fn attach(mut self) -> io::Result<Attached> {
        for (program, points) in &self.programs {
            points.iter().try_for_each(|point| tracefs::attach(program, *point, &mut self.attached))?;
        }
        Ok(self.attached)
    }
}

/// A thread that waits to attach programs. It is the only one that keeps the right to, and reads no data of others.
pub(super) struct Later {
    ask: SyncSender<()>,
    thread: JoinHandle<io::Result<Attached>>,
}

impl Later {
    fn new(ready: Ready) -> io::Result<Self> {
        let (ask, asked) = sync_channel(1);
        let thread = thread::Builder::new().name("pyobs-attach".into()).spawn(move || {
            privileges::drop_but_tracing(release::version()).map_err(io::Error::other)?;
            // An error means that nobody asks any more.
            asked.recv().map_err(io::Error::other)?;
            ready.attach()
        })?;
        Ok(Self { ask, thread })
    }

    fn attach(self) -> io::Result<Attached> {
        // The thread may have ended with an error, which it returns.
        let _ = self.ask.send(());
        self.thread.join().map_err(|_| io::Error::other("its thread has panicked"))?
    }
}

impl Object {
    /// Starts watching these system calls. Call once.
    pub fn attach_system_calls(&mut self, points: Points) -> Result<(), ObjectError> {
        // The fallback is for a missing tracefs without the right to mount one, and for kernels without these
        // tracepoints.
        match self.single_calls(points)?.and_then(Ready::attach) {
            Ok(attached) => {
                self.attached_calls = Some(attached);
                Ok(())
            }
            Err(_) => ALL.into_iter().try_for_each(|name| self.attach_typed(name)),
        }
    }

    /// Prepares for [`Self::attach_later_calls`]. Returns whether that is possible.
    pub fn prepare_system_calls(&mut self, points: Points) -> Result<bool, ObjectError> {
        self.later_calls = self.single_calls(points)?.and_then(Later::new).ok();
        Ok(self.has_later_calls())
    }

    /// Does without mappings, and without [`Self::attach_later_calls`].
    pub fn forget_mappings(&mut self) -> Result<(), ObjectError> {
        self.later_calls = None;
        self.set(control::AT_MAPPINGS, 0)
    }

    /// Whether system calls are not watched, but can be from any time on.
    pub fn has_later_calls(&self) -> bool {
        self.later_calls.is_some()
    }

    /// Starts watching the system calls that were prepared, instead of mappings for these families.
    pub fn attach_later_calls(&mut self, families: u64) -> Result<(), ObjectError> {
        let Some(later) = self.later_calls.take() else { return Ok(()) };
        let at_mappings = self.control.get(&control::AT_MAPPINGS, 0).unwrap_or(0);
        self.set(control::AT_MAPPINGS, at_mappings & !families)?;
        match later.attach() {
            Ok(attached) => self.attached_calls = Some(attached),
            Err(error) => {
                self.set(control::AT_MAPPINGS, at_mappings)?;
                return Err(ObjectError::SystemCalls(error));
            }
        }
        Ok(())
    }

    fn single_calls(&mut self, points: Points) -> Result<io::Result<Ready>, ObjectError> {
        let points = points.tracepoints();
        let room = points.iter().map(Vec::len).sum::<usize>() as u32;
        let (calls, attached) = match Calls::open().and_then(|calls| Ok((calls, Attached::new(room)?))) {
            Ok(both) => both,
            Err(error) => return Ok(Err(error)),
        };
        let mut programs = Vec::new();
        for (name, points) in SINGLE.into_iter().zip(points) {
            self.load(name)?;
            let program: &mut TracePoint = program(&mut self.ebpf, name)?;
            let program = File::from(descriptor(program.fd(), name)?);
            // The kernel may lack some of the calls.
            let numbers = points.iter().filter_map(|point| calls.number(point).transpose());
            match numbers.collect() {
                Ok(numbers) => programs.push((program, numbers)),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(Ready { programs, attached }))
    }

    /// Number of these calls at which no program ran (`trace_call_bpf` in
    /// <https://github.com/torvalds/linux/blob/v6.1/kernel/trace/bpf_trace.c>).
    pub fn missed_calls(&self) -> u64 {
        SINGLE.iter().filter_map(|name| missed(self.ebpf.program(name)?)).sum()
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

//! The tracepoints of single system calls.
//!
//! Each has a number, which tracefs shows: the mounted one, or else one that we mount privately.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use perf_event_open::config::{Cpu, Opts, Proc};
use perf_event_open::count::Counter;
use perf_event_open::event::tp::Tracepoint;
use rustix::fs::{CWD, Mode, OFlags, fstatfs, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::bpf::{self, MapCreate};

const MOUNTED: &str = "/sys/kernel/tracing";
/// `TRACEFS_MAGIC` (<https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/magic.h>).
const MAGIC: i64 = 0x7472_6163;
const CALLS: &str = "events/syscalls";

/// The tracefs folder of system calls.
pub struct Calls(OwnedFd);

impl Calls {
    pub fn open() -> io::Result<Self> {
        let mounted = folder(CWD, MOUNTED).ok();
        let root = match mounted.filter(|root| fstatfs(root).is_ok_and(|stat| stat.f_type == MAGIC)) {
            Some(root) => root,
            None => {
                let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
                fsconfig_create(&context)?;
                fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_RDONLY)?
            }
        };
        Ok(Self(folder(root.as_fd(), CALLS)?))
    }

    /// Checks that an event can be opened at one of them.
    pub fn try_out(&self) -> io::Result<()> {
        let id = self.number("sys_enter_munmap")?.ok_or(io::ErrorKind::NotFound)?;
        event(id).map(drop)
    }

    /// The number of a tracepoint such as `sys_enter_close`; `None` if this kernel lacks the call.
    pub fn number(&self, point: &str) -> io::Result<Option<u64>> {
        let id = match openat(&self.0, format!("{point}/id"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(id) => id,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut text = String::new();
        File::from(id).take(32).read_to_string(&mut text)?;
        text.trim().parse().map(Some).map_err(|_| io::ErrorKind::InvalidData.into())
    }
}

/// Runs a program at the tracepoint with this number, on every CPU.
pub fn attach(program: &File, number: u64, attached: &mut Attached) -> io::Result<()> {
    let event = event(number)?;
    event.attach_bpf(program)?;
    attached.keep(event.file().as_fd())
}

/// The event itself counts on one CPU; its program runs on all.
fn event(id: u64) -> io::Result<Counter> {
    Counter::new(Tracepoint { id }, (Proc::ALL, Cpu(0)), Opts::default())
}

fn folder(within: BorrowedFd<'_>, path: &str) -> rustix::io::Result<OwnedFd> {
    openat(within, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// What is attached, until it is dropped.
///
/// Closing a tracepoint's event takes 40 to 80 ms, and events are closed one at a time
/// (`perf_trace_event_unreg` in <https://github.com/torvalds/linux/blob/v6.1/kernel/trace/trace_event_perf.c>).
/// These are kept in a map of perf events, which the kernel empties in the background, so that we need not
/// wait.
pub struct Attached {
    map: OwnedFd,
    count: u32,
}

impl Attached {
    /// Creates room for this many.
    pub fn new(entries: u32) -> io::Result<Self> {
        const PERF_EVENT_ARRAY: u32 = 4;
        let map = MapCreate { kind: PERF_EVENT_ARRAY, key_size: 4, value_size: 4, entries, flags: 0 };
        Ok(Self { map: bpf::create_map(&map)?, count: 0 })
    }

    fn keep(&mut self, event: BorrowedFd<'_>) -> io::Result<()> {
        bpf::update_map(self.map.as_fd(), self.count, bpf::number(event))?;
        self.count += 1;
        Ok(())
    }
}

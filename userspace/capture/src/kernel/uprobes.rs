//! Puts BPF programs on places in files of code. Not by aya, which asks the kernel what it can do on every attachment,
//! by loading a program: a right that we have given up by then.

use std::ffi::{CStr, c_long};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use aya_obj::generated::perf_event_attr;

use super::bpf::{self, LinkCreate};

/// The kernel's number for events of this kind (`/sys/bus/event_source`).
#[derive(Clone, Copy, Debug)]
pub struct Uprobes {
    kind: u32,
}

/// Whose hits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Everybody,
    /// A process, all of its threads. Not its children: the kernel takes the probe away from them.
    Process(u32),
}

impl Uprobes {
    pub fn of_this_kernel() -> io::Result<Self> {
        let text = fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")?;
        let kind = text.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Self { kind })
    }

    /// Runs a program whenever control comes to `offset` of the file at `path`. It ends when the descriptor is closed,
    /// which waits for all CPUs: tens of milliseconds.
    pub fn attach(
        self,
        program: BorrowedFd<'_>,
        path: &CStr,
        offset: u64,
        scope: Scope,
        cookie: u64,
    ) -> io::Result<OwnedFd> {
        let event = self.open(path, offset, scope)?;
        link(program, event.as_fd(), cookie)
    }

    fn open(self, path: &CStr, offset: u64, scope: Scope) -> io::Result<OwnedFd> {
        // SAFETY: every field is an integer, a bit field of integers or a union of integers, for which zero is valid.
        let mut attributes: perf_event_attr = unsafe { std::mem::zeroed() };
        attributes.size = size_of::<perf_event_attr>() as u32;
        attributes.type_ = self.kind;
        attributes.__bindgen_anon_3.config1 = path.as_ptr().addr() as u64;
        attributes.__bindgen_anon_4.config2 = offset;
        // The event itself counts for one thread or one CPU; its program runs for all of the scope.
        let (pid, cpu) = match scope {
            Scope::Everybody => (-1, 0),
            Scope::Process(pid) => (c_long::from(pid), -1),
        };
        const NO_GROUP: c_long = -1;
        const CLOSE_ON_EXEC: c_long = 8;
        // SAFETY: the attributes are initialised and say their own size; the kernel reads them, and the path that they
        // point to, only during the call.
        let got = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                std::ptr::from_ref(&attributes),
                pid,
                cpu as c_long,
                NO_GROUP,
                CLOSE_ON_EXEC,
            )
        };
        bpf::owned(got)
    }
}

fn link(program: BorrowedFd<'_>, event: BorrowedFd<'_>, cookie: u64) -> io::Result<OwnedFd> {
    const BPF_PERF_EVENT: u32 = 41;
    let (program, target) = (bpf::number(program), bpf::number(event));
    bpf::create_link(&LinkCreate { program, target, attach: BPF_PERF_EVENT, flags: 0, cookie })
}

/// What a hit costs on this machine before its program runs, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrapCosts {
    /// On an instruction that the kernel carries out itself.
    pub cheap: u32,
    /// On one that it steps over a copy of.
    pub stepped: u32,
}

#[unsafe(naked)]
extern "C" fn emulated() {
    std::arch::naked_asm!("nop", "ret");
}

#[unsafe(naked)]
extern "C" fn stepped_over() {
    std::arch::naked_asm!("mov eax, edi", "ret");
}

impl Uprobes {
    /// Tries both kinds on functions of pyobs itself; fails when no probe can be put at all.
    pub fn trap_costs(self) -> io::Result<TrapCosts> {
        Ok(TrapCosts { cheap: self.trap_cost(emulated)?, stepped: self.trap_cost(stepped_over)? })
    }

    fn trap_cost(self, function: extern "C" fn()) -> io::Result<u32> {
        const ROUNDS: u32 = 5;
        const CALLS: u32 = 40;
        let offset = own_offset(function as usize as u64).ok_or(io::ErrorKind::NotFound)?;
        let event = self.open(c"/proc/self/exe", offset, Scope::Process(std::process::id()))?;
        let rounds = (0..ROUNDS).map(|_| {
            let start = Instant::now();
            (0..CALLS).for_each(|_| function());
            start.elapsed() / CALLS
        });
        let least = rounds.min().unwrap_or_default().as_nanos();
        close_later(vec![event]);
        Ok(u32::try_from(least).unwrap_or(u32::MAX))
    }
}

/// Where in our own file the code at `address` is.
fn own_offset(address: u64) -> Option<u64> {
    let mappings = crate::process_maps::Mappings::of(std::process::id()).ok()?;
    let mapping = mappings.find(address)?;
    Some(address - mapping.start + mapping.offset)
}

/// Threads that close probes at once; each close waits, but several wait together.
const CLOSERS: usize = 8;

static CLOSING: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// Closes probes while we go on. The threads end when they are done.
pub fn close_later(mut probes: Vec<OwnedFd>) {
    let mut closing = CLOSING.lock().unwrap_or_else(PoisonError::into_inner);
    closing.retain(|thread| !thread.is_finished());
    let share = probes.len().div_ceil(CLOSERS);
    while !probes.is_empty() {
        let share = probes.split_off(probes.len().saturating_sub(share));
        let thread = std::thread::Builder::new().name("detach".to_owned());
        // Without a thread they are closed here and now.
        closing.extend(thread.spawn(move || drop(share)));
    }
}

/// Waits, when it is dropped, until all these are closed. The end of the process would kill the threads in the middle of it, and
/// the kernel then leaves the probe's instruction in the programs that run ("failed to unregister, leaking uprobe",
/// kernel/events/uprobes.c): they trap at it for as long as they live.
#[derive(Debug, Default)]
pub struct Closed;

impl Drop for Closed {
    fn drop(&mut self) {
        let closing = std::mem::take(&mut *CLOSING.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in closing {
            // One that panicked has closed what it had.
            let _ = thread.join();
        }
    }
}

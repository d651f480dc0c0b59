//! Attaches BPF programs to places in code files. aya is not used for this: it probes the kernel's features
//! on every attachment by loading a program, a privilege that we have given up by then.

use std::ffi::{CStr, c_long};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use aya_obj::generated::perf_event_attr;

use super::bpf::{self, LinkCreate};
use super::probed_files::{Probe, ProbedFile};

/// The kernel's number for events of this kind (`/sys/bus/event_source`).
#[derive(Clone, Copy, Debug)]
pub struct Uprobes {
    kind: u32,
}

/// Whose hits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Everybody,
    /// All threads of a process, but not its children: the kernel removes the probe from them.
    Process(u32),
}

impl Uprobes {
    pub fn of_this_kernel() -> io::Result<Self> {
        let text = fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")?;
        let kind = text.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Self { kind })
    }

    /// Runs a program whenever control reaches `offset` of the file. Dropping the probe ends this and waits
    /// for all CPUs, which takes tens of milliseconds.
    pub fn attach(
        self,
        program: BorrowedFd<'_>,
        file: &ProbedFile,
        offset: u64,
        scope: Scope,
        cookie: u64,
    ) -> io::Result<Probe> {
        let event = self.open(&file.path(), offset, scope)?;
        file.guard(link(program, event.as_fd(), cookie)?)
    }

    fn open(self, path: &CStr, offset: u64, scope: Scope) -> io::Result<OwnedFd> {
        // SAFETY: every field is an integer, a bit field of integers or a union of integers, for which zero
        // is valid.
        let mut attributes: perf_event_attr = unsafe { std::mem::zeroed() };
        attributes.size = size_of::<perf_event_attr>() as u32;
        attributes.type_ = self.kind;
        attributes.__bindgen_anon_3.config1 = path.as_ptr().addr() as u64;
        attributes.__bindgen_anon_4.config2 = offset;
        // The event itself counts one thread or one CPU; its program runs for the whole scope.
        let (pid, cpu) = match scope {
            Scope::Everybody => (-1, 0),
            Scope::Process(pid) => (c_long::from(pid), -1),
        };
        const NO_GROUP: c_long = -1;
        const CLOSE_ON_EXEC: c_long = 8;
        // SAFETY: the attributes are initialized and give their own size; the kernel reads them, and the path
        // that they point to, only during the call.
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
    /// On an instruction that the kernel emulates.
    pub cheap: u32,
    /// On one that the kernel single-steps.
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
    /// Measures both kinds on functions of pyobs itself; fails if no probe can be attached at all.
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
        close_later(vec![Probe::unguarded(event)]);
        Ok(u32::try_from(least).unwrap_or(u32::MAX))
    }
}

/// The offset of the code at `address` in our own file.
fn own_offset(address: u64) -> Option<u64> {
    let mappings = crate::process_maps::Mappings::of(std::process::id()).ok()?;
    let mapping = mappings.find(address)?;
    Some(address - mapping.start + mapping.offset)
}

/// Threads that close probes at the same time. Each close waits, but several wait together.
const CLOSERS: usize = 8;

static CLOSING: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// Closes probes in the background. The threads end when they are done.
pub fn close_later(probes: Vec<Probe>) {
    close(probes, CLOSERS);
}

/// Drops what closes events, without letting one wait for another.
pub fn close_at_once<T: Send + 'static>(events: Vec<T>) {
    let threads = events.len();
    close(events, threads);
}

fn close<T: Send + 'static>(mut probes: Vec<T>, threads: usize) {
    let mut closing = CLOSING.lock().unwrap_or_else(PoisonError::into_inner);
    closing.retain(|thread| !thread.is_finished());
    let share = probes.len().div_ceil(threads.max(1));
    while !probes.is_empty() {
        let share = probes.split_off(probes.len().saturating_sub(share));
        let thread = std::thread::Builder::new().name("detach".to_owned());
        // If no thread can be started, they are closed here and now.
        closing.extend(thread.spawn(move || drop(share)));
    }
}

/// When dropped, waits until all these probes are closed. Process exit would kill the threads halfway, and
/// the kernel would then leave the probe's instruction in the running programs ("failed to unregister,
/// leaking uprobe", <https://github.com/torvalds/linux/blob/v6.1/kernel/events/uprobes.c>), which would trap at
/// it for the rest of their lives.
#[derive(Debug, Default)]
pub struct Closed;

impl Drop for Closed {
    fn drop(&mut self) {
        let closing = std::mem::take(&mut *CLOSING.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in closing {
            // A thread that panicked has still closed its probes.
            let _ = thread.join();
        }
    }
}

//! What the threads of a process wait for, and who has it.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use pyobs_model::dump::{Awaited, Holder, What};
use pyobs_model::{Pid, Tid};

use super::files::{self, End, Everyone, Stream};
use super::locks::{Lock, Locks};
use super::objects::Objects;
use super::process::{Process, Thread};
use super::threads::Call;
use super::{tcp, unix};
use crate::machine;
use crate::memory::Memory;
use crate::process_maps::lines;

pub type Awaits = BTreeMap<Tid, Awaited>;

/// The word of a `pthread_mutex_t` that others wait for, and the offset of its owner
/// (<https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/nptl/bits/struct_mutex.h;hb=refs/tags/glibc-2.36>).
const MUTEX_AWAITED: u32 = 2;
const MUTEX_OWNER: u64 = 8;
/// Prefix of the files behind named semaphores.
const SEMAPHORE: &str = "/dev/shm/sem.";
/// The process that waitid(2) waits for.
const P_PID: u64 = 1;

pub fn of(process: &Process, everyone: &Everyone) -> Awaits {
    let (mut awaits, mut locks) = (Awaits::new(), Vec::<(Tid, Lock)>::new());
    let (objects, semaphores) = (process.objects(), OnceCell::new());
    let futexes = Futexes { process, objects: &objects, semaphores: &semaphores };
    for thread in &process.threads {
        let Some(call @ Call { number: Some(number), .. }) = thread.kernel.call else { continue };
        let tid = Tid(thread.kernel.tid);
        if i64::from(number) == libc::SYS_futex {
            match futexes.awaited(thread, call.arguments[0]) {
                Some(Futex::Known(awaited)) => _ = awaits.insert(tid, awaited),
                Some(Futex::Lock(lock)) => locks.push((tid, lock)),
                None => {}
            }
        } else if let Some(awaited) = in_call(process, call, everyone) {
            awaits.insert(tid, awaited);
        }
    }
    awaits.extend(with_holders(process, &objects, &locks));
    awaits
}

enum Futex {
    Known(Awaited),
    /// A lock of Python, whose holder is not known yet.
    Lock(Lock),
}

/// A named semaphore in a process's memory: its address range and name.
type Semaphore = (Range<u64>, String);

struct Futexes<'a> {
    process: &'a Process,
    objects: &'a Objects<'a>,
    semaphores: &'a OnceCell<Vec<Semaphore>>,
}

impl Futexes<'_> {
    /// Returns what a thread that sleeps on the futex at this address waits for.
    fn awaited(&self, thread: &Thread, futex: u64) -> Option<Futex> {
        let process = self.process;
        let own = |tid: u32| Holder { pid: Pid(process.pid), tid: Some(Tid(tid)) };
        if let Some(python) = &thread.python {
            if let Some(gil) = python.gil.filter(|gil| gil.is_awaited_at(futex)) {
                let holder = gil.holder.and_then(|state| process.thread_of_state(state));
                let holders = holder.map(own).into_iter().collect();
                return Some(Futex::Known(Awaited { what: What::Gil, name: None, holders }));
            }
            if let Some(joined) = python.joins.and_then(|tid| process.thread_called(tid)) {
                return Some(Futex::Known(Awaited { what: What::Thread, name: None, holders: vec![own(joined)] }));
            }
            if let Some(lock) = Locks::new(self.objects).awaited(&python.frames, futex) {
                return Some(Futex::Lock(lock));
            }
        }
        let semaphores = self.semaphores.get_or_init(|| semaphores(process.pid));
        if let Some((_, name)) = semaphores.iter().find(|(range, _)| range.contains(&futex)) {
            return Some(Futex::Known(Awaited {
                what: What::Semaphore,
                name: Some(name.clone()),
                holders: Vec::new(),
            }));
        }
        let owner = mutex_owner(process, futex).filter(|owner| *owner != thread.kernel.tid)?;
        let name = Some(format!("{futex:#x}"));
        Some(Futex::Known(Awaited { what: What::Mutex, name, holders: vec![own(owner)] }))
    }
}

/// Lists the named semaphores that a process maps, with names such as `/mp-k3x9`.
fn semaphores(pid: u32) -> Vec<Semaphore> {
    let mut found = Vec::new();
    // Without the map, semaphores look like other futexes.
    let _ = lines::each(pid, |line| {
        if let Some(name) = line.path.strip_prefix(SEMAPHORE) {
            let name = name.strip_suffix(" (deleted)").unwrap_or(name);
            found.push((line.start..line.end, format!("/{name}")));
        }
        ControlFlow::Continue(())
    });
    found
}

/// The thread that has a mutex. Other words look like an awaited mutex only by chance, and hardly ever name a thread.
fn mutex_owner(process: &Process, address: u64) -> Option<u32> {
    let memory = process.memory.now();
    if memory.read_u32(address).ok()? != MUTEX_AWAITED {
        return None;
    }
    let owner = memory.read_u32(address.checked_add(MUTEX_OWNER)?).ok().filter(|owner| *owner != 0)?;
    process.thread_called(owner)
}

/// The holders of locks, which `with` statements or the locks themselves name.
fn with_holders(process: &Process, objects: &Objects<'_>, locks: &[(Tid, Lock)]) -> Vec<(Tid, Awaited)> {
    if locks.is_empty() {
        return Vec::new();
    }
    let reader = Locks::new(objects);
    // Each lock with the thread that has it.
    let mut held: Vec<(u64, Tid)> = Vec::new();
    if locks.iter().any(|(_, lock)| lock.owner.is_none()) {
        for thread in &process.threads {
            let (Some(python), tid) = (&thread.python, Tid(thread.kernel.tid)) else { continue };
            let waits_for = locks.iter().find(|(waiter, _)| *waiter == tid).map(|(_, lock)| lock.address);
            let own = reader.held(&python.frames, waits_for).into_iter().filter(|lock| python.released != Some(*lock));
            held.extend(own.map(|lock| (lock, tid)));
        }
    }
    let holder = |tid| Holder { pid: Pid(process.pid), tid: Some(tid) };
    let holders = |lock: &Lock| -> Vec<Holder> {
        match lock.owner {
            Some(owner) => process.thread_with(owner).map(|tid| holder(Tid(tid))).into_iter().collect(),
            None => held.iter().filter(|(of, _)| *of == lock.address).map(|(_, tid)| holder(*tid)).collect(),
        }
    };
    let awaited =
        |lock: &Lock| Awaited { what: lock.what, name: Some(format!("{:#x}", lock.address)), holders: holders(lock) };
    locks.iter().map(|(tid, lock)| (*tid, awaited(lock))).collect()
}

fn in_call(process: &Process, call: Call, everyone: &Everyone) -> Option<Awaited> {
    let [first, second, ..] = call.arguments;
    let whole = |pid: u32| Holder { pid: Pid(pid), tid: None };
    match i64::from(call.number?) {
        libc::SYS_flock => Some(file_lock(process, first, everyone)),
        libc::SYS_fcntl if second as i32 == libc::F_SETLKW => Some(file_lock(process, first, everyone)),
        libc::SYS_wait4 if (first as i32) > 0 => Some(child(process, first as u32)),
        libc::SYS_waitid if first == P_PID => Some(child(process, second as u32)),
        libc::SYS_wait4 => {
            let children = machine::children(process.pid);
            let holders = children.into_iter().map(whole).collect();
            Some(Awaited { what: What::Child, name: None, holders })
        }
        number @ (libc::SYS_read | libc::SYS_readv | libc::SYS_write | libc::SYS_writev) => {
            let reads = number == libc::SYS_read || number == libc::SYS_readv;
            stream(process, first, reads, everyone)
        }
        libc::SYS_recvfrom | libc::SYS_recvmsg => stream(process, first, true, everyone),
        libc::SYS_sendto | libc::SYS_sendmsg => stream(process, first, false, everyone),
        _ => None,
    }
}

fn file_lock(process: &Process, descriptor: u64, everyone: &Everyone) -> Awaited {
    let holders = everyone.lock_holders(process.pid).into_iter().map(|pid| Holder { pid: Pid(pid), tid: None });
    Awaited { what: What::FileLock, name: files::link(process.pid, descriptor), holders: holders.collect() }
}

/// A child, by its number in the process's own pid namespace.
fn child(process: &Process, inner: u32) -> Awaited {
    let of = |pid: &u32| machine::inner_pid(*pid) == Some(inner);
    let holders = machine::children(process.pid).into_iter().filter(of).map(|pid| Holder { pid: Pid(pid), tid: None });
    Awaited { what: What::Child, name: None, holders: holders.collect() }
}

/// A pipe or a socket, with the processes at its other end.
fn stream(process: &Process, descriptor: u64, reads: bool, everyone: &Everyone) -> Option<Awaited> {
    let link = files::link(process.pid, descriptor)?;
    let (what, name, mut pids) = match Stream::of(&link)? {
        Stream::Socket(inode) => {
            let remote = tcp::remote(process.pid, inode);
            let peer = remote.map_or_else(|| unix::peer(inode), |remote| remote.socket);
            let ends = peer.map_or(&[][..], |end| everyone.ends(Stream::Socket(end)));
            let name = remote.map_or(link, |remote| remote.address.to_string());
            (What::Socket, name, ends.iter().map(|end| end.pid).collect::<Vec<u32>>())
        }
        pipe @ Stream::Pipe(_) => {
            let is_other_end = |end: &&End| if reads { end.writes } else { end.reads };
            (What::Pipe, link, everyone.ends(pipe).iter().filter(is_other_end).map(|end| end.pid).collect())
        }
    };
    pids.sort_unstable();
    pids.dedup();
    // A process often has both ends of a pipe to its children.
    if pids.len() > 1 {
        pids.retain(|pid| *pid != process.pid);
    }
    let holders = pids.into_iter().map(|pid| Holder { pid: Pid(pid), tid: None }).collect();
    Some(Awaited { what, name: Some(name), holders })
}

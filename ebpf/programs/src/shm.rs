//! The family `shm`: which process makes, holds, passes on and releases memory that processes share.
//!
//! The calls of all processes come here ([`crate::calls`]). What a watched process makes or maps becomes a segment, and
//! every process that gets hold of a segment is followed, whatever it runs. A call that takes something away is handled
//! when it begins, a call that adds something when it has ended. So if another thread gets the same descriptor or
//! address at once, the records are in the right order.

mod descriptors;
mod iterate;
mod lifecycle;
mod mappings;

pub use mappings::mapped;

use aya_ebpf::{macros::map, maps::HashMap};
use pyobs_abi::{
    calls::number,
    record::{self, Loss},
    shm::{Bounds, Change, Facts, Inode as Key, Known, NAME_MAX, Segment, Unlink, found, what},
};

use crate::common::{
    files::{File, Inode},
    maps::{pid, put},
    memory::user,
    messages,
    ring::{self, Route},
    system_call::Call,
};

/// The folder of shm_open's files.
const FOLDER: &[u8; 9] = b"/dev/shm/";

/// Commands of fcntl(2) and ioctl(2).
const F_DUPFD: u64 = 0;
const F_SETFD: u64 = 2;
const F_DUPFD_CLOEXEC: u64 = 1030;
const FIONCLEX: u64 = 0x5450;
const FIOCLEX: u64 = 0x5451;

#[map]
static SHM_SEGMENTS: HashMap<Key, Known> = HashMap::with_max_entries(32_768, 0);

#[map]
static SHM_HOLDERS: HashMap<u32, Bounds> = HashMap::with_max_entries(16_384, 0);

/// Mappings that user space found in `/proc`: those made before the programs were attached, and those they missed.
#[map]
static SHM_FOUND: HashMap<u32, Bounds> = HashMap::with_max_entries(16_384, 0);

/// Whether [`begin_call`] has something to do for this system call.
#[inline(always)]
pub fn handles_begin(number: u32) -> bool {
    matches!(
        number,
        number::CLOSE | number::CLOSE_RANGE | number::DUP2 | number::DUP3 | number::MUNMAP | number::SENDMSG
    )
}

/// Handles a call that begins.
#[inline(always)]
pub fn begin_call(number: u32, call: &Call) {
    // No process holds anything while the family is off.
    if !is_holder() {
        return;
    }
    let (first, second) = (call.first(), call.second());
    match number {
        number::CLOSE => descriptors::report(what::CLOSED, first as u32),
        number::CLOSE_RANGE => descriptors::close_range(first, second, call.third()),
        number::DUP2 | number::DUP3 => descriptors::replace(first as u32, second as u32),
        number::MUNMAP => mappings::unmapped(first, second),
        _ => descriptors::message(what::SENT, second),
    }
}

/// Handles a call other than mmap(2) that succeeded. Returns the segment that it made.
#[inline(always)]
pub fn end_call(number: u32, call: &Call, result: u64) -> Option<Key> {
    match number {
        number::OPEN | number::CREAT => descriptors::opened(result as u32, call.first()),
        number::OPENAT | number::OPENAT2 => descriptors::opened(result as u32, call.second()),
        number::MEMFD_CREATE => descriptors::created(result as u32),
        _ => {
            others(call, number, result);
            None
        }
    }
}

#[inline(always)]
fn others(call: &Call, number: u32, result: u64) {
    let (first, second) = (call.first(), call.second());
    match number {
        number::DUP | number::DUP2 | number::DUP3 => descriptors::report(what::OPENED, result as u32),
        number::FCNTL if second == F_DUPFD || second == F_DUPFD_CLOEXEC => {
            descriptors::report(what::OPENED, result as u32);
        }
        number::FCNTL if second == F_SETFD => descriptors::report(what::MARKED, first as u32),
        number::IOCTL if second == FIOCLEX || second == FIONCLEX => descriptors::report(what::MARKED, first as u32),
        number::FTRUNCATE | number::FALLOCATE => descriptors::report(what::RESIZED, first as u32),
        number::RECVMSG => descriptors::message(what::RECEIVED, second),
        number::PIDFD_GETFD => descriptors::taken(result as u32, first),
        number::MREMAP => mappings::moved(first, second, call.third(), result),
        number::UNLINK => report_unlink(first),
        number::UNLINKAT => report_unlink(second),
        _ => {}
    }
}

/// Whether a path in the current process begins with the folder of shared memory.
#[inline(always)]
fn is_in_folder(path: u64) -> bool {
    user::<[u8; 9]>(path).is_some_and(|start| start == *FOLDER)
}

#[inline(never)]
fn report_unlink(path: u64) {
    if !is_holder() && !is_in_folder(path) {
        return;
    }
    let record = ring::in_place(|record: *mut Unlink| {
        // SAFETY: the record is ours until it is sent; the helper ends the string inside of it.
        unsafe {
            (*record).header = ring::header(record::SHM_UNLINK);
            let name = (&raw mut (*record).path).cast();
            aya_ebpf::helpers::generated::bpf_probe_read_user_str(name, NAME_MAX as u32, path as *const _) > 0
        }
    });
    ring::send(record, Route::lazy());
}

/// Whether the current process holds or held a segment.
#[inline(always)]
fn is_holder() -> bool {
    SHM_HOLDERS.get_ptr(pid()).is_some()
}

/// Notes that the current process gets a segment. Not inlined, to keep the callers' frames small.
#[inline(never)]
fn hold() {
    if let Some(bounds) = SHM_HOLDERS.get_ptr_mut(pid()) {
        // SAFETY: the pointer is to an element of the map; two threads that come at once write the same.
        unsafe { (*bounds).has_gained = 1 };
        return;
    }
    let bounds = Bounds { has_gained: 1, ..Bounds::default() };
    put(&SHM_HOLDERS, &pid(), &bounds, Loss::SegmentTable);
}

/// Returns the facts of the inode, if it is a segment.
#[inline(always)]
fn facts(inode: Inode) -> Option<Facts> {
    let key = inode.key()?;
    let known = SHM_SEGMENTS.get_ptr_mut(key)?;
    let facts = inode.facts(key);
    // SAFETY: the pointer is to an element of the map; two threads that come at once write the same.
    unsafe {
        if (*known).found & found::NO_GENERATION != 0 {
            *known = Known { generation: facts.generation, found: (*known).found & !found::NO_GENERATION };
        }
        ((*known).generation == facts.generation).then_some(facts)
    }
}

/// Whether a segment was found before its birth could be reported. Only the first caller gets true.
#[inline(always)]
fn has_no_birth(facts: &Facts) -> bool {
    let Some(known) = SHM_SEGMENTS.get_ptr_mut(facts.inode) else { return false };
    // SAFETY: as above.
    unsafe {
        let has_none = (*known).found & found::NO_BIRTH != 0;
        (*known).found &= !found::NO_BIRTH;
        has_none
    }
}

/// Begins a segment, if the file can be one. Not inlined, to keep the caller's frame small.
#[inline(never)]
fn begin_segment(file: File, inode: Inode, flags: u32) -> Option<Facts> {
    if !inode.is_regular() {
        return None;
    }
    let key = inode.key()?;
    let facts = inode.facts(key);
    if !put(&SHM_SEGMENTS, &key, &Known { generation: facts.generation, found: 0 }, Loss::SegmentTable) {
        return None;
    }
    let record = ring::in_place(|record: *mut Segment| {
        // SAFETY: the record is ours until it is sent; the helper ends the string inside of it.
        unsafe {
            (*record).header = ring::header(record::SHM_SEGMENT);
            (*record).facts = facts;
            (*record).magic = inode.magic();
            (*record).flags = flags;
            let name = (&raw mut (*record).name).cast();
            let text = file.name().unwrap_or(0) as *const _;
            if aya_ebpf::helpers::generated::bpf_probe_read_kernel_str(name, NAME_MAX as u32, text) <= 0 {
                (*record).name[0] = 0;
            }
            true
        }
    });
    ring::send(record, Route::lazy());
    if messages::are_on() {
        messages::segment(pid(), key.dev, key.ino);
    }
    Some(facts)
}

/// Sends a change of a segment. `fill` sets the fields that this kind of change has. The record is built in the ring,
/// and this is not inlined, because a program and its subprograms share 512 bytes of stack.
#[inline(never)]
fn send_change(what: u32, facts: Option<&Facts>, fill: impl FnOnce(&mut Change)) {
    let record = ring::in_place(|record: *mut Change| {
        // SAFETY: the record is ours until it is sent; all zeros are a valid value of it.
        let change = unsafe {
            record.write_bytes(0, 1);
            &mut *record
        };
        (change.header, change.what) = (ring::header(record::SHM_CHANGE), what);
        if let Some(facts) = facts {
            change.facts = *facts;
        }
        fill(change);
        true
    });
    ring::send(record, Route::lazy());
}

//! Mappings of segments: made, moved and removed.

use pyobs_abi::shm::{Facts, Inode as Key, MAPPED_AT, flags, what};

use super::{SHM_FOUND, SHM_HOLDERS, begin_segment, facts, has_no_birth, hold, is_holder, send_change};
use crate::common::{
    files::{File, Mapping, TMPFS, Table},
    maps::{pid, watched},
    system_call::Call,
};

/// Flags of mmap(2).
const MAP_TYPE: u64 = 0x0f;
const MAP_SHARED: u64 = 1;
const MAP_SHARED_VALIDATE: u64 = 3;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const PAGE: u64 = 4096;

/// Rounds a length up to whole pages, as mmap(2), mremap(2) and munmap(2) do.
#[inline(always)]
fn whole_pages(length: u64) -> u64 {
    length.wrapping_add(PAGE - 1) & !(PAGE - 1)
}

/// Something was mapped. Returns the segment that this made. Not inlined, to keep the caller's frame small.
///
/// The two functions are called one after the other, because the frames of a chain of calls share 512 bytes.
#[inline(never)]
pub fn mapped(call: &Call, start: u64) -> Option<Key> {
    let made = of_file(call, start)?;
    if made.ino != OF_NO_FILE { Some(made) } else { without_file(call, start) }
}

/// [`Key::ino`] in the result of [`of_file`] if shared memory was mapped that belongs to no file of the caller's. No inode
/// has this number.
const OF_NO_FILE: u64 = 0;

#[inline(never)]
fn of_file(call: &Call, start: u64) -> Option<Key> {
    let how = call.fourth();
    let length = whole_pages(call.second());
    let end = start.wrapping_add(length);
    let shared = matches!(how & MAP_TYPE, MAP_SHARED | MAP_SHARED_VALIDATE);
    if how & MAP_FIXED != 0 {
        unmapped(start, length);
    }
    let of_no_file = if shared { Some(Key { ino: OF_NO_FILE, dev: 0, padding: 0 }) } else { None };
    if how & MAP_ANONYMOUS != 0 {
        return of_no_file;
    }
    if !shared && !is_holder() {
        return None;
    }
    let file = Table::current().file(call.fifth() as u32)?;
    let inode = file.inode()?;
    if !inode.is_regular() {
        return of_no_file;
    }
    if let Some(facts) = facts(inode) {
        report(facts, start, end, call.sixth());
        return if file.is_created() && has_no_birth(&facts) { Some(facts.inode) } else { None };
    }
    watched()?;
    if !shared || !(file.is_writable() || inode.magic() == TMPFS) {
        return None;
    }
    let facts = begin_segment(file, inode, if file.is_created() { flags::CREATED } else { 0 })?;
    report(facts, start, end, call.sixth());
    Some(facts.inode)
}

/// Handles shared memory without a file of the caller's. The kernel makes a file for anonymous memory and /dev/zero.
/// Other devices map memory of their own, which is no segment.
#[inline(never)]
fn without_file(call: &Call, start: u64) -> Option<Key> {
    watched()?;
    let end = start.wrapping_add(whole_pages(call.second()));
    let Some(file) = Mapping::find(start).and_then(File::of_mapping) else {
        if call.fourth() & MAP_ANONYMOUS == 0 {
            return None;
        }
        holds(start, end);
        send_change(what::MADE, None, |change| (change.start, change.end) = (start, end));
        return Some(Key { ino: start, dev: MAPPED_AT, padding: 0 });
    };
    let facts = begin_segment(file, file.inode()?, flags::CREATED)?;
    report(facts, start, end, 0);
    Some(facts.inode)
}

#[inline(always)]
fn report(facts: Facts, start: u64, end: u64, offset: u64) {
    holds(start, end);
    send_change(what::MAPPED, Some(&facts), |change| {
        (change.start, change.end, change.to_start) = (start, end, offset)
    });
}

/// Notes that the current process has a mapping of a segment there.
#[inline(always)]
fn holds(start: u64, end: u64) {
    hold();
    if let Some(bounds) = SHM_HOLDERS.get_ptr_mut(pid()) {
        // SAFETY: the pointer is to an element of the map. If two threads add ranges at once, one may be lost;
        // reconciliation then corrects the unmap that is missed.
        unsafe { (*bounds).add(start, end) };
    }
}

/// Whether the current process can have a mapping of a segment in this range.
#[inline(always)]
fn may_hold(start: u64, end: u64) -> bool {
    // SAFETY: elements of the maps stay valid memory. A concurrent change can hide one unmap, which reconciliation
    // corrects.
    let [made, found] = unsafe { [SHM_HOLDERS.get(pid()), SHM_FOUND.get(pid())] };
    made.is_some_and(|bounds| bounds.overlap(start, end)) || found.is_some_and(|bounds| bounds.overlap(start, end))
}

/// Reports that a range has no mapping any more, if there can have been one of a segment.
#[inline(never)]
pub fn unmapped(start: u64, length: u64) {
    let end = start.wrapping_add(whole_pages(length));
    if !may_hold(start, end) {
        return;
    }
    if let Some(bounds) = SHM_HOLDERS.get_ptr_mut(pid()) {
        // SAFETY: as above; the mappings in this range are about to be removed.
        unsafe { (*bounds).remove(start, end) };
    }
    send_change(what::UNMAPPED, None, |change| (change.start, change.end) = (start, end));
}

#[inline(never)]
pub fn moved(start: u64, length: u64, new_length: u64, to: u64) {
    let end = start.wrapping_add(whole_pages(length));
    if !may_hold(start, end) {
        return;
    }
    let to_end = to.wrapping_add(whole_pages(new_length));
    holds(to, to_end);
    send_change(what::MOVED, None, |change| {
        (change.start, change.end, change.to_start, change.to_end) = (start, end, to, to_end);
    });
}

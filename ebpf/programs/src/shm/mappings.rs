//! Mappings of segments: made, moved and removed.

use pyobs_abi::shm::{Facts, Hull, Inode as Key, MAPPED_AT, flags, what};

use super::{begin_segment, facts, hold, hull, send_change};
use crate::common::{
    files::{File, Mapping, TMPFS, Table},
    maps::watched,
    system_call::Call,
};

/// Flags of mmap(2).
const MAP_TYPE: u64 = 0x0f;
const MAP_SHARED: u64 = 1;
const MAP_SHARED_VALIDATE: u64 = 3;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const PAGE: u64 = 4096;

/// Something was mapped. Returns the segment that this made. Not inlined, to keep the caller's frame small.
#[inline(never)]
pub fn mapped(call: &Call, start: u64) -> Option<Key> {
    let how = call.fourth();
    let length = call.second().wrapping_add(PAGE - 1) & !(PAGE - 1);
    let end = start.wrapping_add(length);
    let offset = if how & MAP_ANONYMOUS != 0 { 0 } else { call.sixth() };
    let shared = matches!(how & MAP_TYPE, MAP_SHARED | MAP_SHARED_VALIDATE);
    if how & MAP_FIXED != 0 {
        unmapped(start, length);
    }
    if how & MAP_ANONYMOUS != 0 {
        if !shared {
            return None;
        }
        watched()?;
        let Some(file) = Mapping::find(start).and_then(File::of_mapping) else {
            holds(start, end);
            send_change(what::MADE, None, |change| (change.start, change.end) = (start, end));
            return Some(Key { ino: start, dev: MAPPED_AT, padding: 0 });
        };
        let facts = begin_segment(file, file.inode()?, flags::CREATED)?;
        report(facts, start, end, offset);
        return Some(facts.inode);
    }
    if !shared && hull().is_none() {
        return None;
    }
    let file = Table::current().file(call.fifth() as u32)?;
    let inode = file.inode()?;
    if let Some(facts) = facts(inode) {
        report(facts, start, end, offset);
        return None;
    }
    watched()?;
    if !shared || !(file.is_writable() || inode.magic() == TMPFS) {
        return None;
    }
    let facts = begin_segment(file, inode, if file.is_created() { flags::CREATED } else { 0 })?;
    report(facts, start, end, offset);
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
    let before = hull().unwrap_or_default();
    let is_empty = before.end == 0;
    hold(Hull { start: if is_empty { start } else { before.start.min(start) }, end: before.end.max(end) });
}

/// Reports that a range has no mapping any more, if there can have been one of a segment.
#[inline(never)]
pub fn unmapped(start: u64, length: u64) {
    let Some(hull) = hull() else { return };
    let end = start.wrapping_add(length);
    if start >= hull.end || end <= hull.start {
        return;
    }
    send_change(what::UNMAPPED, None, |change| (change.start, change.end) = (start, end));
}

#[inline(never)]
pub fn moved(start: u64, length: u64, new_length: u64, to: u64) {
    let Some(before) = hull() else { return };
    let end = start.wrapping_add(length);
    if start >= before.end || end <= before.start {
        return;
    }
    let to_end = to.wrapping_add(new_length);
    hold(Hull { start: before.start.min(to), end: before.end.max(to_end) });
    send_change(what::MOVED, None, |change| {
        (change.start, change.end, change.to_start, change.to_end) = (start, end, to, to_end);
    });
}

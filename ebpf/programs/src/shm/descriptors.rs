//! Descriptors of segments: opened, duplicated, closed, and passed between processes.

use pyobs_abi::{
    record::Loss,
    shm::{Inode as Key, flags, what},
};

use super::{begin_segment, facts, hold, is_holder, is_in_folder, send_change};
use crate::common::{
    files::{TMPFS, Table},
    maps::{count_loss, watched},
    memory::user,
};

/// In place of a path's address: the file has no name.
const NO_PATH: u64 = 0;
/// `CLOSE_RANGE_CLOEXEC`: <https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/close_range.h>
const ONLY_MARK: u64 = 1 << 2;

/// Offsets in `struct msghdr`, and the size of `struct cmsghdr`, of a 64-bit process:
/// <https://github.com/torvalds/linux/blob/v6.1/include/linux/socket.h>
const CONTROL: u64 = 32;
const CONTROL_LENGTH: u64 = 40;
const CONTROL_HEAD: u64 = 16;
/// SOL_SOCKET in the lower half, SCM_RIGHTS in the upper.
const RIGHTS: u64 = 1 | 1 << 32;
/// `SCM_MAX_FD`, the kernel's own bound: <https://github.com/torvalds/linux/blob/v6.1/include/net/scm.h>
const DESCRIPTORS_MAX: u64 = 253;
const CONTROLS_MAX: u32 = 4;

/// A file was opened by this path. Returns the segment that this made.
#[inline(always)]
pub fn opened(fd: u32, path: u64) -> Option<Key> {
    let mut made = Key::default();
    // Not inside `is_segment`, because the BPF stack has no room for the frames of both.
    if is_segment(fd, path, &mut made) {
        report(what::OPENED, fd);
    }
    (made.ino != 0).then_some(made)
}

/// A file without a name was made.
#[inline(always)]
pub fn created(fd: u32) -> Option<Key> {
    opened(fd, NO_PATH)
}

/// Whether a new descriptor is one of a segment, which may begin with it.
#[inline(never)]
fn is_segment(fd: u32, path: u64, made: &mut Key) -> bool {
    known_or_begun(fd, path, made).is_some()
}

#[inline(always)]
fn known_or_begun(fd: u32, path: u64, made: &mut Key) -> Option<()> {
    let file = Table::current().file(fd)?;
    let inode = file.inode()?;
    if path != NO_PATH && facts(inode).is_some() {
        return Some(());
    }
    watched()?;
    if path != NO_PATH && (!is_in_folder(path) || inode.magic() != TMPFS) {
        return None;
    }
    let is_new = path == NO_PATH || file.is_created();
    let folder = if path == NO_PATH { 0 } else { flags::IN_FOLDER };
    let facts = begin_segment(file, inode, folder | if is_new { flags::CREATED } else { 0 })?;
    if is_new {
        *made = facts.inode;
    }
    Some(())
}

/// Reports a descriptor if it is one of a segment.
#[inline(always)]
pub fn report(what: u32, fd: u32) {
    shm_descriptor(what, fd, 0);
}

/// A descriptor was copied from another process.
#[inline(always)]
pub fn taken(fd: u32, pidfd: u64) {
    shm_descriptor(what::TAKEN, fd, pidfd);
}

/// A function of its own, so that it is verified once.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn shm_descriptor(what: u32, fd: u32, from: u64) -> u64 {
    u64::from(descriptor(what, fd, from).is_some())
}

#[inline(always)]
fn descriptor(what: u32, fd: u32, from: u64) -> Option<()> {
    let holds = is_holder();
    let gets = matches!(what, what::OPENED | what::RECEIVED | what::TAKEN);
    if !holds && !gets {
        return None;
    }
    let table = Table::current();
    let file = table.file(fd)?;
    let inode = file.inode()?;
    let facts = match facts(inode) {
        Some(facts) => facts,
        // A segment that came from a process that is not watched.
        None if matches!(what, what::RECEIVED | what::TAKEN) && inode.magic() == TMPFS => {
            watched()?;
            begin_segment(file, inode, 0)?
        }
        None => return None,
    };
    if gets {
        hold();
    }
    let close_on_exec = table.is_closed_on_exec(fd).into();
    send_change(what, Some(&facts), |change| {
        (change.fd, change.close_on_exec, change.start) = (fd, close_on_exec, from)
    });
    Some(())
}

/// dup2() or dup3() is about to replace a descriptor by another.
#[inline(never)]
pub fn replace(old: u32, new: u32) {
    if Table::current().file(old).is_some() {
        report(what::CLOSED, new);
    }
}

#[inline(never)]
pub fn close_range(start: u64, end: u64, how: u64) {
    let marks = how & ONLY_MARK != 0;
    let what = if marks { what::MARKED } else { what::CLOSED_RANGE };
    send_change(what, None, |change| {
        (change.start, change.end, change.close_on_exec) = (start, end, marks.into());
    });
}

/// A message is being sent or was received: reports the descriptors in it. Not inlined, to keep the caller's frame
/// small.
#[inline(never)]
pub fn message(what: u32, message: u64) {
    let (Some(mut at), Some(length)) = (user::<u64>(message + CONTROL), user::<u64>(message + CONTROL_LENGTH)) else {
        return;
    };
    let end = at.wrapping_add(length);
    for _ in 0..CONTROLS_MAX {
        if at.wrapping_add(CONTROL_HEAD) > end {
            return;
        }
        let (Some(size), Some(kind)) = (user::<u64>(at), user::<u64>(at.wrapping_add(8))) else { return };
        if size < CONTROL_HEAD || size > end.wrapping_sub(at) {
            return;
        }
        if kind == RIGHTS {
            shm_rights(what, at.wrapping_add(CONTROL_HEAD), (size - CONTROL_HEAD) / 4);
        }
        at = at.wrapping_add((size + 7) & !7);
    }
    if at.wrapping_add(CONTROL_HEAD) <= end {
        count_loss(Loss::Message);
    }
}

/// A function of its own, as above.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn shm_rights(what: u32, at: u64, count: u64) -> u64 {
    for number in 0..DESCRIPTORS_MAX {
        if number >= count {
            break;
        }
        let Some(fd) = user::<u32>(at.wrapping_add(4 * number)) else { break };
        shm_descriptor(what, fd, 0);
    }
    0
}

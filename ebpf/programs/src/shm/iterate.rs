//! Iterators over all mappings and descriptors of the machine. They list those of segments, for user space to compare
//! with what the records said.

use core::ffi::c_void;

use pyobs_abi::shm::{Row, found::NO_GENERATION, row};

use super::SHM_SEGMENTS;
use crate::common::{
    files::{File, Inode, Mapping, TMPFS, Table},
    iterator::{TASK, word, write},
    maps::process,
    task::Task,
};

/// Words of `struct bpf_iter__task_vma` and `struct bpf_iter__task_file`, whose fields are padded to words:
/// <https://github.com/torvalds/linux/blob/v6.1/kernel/bpf/task_iter.c>
const VMA: usize = 2;
const FD: usize = 2;
const FILE: usize = 3;

#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task_vma")]
pub extern "C" fn shm_iterate_mappings(context: *const c_void) -> i32 {
    // SAFETY: it is the context of this program.
    let (task, vma) = unsafe { (word(context, TASK), word(context, VMA)) };
    if task != 0 && vma != 0 {
        mapping(context, Task(task), vma);
    }
    0
}

#[inline(always)]
fn mapping(context: *const c_void, task: Task, vma: u64) -> Option<()> {
    let file = File::of_mapping(vma)?;
    let inode = file.inode()?;
    let pid = task.tgid()?;
    let mut row = found(pid, inode)?;
    let mapping = Mapping::of(vma)?;
    if row.flags & row::UNKNOWN != 0 && !mapping.is_shared() {
        return None;
    }
    (row.start, row.end, row.offset) = (mapping.start, mapping.end, mapping.offset);
    write(context, &row);
    Some(())
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task_file")]
pub extern "C" fn shm_iterate_descriptors(context: *const c_void) -> i32 {
    // SAFETY: as above.
    let (task, file) = unsafe { (word(context, TASK), word(context, FILE)) };
    if task != 0 && file != 0 {
        // SAFETY: a 32-bit field, with padding behind it.
        let fd = unsafe { context.cast::<u32>().add(2 * FD).read_volatile() };
        descriptor(context, Task(task), File(file), fd);
    }
    0
}

#[inline(always)]
fn descriptor(context: *const c_void, task: Task, file: File, fd: u32) -> Option<()> {
    let mut row = found(task.tgid()?, file.inode()?)?;
    row.flags |= row::DESCRIPTOR;
    if Table::of(task)?.is_closed_on_exec(fd) {
        row.flags |= row::CLOSE_ON_EXEC;
    }
    row.fd = fd;
    write(context, &row);
    Some(())
}

/// Returns a row for what belongs to a segment, or could.
#[inline(always)]
fn found(pid: u32, inode: Inode) -> Option<Row> {
    let key = inode.key()?;
    // SAFETY: the value is copied; a torn one is that of a segment that has just begun.
    let known = unsafe { SHM_SEGMENTS.get(key) }.copied();
    let mut flags = 0;
    if known.is_none() {
        if process(pid).is_none() || inode.magic() != TMPFS || !inode.is_regular() {
            return None;
        }
        flags = row::UNKNOWN;
    }
    let facts = inode.facts(key);
    if known.is_some_and(|known| known.found & NO_GENERATION == 0 && known.generation != facts.generation) {
        flags = row::UNKNOWN;
    }
    Some(Row { facts, pid, flags, ..Row::default() })
}

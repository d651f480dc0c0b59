//! The family `offcpu`: sleeps.

use std::collections::HashSet;
use std::sync::Arc;

use pyobs_model::{Event, Nanos, Pid, ProcessRef, Sleep, StackId, Tid, WaitReason, Waker};
use rusqlite::{Connection, Result};

use super::{Reading, Rows, since_and_stacks};
use crate::Error;
use crate::merge::Merge;
use crate::table::{Table, tables};

/// How many names of wakers are interned. Beyond that, each sleep has its own copy.
const NAMES_MAX: usize = 1 << 12;

tables! {
    /// Family `offcpu`: a thread went off its CPU, and came back at `at_ns`. One row may stand for several sleeps of
    /// its thread, somewhere between `from_ns` and `at_ns`.
    SleepRow in "sleeps" {
        at as "at_ns": Nanos = "when it ended",
        process: ProcessRef = "`processes.id`",
        tid: Tid = "thread id",
        stack: StackId = "`stacks.id`: where the thread went to sleep",
        reason: WaitReason = "`lock` (between threads, other than the GIL), `io` (file, socket, pipe, page of memory), \
            `sleep` (nothing but time), `gil`, `poll` (one of several files or sockets), `other`",
        count: u64 = "sleeps that the row stands for",
        total as "total_ns": Nanos = "total time; sum this column",
        length as "length_ns": Nanos = "length of the longest sleep",
        waker_pid: Option<Pid> = "pid of the thread that ended it, in the host's namespace; NULL if unknown, like the next two",
        waker_tid: Option<Tid> = "its thread",
        waker_name: Option<Arc<str>> = "the thread's name",
        #[newer] from as "from_ns": Nanos = "all of `total_ns` lies between this and `at_ns`; without the column: \
            `at_ns - total_ns`",
        #[newer] stacks: u64 = "number of sampled stacks. If it is below `count`, the split of the thread's time over its \
            stacks is an estimate, but the sum over the thread is exact; without the column: `count`",
    }
}

pub(crate) fn sleep(connection: &Connection, sleep: &Sleep) -> Result<()> {
    let Sleep { from, at, process, tid, stack, reason, count, total, length, stacks, waker } = sleep.clone();
    let (waker, waker_name) = waker.map(|waker| ((waker.pid, waker.tid), waker.name)).unzip();
    let (waker_pid, waker_tid) = waker.unzip();
    let row = SleepRow {
        at,
        process,
        tid,
        stack,
        reason,
        count,
        total,
        length,
        waker_pid,
        waker_tid,
        waker_name,
        from: Some(from),
        stacks: Some(stacks),
    };
    row.insert(connection)
}

pub(crate) fn read(reading: &mut Reading<'_>, merge: &mut Merge<'_>) -> Result<(), Error> {
    // A few threads wake most of the others.
    let mut names: HashSet<Arc<str>> = HashSet::new();
    let mut known = move |name: Arc<str>| {
        names.get(&name).cloned().unwrap_or_else(|| {
            if names.len() < NAMES_MAX {
                names.insert(Arc::clone(&name));
            }
            name
        })
    };
    let selection = reading.range.selection();
    merge.table(reading, Rows::Since, &["at_ns"], move |_, row: SleepRow, events| {
        let waker = match row.waker_pid {
            Some(pid) => Some(Waker { pid, tid: row.waker_tid?, name: known(row.waker_name?) }),
            None => None,
        };
        let SleepRow { at, process, tid, stack, reason, count, total, length, from, stacks, .. } = row;
        let (from, stacks) = since_and_stacks((from, stacks), (at, total, count));
        let sleep = Sleep { from, at, process, tid, stack, reason, count, total, length, stacks, waker };
        events.extend(sleep.clipped(&selection).map(Event::Sleep));
        Some(())
    })
}

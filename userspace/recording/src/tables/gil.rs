//! The family `gil`: waits for the GIL, and who held it.

use pyobs_model::{Event, GilHolder, GilWait, Nanos, ProcessRef, StackId, Tid};
use rusqlite::{Connection, Result};

use super::{Reading, Rows, since_and_stacks};
use crate::Error;
use crate::merge::Merge;
use crate::table::{Table, tables};

tables! {
    /// Family `gil`: a piece of a wait for the GIL. A wait comes in pieces of at most the switch interval (5 ms), each
    /// with the holder of the GIL when it began; one row may stand for several pieces, as in `sleeps`. The same wait may
    /// also be in `sleeps`, with the reason `gil`.
    WaitRow in "gil_waits" {
        at as "at_ns": Nanos = "when the piece ended",
        process: ProcessRef = "`processes.id`",
        tid: Tid = "thread id of the waiter",
        stack: StackId = "`stacks.id`: where it asked for the GIL",
        holder_tid: Option<Tid> = "thread that held the GIL; NULL when unknown",
        holder_stack: Option<StackId> = "`stacks.id`: where the holder was, without frames while the GIL was on its \
            way to it; NULL with `holder_tid`",
        count: u64 = "waits that begin with the piece; 0 if it continues the thread's previous wait",
        total as "total_ns": Nanos = "total time; sum this column",
        length as "length_ns": Nanos = "length of the longest piece",
        #[newer] from as "from_ns": Nanos = "as in `sleeps`",
        #[newer] stacks: u64 = "as in `sleeps`",
    }

    /// Family `gil`: how long threads held the GIL.
    HeldRow in "gil_held" {
        at as "at_ns": Nanos = "when",
        process: ProcessRef = "`processes.id`",
        tid: Tid = "thread id",
        held as "held_ns": Nanos = "how long this thread held the GIL since its previous row",
    }
}

pub(crate) fn wait(connection: &Connection, wait: &GilWait) -> Result<()> {
    let GilWait { from, at, process, tid, stack, holder, count, total, length, stacks } = *wait;
    let (holder_tid, holder_stack) = holder.map(|holder| (holder.tid, holder.stack)).unzip();
    let (from, stacks) = (Some(from), Some(stacks));
    let row = WaitRow { at, process, tid, stack, holder_tid, holder_stack, count, total, length, from, stacks };
    row.insert(connection)
}

pub(crate) fn held(connection: &Connection, at: Nanos, process: ProcessRef, tid: Tid, held: Nanos) -> Result<()> {
    HeldRow { at, process, tid, held }.insert(connection)
}

pub(crate) fn read(reading: &mut Reading<'_>, merge: &mut Merge<'_>) -> Result<(), Error> {
    let selection = reading.range.selection();
    merge.table(reading, Rows::Since, &["at_ns"], move |_, row: WaitRow, events| {
        let WaitRow { at, process, tid, stack, holder_tid, holder_stack, count, total, length, from, stacks } = row;
        let holder = match holder_tid {
            Some(tid) => Some(GilHolder { tid, stack: holder_stack? }),
            None => None,
        };
        let (from, stacks) = since_and_stacks((from, stacks), (at, total, count));
        let wait = GilWait { from, at, process, tid, stack, holder, count, total, length, stacks };
        events.extend(wait.clipped(&selection).map(Event::GilWait));
        Some(())
    })?;
    merge.events(reading, Rows::Within, |row| {
        let HeldRow { at, process, tid, held } = row;
        Some(Event::GilHeld { at, process, tid, held })
    })
}

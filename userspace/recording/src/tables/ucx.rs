//! The family `ucx`: transfers that were recorded individually, sums of all, and threads.

use pyobs_model::{
    Event, Library, Nanos, Operation, ProcessRef, Protocol, StackId, Tid, Transfer, TransferChange, TransferId,
    TransferThread, Transfers,
};
use rusqlite::{Connection, Result};

use super::{Reading, Rows};
use crate::Error;
use crate::merge::Merge;
use crate::table::tables;

// A row is written in parts, as they become known: stacks wait for their names, and futures are set later. Tags, addresses and
// hashes have 64 bits, which SQLite stores as signed integers.

tables! {
    /// Family `ucx`: transfers that were recorded individually. A value is NULL if it was not seen or has not happened: a stack
    /// waits for its names, and a pending transfer has no end.
    #[upsert(seen: id => process, library, operation, bytes, tag, through, buffer, registered_ns, submitted_ns,
        completed_ns, immediate, status, tid, submit_tid, complete_tid, parent, hash, protocol, seen_ns)]
    #[upsert(asked: id => asked_ns, stack)]
    #[upsert(woken: id => notified_ns, woken_ns, wake_tid)]
    TransferRow in "transfers" {
        #[key] id: TransferId = "number of the transfer, rising with the time at which it was first seen",
        #[sparse] {
            process: ProcessRef = "`processes.id`",
            library: Library = "`ucxx`, or `ucx` for calls of libucp by others",
            operation: Operation = "`tag_send`, `tag_recv`, `stream_send`, `stream_recv`, `am_send`, `am_recv`, `put`, \
                `get`, `multi_send` or `multi_recv`",
            bytes: u64 = "its size; 0 for one of several buffers, whose parts refer to it in `parent`",
            tag: i64 = "the 64-bit tag, as a signed number",
            through: i64 = "address of the endpoint, for receives of the worker",
            buffer: i64 = "address of the buffer",
            registered_ns: Nanos = "when it was requested from UCXX",
            submitted_ns: Nanos = "when it was handed to UCX",
            completed_ns: Nanos = "when it was completed",
            immediate: bool = "1 if it completed immediately",
            status: i32 = "a `ucs_status_t`: 0 for success",
            tid: Tid = "the thread that requested it",
            submit_tid: Tid = "the thread that handed it to UCX",
            complete_tid: Tid = "the thread that completed it",
            parent: TransferId = "`transfers.id` of the transfer of several buffers that it is a part of",
            hash: i64 = "hash of a sample of its content",
            protocol: Protocol = "`eager`, or `rendezvous` if the message was announced to the receiver before its data",
            seen_ns: Nanos = "when this was last reported",
            asked_ns: Nanos = "when its stack was taken",
            stack: StackId = "`stacks.id`: where it was requested",
            notified_ns: Nanos = "when its future was handed over by the thread that completed it",
            woken_ns: Nanos = "when the future was set",
            wake_tid: Tid = "the thread that set it",
        }
    }

    /// Family `ucx`: transfers that ended since the previous row of this kind, recorded individually or not.
    #[model]
    Transfers in "transfer_counts" {
        at as "at_ns": Nanos = "when",
        process: ProcessRef = "`processes.id`",
        library: Library = "as in `transfers`",
        operation: Operation = "as in `transfers`",
        count: u64 = "how many",
        bytes: u64 = "their total size",
        immediate: u64 = "how many completed immediately",
        failed: u64 = "how many ended with an error",
        spent as "spent_ns": Nanos = "total time from submission to completion",
        unfollowed: u64 = "how many of `count` were counted at submission because there were too many: their ends are \
            unknown",
        every as "told_every": u32 = "one in this many of the others has a row in `transfers`",
    }

    /// Family `ucx`: what threads did with transfers, counted since the recording began.
    #[model]
    TransferThread in "transfer_threads" {
        at as "at_ns": Nanos = "when",
        process: ProcessRef = "`processes.id`",
        tid: Tid = "the thread",
        registered: u64 = "transfers that it requested",
        submitted: u64 = "transfers that it handed to UCX",
        dispatched: u64 = "the submitted transfers that another thread had requested",
        completed: u64 = "pending transfers that it completed",
        notified: u64 = "how often it waited for transfers to report",
        woken: u64 = "futures that it set",
        progress: u64 = "its calls of progress in the short periods in which they were counted",
        probed as "probed_ns": Nanos = "the total length of those periods",
        observed as "observed_ns": Nanos = "how long the thread was observed",
        awake as "awake_ns": Nanos = "how much of that it was on a CPU or runnable",
    }
}

pub(crate) fn change(connection: &Connection, at: Nanos, id: TransferId, change: &TransferChange) -> Result<()> {
    let row = TransferRow::of(id);
    match change {
        TransferChange::Seen(transfer) => row.with(transfer, at).seen(connection),
        TransferChange::Asked(stack) => {
            TransferRow { asked_ns: Some(at), stack: Some(*stack), ..row }.asked(connection)
        }
        TransferChange::Woken { notified, tid } => {
            let (notified_ns, wake_tid) = (Some(*notified), Some(*tid));
            TransferRow { notified_ns, woken_ns: Some(at), wake_tid, ..row }.woken(connection)
        }
    }
}

impl TransferRow {
    fn with(self, transfer: &Transfer, seen: Nanos) -> Self {
        Self {
            process: Some(transfer.process),
            library: Some(transfer.library),
            operation: Some(transfer.operation),
            bytes: Some(transfer.bytes),
            tag: transfer.tag.map(u64::cast_signed),
            through: Some(transfer.through.cast_signed()),
            buffer: Some(transfer.buffer.cast_signed()),
            registered_ns: transfer.registered,
            submitted_ns: transfer.submitted,
            completed_ns: transfer.completed,
            immediate: Some(transfer.immediate),
            status: transfer.status,
            tid: Some(transfer.tid),
            submit_tid: transfer.submitter,
            complete_tid: transfer.completer,
            parent: transfer.parent,
            hash: transfer.hash.map(u64::cast_signed),
            protocol: transfer.protocol,
            seen_ns: Some(seen),
            ..self
        }
    }

    fn transfer(&self) -> Option<Transfer> {
        Some(Transfer {
            process: self.process?,
            library: self.library?,
            operation: self.operation?,
            bytes: self.bytes?,
            tag: self.tag.map(i64::cast_unsigned),
            through: self.through?.cast_unsigned(),
            buffer: self.buffer?.cast_unsigned(),
            registered: self.registered_ns,
            submitted: self.submitted_ns,
            completed: self.completed_ns,
            immediate: self.immediate?,
            status: self.status,
            tid: self.tid?,
            submitter: self.submit_tid,
            completer: self.complete_tid,
            parent: self.parent,
            hash: self.hash.map(i64::cast_unsigned),
            protocol: self.protocol,
        })
    }
}

pub(crate) fn read(reading: &mut Reading<'_>, merge: &mut Merge<'_>) -> Result<(), Error> {
    let range = reading.range;
    merge.table(reading, Rows::All, &["seen_ns", "asked_ns", "woken_ns"], move |_, row: TransferRow, events| {
        let mut tell = |at: Nanos, change| {
            if range.has(at) {
                events.push(Event::Transfer { at, id: row.id, change });
            }
        };
        // A recording that was cut off may lack the end.
        if let Some(seen) = row.seen_ns {
            tell(seen, TransferChange::Seen(Box::new(row.transfer()?)));
        }
        if let Some((asked, stack)) = row.asked_ns.zip(row.stack) {
            tell(asked, TransferChange::Asked(stack));
        }
        if let Some((woken, tid)) = row.woken_ns.zip(row.wake_tid) {
            tell(woken, TransferChange::Woken { notified: row.notified_ns.unwrap_or(woken), tid });
        }
        Some(())
    })?;
    merge.events(reading, Rows::Within, |transfers| Some(Event::Transfers(transfers)))?;
    // The counts are cumulative, so the latest report before the range is needed too.
    merge.events(reading, Rows::Until, |thread| Some(Event::TransferThread(thread)))
}

//! The family `ucx`: a row for each transfer that was told of singly, sums of all, and threads.

use pyobs_model::{
    Event, Library, Nanos, Operation, ProcessRef, Protocol, StackId, Tid, Transfer, TransferChange, TransferId,
    TransferThread, Transfers,
};
use rusqlite::{Connection, Result};

use super::{Reading, Rows};
use crate::Error;
use crate::merge::Merge;
use crate::table::tables;

// Stacks wait for their names, and futures are set later: each part of a row comes when it is known. Tags, addresses
// and hashes have 64 bits, which SQLite's numbers keep as signed ones.

tables! {
    /// Family `ucx`: a row for each transfer that was told of singly. NULL is what was not seen, or has not happened: a
    /// stack waits for its names, and what is under way has no end.
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
            bytes: u64 = "its size; of several buffers 0, for `parent` tells its parts",
            tag: i64 = "the 64 bits of it as a signed number",
            through: i64 = "address of the endpoint, for receives of the worker",
            buffer: i64 = "address of the buffer",
            registered_ns: Nanos = "when UCXX took it on",
            submitted_ns: Nanos = "when it was handed to UCX",
            completed_ns: Nanos = "when it was over",
            immediate: bool = "1 when it was over as soon as it was submitted",
            status: i32 = "a `ucs_status_t`: 0 for success",
            tid: Tid = "the thread that asked for it",
            submit_tid: Tid = "that which handed it to UCX",
            complete_tid: Tid = "that which completed it",
            parent: TransferId = "`transfers.id` of the transfer of several buffers that it is a part of",
            hash: i64 = "of a sample of what was sent",
            protocol: Protocol = "`eager`, or `rendezvous` when the receiver was told of the message first",
            seen_ns: Nanos = "when all of this was told last",
            asked_ns: Nanos = "when its stack was taken",
            stack: StackId = "`stacks.id`: where it was asked for",
            notified_ns: Nanos = "when its future was handed over by the thread that completed it",
            woken_ns: Nanos = "when the future was set",
            wake_tid: Tid = "by which thread",
        }
    }

    /// Family `ucx`: transfers that were over since the row before of this kind, told of singly or not.
    #[model]
    Transfers in "transfer_counts" {
        at as "at_ns": Nanos = "when",
        process: ProcessRef = "`processes.id`",
        library: Library = "as in `transfers`",
        operation: Operation = "as in `transfers`",
        count: u64 = "how many",
        bytes: u64 = "of all of them",
        immediate: u64 = "how many were over as soon as they were submitted",
        failed: u64 = "how many ended with an error",
        spent as "spent_ns": Nanos = "from being submitted to being over, of all of them",
        unfollowed: u64 = "how many of `count` were counted when they were submitted, for there were too many: nobody \
            looked at their ends",
        every as "told_every": u32 = "of the others, one in this many has a row in `transfers`",
    }

    /// Family `ucx`: what threads have done with transfers so far; the last row of a thread has its sums.
    #[model]
    TransferThread in "transfer_threads" {
        at as "at_ns": Nanos = "when",
        process: ProcessRef = "`processes.id`",
        tid: Tid = "the thread",
        registered: u64 = "transfers that it asked for",
        submitted: u64 = "transfers that it handed to UCX",
        dispatched: u64 = "those of them that another thread had asked for",
        completed: u64 = "pending ones that it completed",
        notified: u64 = "how often it waited for transfers to notify of",
        woken: u64 = "futures that it set",
        progress: u64 = "its calls of progress, in the short times in which these were counted",
        probed as "probed_ns": Nanos = "how long those were together",
        observed as "observed_ns": Nanos = "how long it was looked at",
        awake as "awake_ns": Nanos = "how long of that it was on a CPU, or ready to be",
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
                events.push_back(Event::Transfer { at, id: row.id, change });
            }
        };
        // One whose end a cut recording lacks has the rest only.
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
    // What a thread has done up to then follows from the latest word of it.
    merge.events(reading, Rows::Until, |thread| Some(Event::TransferThread(thread)))
}

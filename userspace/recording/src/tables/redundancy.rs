//! The family `redundancy`: sampled accesses, pairs of accesses, and statistics of the watchpoints.

use std::sync::Arc;

use pyobs_model::{
    Access, CalledBy, Compared, Event, Nanos, NativeCall, Pair, PairKind, ProcessRef, Sampler, StackId, Tid, Touched,
    Watchpoints,
};
use rusqlite::{Connection, Result};

use super::{Reading, Rows};
use crate::Error;
use crate::merge::Merge;
use crate::table::{Table, tables};
use crate::value::Name;

tables! {
    /// Family `redundancy`: samples in native code that Python called, with the memory that the thread was about to
    /// access.
    AccessRow in "accesses" {
        at as "at_ns": Nanos = "when it was taken",
        process: ProcessRef = "`processes.id`",
        tid: Tid = "the kernel's thread id",
        stack: StackId = "`stacks.id`",
        weight: u32 = "how many samples it stands for: more than 1 if some were dropped to hold the budget",
        memory: Option<Name> = "`metadata` (a Python object), `array`, `static` (a file's own data) or `unknown`; NULL \
            if the address is unknown",
        detail: Option<Arc<str>> = "`metadata`: the object's type; `array`: the type of its elements and its shape; \
            NULL where that is not known",
        stores: bool = "1 if it was a store",
        #[newer] element_of: Option<Arc<str>> = "if the Python instruction reads or writes a single element of an \
            array: the array's element type and shape; otherwise, and in older recordings, NULL",
    }

    /// Family `redundancy`: two accesses of one address by one thread, in different native calls.
    PairRow in "access_pairs" {
        at as "at_ns": Nanos = "when it was reported",
        process: ProcessRef = "`processes.id`",
        tid: Tid = "the kernel's thread id",
        first as "first_stack": StackId = "`stacks.id`: the first trap of the call with the first access",
        second as "second_stack": StackId = "the same for the second access",
        kind: PairKind = "`load` or `store`",
        memory: Name = "as `accesses.memory`",
        detail: Option<Arc<str>> = "as `accesses.detail`",
        bytes: u64 = "how many bytes of the access are compared: 1 to 8",
        equal: bool = "1 if the second access read or left the same value as the first",
        unread: Option<bool> = "for stores whose loads were watched too: 1 if the first value was never read; otherwise NULL",
        #[newer] address: Option<u64> = "its address, or that of a byte in it; older recordings lack this column",
    }

    /// Family `redundancy`: native calls and other native work of an instruction, compared with the previous execution seen at
    /// the same instruction. A row has either `varying`, `same_result`, `copied_bytes` and `added_bytes`, or `turns` and `turns_ns`.
    CallRow in "native_calls" {
        at as "at_ns": Nanos = "when it was sampled, or its result reported",
        process: ProcessRef = "`processes.id`",
        tid: Tid = "the kernel's thread id",
        stack: StackId = "`stacks.id`",
        callee: Arc<str> = "name of the callee or of its type, or the instruction's name",
        varying: Option<u16> = "the arguments that differed from the previous call: a bit each, from bit 1 on; bit 0 \
            stands for the callee",
        same_result: Option<bool> = "1 if the result was the same as that of the previous call",
        #[newer] copied as "copied_bytes": Option<u64> = "for a call that joins arrays, tables or texts: the size of the largest one",
        #[newer] added as "added_bytes": Option<u64> = "the size of the others together",
        #[newer] turns: Option<u32> = "for a call in a loop of the program: the number of timed turns; a turn lasts from one \
            result to the next",
        #[newer] turns_time as "turns_ns": Option<Nanos> = "how long these took together",
        #[newer] called_by: Option<Name> = "`innermost`: the innermost frame calls it; `program`: the innermost frame of the \
            program's own code calls a package; `library`: a library calls a function of the program. Older recordings, which \
            lack this column, have only `innermost`",
        #[newer] bytes as "result_bytes": Option<u64> = "for such a call: the size of the data in a result; NULL if unknown",
    }

    /// Family `redundancy`: statistics of the watchpoints, counted since the recording began.
    WatchpointsRow in "watchpoints" {
        at as "at_ns": Nanos = "when it was reported",
        sampler: Sampler = "source of the addresses: `decoded`, `pebs` or `ibs`",
        samples: u64 = "samples in native code that Python called",
        undecoded: u64 = "samples whose address is unknown or irrelevant",
        armed: u64 = "watchpoints that were set",
        traps: u64 = "watchpoint hits",
        timed_out: u64 = "watchpoints that were not hit often enough before their timeout",
        taken: u64 = "watchpoints that were unavailable because a debugger or another tool used them",
        storms: u64 = "samples that got no watchpoint because there were too many traps",
    }
}

pub(crate) fn access(connection: &Connection, access: &Access) -> Result<()> {
    let Access { at, process, tid, stack, weight, touched, stores, element_of } = access.clone();
    let memory = touched.as_ref().map(|touched| touched.name().into());
    let (detail, element_of) = (touched.as_ref().and_then(Touched::detail).cloned(), Some(element_of));
    AccessRow { at, process, tid, stack, weight, memory, detail, stores, element_of }.insert(connection)
}

pub(crate) fn pair(connection: &Connection, pair: &Pair) -> Result<()> {
    let Pair { at, process, tid, first, second, kind, touched, address, bytes, equal, unread } = pair.clone();
    let (memory, detail, address) = (touched.name().into(), touched.detail().cloned(), Some(address));
    let row = PairRow { at, process, tid, first, second, kind, memory, detail, bytes, equal, unread, address };
    row.insert(connection)
}

pub(crate) fn call(connection: &Connection, call: &NativeCall) -> Result<()> {
    let NativeCall { at, process, tid, stack, callee, called_by, compared } = call.clone();
    let (varying, same_result) = (None, None);
    let (copied, added, turns, turns_time, bytes) = (None, None, None, None, None);
    let called_by = Some(Some(called_by.name().into()));
    let row = CallRow {
        at,
        process,
        tid,
        stack,
        callee,
        varying,
        same_result,
        copied,
        added,
        turns,
        turns_time,
        bytes,
        called_by,
    };
    let row = match compared {
        Compared::Arguments { varying } => CallRow { varying: Some(varying), ..row },
        Compared::Result { same } => CallRow { same_result: Some(same), ..row },
        Compared::Copied { copied, added } => CallRow { copied: Some(Some(copied)), added: Some(Some(added)), ..row },
        Compared::Turns { count, time, bytes } => {
            CallRow { turns: Some(Some(count)), turns_time: Some(Some(time)), bytes: Some(bytes), ..row }
        }
    };
    row.insert(connection)
}

pub(crate) fn watchpoints(connection: &Connection, at: Nanos, counts: &Watchpoints) -> Result<()> {
    let Watchpoints { sampler, samples, undecoded, armed, traps, timed_out, taken, storms } = *counts;
    let row = WatchpointsRow { at, sampler, samples, undecoded, armed, traps, timed_out, taken, storms };
    row.insert(connection)
}

pub(crate) fn read(reading: &mut Reading<'_>, merge: &mut Merge<'_>) -> Result<(), Error> {
    merge.events(reading, Rows::Within, |row| {
        let AccessRow { at, process, tid, stack, weight, memory, detail, stores, element_of } = row;
        let touched = match memory {
            Some(memory) => Some(Touched::from_name(&memory, detail)?),
            None => None,
        };
        let element_of = element_of.flatten();
        Some(Event::Access(Access { at, process, tid, stack, weight, touched, stores, element_of }))
    })?;
    merge.events(reading, Rows::Within, |row| {
        let PairRow { at, process, tid, first, second, kind, memory, detail, bytes, equal, unread, address } = row;
        let (touched, address) = (Touched::from_name(&memory, detail)?, address.flatten());
        Some(Event::Pair(Pair { at, process, tid, first, second, kind, touched, address, bytes, equal, unread }))
    })?;
    merge.events(reading, Rows::Within, |row| {
        let CallRow {
            at,
            process,
            tid,
            stack,
            callee,
            varying,
            same_result,
            copied,
            added,
            turns,
            turns_time,
            called_by,
            bytes,
        } = row;
        let called_by = match called_by.flatten() {
            Some(name) => CalledBy::from_name(&name)?,
            None => CalledBy::default(),
        };
        let (copied, turns) = (copied.flatten().zip(added.flatten()), turns.flatten().zip(turns_time.flatten()));
        let compared = match (varying, same_result, copied, turns) {
            (Some(varying), None, None, None) => Compared::Arguments { varying },
            (None, Some(same), None, None) => Compared::Result { same },
            (None, None, Some((copied, added)), None) => Compared::Copied { copied, added },
            (None, None, None, Some((count, time))) => Compared::Turns { count, time, bytes: bytes.flatten() },
            _ => return None,
        };
        Some(Event::Call(NativeCall { at, process, tid, stack, callee, called_by, compared }))
    })?;
    merge.events(reading, Rows::Within, |row| {
        let WatchpointsRow { at, sampler, samples, undecoded, armed, traps, timed_out, taken, storms } = row;
        let counts = Watchpoints { sampler, samples, undecoded, armed, traps, timed_out, taken, storms };
        Some(Event::Watchpoints { at, counts })
    })
}

//! Converts transfers from the kernel side's format to the model's.

use pyobs_abi::ucx::{Transfer, flags, operation};
use pyobs_model::{Library, Nanos, Operation, ProcessRef, Protocol, Tid, TransferId};

pub(super) fn transfer(
    transfer: &Transfer,
    process: ProcessRef,
    at: impl Fn(u64) -> Nanos,
) -> Option<pyobs_model::Transfer> {
    let has = |flag: u32| transfer.flags & flag != 0;
    let time = |time: u64| (time != 0).then(|| at(time));
    let thread = |tid: u32| (tid != 0).then_some(Tid(tid));
    let asked = if transfer.registered == 0 { transfer.submit_tid } else { transfer.register_tid };
    Some(pyobs_model::Transfer {
        process,
        library: if has(flags::UCXX) { Library::Ucxx } else { Library::Ucx },
        operation: operation_of(transfer.operation)?,
        bytes: transfer.bytes,
        tag: has(flags::HAS_TAG).then_some(transfer.tag),
        through: transfer.through,
        buffer: transfer.buffer,
        registered: time(transfer.registered),
        submitted: time(transfer.submitted),
        completed: time(transfer.completed),
        immediate: has(flags::IMMEDIATE),
        status: has(flags::HAS_STATUS).then_some(transfer.status),
        tid: Tid(asked),
        submitter: thread(transfer.submit_tid),
        completer: thread(transfer.complete_tid),
        protocol: if has(flags::RENDEZVOUS) {
            Some(Protocol::Rendezvous)
        } else {
            has(flags::EAGER).then_some(Protocol::Eager)
        },
        parent: (transfer.parent != 0).then(|| number(transfer.parent)),
        hash: has(flags::HAS_HASH).then_some(transfer.hash),
    })
}

/// Recordings store signed numbers, so the top bit is dropped.
pub fn number(id: u64) -> TransferId {
    TransferId(id & (u64::MAX >> 1))
}

pub(super) fn operation_of(number: u32) -> Option<Operation> {
    Some(match number {
        operation::TAG_SEND => Operation::TagSend,
        operation::TAG_RECV => Operation::TagRecv,
        operation::STREAM_SEND => Operation::StreamSend,
        operation::STREAM_RECV => Operation::StreamRecv,
        operation::AM_SEND => Operation::AmSend,
        operation::AM_RECV => Operation::AmRecv,
        operation::PUT => Operation::Put,
        operation::GET => Operation::Get,
        operation::MULTI_SEND => Operation::MultiSend,
        operation::MULTI_RECV => Operation::MultiRecv,
        _ => return None,
    })
}

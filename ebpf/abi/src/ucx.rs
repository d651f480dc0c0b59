//! The family `ucx`: transfers of UCX and of UCXX.

use crate::record::Header;
use crate::shared;

/// What is known of a transfer so far. Times are nanoseconds of `CLOCK_MONOTONIC`, or 0 for what was not seen.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// Never reused.
    pub id: u64,
    /// The id of the transfer of several buffers that this is a part of; 0 for none.
    pub parent: u64,
    pub registered: u64,
    pub submitted: u64,
    pub completed: u64,
    pub buffer: u64,
    pub bytes: u64,
    pub tag: u64,
    /// The endpoint; for receives, the worker.
    pub through: u64,
    /// The request of UCXX; 0 for none.
    pub request: u64,
    /// The request of UCX.
    pub handle: u64,
    /// A hash of a part of the data that is sent.
    pub hash: u64,
    pub register_tid: u32,
    pub submit_tid: u32,
    pub complete_tid: u32,
    /// A `ucs_status_t`.
    pub status: i32,
    /// One of [`operation`].
    pub operation: u32,
    /// Bits of [`flags`].
    pub flags: u32,
}

shared!(Transfer, 120);

pub mod operation {
    /// A request of UCXX that has not reached UCX yet, or never does.
    pub const NONE: u32 = 0;
    pub const TAG_SEND: u32 = 1;
    pub const TAG_RECV: u32 = 2;
    pub const STREAM_SEND: u32 = 3;
    pub const STREAM_RECV: u32 = 4;
    pub const AM_SEND: u32 = 5;
    pub const AM_RECV: u32 = 6;
    pub const PUT: u32 = 7;
    pub const GET: u32 = 8;
    pub const MULTI_SEND: u32 = 9;
    pub const MULTI_RECV: u32 = 10;
}

pub mod flags {
    /// The transfer was complete when the call that began it returned.
    pub const IMMEDIATE: u32 = 1;
    pub const UCXX: u32 = 2;
    /// It is reported singly.
    pub const REPORTED: u32 = 4;
    pub const HAS_TAG: u32 = 8;
    pub const HAS_STATUS: u32 = 16;
    pub const HAS_HASH: u32 = 32;
    /// The data was sent with the first message.
    pub const EAGER: u32 = 64;
    /// The receiver was asked for it first.
    pub const RENDEZVOUS: u32 = 128;
    /// UCXX publishes the result of its submission, so the call's end is not needed.
    pub const PUBLISHED: u32 = 256;
    /// Its beginning was not seen, so nothing else is known of it.
    pub const HALF_SEEN: u32 = 512;
}

/// `UCX_TRANSFER`: a transfer is complete.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub header: Header,
    pub transfer: Transfer,
}

shared!(Done, 160);

/// `UCX_WOKEN`: the header's thread set the future that waited for a transfer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Woken {
    pub header: Header,
    pub id: u64,
    /// When the thread that completed the transfer handed the future over.
    pub notified: u64,
}

shared!(Woken, 56);

/// `UCX_CALLBACK`: a completion callback was seen for the first time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Callback {
    pub header: Header,
    pub address: u64,
    /// One of [`callback`].
    pub kind: u32,
    pub padding: u32,
}

shared!(Callback, 56);

/// What a callback gets besides the request, the status and the caller's word:
/// <https://github.com/openucx/ucx/blob/v1.18.0/src/ucp/api/ucp_def.h>
pub mod callback {
    /// Nothing: `ucp_send_nbx_callback_t`.
    pub const SEND: u32 = 0;
    /// The address of the tag and the length, a word each: `ucp_tag_recv_nbx_callback_t`.
    pub const TAG: u32 = 1;
    /// A length: `ucp_stream_recv_nbx_callback_t`, `ucp_am_recv_data_nbx_callback_t`.
    pub const LENGTH: u32 = 2;
    /// It is called when a message has arrived: `ucp_am_recv_callback_t`.
    pub const MESSAGE: u32 = 3;
    /// It is a function of UCXX, which is probed by its name.
    pub const OF_UCXX: u32 = 4;
}

/// The key of the maps of requests, futures and callbacks: an address in a process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    pub pid: u32,
    pub padding: u32,
    pub address: u64,
}

shared!(Key, 16);

/// The value of `UCX_EARLY`: a request was completed before its beginning was seen.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Early {
    pub completed: u64,
    pub tid: u32,
    pub status: i32,
}

shared!(Early, 16);

/// The value of `UCX_FUTURES`: the transfer that a Python future waits for.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Future {
    pub id: u64,
    pub notified: u64,
    pub reported: u64,
}

shared!(Future, 24);

/// The value of `UCX_THREADS`, keyed by thread: what a thread has done, and what it is doing.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Counts of what it has done, by [`activity`].
    pub counts: [u64; activity::COUNT],
    /// The transfer of several buffers whose parts the thread is making, the address of that call's return address, the
    /// return address itself, and the flags of the transfer.
    pub parent: u64,
    pub parent_stack: u64,
    pub parent_return: u64,
    pub parent_flags: u64,
    /// The transfer that the thread is completing, the address of that call's return address, and the flags of the
    /// transfer.
    pub current: u64,
    pub current_stack: u64,
    pub current_flags: u64,
    /// When the thread last announced a message to a receiver, or began to receive an announced one.
    pub rendezvous: u64,
    /// The address of the return address of the call that completes an unknown request of UCXX, and the return address
    /// itself.
    pub unknown_stack: u64,
    pub unknown_return: u64,
    /// The UCX request for which a completion callback was last called on this thread.
    pub called_back: u64,
    /// The function of UCXX that it last passed as a callback, while transfers are only counted.
    pub of_ucxx: u64,
}

shared!(Thread, 152);

/// What threads do with transfers.
pub mod activity {
    /// Begins a transfer.
    pub const REGISTER: usize = 0;
    /// Submits a transfer to UCX.
    pub const SUBMIT: usize = 1;
    /// Completes a pending transfer.
    pub const COMPLETE: usize = 2;
    /// Waits for transfers to complete, or tells the event loop that some have.
    pub const NOTIFY: usize = 3;
    /// Sets futures.
    pub const WAKE: usize = 4;
    /// Submits a transfer that another thread began.
    pub const DISPATCH: usize = 5;
    /// Makes progress, in the short periods in which that is counted.
    pub const PROGRESS: usize = 6;
    pub const COUNT: usize = 7;
}

/// The key of `UCX_TOTALS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kind {
    pub pid: u32,
    /// One of [`operation`], with [`OF_UCXX`] for those of UCXX.
    pub operation: u32,
}

shared!(Kind, 8);

pub const OF_UCXX: u32 = 1 << 16;

/// The value of `UCX_TOTALS`: all transfers that are complete or only counted, whether they are reported singly or not.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    pub count: u64,
    pub bytes: u64,
    pub immediate: u64,
    pub failed: u64,
    /// The time from submission to completion, in nanoseconds.
    pub spent: u64,
    /// Transfers that were only counted when they were submitted.
    pub unfollowed: u64,
}

shared!(Total, 48);

/// The cookie of a probe on a submission: the operation, and which argument is what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Submission(pub u64);

/// The argument is not in a register but behind the return address.
pub const ON_STACK: u64 = 6;
/// There is no such argument.
pub const NOWHERE: u64 = 7;

impl Submission {
    pub const fn new(operation: u32, buffer: u64, count: u64, tag: u64, parameters: u64) -> Self {
        Self(operation as u64 | buffer << 8 | count << 12 | tag << 16 | parameters << 20)
    }

    #[inline(always)]
    pub const fn operation(self) -> u32 {
        self.0 as u32 & 0xff
    }

    #[inline(always)]
    pub const fn buffer(self) -> u64 {
        self.0 >> 8 & 7
    }

    #[inline(always)]
    pub const fn count(self) -> u64 {
        self.0 >> 12 & 7
    }

    #[inline(always)]
    pub const fn tag(self) -> u64 {
        self.0 >> 16 & 7
    }

    #[inline(always)]
    pub const fn parameters(self) -> u64 {
        self.0 >> 20 & 7
    }
}

/// The cookie of a probe on a function of UCXX: the place that it is on.
pub mod site {
    /// `ucxx::Worker::registerDelayedSubmission(this, request, …)`
    pub const REGISTER: u64 = 0;
    /// `ucxx::Request::setStatus(this, status)`
    pub const STATUS: u64 = 1;
    /// `ucxx::RequestTagMulti::send(this)`
    pub const MULTI_SEND: u64 = 2;
    /// `ucxx::RequestTagMulti::recvHeader(this)`, and other functions that make parts.
    pub const MULTI_RECV: u64 = 3;
    /// The end of one of these.
    pub const MULTI_END: u64 = 4;
    /// `ucxx::python::Future::notify(this, status)`
    pub const NOTIFY: u64 = 5;
    /// `ucxx::python::Notifier::waitRequestNotifier(this, period)`
    pub const WAIT: u64 = 6;
    /// `ucxx::python::Future::set(this, status)`
    pub const WAKE: u64 = 7;
    /// As `REGISTER`, in a version that has `PUBLISH`.
    pub const REGISTER_PUBLISHED: u64 = 8;
    /// `ucxx::Request::publishRequest(this, handle)`: the call that submits the request has just returned `handle`.
    pub const PUBLISH: u64 = 9;
}

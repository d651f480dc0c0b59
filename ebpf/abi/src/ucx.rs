//! The family `ucx`: transfers of UCX and of UCXX.

use crate::record::Header;
use crate::shared;

/// What is known of a transfer so far. Times are `CLOCK_MONOTONIC` in nanoseconds; 0 where the moment was not seen.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// Never used twice.
    pub id: u64,
    /// Of the transfer of several buffers that it is a part of; 0 for none.
    pub parent: u64,
    pub registered: u64,
    pub submitted: u64,
    pub completed: u64,
    pub buffer: u64,
    pub bytes: u64,
    pub tag: u64,
    /// The endpoint, or for receives the worker.
    pub through: u64,
    /// UCXX's request; 0 for none.
    pub request: u64,
    /// UCX's.
    pub handle: u64,
    /// Of a sample of what is sent.
    pub hash: u64,
    pub register_tid: u32,
    pub submit_tid: u32,
    pub complete_tid: u32,
    /// A `ucs_status_t`.
    pub status: i32,
    /// One of [`operation`].
    pub operation: u32,
    /// Of [`flags`].
    pub flags: u32,
}

shared!(Transfer, 120);

pub mod operation {
    /// Of a request of UCXX that has not come to UCX yet, or never does.
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
    /// It was over when the call that began it returned.
    pub const IMMEDIATE: u32 = 1;
    pub const UCXX: u32 = 2;
    /// It is one of those that are told of singly.
    pub const TOLD: u32 = 4;
    pub const HAS_TAG: u32 = 8;
    pub const HAS_STATUS: u32 = 16;
    pub const HAS_HASH: u32 = 32;
    /// The message went along with the first word of it.
    pub const EAGER: u32 = 64;
    /// The receiver was told of it first.
    pub const RENDEZVOUS: u32 = 128;
    /// UCXX tells what its submission returned.
    pub const PUBLISHED: u32 = 256;
    /// It goes on, and was not seen to begin: that is all that is told of it.
    pub const HALF_SEEN: u32 = 512;
}

/// `UCX_TRANSFER`: a transfer is over.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub header: Header,
    pub transfer: Transfer,
}

shared!(Done, 160);

/// `UCX_WOKEN`: the header's thread sets the future that waited for a transfer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Woken {
    pub header: Header,
    pub id: u64,
    /// When the thread that completed it handed the future over.
    pub notified: u64,
}

shared!(Woken, 56);

/// `UCX_CALLBACK`: a function that transfers are completed by was seen for the first time.
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

/// What a callback gets besides request, status and the caller's word (ucp_def.h).
pub mod callback {
    /// Nothing: `ucp_send_nbx_callback_t`.
    pub const SEND: u32 = 0;
    /// The address of tag and length, a word each: `ucp_tag_recv_nbx_callback_t`.
    pub const TAG: u32 = 1;
    /// A length: `ucp_stream_recv_nbx_callback_t`, `ucp_am_recv_data_nbx_callback_t`.
    pub const LENGTH: u32 = 2;
    /// It is called for a message that has come: `ucp_am_recv_callback_t`.
    pub const MESSAGE: u32 = 3;
    /// It is a function of UCXX's, which has probes by their names.
    pub const OF_UCXX: u32 = 4;
}

/// The key of maps by what a process calls by an address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    pub pid: u32,
    pub padding: u32,
    pub address: u64,
}

shared!(Key, 16);

/// The value of `UCX_EARLY`: a request was completed of which no beginning is known, or not yet.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Early {
    pub completed: u64,
    pub tid: u32,
    pub status: i32,
}

shared!(Early, 16);

/// The value of `UCX_FUTURES`: what a future of Python's waits for.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Future {
    pub id: u64,
    pub notified: u64,
    pub told: u64,
}

shared!(Future, 24);

/// The value of `UCX_THREADS`, whose key is a thread: what it has done so far, and what it is doing.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// By [`deed`].
    pub counts: [u64; deed::COUNT],
    /// The transfer of several buffers that it makes parts of, where that call's return address is, what it is, and the
    /// transfer's flags.
    pub parent: u64,
    pub parent_stack: u64,
    pub parent_return: u64,
    pub parent_flags: u64,
    /// The transfer that it completes, where that call's return address is, and the transfer's flags.
    pub current: u64,
    pub current_stack: u64,
    pub current_flags: u64,
    /// When it last told a receiver of a message to come, or began to receive one that it was told of.
    pub rendezvous: u64,
    /// Where the return address is of the call that completes a request of UCXX's that is not known, and what it is.
    pub unknown_stack: u64,
    pub unknown_return: u64,
    /// The request of UCX that it was last called back for.
    pub called_back: u64,
    /// The function of UCXX's that it last gave to be called back, where transfers are only counted.
    pub of_ucxx: u64,
}

shared!(Thread, 152);

/// What threads do with transfers.
pub mod deed {
    /// It asks for one.
    pub const REGISTER: usize = 0;
    /// It hands one to UCX.
    pub const SUBMIT: usize = 1;
    /// It completes one that was pending.
    pub const COMPLETE: usize = 2;
    /// It waits for transfers to be completed, or tells the event loop that some are.
    pub const NOTIFY: usize = 3;
    /// It sets futures.
    pub const WAKE: usize = 4;
    /// It hands one to UCX that another thread has asked for.
    pub const DISPATCH: usize = 5;
    /// It makes progress, in the short times in which that is counted.
    pub const PROGRESS: usize = 6;
    pub const COUNT: usize = 7;
}

/// The key of `UCX_TOTALS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kind {
    pub pid: u32,
    /// Of [`operation`], and 1 << 16 for UCXX's.
    pub operation: u32,
}

shared!(Kind, 8);

pub const OF_UCXX: u32 = 1 << 16;

/// The value of `UCX_TOTALS`: all that are over or not followed to their ends, told of singly or not.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    pub count: u64,
    pub bytes: u64,
    pub immediate: u64,
    pub failed: u64,
    /// From being submitted to being completed, in nanoseconds.
    pub spent: u64,
    /// Those that were counted when they were submitted: nobody looked at their ends.
    pub unfollowed: u64,
}

shared!(Total, 48);

/// What a probe's cookie tells the program for submissions: the operation, and which arguments are what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Submission(pub u64);

/// Where an argument is that is not in a register: behind the return address.
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

/// What a probe's cookie tells the program for UCXX of the place that it is on.
pub mod site {
    /// `ucxx::Worker::registerDelayedSubmission(this, request, …)`
    pub const REGISTER: u64 = 0;
    /// `ucxx::Request::setStatus(this, status)`
    pub const STATUS: u64 = 1;
    /// `ucxx::RequestTagMulti::send(this)`
    pub const MULTI_SEND: u64 = 2;
    /// `ucxx::RequestTagMulti::recvHeader(this)` and what else makes parts.
    pub const MULTI_RECV: u64 = 3;
    /// The end of one of these.
    pub const MULTI_END: u64 = 4;
    /// `ucxx::python::Future::notify(this, status)`
    pub const NOTIFY: u64 = 5;
    /// `ucxx::python::Notifier::waitRequestNotifier(this, period)`
    pub const WAIT: u64 = 6;
    /// `ucxx::python::Future::set(this, status)`
    pub const WAKE: u64 = 7;
    /// As `REGISTER`, in a version that has the next.
    pub const REGISTER_PUBLISHED: u64 = 8;
    /// `ucxx::Request::publishRequest(this, handle)`: the call that submits it has just returned this.
    pub const PUBLISH: u64 = 9;
}

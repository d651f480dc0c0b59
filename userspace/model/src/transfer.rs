//! What the family `ucx` tells of transfers.

use serde::{Deserialize, Serialize};

use crate::{Nanos, ProcessRef, StackId, Tid, TransferId};

/// What a transfer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    TagSend,
    TagRecv,
    StreamSend,
    StreamRecv,
    AmSend,
    AmRecv,
    Put,
    Get,
    /// Several buffers, each of which, and what announces them, is a transfer of its own.
    MultiSend,
    MultiRecv,
}

impl Operation {
    pub const ALL: &'static [Self] = &[
        Self::TagSend,
        Self::TagRecv,
        Self::StreamSend,
        Self::StreamRecv,
        Self::AmSend,
        Self::AmRecv,
        Self::Put,
        Self::Get,
        Self::MultiSend,
        Self::MultiRecv,
    ];

    /// The name in JSON, recordings and on screens.
    pub fn name(self) -> &'static str {
        match self {
            Self::TagSend => "tag_send",
            Self::TagRecv => "tag_recv",
            Self::StreamSend => "stream_send",
            Self::StreamRecv => "stream_recv",
            Self::AmSend => "am_send",
            Self::AmRecv => "am_recv",
            Self::Put => "put",
            Self::Get => "get",
            Self::MultiSend => "multi_send",
            Self::MultiRecv => "multi_recv",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|operation| operation.name() == name)
    }

    pub fn is_multi(self) -> bool {
        matches!(self, Self::MultiSend | Self::MultiRecv)
    }
}

/// Whose call it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Library {
    Ucx,
    Ucxx,
}

impl Library {
    /// The name in JSON, recordings and on screens.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ucx => "ucx",
            Self::Ucxx => "ucxx",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Ucx, Self::Ucxx].into_iter().find(|library| library.name() == name)
    }
}

/// How a message came to its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// At once.
    Eager,
    /// The receiver was told of it, and took it then.
    Rendezvous,
}

impl Protocol {
    /// The name in JSON, recordings and on screens.
    pub fn name(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::Rendezvous => "rendezvous",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Eager, Self::Rendezvous].into_iter().find(|protocol| protocol.name() == name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    pub process: ProcessRef,
    pub library: Library,
    pub operation: Operation,
    pub bytes: u64,
    pub tag: Option<u64>,
    /// The address of the endpoint, or for receives of the worker; 0 where it is not known.
    pub through: u64,
    /// The buffer's address.
    pub buffer: u64,
    /// When UCXX took it on.
    pub registered: Option<Nanos>,
    /// When it was handed to UCX.
    pub submitted: Option<Nanos>,
    pub completed: Option<Nanos>,
    /// Whether it was over when the call that submitted it returned.
    pub immediate: bool,
    /// A `ucs_status_t`: 0 for success.
    pub status: Option<i32>,
    /// The thread that asked for it.
    pub tid: Tid,
    pub submitter: Option<Tid>,
    pub completer: Option<Tid>,
    /// Where it was seen.
    pub protocol: Option<Protocol>,
    /// The transfer of several buffers that it is a part of.
    pub parent: Option<TransferId>,
    /// Of a sample of what was sent.
    pub hash: Option<u64>,
}

impl Transfer {
    /// Whether another thread than the one that asked for it handed it to UCX.
    pub fn is_delayed(&self) -> bool {
        self.registered.is_some() && self.submitter.is_some_and(|tid| tid != self.tid)
    }

    /// When it was first seen.
    pub fn begun(&self) -> Option<Nanos> {
        self.registered.or(self.submitted).or(self.completed)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferChange {
    /// All that is known of it now.
    Seen(Box<Transfer>),
    /// Where it was asked for.
    Asked(StackId),
    /// Its future was handed over by the thread that completed it, and set by this one.
    Woken { notified: Nanos, tid: Tid },
}

/// Transfers of one kind that are over, told of singly or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfers {
    pub at: Nanos,
    pub process: ProcessRef,
    pub library: Library,
    pub operation: Operation,
    pub count: u64,
    pub bytes: u64,
    pub immediate: u64,
    /// Those whose status is an error.
    pub failed: u64,
    /// From being submitted to being completed.
    pub spent: Nanos,
    /// Of `count`, those that were counted when they were submitted: nobody looked at their ends.
    pub unfollowed: u64,
    /// One in so many of the others is told of singly.
    pub every: u32,
}

/// Sums since the thread was first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferThread {
    pub at: Nanos,
    pub process: ProcessRef,
    pub tid: Tid,
    /// Transfers that it asked for.
    pub registered: u64,
    /// Those that it handed to UCX, and of these the ones that another thread had asked for.
    pub submitted: u64,
    pub dispatched: u64,
    /// Those that it completed when they were pending.
    pub completed: u64,
    /// Times at which it waited for transfers to notify of.
    pub notified: u64,
    /// Futures that it set.
    pub woken: u64,
    /// Its calls of progress, in the short times in which these were counted, and how long those were together.
    pub progress: u64,
    pub probed: Nanos,
    /// The time in which it was looked at, and what of that it was on a CPU or ready to be.
    pub observed: Nanos,
    pub awake: Nanos,
}

impl TransferThread {
    /// What came after an earlier word of it.
    #[must_use]
    pub fn since(&self, before: Option<&Self>) -> Self {
        let Some(before) = before else { return *self };
        let time = |of: fn(&Self) -> Nanos| of(self).saturating_sub(of(before));
        let count = |of: fn(&Self) -> u64| of(self).saturating_sub(of(before));
        Self {
            registered: count(|it| it.registered),
            submitted: count(|it| it.submitted),
            dispatched: count(|it| it.dispatched),
            completed: count(|it| it.completed),
            notified: count(|it| it.notified),
            woken: count(|it| it.woken),
            progress: count(|it| it.progress),
            probed: time(|it| it.probed),
            observed: time(|it| it.observed),
            awake: time(|it| it.awake),
            ..*self
        }
    }
}

//! Events of the family `ucx`.

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
    /// Several buffers. Each buffer, and each header message, is a transfer of its own.
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

/// The library whose call it was.
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

/// The protocol that delivered a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// The data came with the message.
    Eager,
    /// The receiver was notified, and then fetched the data.
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
    /// Address of the endpoint or, for receives, of the worker; 0 if unknown.
    pub through: u64,
    /// The buffer's address.
    pub buffer: u64,
    /// When UCXX accepted it.
    pub registered: Option<Nanos>,
    /// When it was handed to UCX.
    pub submitted: Option<Nanos>,
    pub completed: Option<Nanos>,
    /// Whether it was complete when the submitting call returned.
    pub immediate: bool,
    /// A `ucs_status_t`: 0 for success.
    pub status: Option<i32>,
    /// The thread that requested it.
    pub tid: Tid,
    pub submitter: Option<Tid>,
    pub completer: Option<Tid>,
    /// `None` if it was not seen.
    pub protocol: Option<Protocol>,
    /// The transfer of several buffers that this is part of.
    pub parent: Option<TransferId>,
    /// Hash of a sample of the sent bytes.
    pub hash: Option<u64>,
}

impl Transfer {
    /// Whether it was handed to UCX by a thread other than the one that requested it.
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
    /// Everything known about it now.
    Seen(Box<Transfer>),
    /// The stack that requested it.
    Asked(StackId),
    /// The completing thread handed over its future, and this thread set it.
    Woken { notified: Nanos, tid: Tid },
}

/// Finished transfers of one kind, recorded individually or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfers {
    pub at: Nanos,
    pub process: ProcessRef,
    pub library: Library,
    pub operation: Operation,
    pub count: u64,
    pub bytes: u64,
    pub immediate: u64,
    /// Those with an error status.
    pub failed: u64,
    /// Time from submission to completion.
    pub spent: Nanos,
    /// The part of `count` that was only counted at submission. Their ends were not watched.
    pub unfollowed: u64,
    /// One in this many of the others is recorded individually.
    pub every: u32,
}

/// A thread's work on transfers, as totals since it was first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferThread {
    pub at: Nanos,
    pub process: ProcessRef,
    pub tid: Tid,
    /// Transfers that it requested.
    pub registered: u64,
    /// Transfers that it handed to UCX, and those of them that another thread had requested.
    pub submitted: u64,
    pub dispatched: u64,
    /// Pending transfers that it completed.
    pub completed: u64,
    /// How often it waited for transfers to notify about.
    pub notified: u64,
    /// Futures that it set.
    pub woken: u64,
    /// Its progress calls during the short periods in which they were counted, and the length of those periods.
    pub progress: u64,
    pub probed: Nanos,
    /// How long it was observed, and how much of that it was running or runnable.
    pub observed: Nanos,
    pub awake: Nanos,
}

impl TransferThread {
    /// The difference from an earlier report.
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

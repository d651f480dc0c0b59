//! Pairs of accesses, and their sums.

use super::verdict::{EQUAL, Verdict, least_trials};
use crate::{Pair, PairKind, ProcessRef, RegionId, StackId, Tid, Touched};

/// Two successive accesses to one address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PairOf {
    pub process: ProcessRef,
    pub kind: PairKind,
    pub touched: Touched,
    pub tid: Tid,
    pub first: StackId,
    pub second: StackId,
    /// The arena or segment that contains the address.
    pub region: Option<RegionId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairSum {
    pub compared: u64,
    pub equal: u64,
    pub total_bytes: u64,
    pub redundant_bytes: u64,
    /// Stores whose loads were watched too.
    pub looked: u64,
    pub unread: u64,
}

impl PairOf {
    pub(super) fn of(pair: &Pair, region: Option<RegionId>) -> Self {
        let Pair { process, tid, first, second, kind, .. } = *pair;
        Self { process, kind, touched: pair.touched.clone(), tid, first, second, region }
    }

    pub fn is_array_store(&self) -> bool {
        is_array_store(self.kind, &self.touched)
    }
}

impl PairSum {
    pub fn of(pair: &Pair) -> Self {
        Self {
            compared: 1,
            equal: u64::from(pair.equal),
            total_bytes: pair.bytes,
            redundant_bytes: if pair.equal { pair.bytes } else { 0 },
            looked: u64::from(pair.unread.is_some()),
            unread: u64::from(pair.unread == Some(true)),
        }
    }

    /// Whether there are enough pairs to prove redundancy.
    pub fn is_enough(&self) -> bool {
        self.compared >= least_trials(EQUAL)
    }

    /// Whether most accesses find or leave an equal value.
    pub fn equality_verdict(&self) -> Verdict {
        Verdict::of(self.equal, self.compared, EQUAL)
    }

    /// Whether most stores are never read.
    pub fn unread_verdict(&self) -> Verdict {
        Verdict::of(self.unread, self.looked, EQUAL)
    }

    pub fn add(&mut self, other: &Self) {
        self.compared += other.compared;
        self.equal += other.equal;
        self.total_bytes = self.total_bytes.saturating_add(other.total_bytes);
        self.redundant_bytes = self.redundant_bytes.saturating_add(other.redundant_bytes);
        self.looked += other.looked;
        self.unread += other.unread;
    }
}

pub(super) fn is_array_store(kind: PairKind, touched: &Touched) -> bool {
    kind == PairKind::Store && matches!(touched, Touched::Array(_))
}

//! What pyobs itself uses.

use std::collections::VecDeque;

use crate::Nanos;

/// Words of it that are kept; one comes every second.
const KEPT: usize = 3600;

/// What pyobs itself has used since the recording began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    pub at: Nanos,
    pub bpf: Nanos,
    pub cpu: Nanos,
    pub rss_bytes: u64,
}

impl Cost {
    /// In shares of one core, since an earlier word: (in the kernel, in user space).
    fn shares(&self, before: &Self) -> (f64, f64) {
        let span = self.at.saturating_sub(before.at).as_secs_f64();
        if span <= 0.0 {
            return (0.0, 0.0);
        }
        let share = |now: Nanos, before: Nanos| now.saturating_sub(before).as_secs_f64() / span;
        (share(self.bpf, before.bpf), share(self.cpu, before.cpu))
    }
}

#[derive(Debug, Default)]
pub(super) struct Costs(VecDeque<Cost>);

impl Costs {
    pub(super) fn add(&mut self, cost: Cost) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(cost);
    }

    pub(super) fn now(&self) -> Cost {
        self.0.back().copied().unwrap_or_default()
    }

    pub(super) fn shares_now(&self) -> (f64, f64) {
        let before = self.0.iter().rev().nth(1).copied().unwrap_or_default();
        self.now().shares(&before)
    }

    pub(super) fn history(&self) -> impl Iterator<Item = (Nanos, f64)> + '_ {
        self.0.iter().zip(self.0.iter().skip(1)).map(|(before, after)| {
            let (kernel, user) = after.shares(before);
            (after.at, kernel + user)
        })
    }
}

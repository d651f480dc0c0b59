//! What pyobs itself costs.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::Nanos;

/// How many cost reports are kept; one comes every second.
const KEPT: usize = 3600;

/// The resources pyobs has used since the recording began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub at: Nanos,
    pub bpf: Nanos,
    pub cpu: Nanos,
    /// The part of `cpu` spent once per file or process.
    pub startup: Nanos,
    pub rss_bytes: u64,
}

impl Usage {
    /// Usage without one-time work.
    pub fn steady(&self) -> Nanos {
        Nanos(self.bpf.0.saturating_add(self.cpu.saturating_sub(self.startup).0))
    }

    /// The cost since an earlier report, in shares of one core: (kernel, user space).
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
pub(super) struct Usages(VecDeque<Usage>);

impl Usages {
    pub(super) fn add(&mut self, cost: Usage) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(cost);
    }

    pub(super) fn now(&self) -> Usage {
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

/// A measure that kept pyobs inside the budget, and when it applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shed {
    pub from: Nanos,
    /// `None` while it applies.
    pub to: Option<Nanos>,
    pub family: Arc<str>,
    pub measure: Arc<str>,
}

/// How many measures are kept; the oldest go first.
const SHEDS: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Sheds(VecDeque<Shed>);

impl Sheds {
    pub(super) fn add(&mut self, at: Nanos, family: &Arc<str>, measure: &Arc<str>, on: bool) {
        let holds = |shed: &&mut Shed| shed.to.is_none() && shed.family == *family && shed.measure == *measure;
        match (on, self.0.iter_mut().rev().find(holds)) {
            (false, Some(shed)) => shed.to = Some(at),
            (true, None) => {
                if self.0.len() == SHEDS {
                    self.0.pop_front();
                }
                let (family, measure) = (Arc::clone(family), Arc::clone(measure));
                self.0.push_back(Shed { from: at, to: None, family, measure });
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = &Shed> {
        self.0.iter()
    }
}

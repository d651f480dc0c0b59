//! How much of the past a model keeps.

use crate::Nanos;

/// How many events of each kind a report keeps one by one. Earlier events are only in its sums, and findings about
/// single events use the latest.
pub const EVENTS_KEPT: usize = 1 << 16;

/// How much of the past is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// All events, to show them one by one: what is kept grows with the recording. Segments, arenas and transfers have
    /// their own bounds.
    All,
    /// The sums of all events, and the latest [`EVENTS_KEPT`] of each kind one by one, for a report of a recording of any
    /// length.
    Sums,
    /// The last `length`, and at most `samples` events of each kind, for a dashboard that runs for days.
    Window { length: Nanos, samples: usize },
}

impl History {
    /// How many stateful things of one kind are kept, given their own limit.
    pub(crate) fn bound(self, most: usize) -> usize {
        match self {
            Self::All | Self::Sums => most,
            Self::Window { samples, .. } => samples.min(most),
        }
    }

    /// How many events of a kind are kept.
    pub(crate) fn events(self) -> Option<usize> {
        match self {
            Self::All => None,
            Self::Sums => Some(EVENTS_KEPT),
            Self::Window { samples, .. } => Some(samples),
        }
    }
}

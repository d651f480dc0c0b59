//! How much of the past a model keeps.

use crate::{Nanos, Selection};

/// How many events of each kind a report keeps one by one. Earlier events are only in its sums, and findings about
/// single events use the latest.
pub const EVENTS_KEPT: usize = 1 << 16;

/// The same for formats that show events one by one: three hours of two busy CPUs at 99 Hz.
pub const EVENTS_SHOWN: usize = 1 << 21;

/// The same for the replay, which reads a recording again to go back beyond them.
const EVENTS_REPLAYED: usize = 1 << 18;

/// How much of the past is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// All events one by one: memory grows with the recording. Segments, arenas and transfers have their own bounds.
    All,
    /// Sums of all events in `from..to`, and the latest `events` of each kind one by one. Events outside that time are
    /// dropped. Memory does not grow with the recording.
    Sums { events: usize, from: Option<Nanos>, to: Option<Nanos> },
    /// The last `length`, and at most `samples` events of each kind, for a dashboard that runs for days.
    Window { length: Nanos, samples: usize },
}

impl History {
    /// Enough for a report of a whole recording.
    pub const REPORT: Self = Self::Sums { events: EVENTS_KEPT, from: None, to: None };
    /// Enough for a dashboard over a whole recording.
    pub const REPLAY: Self = Self::Sums { events: EVENTS_REPLAYED, from: None, to: None };

    /// How many stateful things of one kind are kept, given their own limit.
    pub(crate) fn bound(self, most: usize) -> usize {
        match self {
            Self::All | Self::Sums { .. } => most,
            Self::Window { samples, .. } => samples.min(most),
        }
    }

    /// How many events of a kind are kept.
    pub(crate) fn events(self) -> Option<usize> {
        match self {
            Self::All => None,
            Self::Sums { events, .. } => Some(events),
            Self::Window { samples, .. } => Some(samples),
        }
    }

    /// Whether events that are no longer kept one by one are in sums.
    pub(crate) fn has_sums(self) -> bool {
        matches!(self, Self::Sums { .. })
    }

    /// The time outside which events are dropped.
    pub(crate) fn covered(self) -> Selection {
        match self {
            Self::Sums { from, to, .. } => Selection { from, to, ..Selection::default() },
            Self::All | Self::Window { .. } => Selection::default(),
        }
    }

    /// Whether `selection` covers exactly the time of the sums. For any other time, only the events that are kept one
    /// by one are known.
    pub(crate) fn is_summed(self, selection: &Selection) -> bool {
        let covered = self.covered();
        (selection.from, selection.to) == (covered.from, covered.to)
    }

    /// Whether something that begins at `at` begins too late for the sums.
    pub(crate) fn is_over(self, at: Nanos) -> bool {
        self.covered().to.is_some_and(|to| at >= to)
    }
}

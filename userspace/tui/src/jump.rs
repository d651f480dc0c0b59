//! What an action on a screen leads to, such as a jump to what a row names.

use pyobs_model::findings::Target;
use pyobs_model::views::Look;
use pyobs_model::{FrameId, Nanos, ProcessRef, Tid};

use crate::scope::Picked;

/// What can be gone to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The row of it on its screen.
    Row(Target),
    /// All that is known of it.
    Detail(Target),
    /// Who calls a frame, and what it calls.
    Frame(FrameId),
    /// What a thread does.
    Thread(Tid),
    Process,
}

impl Place {
    pub(crate) fn target(self) -> Option<Target> {
        match self {
            Self::Row(target) | Self::Detail(target) => Some(target),
            Self::Frame(_) | Self::Thread(_) | Self::Process => None,
        }
    }
}

/// To something, of a process where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Jump {
    pub(crate) process: Option<ProcessRef>,
    pub(crate) place: Place,
    /// What it is of, in a word.
    pub(crate) why: &'static str,
}

impl Jump {
    pub(crate) fn frame(process: Option<ProcessRef>, frame: FrameId) -> Self {
        Self { process, place: Place::Frame(frame), why: "frame" }
    }

    pub(crate) fn thread(process: ProcessRef, tid: Tid) -> Self {
        Self { process: Some(process), place: Place::Thread(tid), why: "thread" }
    }

    pub(crate) fn process(process: ProcessRef) -> Self {
        Self { process: Some(process), place: Place::Process, why: "process" }
    }

    pub(crate) fn detail(process: Option<ProcessRef>, target: Target, why: &'static str) -> Self {
        Self { process, place: Place::Detail(target), why }
    }

    /// Whether it leads into a detail, rather than to a row.
    pub(crate) fn is_into_detail(&self) -> bool {
        matches!(self.place, Place::Detail(_) | Place::Frame(_))
    }

    /// The thread to which it restricts the screens, or `None` within for all threads of the process.
    pub(crate) fn picks(&self) -> Option<Option<Tid>> {
        match self.place {
            Place::Thread(tid) => Some(Some(tid)),
            Place::Process => Some(None),
            _ => None,
        }
    }
}

/// What to do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Nothing,
    /// Arrange the rows again.
    Rows,
    /// Compute the view again.
    View,
    /// Look at stacks in another way, on all screens.
    Look(Look),
    /// Restrict the other screens to a process or thread, and show what it does.
    Pick(Picked),
    Jump(Jump),
    /// Restrict all screens to the time from the one moment to before the other.
    Span(Nanos, Nanos),
    /// Move a replay to this time.
    Seek(Nanos),
}

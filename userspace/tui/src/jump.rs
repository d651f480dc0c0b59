//! What a screen asks of the dashboard after an action, such as a jump to what a row names.

use pyobs_model::findings::Target;
use pyobs_model::views::Look;
use pyobs_model::{FrameId, Nanos, ProcessRef, Tid};

use crate::scope::Picked;

/// Where a jump can lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// The target's row on its screen.
    Row(Target),
    /// The target's detail.
    Detail(Target),
    /// A frame's detail, with its callers and callees.
    Frame(FrameId),
    /// The frames of a thread.
    Thread(Tid),
    /// The frames of a process.
    Process,
}

impl Destination {
    pub(crate) fn target(self) -> Option<Target> {
        match self {
            Self::Row(target) | Self::Detail(target) => Some(target),
            Self::Frame(_) | Self::Thread(_) | Self::Process => None,
        }
    }
}

/// A jump, with the process that its destination belongs to, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Jump {
    pub(crate) process: Option<ProcessRef>,
    pub(crate) destination: Destination,
    /// A word for the breadcrumb: what was followed.
    pub(crate) why: &'static str,
}

impl Jump {
    pub(crate) fn frame(process: Option<ProcessRef>, frame: FrameId) -> Self {
        Self { process, destination: Destination::Frame(frame), why: "frame" }
    }

    pub(crate) fn thread(process: ProcessRef, tid: Tid) -> Self {
        Self { process: Some(process), destination: Destination::Thread(tid), why: "thread" }
    }

    pub(crate) fn process(process: ProcessRef) -> Self {
        Self { process: Some(process), destination: Destination::Process, why: "process" }
    }

    pub(crate) fn detail(process: Option<ProcessRef>, target: Target, why: &'static str) -> Self {
        Self { process, destination: Destination::Detail(target), why }
    }

    /// Whether the jump opens a detail rather than selecting a row.
    pub(crate) fn is_into_detail(&self) -> bool {
        matches!(self.destination, Destination::Detail(_) | Destination::Frame(_))
    }

    /// The thread that the jump restricts the screens to; `Some(None)` for all threads of the process.
    pub(crate) fn picks(&self) -> Option<Option<Tid>> {
        match self.destination {
            Destination::Thread(tid) => Some(Some(tid)),
            Destination::Process => Some(None),
            _ => None,
        }
    }
}

/// What the dashboard has to do after a screen handled an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Nothing,
    /// Arrange the rows again.
    Rows,
    /// Compute the view again.
    View,
    /// Change how all screens look at stacks.
    Look(Look),
    /// Restrict the other screens to a process or thread, and show its frames.
    Pick(Picked),
    Jump(Jump),
    /// Restrict all screens to a span of time, which excludes its end.
    Span(Nanos, Nanos),
    /// Move a replay to this time.
    Seek(Nanos),
}

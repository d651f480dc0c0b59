//! The family `eval`: calls of functions.

use pyobs_model::{Calls, Event, FrameId, Nanos, ProcessRef};

use super::{Reading, Rows};
use crate::Error;
use crate::merge::Merge;
use crate::table::tables;

tables! {
    /// Family `eval`: calls of Python functions.
    #[model]
    Calls in "calls" {
        at as "at_ns": Nanos = "when",
        process: ProcessRef = "`processes.id`",
        function: FrameId = "`frames.id`, whose line is the function's first",
        count: u64 = "calls since the previous row of this function and process; resuming a generator counts as a call",
        timed: u64 = "the calls whose return was seen; the times are theirs",
        total as "total_ns": Nanos = "their total time",
        max as "max_ns": Nanos = "the longest of them",
    }
}

pub(crate) fn read(reading: &mut Reading<'_>, merge: &mut Merge<'_>) -> Result<(), Error> {
    merge.events(reading, Rows::Within, |calls| Some(Event::Calls(calls)))
}

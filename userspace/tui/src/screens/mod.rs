//! One file a screen: its state, what its keys do, how it is drawn.
//!
//! `compute` makes the view out of the model, `arrange` filters and sorts it, `draw` shows the rows in sight.

mod calls;
mod detail;
mod finding;
mod flame;
mod flame_layout;
mod flame_natives;
mod frames;
mod health;
mod memory;
mod overview;
mod page;
mod processes;
mod redundancy;
mod region;
mod thread;
mod timeline;
mod transfers;
mod waits;

pub(crate) use flame::FlameScreen;
pub(crate) use flame_natives::Natives;
pub(crate) use frames::{FramesAside, FramesScreen, process_label};
pub(crate) use health::{HealthScreen, lines as health_lines};
pub(crate) use memory::{MemoryAside, MemoryScreen, Table as MemoryTable};
pub(crate) use overview::OverviewScreen;
pub(crate) use processes::{ProcessesScreen, headline};
pub(crate) use redundancy::{RedundancyAside, RedundancyScreen};
pub(crate) use timeline::TimelineScreen;
pub(crate) use transfers::{TransfersAside, TransfersScreen};
pub(crate) use waits::{Table, WaitsAside, WaitsScreen};

use pyobs_model::Nanos;

use crate::history::Jump;
use crate::ui::Picked;

/// What is to be done after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Nothing,
    /// The rows have to be arranged anew.
    Rows,
    /// The view has to be computed anew.
    View,
    Pick(Picked),
    Jump(Jump),
    /// Only what happened from the one time on, and before the other, is looked at.
    Span(Nanos, Nanos),
    /// A replay goes to this time.
    Seek(Nanos),
}

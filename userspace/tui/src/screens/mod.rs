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
mod timeline;
mod transfers;
mod waits;

pub(crate) use flame::FlameScreen;
pub(crate) use flame_natives::Natives;
pub(crate) use frames::{FramesScreen, process_label};
pub(crate) use health::{HealthScreen, lines as health_lines};
pub(crate) use memory::MemoryScreen;
pub(crate) use overview::OverviewScreen;
pub(crate) use processes::{ProcessesScreen, headline};
pub(crate) use redundancy::RedundancyScreen;
pub(crate) use timeline::TimelineScreen;
pub(crate) use transfers::TransfersScreen;
pub(crate) use waits::{Table, WaitsScreen};

use pyobs_model::findings::Target;
use pyobs_model::{Nanos, ProcessRef};

use crate::ui::Picked;

/// To the row that a finding rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Jump {
    pub(crate) process: Option<ProcessRef>,
    pub(crate) target: Target,
    /// What it is of.
    pub(crate) why: &'static str,
}

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
}

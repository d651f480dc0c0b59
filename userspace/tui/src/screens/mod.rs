//! The screens, one file each: the state, the actions and the drawing. [`Screen`] is what they have in common.

mod finding;
mod flame;
mod frames;
mod health;
mod memory;
mod names;
mod overview;
mod page;
mod processes;
mod redundancy;
mod region;
mod stacks;
mod tasks;
mod timeline;
mod ucx;
mod waits;

pub(crate) use names::process_label;

use pyobs_model::Model;

use crate::screen::Screen;

/// Every screen, in the order of the tabs. The first one is shown first.
pub(crate) fn all(model: &Model) -> Vec<Box<dyn Screen>> {
    vec![
        Box::new(overview::OverviewScreen::default()),
        Box::new(processes::ProcessesScreen::default()),
        Box::new(frames::FramesScreen::default()),
        Box::new(flame::FlameScreen::default()),
        Box::new(waits::WaitsScreen::new(model)),
        Box::new(health::HealthScreen::default()),
        Box::new(memory::MemoryScreen::new(model)),
        Box::new(ucx::UcxScreen::default()),
        Box::new(redundancy::RedundancyScreen::default()),
        Box::new(timeline::TimelineScreen::default()),
        Box::new(tasks::TasksScreen::default()),
    ]
}

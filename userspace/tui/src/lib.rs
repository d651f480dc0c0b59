//! The dashboard: a live or replayed [`Model`](pyobs_model::Model) in a terminal.
//!
//! The flow is one loop ([`run()`]): keys, batches of events and time become messages, `update` changes the
//! state, `draw` shows it. Tables and trees are computed between the two, at most every 500 ms and only for
//! the screen in sight; drawing touches only the rows that are visible. All text of watched processes passes
//! `text.rs` on its way to the terminal, for it may hold anything.

mod app;
mod binding;
mod clock;
mod draw;
mod filter;
mod hit_areas;
mod input;
mod jump;
mod list;
mod navigation;
mod number;
mod paint;
mod replay_log;
mod run;
mod scope;
mod screen;
mod screens;
mod source;
mod table;
mod terminal;
#[cfg(test)]
mod tests;
mod text;
mod theme;
mod ui;

use pyobs_model::{Event, Pid};

pub use input::decode_all;
pub use replay_log::ReplayLog;
pub use run::{replay, run};
pub use theme::Color;

/// How to show a model.
pub struct Options {
    pub source: Source,
    pub color: Color,
    pub source_line: SourceLine,
}

/// Reads a line, counted from 1 on, of a file that a process says its code is from; `None` where it cannot be read.
pub type SourceLine = Box<dyn Fn(Pid, &str, u32) -> Option<String>>;

/// Where the events come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A capture that goes on.
    Live,
    /// A recording, as a [`ReplayLog`].
    Replay { file: String },
}

/// What a capture tells the dashboard.
#[derive(Clone, Debug, PartialEq)]
pub enum Batch {
    Events(Vec<Event>),
    /// One sentence for the status line.
    Note(String),
    /// The capture has stopped, and why: one sentence.
    Failed(String),
}

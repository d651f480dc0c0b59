//! The dashboard: a live or replayed [`Model`](pyobs_model::Model) in a terminal.
//!
//! There is one loop ([`run()`]): keys, batches of events and time become messages, `update` changes the state, `draw` shows
//! it. Tables and trees are computed between the two, at most every 500 ms and only for the current screen; drawing touches
//! only the visible rows. Text from watched processes may contain anything, including control sequences, so all of it passes
//! through `text.rs` on its way to the terminal.

mod app;
mod binding;
mod clock;
mod csv;
mod draw;
mod filter;
mod flight;
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

use std::os::fd::AsFd;

use pyobs_model::{Event, Pid};

pub use flight::FlightRecording;
pub use input::decode_all;
pub use replay_log::{EventSource, Pulled, ReplayLog};
pub use run::{replay, run};
pub use theme::Color;

/// How to show a model.
pub struct Options {
    pub source: Source,
    pub color: Color,
    pub source_line: SourceLine,
    /// `None` leaves signals with their default effect. Then the dashboard keeps the size that the terminal had at the start.
    pub signals: Option<Box<dyn Signals>>,
    pub save: Save,
}

/// What the user wants to keep.
#[derive(Clone, Debug, PartialEq)]
pub enum Saved {
    /// The rows of a screen.
    Rows { of: &'static str, csv: String },
    /// The last minutes of a capture.
    Flight(FlightRecording),
}

/// Writes a file, and returns a sentence about it.
pub type Save = Box<dyn Fn(Saved) -> String>;

/// The signals that a dashboard reacts to. The caller blocks them in every thread, so that they arrive at a descriptor.
pub trait Signals: AsFd + Send {
    /// The next signal that has arrived, if any. The descriptor is readable while there is one.
    fn next_signal(&mut self) -> Option<Signal>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// End the dashboard.
    Quit,
    /// The terminal was resized.
    Resize,
}

/// Reads a line of a process's source file. Lines are counted from 1. Returns `None` if the line cannot be read.
pub type SourceLine = Box<dyn Fn(Pid, &str, u32) -> Option<String>>;

/// Where the events come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A running capture.
    Live,
    /// A recording, as a [`ReplayLog`].
    Replay { file: String },
}

/// What a capture sends to the dashboard.
#[derive(Clone, Debug, PartialEq)]
pub enum Batch {
    Events(Vec<Event>),
    /// One sentence for the status line.
    Note(String),
    /// The capture has stopped. The reason is one sentence.
    Failed(String),
}

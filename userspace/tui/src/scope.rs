//! The time range and the processes that the views cover.

use std::collections::BTreeSet;

use pyobs_model::views::{Look, Weight};
use pyobs_model::{Model, Nanos, ProcessRef, Selection, Tid};

use crate::replay_log::Position;

/// How far back the views look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    Seconds(u64),
    All,
}

impl Window {
    pub(crate) fn next(self) -> Self {
        match self {
            Self::Seconds(10) => Self::Seconds(60),
            Self::Seconds(_) => Self::All,
            Self::All => Self::Seconds(10),
        }
    }

    pub(crate) fn chip(self, position: Option<Position>) -> String {
        match (self, position) {
            (Self::Seconds(seconds), _) => format!("last {seconds} s"),
            (Self::All, None) => "all kept".to_owned(),
            (Self::All, Some(position)) if position.is_at_end() => "whole recording".to_owned(),
            (Self::All, Some(_)) => "from the start".to_owned(),
        }
    }

    /// The window as part of a sentence, with a preposition.
    pub(crate) fn phrase(self) -> String {
        match self {
            Self::Seconds(seconds) => format!("in the last {seconds} s"),
            Self::All => "so far".to_owned(),
        }
    }
}

/// Which time range a screen covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The chosen span, or else the window.
    Window,
    /// The window, with the span marked in it.
    Around,
    /// The chosen span, or else all time.
    Span,
    /// Always all time.
    All,
}

impl Reach {
    pub(crate) fn follows_span(self) -> bool {
        self != Self::All
    }

    pub(crate) fn follows_window(self) -> bool {
        matches!(self, Self::Window | Self::Around)
    }
}

/// The process, or one of its threads, that the other screens are restricted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Picked {
    pub(crate) process: ProcessRef,
    pub(crate) tid: Option<Tid>,
}

/// What the views are computed from.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) selection: Selection,
    /// The duration that the views cover.
    pub(crate) seconds: f64,
    pub(crate) look: Look,
}

impl Scope {
    /// Covers the window that ends now, or that ended when the picture was frozen.
    pub(crate) fn of_window(
        window: Window,
        model: &Model,
        picked: Option<Picked>,
        paused: Option<Nanos>,
        look: Look,
    ) -> Self {
        let end = paused.unwrap_or(model.now());
        let kept = model.cpu().samples();
        let has_forgotten = (kept.size_hint().0 as u64) < model.cpu().total();
        let oldest = kept.take(1).map(|sample| sample.at).next().filter(|_| has_forgotten).unwrap_or(Nanos(0));
        let (from, begin) = match window {
            Window::Seconds(seconds) => {
                let from = end.saturating_sub(Nanos(seconds * 1_000_000_000));
                // The model keeps sums of all samples; other events may be older than the oldest sample.
                let has_others = model.meta().probes.iter().any(|family| family != Weight::Cpu.name());
                ((from > oldest || has_others).then_some(from), from.max(oldest))
            }
            Window::All => (None, oldest),
        };
        let selection = Selection {
            processes: picked.map(|picked| BTreeSet::from([picked.process])),
            tid: picked.and_then(|picked| picked.tid),
            from,
            to: paused.map(|at| Nanos(at.0.saturating_add(1))),
            is_moving: window != Window::All,
            memory: None,
        };
        Self { selection, seconds: end.saturating_sub(begin).as_secs_f64(), look }
    }

    /// Covers a span instead, which excludes its end.
    pub(crate) fn within(self, (from, to): (Nanos, Nanos)) -> Self {
        let selection = Selection { from: Some(from), to: Some(to), is_moving: false, ..self.selection };
        Self { selection, seconds: to.saturating_sub(from).as_secs_f64(), ..self }
    }

    /// The same time range for all processes.
    pub(crate) fn all_processes(&self) -> Selection {
        Selection { processes: None, tid: None, ..self.selection.clone() }
    }
}

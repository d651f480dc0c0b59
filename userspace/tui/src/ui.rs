//! The state that all screens share: what the user chose to see, and the state of the session. Screens only read it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use pyobs_model::findings::{self, Board};
use pyobs_model::views::{By, Look, Native, Weight};
use pyobs_model::{Family, Model, Nanos};
use ratatui::layout::Rect;

use crate::filter::Filter;
use crate::hit_areas::HitAreas;
use crate::replay_log::Position;
use crate::scope::{Picked, Reach, Scope, Window};
use crate::source::Sources;
use crate::theme::Theme;
use crate::{Options, Source};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The capture has not sent anything yet.
    Starting,
    Running,
    Ended,
    Failed(String),
    /// The capture failed before it sent anything.
    NeverStarted(String),
}

/// The pattern being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prompt {
    pub(crate) text: String,
    pub(crate) before: String,
}

pub(crate) struct Ui {
    pub(crate) source: Source,
    pub(crate) theme: Theme,
    pub(crate) phase: Phase,
    /// `None` for a live capture.
    pub(crate) position: Option<Position>,
    pub(crate) size: (u16, u16),
    pub(crate) window: Window,
    /// Replaces the window. Excludes its end.
    pub(crate) span: Option<(Nanos, Nanos)>,
    pub(crate) look: Look,
    /// The time at which the picture was frozen.
    pub(crate) paused: Option<Nanos>,
    pub(crate) picked: Option<Picked>,
    /// By what they filter: [`About::filter`](crate::screen::About).
    filters: BTreeMap<&'static str, Filter>,
    pub(crate) prompt: Option<Prompt>,
    /// The first line in sight of the help, if it is open.
    pub(crate) help: Option<usize>,
    pub(crate) notes: VecDeque<String>,
    /// The age of the newest event, if the capture lags.
    pub(crate) lag: Option<Nanos>,
    /// The latest note, until it has been shown long enough.
    pub(crate) status: Option<(String, Duration)>,
    pub(crate) board: Board,
    pub(crate) hit_areas: HitAreas,
    pub(crate) sources: Sources,
}

const HEADER_LINES: u16 = 2;
/// A terminal with fewer lines has no line for notes.
const STATUS_NEEDS_LINES: u16 = 10;

impl Ui {
    pub(crate) fn new(options: Options, model: &Model) -> Self {
        let is_live = options.source == Source::Live;
        let weight = Weight::ALL.into_iter().find(|weight| weight.is_known(model)).unwrap_or_default();
        Self {
            source: options.source,
            theme: Theme::new(options.color),
            phase: if is_live { Phase::Starting } else { Phase::Running },
            position: None,
            size: (80, 24),
            window: if is_live { Window::Seconds(10) } else { Window::All },
            span: None,
            look: Look { by: By::Line, native: Native::None, weight, ..Look::default() },
            paused: None,
            picked: None,
            filters: BTreeMap::new(),
            prompt: None,
            help: None,
            notes: VecDeque::new(),
            lag: None,
            status: None,
            board: Board::default(),
            hit_areas: HitAreas::default(),
            sources: Sources::new(options.source_line),
        }
    }

    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self.phase, Phase::Starting | Phase::NeverStarted(_))
    }

    /// The text of the line above the footer.
    pub(crate) fn status_line(&self) -> Option<&str> {
        match &self.phase {
            Phase::Failed(why) => Some(why),
            _ => self.status.as_ref().map(|(note, _)| note.as_str()),
        }
    }

    /// The area of the current screen.
    pub(crate) fn body(&self) -> Rect {
        let (width, height) = self.size;
        let below = 1 + u16::from(self.has_status_line());
        Rect::new(0, HEADER_LINES.min(height), width, height.saturating_sub(HEADER_LINES + below))
    }

    pub(crate) fn has_status_line(&self) -> bool {
        self.size.1 >= STATUS_NEEDS_LINES && self.status_line().is_some()
    }

    pub(crate) fn filter(&self, of: Option<&'static str>) -> Option<&Filter> {
        self.filters.get(of?)
    }

    pub(crate) fn set_filter(&mut self, of: Option<&'static str>, text: &str) {
        let Some(of) = of else { return };
        match Filter::new(text) {
            Some(filter) => _ = self.filters.insert(of, filter),
            None => _ = self.filters.remove(of),
        }
    }

    /// The time range that a screen covers, as part of a sentence.
    pub(crate) fn when(&self, reach: Reach) -> String {
        match self.span.filter(|_| reach.follows_span()) {
            Some((from, to)) => format!("from {:.3} s to {:.3} s", from.as_secs_f64(), to.as_secs_f64()),
            None if reach.follows_window() => self.window.phrase(),
            None => Window::All.phrase(),
        }
    }

    pub(crate) fn scope(&self, model: &Model) -> Scope {
        let scope = self.window_scope(model);
        self.span.map_or(scope.clone(), |span| scope.within(span))
    }

    /// The scope without the span: the time in which the user may choose one.
    pub(crate) fn window_scope(&self, model: &Model) -> Scope {
        Scope::of_window(self.window, model, self.picked, self.paused, self.look)
    }

    /// Updates the findings.
    pub(crate) fn update_findings(&mut self, model: &Model) {
        let all_processes = self.scope(model).all_processes();
        self.board.update(self.paused.unwrap_or(model.now()), findings::find(model, &all_processes));
    }

    /// A sentence that says how to start pyobs so that it watches a family.
    pub(crate) fn how_to_see(&self, family: Family) -> String {
        match self.source {
            Source::Live => format!("Start pyobs with --probe +{family} to see them."),
            Source::Replay { .. } => format!("Record with --probe +{family} to see them."),
        }
    }
}

//! What the user has chosen to see.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use pyobs_model::findings::Board;
use pyobs_model::views::{By, Look, Weight};
use pyobs_model::{Model, Nanos, ProcessRef, Selection, Tid};
use ratatui::layout::Rect;

use crate::binding::Context;
use crate::filter::Filter;
use crate::history::Crumb;
use crate::hit_areas::HitAreas;
use crate::replay_log::Position;
use crate::screens::{
    self, FlameScreen, FramesScreen, HealthScreen, MemoryScreen, MemoryTable, OverviewScreen, ProcessesScreen,
    RedundancyScreen, TimelineScreen, TransfersScreen, WaitsScreen,
};
use crate::source::Sources;
use crate::theme::Theme;
use crate::{Options, Source};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tab {
    Overview,
    Processes,
    Frames,
    Flame,
    Waits,
    Health,
    Memory,
    Transfers,
    Redundancy,
    Timeline,
}

impl Tab {
    pub(crate) const ALL: [Self; 10] = [
        Self::Overview,
        Self::Processes,
        Self::Frames,
        Self::Flame,
        Self::Waits,
        Self::Health,
        Self::Memory,
        Self::Transfers,
        Self::Redundancy,
        Self::Timeline,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Processes => "Processes",
            Self::Frames => "Frames",
            Self::Flame => "Flame",
            Self::Waits => "Waits",
            Self::Health => "Health",
            Self::Memory => "Memory",
            Self::Transfers => "Transfers",
            Self::Redundancy => "Redundancy",
            Self::Timeline => "Timeline",
        }
    }

    /// For where there is less room.
    pub(crate) fn short_title(self) -> &'static str {
        match self {
            Self::Overview => "Over",
            Self::Processes => "Procs",
            Self::Transfers => "Xfers",
            Self::Redundancy => "Redund",
            Self::Timeline => "Time",
            _ => self.title(),
        }
    }

    /// The key that shows it.
    pub(crate) fn key(self) -> usize {
        Self::ALL.iter().position(|other| *other == self).unwrap_or(0)
    }

    pub(crate) fn neighbour(self, by: usize) -> Self {
        let at = Self::ALL.iter().position(|tab| *tab == self).unwrap_or(0);
        Self::ALL[(at + by) % Self::ALL.len()]
    }
}

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

    /// As it stands in a sentence, with its preposition.
    pub(crate) fn phrase(self) -> String {
        match self {
            Self::Seconds(seconds) => format!("in the last {seconds} s"),
            Self::All => "so far".to_owned(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing has come from the capture yet.
    Starting,
    Running,
    Ended,
    Failed(String),
    /// It failed before anything came.
    NeverStarted(String),
}

/// The process, or the thread of it, that the other screens are restricted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Picked {
    pub(crate) process: ProcessRef,
    pub(crate) tid: Option<Tid>,
}

/// The pattern being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prompt {
    pub(crate) text: String,
    pub(crate) before: String,
}

/// What the views are computed of.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) selection: Selection,
    /// Length of the time that is looked at.
    pub(crate) seconds: f64,
    pub(crate) look: Look,
}

pub(crate) struct Ui {
    pub(crate) source: Source,
    pub(crate) theme: Theme,
    pub(crate) phase: Phase,
    /// Of a replay.
    pub(crate) position: Option<Position>,
    pub(crate) size: (u16, u16),
    pub(crate) tab: Tab,
    /// The way to the screen in sight; empty where a key of its own has shown it.
    pub(crate) history: Vec<Crumb>,
    pub(crate) window: Window,
    /// A time from the first nanosecond to before the last, in the place of the window.
    pub(crate) span: Option<(Nanos, Nanos)>,
    pub(crate) look: Look,
    /// The time at which the picture was frozen.
    pub(crate) paused: Option<Nanos>,
    pub(crate) picked: Option<Picked>,
    pub(crate) process_filter: Option<Filter>,
    /// Filters Frames and highlights in Flame.
    pub(crate) frame_filter: Option<Filter>,
    pub(crate) wait_filter: Option<Filter>,
    pub(crate) memory_filter: Option<Filter>,
    pub(crate) transfer_filter: Option<Filter>,
    pub(crate) redundancy_filter: Option<Filter>,
    pub(crate) prompt: Option<Prompt>,
    /// The first line in sight, while the help is open.
    pub(crate) help: Option<usize>,
    pub(crate) notes: VecDeque<String>,
    /// How old the newest event of a capture is that is late.
    pub(crate) lag: Option<Nanos>,
    /// The latest note, until it has been shown long enough.
    pub(crate) status: Option<(String, Duration)>,
    pub(crate) board: Board,
    pub(crate) hit_areas: HitAreas,
    pub(crate) sources: Sources,
    pub(crate) overview: OverviewScreen,
    pub(crate) processes: ProcessesScreen,
    pub(crate) frames: FramesScreen,
    pub(crate) flame: FlameScreen,
    pub(crate) waits: WaitsScreen,
    pub(crate) health: HealthScreen,
    pub(crate) memory: MemoryScreen,
    pub(crate) transfers: TransfersScreen,
    pub(crate) redundancy: RedundancyScreen,
    pub(crate) timeline: TimelineScreen,
}

const HEADER_LINES: u16 = 2;
/// A terminal with fewer lines has none to spare for a note of its own.
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
            tab: Tab::Overview,
            history: Vec::new(),
            window: if is_live { Window::Seconds(10) } else { Window::All },
            span: None,
            look: Look { by: By::Line, python_only: true, weight },
            paused: None,
            picked: None,
            process_filter: None,
            frame_filter: None,
            wait_filter: None,
            memory_filter: None,
            transfer_filter: None,
            redundancy_filter: None,
            prompt: None,
            help: None,
            notes: VecDeque::new(),
            lag: None,
            status: None,
            board: Board::default(),
            hit_areas: HitAreas::default(),
            sources: Sources::new(options.source_line),
            overview: OverviewScreen::default(),
            processes: ProcessesScreen::default(),
            frames: FramesScreen::default(),
            flame: FlameScreen::default(),
            waits: WaitsScreen::new(model),
            health: HealthScreen::default(),
            memory: MemoryScreen::new(model),
            transfers: TransfersScreen::default(),
            redundancy: RedundancyScreen::default(),
            timeline: TimelineScreen::default(),
        }
    }

    pub(crate) fn context(&self) -> Context {
        match self.tab {
            _ if self.help.is_some() => Context::Help,
            _ if self.prompt.is_some() => Context::Prompt,
            Tab::Overview => Context::Overview,
            Tab::Processes => Context::Processes,
            Tab::Frames if self.frames.detail().is_some() => Context::Detail,
            Tab::Frames if self.frames.shows_calls() => Context::Calls,
            Tab::Frames => Context::Frames,
            Tab::Flame => Context::Flame,
            Tab::Waits if self.waits.shows_detail() => Context::Wait,
            Tab::Waits => Context::Waits,
            Tab::Health => Context::Health,
            Tab::Memory if self.memory.shows_detail() => Context::Segment,
            Tab::Memory => Context::Memory,
            Tab::Transfers if self.transfers.shows_detail() => Context::Transfer,
            Tab::Transfers => Context::Transfers,
            Tab::Redundancy if self.redundancy.shows_detail() => Context::Accesses,
            Tab::Redundancy => Context::Redundancy,
            Tab::Timeline => Context::Timeline,
        }
    }

    /// Whether there are rows or boxes that a pattern could choose from.
    pub(crate) fn takes_filter(&self) -> bool {
        let context = self.context();
        !context.is_detail() && !matches!(context, Context::Overview | Context::Health | Context::Timeline)
    }

    /// Whether Esc has something to undo here.
    pub(crate) fn has_way_back(&self) -> bool {
        let is_inside = match self.tab {
            Tab::Frames => self.frames.detail().is_some(),
            Tab::Flame => self.flame.is_zoomed(),
            Tab::Waits => self.waits.shows_detail(),
            Tab::Memory => self.memory.shows_detail(),
            Tab::Transfers => self.transfers.shows_detail(),
            Tab::Redundancy => self.redundancy.shows_detail(),
            Tab::Timeline => self.timeline.is_inside(),
            Tab::Overview | Tab::Processes | Tab::Health => false,
        };
        is_inside || !self.history.is_empty() || self.filter().is_some() || self.span.is_some() || self.picked.is_some()
    }

    /// What belongs on the line above the footer.
    pub(crate) fn status_line(&self) -> Option<&str> {
        match &self.phase {
            Phase::Failed(why) => Some(why),
            _ => self.status.as_ref().map(|(note, _)| note.as_str()),
        }
    }

    /// Where the screen of the tab goes.
    pub(crate) fn body(&self) -> Rect {
        let (width, height) = self.size;
        let below = 1 + u16::from(self.has_status_line());
        Rect::new(0, HEADER_LINES.min(height), width, height.saturating_sub(HEADER_LINES + below))
    }

    pub(crate) fn has_status_line(&self) -> bool {
        self.size.1 >= STATUS_NEEDS_LINES && self.status_line().is_some()
    }

    /// Rows of a table with one line of headings.
    pub(crate) fn table_height(&self) -> usize {
        let above = if self.tab == Tab::Processes { screens::headline(self).len() } else { 0 };
        usize::from(self.body().height).saturating_sub(1 + above)
    }

    pub(crate) fn filter(&self) -> Option<&Filter> {
        match self.tab {
            Tab::Processes => self.process_filter.as_ref(),
            Tab::Frames | Tab::Flame => self.frame_filter.as_ref(),
            Tab::Waits => self.wait_filter.as_ref(),
            Tab::Memory => self.memory_filter.as_ref(),
            Tab::Transfers => self.transfer_filter.as_ref(),
            Tab::Redundancy => self.redundancy_filter.as_ref(),
            Tab::Overview | Tab::Health | Tab::Timeline => None,
        }
    }

    pub(crate) fn set_filter(&mut self, text: &str) {
        match self.tab {
            Tab::Processes => self.process_filter = Filter::new(text),
            Tab::Frames | Tab::Flame => self.frame_filter = Filter::new(text),
            Tab::Waits => self.wait_filter = Filter::new(text),
            Tab::Memory => self.memory_filter = Filter::new(text),
            Tab::Transfers => self.transfer_filter = Filter::new(text),
            Tab::Redundancy => self.redundancy_filter = Filter::new(text),
            Tab::Overview | Tab::Health | Tab::Timeline => {}
        }
    }

    /// Whether the screen in sight can be of a span of time. Losses are counted from the beginning on, MemInfos are added up where
    /// they were born, and what processes have in memory is what was seen when somebody looked last.
    pub(crate) fn takes_span(&self) -> bool {
        let is_of_now = matches!(self.memory.table(), MemoryTable::MemInfos | MemoryTable::Processes);
        self.tab != Tab::Health && !(self.tab == Tab::Memory && is_of_now)
    }

    /// And of the window, which moves on. What is redundant takes longer to be proved.
    pub(crate) fn takes_window(&self) -> bool {
        self.takes_span() && self.tab != Tab::Redundancy
    }

    /// The time that is looked at, as it stands in a sentence.
    pub(crate) fn when(&self) -> String {
        match self.span.filter(|_| self.takes_span()) {
            Some((from, to)) => format!("from {:.3} s to {:.3} s", from.as_secs_f64(), to.as_secs_f64()),
            None if self.takes_window() => self.window.phrase(),
            None => Window::All.phrase(),
        }
    }

    pub(crate) fn scope(&self, model: &Model) -> Scope {
        let scope = self.window_scope(model);
        let Some((from, to)) = self.span else { return scope };
        let selection = Selection { from: Some(from), to: Some(to), is_moving: false, ..scope.selection };
        Scope { selection, seconds: to.saturating_sub(from).as_secs_f64(), ..scope }
    }

    /// Of all the time among which a span is chosen.
    pub(crate) fn window_scope(&self, model: &Model) -> Scope {
        let end = self.paused.unwrap_or(model.now());
        let kept = model.cpu().samples();
        let has_forgotten = (kept.size_hint().0 as u64) < model.cpu().total();
        let oldest = kept.take(1).map(|sample| sample.at).next().filter(|_| has_forgotten).unwrap_or(Nanos(0));
        let (from, begin) = match self.window {
            Window::Seconds(seconds) => {
                let from = end.saturating_sub(Nanos(seconds * 1_000_000_000));
                // All the samples that are kept need no adding up; of other events there may be older ones.
                let has_others = model.meta().probes.iter().any(|family| family != Weight::Cpu.name());
                ((from > oldest || has_others).then_some(from), from.max(oldest))
            }
            Window::All => (None, oldest),
        };
        let selection = Selection {
            processes: self.picked.map(|picked| BTreeSet::from([picked.process])),
            tid: self.picked.and_then(|picked| picked.tid),
            from,
            to: self.paused.map(|at| Nanos(at.0.saturating_add(1))),
            is_moving: self.window != Window::All,
        };
        Scope { selection, seconds: end.saturating_sub(begin).as_secs_f64(), look: self.look }
    }
}

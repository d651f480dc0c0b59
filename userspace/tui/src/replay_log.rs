//! Replays a recording: brings the model to any time that the user chooses.
//!
//! A seek forward applies the events in between to the model; a seek backward reads the recording again from the beginning.
//! Both work in slices, so that keys are handled meanwhile. Only the events about to be applied are in memory.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use pyobs_model::{Event, History, Meta, Model, Nanos};

/// Gives the events of a recording: definitions first, then the others in the order of time.
pub trait EventSource {
    /// Starts again with the first event.
    fn restart(&mut self);

    /// Gives the next events. Waits for them, but not longer than `wait`.
    fn next(&mut self, wait: Duration) -> Pulled;
}

/// What a source has to give.
pub enum Pulled {
    Events(Vec<Event>),
    /// The recording has no new events so far.
    Later,
    /// There are no more.
    End,
    /// One sentence on why the recording cannot be read any further.
    Failed(String),
}

/// Events in memory, for short recordings.
#[derive(Default)]
struct InMemory {
    events: Vec<Event>,
    next: usize,
}

impl EventSource for InMemory {
    fn restart(&mut self) {
        self.next = 0;
    }

    fn next(&mut self, _: Duration) -> Pulled {
        let chunk: Vec<Event> = self.events[self.next..].iter().take(CHUNK).cloned().collect();
        self.next += chunk.len();
        if chunk.is_empty() { Pulled::End } else { Pulled::Events(chunk) }
    }
}

/// The events of a recording.
pub struct ReplayLog {
    meta: Meta,
    length: Nanos,
    /// The model of the whole recording, if its events were read before.
    whole: Option<Model>,
    source: Box<dyn EventSource>,
}

impl fmt::Debug for ReplayLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayLog").field("meta", &self.meta).field("length", &self.length).finish_non_exhaustive()
    }
}

impl ReplayLog {
    /// A log of events in memory, in the order in which an [`EventSource`] gives them.
    pub fn of_events(meta: Meta, events: Vec<Event>) -> Self {
        let length = events.iter().filter_map(Event::at).max().unwrap_or_default();
        Self { meta, length, whole: None, source: Box::new(InMemory { events, next: 0 }) }
    }

    /// A log that is read again when the user seeks backward. `whole` is the model of all its events.
    pub fn of_source(whole: Model, source: Box<dyn EventSource>) -> Self {
        Self { meta: whole.meta().clone(), length: whole.now(), whole: Some(whole), source }
    }

    /// The model to start with.
    pub(crate) fn begin(&mut self) -> Model {
        self.whole.take().unwrap_or_else(|| self.blank())
    }

    fn blank(&self) -> Model {
        Model::new(self.meta.clone(), History::REPLAY)
    }
}

/// The speeds of playback, in quarters of real time.
const SPEEDS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const NORMAL: usize = 2;
/// How long a seek may work before keys are handled.
pub(crate) const SLICE: Duration = Duration::from_millis(40);
const CHUNK: usize = 2048;
/// The most that playback advances at once. After the process was stopped, playback continues where it was.
const STEP_MAX: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Motion {
    Stopped,
    Playing,
    /// Seeking another time; the percentage that is done.
    Seeking(u8),
}

/// The state of the player that the screens show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) at: Nanos,
    pub(crate) length: Nanos,
    pub(crate) motion: Motion,
    /// In quarters of real time.
    pub(crate) speed: u32,
}

impl Position {
    pub(crate) fn is_at_end(&self) -> bool {
        self.at >= self.length
    }

    /// `¼×`, `16×`.
    pub(crate) fn speed_words(&self) -> String {
        match self.speed {
            1 => "¼×".to_owned(),
            2 => "½×".to_owned(),
            quarters => format!("{}×", quarters / 4),
        }
    }
}

pub(crate) struct Player {
    log: ReplayLog,
    /// The time to show.
    at: Nanos,
    /// The time that the model has reached.
    reached: Nanos,
    /// Events that the model does not have yet.
    pending: VecDeque<Event>,
    /// Whether the source has no more events.
    is_read: bool,
    /// Why the recording could not be read any further, until it is taken.
    failure: Option<String>,
    is_behind: bool,
    is_playing: bool,
    speed: usize,
    /// When playback advanced last.
    moved: Duration,
}

impl Player {
    /// Starts at the end of the log. Returns the model to start with, too.
    pub(crate) fn new(mut log: ReplayLog) -> (Self, Model) {
        let is_read = log.whole.is_some();
        let model = log.begin();
        let player = Self {
            at: log.length,
            reached: model.now(),
            log,
            pending: VecDeque::new(),
            is_read,
            failure: None,
            is_behind: true,
            is_playing: false,
            speed: NORMAL,
            moved: Duration::ZERO,
        };
        (player, model)
    }

    pub(crate) fn take_failure(&mut self) -> Option<String> {
        self.failure.take()
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }

    pub(crate) fn is_playing(&self) -> bool {
        self.is_playing
    }

    pub(crate) fn position(&self) -> Position {
        let motion = match (self.is_behind, self.is_playing) {
            (true, _) => Motion::Seeking(self.percent()),
            (false, true) => Motion::Playing,
            (false, false) => Motion::Stopped,
        };
        Position { at: self.at, length: self.log.length, motion, speed: SPEEDS[self.speed] }
    }

    /// How much of the time to show the model has reached.
    fn percent(&self) -> u8 {
        let done = if self.at < self.reached { Nanos(0) } else { self.reached };
        (u128::from(done.0) * 100).checked_div(u128::from(self.at.0)).map_or(0, |percent| percent.min(99) as u8)
    }

    pub(crate) fn seek(&mut self, to: Nanos) {
        self.at = to.min(self.log.length);
        self.is_behind = true;
    }

    pub(crate) fn seek_by(&mut self, by: Nanos, is_forward: bool) {
        self.seek(if is_forward { self.at.saturating_add(by) } else { self.at.saturating_sub(by) });
    }

    /// A twentieth of the log, but at least ten seconds.
    pub(crate) fn leap(&self) -> Nanos {
        Nanos((self.log.length.0 / 20).max(10_000_000_000))
    }

    /// Starts or stops playback. At the end of the log, starts from the beginning.
    pub(crate) fn toggle(&mut self, now: Duration) {
        self.is_playing = !self.is_playing;
        self.moved = now;
        if self.is_playing && self.at >= self.log.length {
            self.seek(Nanos(0));
        }
    }

    pub(crate) fn change_speed(&mut self, is_faster: bool) {
        self.speed = if is_faster { (self.speed + 1).min(SPEEDS.len() - 1) } else { self.speed.saturating_sub(1) };
    }

    /// Advances the time during playback, unless the model has not caught up yet.
    pub(crate) fn pass_time(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.moved).min(STEP_MAX);
        self.moved = now;
        if self.is_playing && !self.is_behind {
            let passed = passed * SPEEDS[self.speed] / SPEEDS[NORMAL];
            self.seek_by(Nanos(passed.as_nanos() as u64), true);
            self.is_playing = self.at < self.log.length;
        }
    }

    /// Moves the model towards the time to show, for little longer than `slice`.
    pub(crate) fn work(&mut self, model: &mut Model, slice: Duration) {
        if !self.is_behind {
            return;
        }
        let begun = Instant::now();
        if self.at < self.reached {
            *model = self.log.blank();
            self.log.source.restart();
            self.pending.clear();
            (self.reached, self.is_read) = (Nanos(0), false);
        }
        loop {
            if self.pending.is_empty() && !self.is_read {
                match self.log.source.next(slice.saturating_sub(begun.elapsed())) {
                    Pulled::Events(events) => self.pending = events.into(),
                    Pulled::Later => return,
                    Pulled::End => self.is_read = true,
                    Pulled::Failed(why) => (self.failure, self.is_read) = (Some(why), true),
                }
            }
            // Definitions have no time.
            while let Some(event) = self.pending.pop_front_if(|event| event.at() <= Some(self.at)) {
                model.apply(&event);
                self.reached = self.reached.max(event.at().unwrap_or_default());
            }
            if self.is_read || !self.pending.is_empty() {
                break;
            }
            if begun.elapsed() >= slice {
                return;
            }
        }
        model.advance(self.at);
        self.reached = self.reached.max(self.at);
        self.is_behind = false;
    }
}

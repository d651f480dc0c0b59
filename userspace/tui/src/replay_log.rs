//! Replays a recording: brings the model to any time that the user chooses.
//!
//! The events stay in memory, in the order of time. A seek forward applies the events in between to the model; a seek
//! backward rebuilds the model from the beginning. Both work in slices, so that keys are handled meanwhile.

use std::time::{Duration, Instant};

use pyobs_model::{Event, History, Meta, Model, Nanos};

/// The events of a recording.
#[derive(Debug)]
pub struct ReplayLog {
    meta: Meta,
    definitions: Vec<Event>,
    timed: Vec<Event>,
    length: Nanos,
}

impl ReplayLog {
    pub fn new(meta: Meta) -> Self {
        Self { meta, definitions: Vec::new(), timed: Vec::new(), length: Nanos(0) }
    }

    /// Appends an event. Events that have a time must come in the order of time.
    pub fn push(&mut self, event: Event) {
        match event.at() {
            Some(at) => {
                self.length = self.length.max(at);
                self.timed.push(event);
            }
            None => self.definitions.push(event),
        }
    }

    pub(crate) fn blank(&self) -> Model {
        Model::new(self.meta.clone(), History::All)
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
    /// The index of the first timed event that the model does not have.
    next: usize,
    has_definitions: bool,
    is_behind: bool,
    is_playing: bool,
    speed: usize,
    /// When playback advanced last.
    moved: Duration,
}

impl Player {
    /// Starts at the end of the log.
    pub(crate) fn new(log: ReplayLog) -> Self {
        let at = log.length;
        let reached = Nanos(0);
        Self {
            log,
            at,
            reached,
            next: 0,
            has_definitions: false,
            is_behind: true,
            is_playing: false,
            speed: NORMAL,
            moved: Duration::ZERO,
        }
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

    fn percent(&self) -> u8 {
        let all = self.log.timed.partition_point(|event| event.at() <= Some(self.at));
        let done = if self.at < self.reached { 0 } else { self.next };
        (done * 100).checked_div(all).map_or(0, |percent| percent.min(99) as u8)
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
            (self.reached, self.next, self.has_definitions) = (Nanos(0), 0, false);
        }
        if !self.has_definitions {
            self.log.definitions.iter().for_each(|event| model.apply(event));
            self.has_definitions = true;
        }
        loop {
            let rest = self.log.timed.get(self.next..).unwrap_or_default();
            let due = rest.iter().take(CHUNK).take_while(|event| event.at() <= Some(self.at)).count();
            for event in &rest[..due] {
                model.apply(event);
                self.reached = self.reached.max(event.at().unwrap_or_default());
            }
            self.next += due;
            if due < CHUNK {
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

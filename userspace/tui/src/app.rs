//! The dashboard's state, and how messages (keys, mouse events, batches, ticks) change it.

mod keys;
mod mouse;

use std::time::{Duration, Instant};

use pyobs_model::{Event, Model, Nanos};

use crate::clock::Clock;
use crate::flight::Flight;
use crate::input::{Key, MouseEvent};
use crate::navigation::Navigation;
use crate::replay_log::{Player, ReplayLog, SLICE};
use crate::ui::{Phase, Ui};
use crate::{Batch, Options, Save, Source, draw};

pub(crate) enum Msg {
    Key(Key),
    Mouse(MouseEvent),
    Resize(u16, u16),
    Batch(Batch),
    /// No more batches will come.
    Ended,
    /// Only time has passed.
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    GoOn,
    Quit,
}

const DRAW_INTERVAL: Duration = Duration::from_millis(100);
const COMPUTE_INTERVAL: Duration = Duration::from_millis(500);
/// The share of one core that the dashboard aims for; 1/50 is its limit. Views that are slow to compute are computed less often.
const SHARE: f64 = 1.0 / 60.0;
/// The share that computing gets even if applying events and drawing already use up [`SHARE`].
const COMPUTE_SHARE_MIN: f64 = 1.0 / 200.0;
/// Larger than [`SHARE`], because a replay does not compete with a capture.
const REPLAY_SHARE: f64 = 0.25;
const COMPUTE_INTERVAL_MAX: Duration = Duration::from_secs(10);
const HEARTBEAT: Duration = Duration::from_secs(1);
const NOTE_TIME: Duration = Duration::from_secs(10);
const NOTES_KEPT: usize = 100;
/// The header reports a lag if the newest event is older than this.
const LAG: Nanos = Nanos(2_000_000_000);

/// Which part of the picture is out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stale {
    Nothing,
    /// New events came in: compute the views when their interval has passed.
    Events,
    /// The sort order or the filter changed: arrange the rows, but keep the views.
    Rows,
    /// The user asked for another view: compute it now.
    View,
}

pub(crate) struct App {
    pub(crate) model: Model,
    pub(crate) ui: Ui,
    pub(crate) navigation: Navigation,
    player: Option<Player>,
    /// The last minutes of a live capture.
    flight: Flight,
    save: Save,
    clicked: Option<mouse::Click>,
    stale: Stale,
    has_changed: bool,
    // Moments are durations since the start of the loop.
    drawn: Option<Duration>,
    computed: Duration,
    /// How long the last computation took.
    compute_time: Duration,
    /// Time spent on messages and drawing since the last computation.
    other_time: Duration,
    /// How long after the last computation the next one is due.
    compute_interval: Duration,
    beat: Duration,
    clock: Clock,
    /// The time of the newest event.
    newest: Nanos,
}

impl App {
    pub(crate) fn new(model: Model, mut options: Options, size: (u16, u16)) -> Self {
        let save = std::mem::replace(&mut options.save, Box::new(|_| String::new()));
        let mut ui = Ui::new(options, &model);
        ui.size = size;
        Self {
            navigation: Navigation::new(&model),
            model,
            ui,
            player: None,
            flight: Flight::default(),
            save,
            clicked: None,
            stale: Stale::View,
            has_changed: true,
            drawn: None,
            computed: Duration::ZERO,
            compute_time: Duration::ZERO,
            other_time: Duration::ZERO,
            compute_interval: COMPUTE_INTERVAL,
            beat: Duration::ZERO,
            clock: Clock::default(),
            newest: Nanos(0),
        }
    }

    /// Starts at the end of a recording.
    pub(crate) fn replaying(log: ReplayLog, options: Options, size: (u16, u16)) -> Self {
        let (player, model) = Player::new(log);
        let mut app = Self::new(model, options, size);
        app.player = Some(player);
        app.follow_log(Duration::ZERO);
        app
    }

    pub(crate) fn update(&mut self, msg: Msg, now: Duration) -> Flow {
        match msg {
            Msg::Key(key) => {
                self.has_changed = true;
                let flow = self.key(key, now);
                self.follow_log(now);
                return flow;
            }
            Msg::Mouse(mouse) => {
                let flow = self.mouse(mouse, now);
                self.follow_log(now);
                return flow;
            }
            Msg::Resize(width, height) => {
                self.ui.hit_areas.clear();
                self.ui.size = (width, height);
                // Some views depend on the width: they have a point per column, or wrap text.
                self.mark(Stale::View);
            }
            Msg::Batch(batch) => self.take(batch, now),
            Msg::Ended => {
                if self.ui.source == Source::Live && !matches!(self.ui.phase, Phase::Failed(_) | Phase::NeverStarted(_))
                {
                    self.ui.phase = Phase::Ended;
                }
                self.has_changed = true;
            }
            Msg::Tick => {}
        }
        self.pass_time(now);
        self.follow_log(now);
        Flow::GoOn
    }

    fn take(&mut self, batch: Batch, now: Duration) {
        match batch {
            Batch::Events(events) => {
                for event in &events {
                    self.model.apply(event);
                }
                self.newest = events.iter().filter_map(Event::at).fold(self.newest, Nanos::max);
                self.clock.set(now, self.model.now());
                self.update_lag(now);
                if self.ui.phase == Phase::Starting {
                    self.ui.phase = Phase::Running;
                    self.mark(Stale::View);
                }
                self.stale = self.stale.max(Stale::Events);
                if self.ui.source == Source::Live {
                    self.flight.add(events);
                }
            }
            Batch::Note(note) => {
                self.ui.status = Some((note.clone(), now + NOTE_TIME));
                self.ui.notes.push_back(note);
                if self.ui.notes.len() > NOTES_KEPT {
                    self.ui.notes.pop_front();
                }
                self.has_changed = true;
            }
            Batch::Failed(why) => {
                self.ui.phase = match self.ui.phase {
                    Phase::Starting => Phase::NeverStarted(why),
                    _ => Phase::Failed(why),
                };
                self.has_changed = true;
            }
        }
    }

    /// A healthy capture emits at least one event per second: its cost.
    fn update_lag(&mut self, now: Duration) {
        let lag = self.clock.time(now).map(|time| time.saturating_sub(self.newest));
        self.ui.lag = lag.filter(|lag| *lag > LAG);
    }

    fn is_running_live(&self) -> bool {
        self.ui.source == Source::Live && self.ui.phase == Phase::Running
    }

    fn pass_time(&mut self, now: Duration) {
        if now < self.beat + HEARTBEAT {
            return;
        }
        self.beat = now;
        if self.ui.status.as_ref().is_some_and(|(_, until)| *until <= now) {
            self.ui.status = None;
            self.mark(Stale::Rows);
        }
        if self.is_running_live() {
            if let Some(time) = self.clock.time(now) {
                self.model.advance(time);
            }
            self.update_lag(now);
            self.stale = self.stale.max(Stale::Events);
            self.has_changed = true;
        }
    }

    /// Moves the model towards the replay's position, by at most one slice of work.
    fn follow_log(&mut self, now: Duration) {
        let Some(player) = &mut self.player else { return };
        let was_playing = player.is_playing();
        player.pass_time(now);
        if player.is_behind() {
            player.work(&mut self.model, SLICE);
            let is_user_waiting = !was_playing && !player.is_behind();
            self.stale = self.stale.max(if is_user_waiting { Stale::View } else { Stale::Events });
            self.has_changed = true;
        }
        let failure = player.take_failure();
        self.ui.position = Some(player.position());
        if let Some(why) = failure {
            self.take(Batch::Note(why), now);
        }
    }

    pub(crate) fn is_seeking(&self) -> bool {
        self.player.as_ref().is_some_and(Player::is_behind)
    }

    fn mark(&mut self, stale: Stale) {
        self.stale = self.stale.max(stale);
        self.has_changed = true;
    }

    fn compute_due(&self) -> Duration {
        self.computed + self.compute_interval
    }

    /// Counts time that was spent on a message or on drawing.
    pub(crate) fn account(&mut self, time: Duration) {
        self.other_time += time;
    }

    fn draw_due(&self) -> Duration {
        self.drawn.map_or(Duration::ZERO, |drawn| drawn + DRAW_INTERVAL)
    }

    fn has_new_events(&self) -> bool {
        self.stale == Stale::Events && self.ui.paused.is_none()
    }

    /// When the loop has to wake up even if no message arrives.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let draw = self.has_changed.then(|| self.draw_due());
        let compute = self.has_new_events().then(|| self.compute_due().max(self.draw_due()));
        let beats = self.is_running_live() || self.ui.status.is_some();
        let beat = beats.then(|| self.beat + HEARTBEAT);
        let play = self.player.as_ref().filter(|player| player.is_playing()).map(|_| self.draw_due());
        let seek = self.is_seeking().then_some(Duration::ZERO);
        [draw, compute, beat, play, seek].into_iter().flatten().min()
    }

    pub(crate) fn wants_picture(&self, now: Duration) -> bool {
        let is_due = self.has_changed || (self.has_new_events() && now >= self.compute_due());
        is_due && now >= self.draw_due()
    }

    /// Updates the views that are due. Runs before each picture.
    pub(crate) fn prepare(&mut self, now: Duration) {
        if self.is_seeking() {
            // During a seek the model is in the state of no particular time, so its views would be wrong.
            (self.has_changed, self.drawn) = (false, Some(now));
            return;
        }
        let is_due = self.has_new_events() && (now >= self.compute_due() || self.drawn.is_none());
        match self.stale {
            Stale::View => self.compute(now),
            Stale::Rows => {
                self.arrange();
                // Events may have come in since the views were computed.
                self.stale = Stale::Events;
            }
            Stale::Events if is_due => self.compute(now),
            Stale::Events | Stale::Nothing => {}
        }
        self.has_changed = false;
        self.drawn = Some(now);
    }

    fn compute(&mut self, now: Duration) {
        let begin = Instant::now();
        self.navigation.current_mut().compute(&self.model, &mut self.ui);
        self.arrange();
        self.compute_time = begin.elapsed();
        let taken = self.other_time.as_secs_f64() / now.saturating_sub(self.computed).as_secs_f64().max(1e-9);
        let share = if self.player.is_some() { REPLAY_SHARE } else { SHARE - taken };
        self.compute_interval = interval(self.compute_time, share);
        self.other_time = Duration::ZERO;
        self.computed = now;
        self.stale = Stale::Nothing;
    }

    fn arrange(&mut self) {
        self.navigation.current_mut().arrange(&self.model, &self.ui);
    }

    pub(crate) fn draw(&self, frame: &mut ratatui::Frame<'_>) {
        draw::draw(&self.model, &self.ui, &self.navigation, frame);
    }
}

/// The interval at which work that takes `time` uses no more than `share` of a core.
fn interval(time: Duration, share: f64) -> Duration {
    time.div_f64(share.max(COMPUTE_SHARE_MIN)).clamp(COMPUTE_INTERVAL, COMPUTE_INTERVAL_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_views_are_computed_less_often_within_the_share_that_other_work_leaves() {
        let after = |millis, share| interval(Duration::from_millis(millis), share).as_millis();
        assert_eq!(after(1, SHARE), 500, "the minimum");
        assert_eq!(after(20, SHARE), 1200);
        assert_eq!(after(20, SHARE / 2.0), 2400, "applying events used half of the share");
        assert_eq!(after(20, -0.1), 4000, "computing always gets its minimum share");
        assert_eq!(after(400, SHARE), 10_000, "the maximum");
    }
}

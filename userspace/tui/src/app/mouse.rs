//! Handles the mouse: the wheel moves the selection, a click selects, and a click on the selection opens it.

use std::time::Duration;

use super::{App, Flow};
use crate::binding::Action;
use crate::hit_areas::Hit;
use crate::input::{MouseEvent, MouseEventKind};

const WHEEL_STEPS: usize = 3;
const DOUBLE_CLICK: Duration = Duration::from_millis(400);

/// The first click of what may become a double click.
#[derive(Clone, Copy)]
pub(super) struct Click {
    at: Duration,
    place: (u16, u16),
    has_opened: bool,
}

impl App {
    pub(super) fn mouse(&mut self, mouse: MouseEvent, now: Duration) -> Flow {
        self.has_changed = true;
        let is_help = self.ui.help.is_some();
        match mouse.kind {
            _ if !is_help && self.ui.prompt.is_some() => {}
            MouseEventKind::Press if is_help => self.ui.help = None,
            MouseEventKind::Press => return self.click((mouse.x, mouse.y), now),
            wheel => {
                let action = if wheel == MouseEventKind::WheelUp { Action::Up } else { Action::Down };
                for _ in 0..WHEEL_STEPS {
                    if is_help { self.scroll_help(action) } else { self.act(action, now) }
                }
                // The rows have moved since they were drawn.
                self.ui.hit_areas.clear();
            }
        }
        Flow::GoOn
    }

    fn click(&mut self, place: (u16, u16), now: Duration) -> Flow {
        let before = self.clicked.take();
        if let Some(before) = before.filter(|click| click.place == place && now < click.at + DOUBLE_CLICK) {
            if !before.has_opened {
                self.act(Action::Open, now);
                self.ui.hit_areas.clear();
            }
            return Flow::GoOn;
        }
        let Some((hit, column)) = self.ui.hit_areas.at(place.0, place.1) else { return Flow::GoOn };
        self.ui.hit_areas.clear();
        let has_opened = match hit {
            Hit::Key(Action::Quit) => return Flow::Quit,
            Hit::Key(action) => {
                self.act(action, now);
                return Flow::GoOn;
            }
            Hit::Tab(at) => {
                self.show(at);
                return Flow::GoOn;
            }
            Hit::Crumb(steps) => {
                self.back_to(steps);
                return Flow::GoOn;
            }
            Hit::Row(steps) => self.step_to(steps, now),
            Hit::Part(part) => {
                let is_selected = self.navigation.current_mut().click(part, column, &self.model, &self.ui);
                if is_selected {
                    self.act(Action::Open, now);
                }
                is_selected
            }
        };
        self.clicked = Some(Click { at: now, place, has_opened });
        Flow::GoOn
    }

    /// Moves the selection by `steps` rows, or opens the selected row if `steps` is 0. Returns whether it opened the row.
    fn step_to(&mut self, steps: isize, now: Duration) -> bool {
        let action = if steps < 0 { Action::Up } else { Action::Down };
        for _ in 0..steps.unsigned_abs() {
            self.act(action, now);
        }
        if steps == 0 {
            self.act(Action::Open, now);
        }
        steps == 0
    }
}

//! Handles keys: looks them up in the key tables and performs their actions.

use std::time::Duration;

use pyobs_model::Nanos;
use pyobs_model::findings::Board;

use super::{App, Flow, Stale};
use crate::binding::{self, Action};
use crate::input::Key;
use crate::jump::{Destination, Effect};
use crate::ui::Prompt;
use crate::{Batch, Saved, Source, csv, draw};

const PATTERN_MAX: usize = 200;
const SECOND: Nanos = Nanos(1_000_000_000);

impl App {
    pub(super) fn key(&mut self, key: Key, now: Duration) -> Flow {
        self.ui.hit_areas.clear();
        let (is_help, is_prompt) = (self.ui.help.is_some(), self.ui.prompt.is_some());
        match (binding::action(&self.navigation.keys(&self.ui), key), key) {
            (Some(Action::Quit), _) => return Flow::Quit,
            (Some(action), _) if is_help => self.scroll_help(action),
            (Some(action), _) if is_prompt => self.edit(action),
            (Some(action), _) => self.act(action, now),
            (None, _) if is_help => {}
            (None, Key::Char(c)) if is_prompt => self.edit_pattern(|text| {
                if text.chars().count() < PATTERN_MAX {
                    text.push(c);
                }
            }),
            (None, key) => {
                if let Some(at) = self.navigation.screen_of_key(key).filter(|_| !is_prompt) {
                    self.show(at);
                }
            }
        }
        Flow::GoOn
    }

    pub(super) fn act(&mut self, action: Action, now: Duration) {
        match action {
            _ if self.play(action, now) => {}
            Action::NextScreen => self.show(self.navigation.neighbour(1)),
            Action::PreviousScreen => self.show(self.navigation.neighbour(-1)),
            Action::Help => self.ui.help = Some(0),
            Action::Pause => {
                self.ui.board = Board::default();
                self.ui.paused = match self.ui.paused {
                    Some(_) => None,
                    None => Some(self.model.now()),
                };
                self.mark(Stale::View);
            }
            Action::Window => {
                self.ui.board = Board::default();
                self.ui.span = None;
                self.ui.window = self.ui.window.next();
                self.mark(Stale::View);
            }
            Action::Filter if self.navigation.takes_filter() => {
                let filter = self.ui.filter(self.navigation.current().about().filter);
                let before = filter.map(|filter| filter.text().to_owned()).unwrap_or_default();
                self.ui.prompt = Some(Prompt { text: before.clone(), before });
            }
            Action::Back => self.back(),
            Action::SaveRows => self.save_rows(now),
            Action::SaveFlight => self.save_flight(now),
            action => self.act_on_screen(action),
        }
    }

    fn save_rows(&mut self, now: Duration) {
        let screen = self.navigation.current();
        let of = screen.about().title;
        let note = match screen.cells(&self.model, &self.ui) {
            Some(cells) => (self.save)(Saved::Rows { of, csv: csv::lines(cells) }),
            None => format!("{of} shows no table now, so there are no rows to write"),
        };
        self.take(Batch::Note(note), now);
    }

    fn save_flight(&mut self, now: Duration) {
        let note = match self.flight.recording().filter(|_| self.ui.source == Source::Live) {
            Some(recording) => (self.save)(Saved::Flight(recording)),
            None if self.ui.source == Source::Live => "there are too many stacks to write a recording".to_owned(),
            None => "this is a recording already".to_owned(),
        };
        self.take(Batch::Note(note), now);
    }

    /// Performs an action of the replay's player. Returns false if it is no such action, or if this is not a replay.
    fn play(&mut self, action: Action, now: Duration) -> bool {
        let Some(player) = &mut self.player else { return false };
        match action {
            Action::Pause => player.toggle(now),
            Action::SeekBack | Action::SeekForward => player.seek_by(SECOND, action == Action::SeekForward),
            Action::LeapBack | Action::LeapForward => player.seek_by(player.leap(), action == Action::LeapForward),
            Action::SeekStart => player.seek(Nanos(0)),
            Action::SeekEnd => player.seek(Nanos(u64::MAX)),
            Action::Slower | Action::Faster => player.change_speed(action == Action::Faster),
            _ => return false,
        }
        true
    }

    pub(super) fn show(&mut self, at: usize) {
        self.navigation.show(at);
        self.mark(Stale::View);
    }

    fn act_on_screen(&mut self, action: Action) {
        let effect = self.navigation.current_mut().act(action, &self.model, &self.ui);
        match effect {
            Effect::Nothing => {}
            Effect::Rows => self.mark(Stale::Rows),
            Effect::View => self.mark(Stale::View),
            Effect::Pick(picked) => {
                self.ui.picked = Some(picked);
                self.navigation.show_destination(Destination::Process);
                self.mark(Stale::View);
            }
            Effect::Look(look) => {
                self.ui.look = look;
                self.mark(Stale::View);
            }
            Effect::Jump(jump) => {
                self.navigation.follow_jump(jump, &mut self.ui);
                self.mark(Stale::View);
            }
            Effect::Span(from, to) => self.restrict(Some((from, to))),
            Effect::Seek(to) => {
                if let Some(player) = &mut self.player {
                    player.seek(to);
                }
            }
        }
    }

    fn restrict(&mut self, span: Option<(Nanos, Nanos)>) {
        self.ui.span = span;
        self.ui.board = Board::default();
        self.mark(Stale::View);
    }

    /// Goes back along the breadcrumb until `steps` steps are left. If there are no more, closes the screen's details.
    pub(super) fn back_to(&mut self, steps: usize) {
        if self.navigation.steps() == steps {
            self.navigation.close_details(&self.ui);
        }
        while self.navigation.steps() > steps {
            self.navigation.go_back(&mut self.ui);
        }
        self.mark(Stale::View);
    }

    /// Undoes one thing: an open detail or a jump, else the filter, the span or the selected process, in this order.
    fn back(&mut self) {
        let (ui, navigation) = (&mut self.ui, &mut self.navigation);
        if navigation.was_opened_by_jump() && navigation.go_back(ui) {
            return self.mark(Stale::View);
        }
        let filter = navigation.current().about().filter;
        if navigation.current_mut().close(ui) || navigation.go_back(ui) {
            self.mark(Stale::View);
        } else if ui.filter(filter).is_some() {
            ui.set_filter(filter, "");
            self.mark(Stale::Rows);
        } else if ui.span.is_some() {
            self.restrict(None);
        } else if ui.picked.take().is_some() {
            self.mark(Stale::View);
        }
    }

    fn edit(&mut self, action: Action) {
        match action {
            Action::Accept => self.ui.prompt = None,
            Action::Cancel => {
                if let Some(prompt) = self.ui.prompt.take() {
                    self.ui.set_filter(self.navigation.current().about().filter, &prompt.before);
                    self.mark(Stale::Rows);
                }
            }
            Action::Erase => self.edit_pattern(|text| {
                text.pop();
            }),
            Action::EraseAll => self.edit_pattern(String::clear),
            _ => {}
        }
    }

    fn edit_pattern(&mut self, edit: impl FnOnce(&mut String)) {
        if let Some(prompt) = &mut self.ui.prompt {
            edit(&mut prompt.text);
            let text = prompt.text.clone();
            self.ui.set_filter(self.navigation.current().about().filter, &text);
            self.mark(Stale::Rows);
        }
    }

    pub(super) fn scroll_help(&mut self, action: Action) {
        let Some(top) = self.ui.help else { return };
        let page = usize::from(self.ui.size.1).saturating_sub(4).max(1);
        let last = draw::help_scroll_max(&self.ui, &self.navigation);
        self.ui.help = match action {
            Action::Up => Some(top.saturating_sub(1)),
            Action::Down => Some((top + 1).min(last)),
            Action::PageUp => Some(top.saturating_sub(page)),
            Action::PageDown => Some((top + page).min(last)),
            _ => None,
        };
    }
}

//! What keys do.

use std::time::Duration;

use pyobs_model::Nanos;
use pyobs_model::findings::Board;
use pyobs_model::views::{By, Weight};
use ratatui::layout::Rect;

use super::{App, Flow, Stale};
use crate::binding::{self, Action, Context};
use crate::draw;
use crate::history::Jump;
use crate::input::Key;
use crate::screens::Outcome;
use crate::ui::{Prompt, Tab, Ui};

const PATTERN_MAX: usize = 200;
const SECOND: Nanos = Nanos(1_000_000_000);

impl App {
    pub(super) fn key(&mut self, key: Key, now: Duration) -> Flow {
        self.ui.hit_areas.clear();
        let context = self.ui.context();
        match binding::action(context, key) {
            Some(Action::Quit) => return Flow::Quit,
            Some(action) if context == Context::Help => self.scroll_help(action),
            Some(action) if context == Context::Prompt => self.edit(action),
            Some(action) => self.act(action, now),
            None => {
                if let (Context::Prompt, Key::Char(c)) = (context, key) {
                    self.edit_pattern(|text| {
                        if text.chars().count() < PATTERN_MAX {
                            text.push(c);
                        }
                    });
                }
            }
        }
        Flow::GoOn
    }

    pub(super) fn act(&mut self, action: Action, now: Duration) {
        match action {
            _ if self.play(action, now) => {}
            Action::ShowOverview => self.show(Tab::Overview),
            Action::ShowProcesses => self.show(Tab::Processes),
            Action::ShowFrames => self.show(Tab::Frames),
            Action::ShowFlame => self.show(Tab::Flame),
            Action::ShowWaits => self.show(Tab::Waits),
            Action::ShowHealth => self.show(Tab::Health),
            Action::ShowMemory => self.show(Tab::Memory),
            Action::ShowTransfers => self.show(Tab::Transfers),
            Action::ShowRedundancy => self.show(Tab::Redundancy),
            Action::ShowTimeline => self.show(Tab::Timeline),
            Action::NextScreen => self.show(self.ui.tab.neighbour(1)),
            Action::PreviousScreen => self.show(self.ui.tab.neighbour(Tab::ALL.len() - 1)),
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
            Action::By => {
                self.ui.look.by = match self.ui.look.by {
                    By::Line => By::Function,
                    By::Function => By::Line,
                };
                self.mark(Stale::View);
            }
            Action::Measure if !matches!(self.ui.tab, Tab::Waits | Tab::Memory | Tab::Transfers) => {
                let at = Weight::ALL.iter().position(|weight| *weight == self.ui.look.weight).unwrap_or(0);
                let others = Weight::ALL.iter().cycle().skip(at + 1).take(Weight::ALL.len());
                if let Some(next) = others.copied().find(|weight| weight.is_known(&self.model)) {
                    self.ui.look.weight = next;
                }
                self.mark(Stale::View);
            }
            Action::Fold if self.ui.tab != Tab::Flame => {
                self.ui.look.python_only = !self.ui.look.python_only;
                self.mark(Stale::View);
            }
            Action::Filter if self.ui.takes_filter() => {
                let before = self.ui.filter().map(|filter| filter.text().to_owned()).unwrap_or_default();
                self.ui.prompt = Some(Prompt { text: before.clone(), before });
            }
            Action::Back => self.back(),
            action => self.act_on_screen(action),
        }
    }

    /// Whether it is a replay that the action moves.
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

    pub(super) fn show(&mut self, tab: Tab) {
        self.ui.history.clear();
        self.ui.tab = tab;
        self.mark(Stale::View);
    }

    fn act_on_screen(&mut self, action: Action) {
        let (body, height) = (self.ui.body(), self.ui.table_height());
        let ui = &mut self.ui;
        let outcome = match ui.tab {
            Tab::Overview => ui.overview.act(action, &ui.board, body),
            Tab::Processes => ui.processes.act(action, height),
            Tab::Frames => ui.frames.act(action, height),
            Tab::Flame => ui.flame.act(action, body),
            Tab::Waits => ui.waits.act(action, body),
            Tab::Memory => ui.memory.act(action, body),
            Tab::Transfers => ui.transfers.act(action, body),
            Tab::Redundancy => ui.redundancy.act(action, body),
            Tab::Timeline => ui.timeline.act(action, &self.model, &ui.board, body),
            Tab::Health => ui.health.act(action, draw::health_lines(&self.model, ui).len(), usize::from(body.height)),
        };
        match outcome {
            Outcome::Nothing => {}
            Outcome::Rows => self.mark(Stale::Rows),
            Outcome::View => self.mark(Stale::View),
            Outcome::Pick(picked) => {
                self.ui.picked = Some(picked);
                self.show(Tab::Frames);
            }
            Outcome::Jump(jump) => self.jump(jump),
            Outcome::Span(from, to) => self.restrict(Some((from, to))),
            Outcome::Seek(to) => {
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

    fn jump(&mut self, jump: Jump) {
        self.ui.leave_for(jump);
        self.mark(Stale::View);
    }

    /// Back along the breadcrumb, until so many steps are left; from a detail to its screen, where there is no more of them.
    pub(super) fn back_to(&mut self, steps: usize) {
        let body = self.ui.body();
        if self.ui.history.len() == steps {
            while self.ui.context().is_detail() && close_detail(&mut self.ui, body) {}
        }
        while self.ui.history.len() > steps {
            self.ui.return_to_crumb();
        }
        self.mark(Stale::View);
    }

    /// Undoes the latest restriction that can be seen.
    fn back(&mut self) {
        let body = self.ui.body();
        let ui = &mut self.ui;
        if ui.is_straight_from_elsewhere() && ui.return_to_crumb() {
            return self.mark(Stale::View);
        }
        if close_detail(ui, body) || ui.return_to_crumb() {
            self.mark(Stale::View);
        } else if ui.filter().is_some() {
            ui.set_filter("");
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
                    self.ui.set_filter(&prompt.before);
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
            self.ui.set_filter(&text);
            self.mark(Stale::Rows);
        }
    }

    pub(super) fn scroll_help(&mut self, action: Action) {
        let Some(top) = self.ui.help else { return };
        let page = usize::from(self.ui.size.1).saturating_sub(4).max(1);
        let last = draw::help_scroll_max(&self.ui);
        self.ui.help = match action {
            Action::Up => Some(top.saturating_sub(1)),
            Action::Down => Some((top + 1).min(last)),
            Action::PageUp => Some(top.saturating_sub(page)),
            Action::PageDown => Some((top + page).min(last)),
            _ => None,
        };
    }
}

/// Closes what is open on the screen in sight; whether anything was.
fn close_detail(ui: &mut Ui, body: Rect) -> bool {
    match ui.tab {
        Tab::Frames => ui.frames.close_detail(),
        Tab::Flame => ui.flame.zoom_out(body),
        Tab::Waits => ui.waits.close_detail(),
        Tab::Memory => ui.memory.close_detail(),
        Tab::Transfers => ui.transfers.close_detail(),
        Tab::Redundancy => ui.redundancy.close_detail(),
        Tab::Timeline => ui.timeline.close(),
        Tab::Overview | Tab::Processes | Tab::Health => false,
    }
}

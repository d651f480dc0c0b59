//! The footer: the latest note, and hints for the keys that work now.

use pyobs_model::Model;
use pyobs_model::views::By;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::binding::{self, Action, Binding};
use crate::hit_areas::Hit;
use crate::navigation::Navigation;
use crate::paint::{put, put_path};
use crate::replay_log::Motion;
use crate::text;
use crate::ui::{Phase, Ui};

pub(super) fn draw(model: &Model, ui: &Ui, navigation: &Navigation, area: Rect, buf: &mut Buffer) {
    let mut line = Rect { height: area.height.min(1), ..area };
    if ui.has_status_line() && area.height > 1 {
        let style = if matches!(ui.phase, Phase::Failed(_)) { ui.theme.warning() } else { ui.theme.text() };
        put(buf, line, 1, 0, ui.status_line().unwrap_or_default(), style);
        line.y += 1;
    }
    match &ui.prompt {
        Some(prompt) => draw_prompt(ui, navigation, &prompt.text, line, buf),
        None => draw_hints(model, ui, navigation, line, buf),
    }
}

fn draw_prompt(ui: &Ui, navigation: &Navigation, pattern: &str, area: Rect, buf: &mut Buffer) {
    let theme = ui.theme;
    let told = match ui.filter(navigation.current().about().filter) {
        Some(filter) if !filter.is_valid() => "not a regex: taken as plain text",
        _ => "Enter keeps, Esc cancels",
    };
    let right = text::width(told, usize::from(area.width) / 2);
    let x = put(buf, area, 1, 0, "/", theme.key());
    let room = Rect { width: area.width.saturating_sub(right as u16 + 3), ..area };
    // Truncate the beginning, because users type at the end.
    let x = put_path(buf, room, x, 0, pattern, theme.strong());
    put(buf, area, x, 0, "█", theme.text());
    put(buf, area, area.width.saturating_sub(right as u16 + 1), 0, &text::fit(told, right), theme.dim());
}

fn draw_hints(model: &Model, ui: &Ui, navigation: &Navigation, area: Rect, buf: &mut Buffer) {
    let tables = navigation.keys(ui);
    let bindings = tables.iter().flat_map(|keys| keys.bindings);
    let all = bindings.map(|binding| Hint::of(binding, model, ui, navigation)).filter(|hint| !hint.words.is_empty());
    let (last, others): (Vec<Hint>, Vec<Hint>) = all.partition(|it| matches!(it.action, Action::Help | Action::Quit));
    let width_of_last: usize = last.iter().map(Hint::width).sum();
    let mut x = 1;
    let room = usize::from(area.width).saturating_sub(width_of_last + 1);
    for hint in others {
        if usize::from(x) + hint.width() > room {
            break;
        }
        x = hint.draw(ui, area, x, buf);
    }
    let mut x = area.width.saturating_sub(width_of_last as u16);
    for hint in last {
        x = hint.draw(ui, area, x, buf);
    }
}

/// A key, and a word for what it does now.
struct Hint {
    action: Action,
    key: String,
    words: &'static str,
}

impl Hint {
    fn of(binding: &Binding, model: &Model, ui: &Ui, navigation: &Navigation) -> Self {
        let screen = navigation.current();
        let usual = match binding.action {
            Action::Back if !navigation.can_go_back(ui) && ui.help.is_none() => "",
            Action::Filter if !navigation.takes_filter() => "",
            Action::Window if !screen.reach().follows_window() && ui.span.is_none() => "",
            Action::Pause if ui.position.is_some_and(|position| position.motion == Motion::Playing) => "stop",
            Action::Pause if ui.position.is_some() => "play",
            Action::Pause if ui.paused.is_some() => "go on",
            Action::By if ui.look.by == By::Line => "functions",
            _ => binding.hint,
        };
        let words = screen.hint(binding.action, usual, model, ui);
        Self { action: binding.action, key: binding::label(binding.keys[0]), words }
    }

    fn width(&self) -> usize {
        self.key.chars().count() + self.words.chars().count() + 3
    }

    fn draw(&self, ui: &Ui, area: Rect, x: u16, buf: &mut Buffer) -> u16 {
        let after = put(buf, area, x, 0, &self.key, ui.theme.key());
        let end = put(buf, area, after + 1, 0, self.words, ui.theme.dim());
        ui.hit_areas.add(Rect { x: area.x + x, width: end.saturating_sub(x), ..area }, Hit::Key(self.action));
        end + 2
    }
}

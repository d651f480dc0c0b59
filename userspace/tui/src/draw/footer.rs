//! The latest note, and the keys that mean something here.

use pyobs_model::Model;
use pyobs_model::views::Weight;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::put;
use crate::binding::{self, Action, Binding};
use crate::hit_areas::Hit;
use crate::replay_log::Motion;
use crate::screens::{Natives, Table};
use crate::text;
use crate::ui::{Phase, Tab, Ui};

pub(super) fn draw(model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
    let mut line = Rect { height: area.height.min(1), ..area };
    if ui.has_status_line() && area.height > 1 {
        let style = if matches!(ui.phase, Phase::Failed(_)) { ui.theme.warning() } else { ui.theme.text() };
        put(buf, line, 1, 0, ui.status_line().unwrap_or_default(), style);
        line.y += 1;
    }
    match &ui.prompt {
        Some(prompt) => draw_prompt(ui, &prompt.text, line, buf),
        None => draw_hints(model, ui, line, buf),
    }
}

fn draw_prompt(ui: &Ui, pattern: &str, area: Rect, buf: &mut Buffer) {
    let theme = ui.theme;
    let told = match ui.filter() {
        Some(filter) if !filter.is_valid() => "no regex: taken as plain text",
        _ => "Enter keeps, Esc cancels",
    };
    let right = text::width(told, usize::from(area.width) / 2);
    let x = put(buf, area, 1, 0, "/", theme.key());
    let room = Rect { width: area.width.saturating_sub(right as u16 + 3), ..area };
    // The end is where one types.
    let x = super::put_path(buf, room, x, 0, pattern, theme.strong());
    put(buf, area, x, 0, "█", theme.text());
    put(buf, area, area.width.saturating_sub(right as u16 + 1), 0, &text::fit(told, right), theme.dim());
}

fn draw_hints(model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
    let context = ui.context();
    let all: Vec<&Binding> =
        context.chain().into_iter().flat_map(binding::of).filter(|binding| is_shown(model, ui, binding)).collect();
    let is_last = |binding: &&&Binding| matches!(binding.action, Action::Help | Action::Quit);
    let last: Vec<&Binding> = all.iter().filter(is_last).copied().collect();
    let width_of_last: usize = last.iter().map(|binding| width(ui, binding)).sum();
    let mut x = 1;
    let room = usize::from(area.width).saturating_sub(width_of_last + 1);
    for binding in all.iter().filter(|binding| !is_last(binding)) {
        if usize::from(x) + width(ui, binding) > room {
            break;
        }
        x = hint(ui, binding, area, x, buf);
    }
    let mut x = area.width.saturating_sub(width_of_last as u16);
    for binding in last {
        x = hint(ui, binding, area, x, buf);
    }
}

fn is_shown(model: &Model, ui: &Ui, binding: &Binding) -> bool {
    let means_something = match binding.action {
        Action::Back => ui.has_way_back() || ui.help.is_some(),
        Action::Filter => ui.takes_filter(),
        Action::Open if ui.tab == Tab::Overview => !ui.board.is_empty(),
        Action::Window => ui.takes_window() || ui.span.is_some(),
        Action::Measure if matches!(ui.tab, Tab::Waits | Tab::Memory | Tab::Transfers) => true,
        Action::Measure => Weight::ALL.iter().filter(|weight| weight.is_known(model)).count() > 1,
        Action::Calls => model.is_on("eval") || ui.frames.shows_calls(),
        _ => true,
    };
    means_something && !binding.hint.is_empty()
}

fn words(ui: &Ui, binding: &Binding) -> (String, &'static str) {
    let words = match binding.action {
        Action::Pause if ui.position.is_some_and(|position| position.motion == Motion::Playing) => "stop",
        Action::Pause if ui.position.is_some() => "play",
        Action::Pause if ui.paused.is_some() => "go on",
        Action::By if ui.look.by == pyobs_model::views::By::Line => "functions",
        Action::Fold if ui.tab == Tab::Flame => match ui.flame.natives().next() {
            Natives::Leaf => "leaf native",
            Natives::None => "no native",
            Natives::All => "all native",
        },
        Action::Fold if ui.look.python_only => "native",
        Action::Measure if ui.tab == Tab::Waits && ui.waits.table() == Table::Gil => "all waits",
        Action::Measure if ui.tab == Tab::Transfers && ui.transfers.shows_workers() => "transfers",
        Action::Measure if ui.tab == Tab::Memory => ui.memory.table().next().title(),
        Action::Calls if ui.frames.shows_calls() => "samples",
        Action::Mark if ui.timeline.is_marking() => "end span",
        Action::Open if ui.tab == Tab::Timeline && ui.timeline.is_marking() => "end span",
        _ => binding.hint,
    };
    (binding::label(binding.keys[0]), words)
}

fn width(ui: &Ui, binding: &Binding) -> usize {
    let (key, words) = words(ui, binding);
    key.chars().count() + words.chars().count() + 3
}

fn hint(ui: &Ui, binding: &Binding, area: Rect, x: u16, buf: &mut Buffer) -> u16 {
    let (key, words) = words(ui, binding);
    let after = put(buf, area, x, 0, &key, ui.theme.key());
    let end = put(buf, area, after + 1, 0, words, ui.theme.dim());
    ui.hit_areas.add(Rect { x: area.x + x, width: end.saturating_sub(x), ..area }, Hit::Key(binding.action));
    end + 2
}

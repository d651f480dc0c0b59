//! The message in the body of an empty screen: why it is empty, and what to do.

use pyobs_model::{Family, Model};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::Source;
use crate::number;
use crate::paint::put;
use crate::replay_log::{Motion, Position};
use crate::scope::{Reach, Window};
use crate::screen::Screen;
use crate::screens::process_label;
use crate::text;
use crate::ui::{Phase, Ui};

pub(super) struct Message {
    title: String,
    help: String,
}

fn message(title: impl Into<String>, help: impl Into<String>) -> Option<Message> {
    Some(Message { title: title.into(), help: help.into() })
}

/// The message to draw instead of the screen, if the screen has nothing to show.
pub(super) fn instead_of(model: &Model, ui: &Ui, screen: &dyn Screen) -> Option<Message> {
    if let Some(Position { motion: Motion::Seeking(percent), at, length, .. }) = ui.position {
        let title = format!("On the way to {}", number::clock(at, length));
        return message(title, format!("{percent} % of the events before it have been read again."));
    }
    if !screen.is_empty(model, ui) {
        return None;
    }
    let is_live = ui.source == Source::Live && ui.phase == Phase::Running;
    let pythons = model
        .processes()
        .filter(|(_, state)| state.process.python.is_some() && (state.ended.is_none() || !is_live))
        .count() as u64;
    let family_off = screen.family(ui).filter(|family| !model.is_on(*family));
    match (&ui.phase, family_off, ui.filter(screen.about().filter)) {
        (Phase::Starting, ..) => {
            message("Starting", "Loading the probes and looking for Python processes. This takes about a second.")
        }
        (Phase::NeverStarted(why), ..) => message("The capture did not start", why.clone()),
        (_, Some(family), _) => off(model, ui, family),
        (_, _, Some(filter)) if screen.has_rows() => {
            message(format!("Nothing matches /{}", filter.text()), "Esc clears the filter, / changes it.")
        }
        _ if pythons == 0 && is_live && has_python(model) => message(
            "No Python process any more",
            format!("The last one has ended. Another one appears here within a second.{}", wider(ui, screen.reach())),
        ),
        _ if pythons == 0 && is_live => {
            message("No Python process yet", "Start one: it appears here within a second, whatever its name.")
        }
        _ if pythons == 0 => message("No Python process", "None ran while this was captured."),
        _ => nothing(model, ui, screen, pythons, is_live),
    }
}

fn has_python(model: &Model) -> bool {
    model.processes().any(|(_, state)| state.process.python.is_some())
}

fn off(model: &Model, ui: &Ui, family: Family) -> Option<Message> {
    let refused = model.meta().refused.iter().find(|refused| refused.family == family.name());
    let help = match refused {
        Some(refused) => format!("The family {family} is unavailable: {}.", refused.reason),
        None => format!("The family {family} is off. {}", ui.how_to_see(family)),
    };
    message(format!("{} are not watched", family.what()), help)
}

fn nothing(model: &Model, ui: &Ui, screen: &dyn Screen, pythons: u64, is_live: bool) -> Option<Message> {
    let when = ui.when(screen.reach());
    let Some((what, why)) = screen.empty(ui) else { return no_samples(model, ui, screen.reach(), pythons, is_live) };
    let of = ui.picked.map(|picked| format!(" of {}", text::fit(&process_label(model, Some(picked.process)), 60)));
    message(format!("No {what}{} {when}", of.unwrap_or_default()), format!("{why}{}", wider(ui, screen.reach())))
}

/// The keys that would show more, as a sentence.
fn wider(ui: &Ui, reach: Reach) -> &'static str {
    let looks_back = reach.follows_window() && ui.window != Window::All;
    match (ui.picked.is_some(), looks_back) {
        _ if reach.follows_span() && ui.span.is_some() => " Esc shows the time around it.",
        (true, true) => " Esc shows all processes, w looks further back.",
        (true, false) => " Esc shows all processes.",
        (false, true) => " w looks further back.",
        (false, false) => "",
    }
}

fn no_samples(model: &Model, ui: &Ui, reach: Reach, pythons: u64, is_live: bool) -> Option<Message> {
    let when = ui.when(reach);
    if let Some(picked) = ui.picked {
        let who = text::fit(&process_label(model, Some(picked.process)), 60);
        return message(format!("No samples of {who} {when}"), format!("It used no CPU.{}", wider(ui, reach)));
    }
    if is_live {
        let idle = if pythons == 1 { "The one Python process is idle." } else { "All of them are idle." };
        let who = number::plural(pythons, "Python process", "Python processes");
        let idle = if pythons == 1 { idle.to_owned() } else { format!("{who} are known. {idle}") };
        return message(format!("No samples {when}"), format!("{idle}{}", wider(ui, reach)));
    }
    let idle = "The processes used no CPU while this was captured.";
    message(format!("No samples {when}"), format!("{idle}{}", wider(ui, reach)))
}

pub(super) fn draw(message: &Message, ui: &Ui, area: Rect, buf: &mut Buffer) {
    let help = text::wrap(&message.help, usize::from(area.width).saturating_sub(4));
    let height = 2 + help.len() as u16;
    let y = area.height.saturating_sub(height) / 2;
    centred(buf, area, y, &message.title, ui.theme.strong());
    for (line, below) in help.iter().zip(2..) {
        centred(buf, area, y + below, line, ui.theme.dim());
    }
}

fn centred(buf: &mut Buffer, area: Rect, y: u16, words: &str, style: ratatui::style::Style) {
    let width = text::width(words, usize::from(area.width));
    let x = (usize::from(area.width) - width) / 2;
    put(buf, area, x as u16, y, words, style);
}

pub(super) fn too_small(ui: &Ui, area: Rect, buf: &mut Buffer, needed: (u16, u16)) {
    let words = format!("{}x{} is too small; pyobs needs {}x{}", area.width, area.height, needed.0, needed.1);
    for (line, y) in text::wrap(&words, usize::from(area.width)).iter().zip(0..) {
        put(buf, area, 0, y, line, ui.theme.text());
    }
}

//! The header: a line with the host, the cost and the losses, then the tabs and the chips for what restricts the view.

use pyobs_model::{Family, Model, Nanos};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::tabs;
use crate::hit_areas::Hit;
use crate::navigation::Navigation;
use crate::paint::put;
use crate::replay_log::Motion;
use crate::scope::Reach;
use crate::screen::Chip;
use crate::screens::process_label;
use crate::ui::{Phase, Ui};
use crate::{Source, number, text};

/// A part of a line. If not all of them fit, those with the highest ranks stay.
struct HeaderPiece {
    rank: u8,
    words: String,
    style: Style,
}

/// Chips of this rank and above are more important than the full names of the tabs.
const NEEDED: u8 = 3;

pub(super) fn draw(model: &Model, ui: &Ui, navigation: &Navigation, area: Rect, buf: &mut Buffer) {
    facts(model, ui, navigation, Rect { height: 1, ..area }, buf);
    let tabs = Rect { y: area.y + 1, height: 1, ..area };
    let chips = chips(model, ui, navigation, area.width);
    let cells = |least| chips.iter().filter(|chip| chip.rank >= least).map(|chip| width(chip, area.width)).sum();
    let used = tabs::draw(ui, navigation, tabs, (cells(0), cells(NEEDED)), buf);
    draw_chips(chips, Rect { x: used, width: area.width.saturating_sub(used), ..tabs }, buf);
}

fn facts(model: &Model, ui: &Ui, navigation: &Navigation, area: Rect, buf: &mut Buffer) {
    const GAP: usize = 3;
    let theme = ui.theme;
    let (state, state_style) = state(ui, usize::from(area.width) / 2);
    let right = text::width(&state, usize::from(area.width) / 2);
    let x = put(buf, area, 1, 0, "pyobs", theme.brand()) + 1;
    let mut x = breadcrumb(ui, navigation, area, x, usize::from(area.width).saturating_sub(right + 1), buf);
    let room = usize::from(area.width.saturating_sub(x)).saturating_sub(right + 1);
    let fits = |pieces: &Vec<HeaderPiece>| {
        pieces.iter().map(|piece| text::width(&piece.words, room + 1) + GAP).sum::<usize>() <= room
    };
    let wordings =
        [HeaderWording::Full, HeaderWording::ShortCost].into_iter().map(|wording| pieces(model, ui, wording));
    let fitting_whole = wordings.into_iter().find(fits);
    for piece in fitting_whole.unwrap_or_else(|| fitting(pieces(model, ui, HeaderWording::Short), room, GAP)) {
        x = put(buf, area, x, 0, "· ", theme.dim());
        x = put(buf, area, x, 0, &piece.words, piece.style) + 1;
    }
    put(buf, area, area.width.saturating_sub(right as u16 + 1), 0, &state, state_style);
}

/// Draws the breadcrumb, or its end if it is too long. Returns the column after it.
fn breadcrumb(ui: &Ui, navigation: &Navigation, area: Rect, x: u16, end: usize, buf: &mut Buffer) -> u16 {
    let theme = ui.theme;
    let steps = navigation.breadcrumb();
    let room = end.saturating_sub(usize::from(x) + 2);
    let width = |words: &str| text::width(words, room + 1) + 3;
    let mut used = 0;
    let fitting = steps.iter().rev().take_while(|(_, words)| {
        used += width(words);
        used <= room
    });
    let skipped = steps.len() - fitting.count();
    let mut x = x;
    for (at, (step, words)) in steps.iter().enumerate().skip(skipped) {
        let sign = if at == 0 { "· " } else { "› " };
        let begin = put(buf, area, x, 0, sign, theme.dim());
        let end = put(buf, area, begin, 0, words, theme.strong());
        ui.hit_areas.add(Rect { x: area.x + begin, width: end.saturating_sub(begin), ..area }, Hit::Crumb(*step));
        x = end + 1;
    }
    x
}

/// How detailed the header is. The most detailed wording that fits is drawn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum HeaderWording {
    Full,
    ShortCost,
    Short,
}

fn pieces(model: &Model, ui: &Ui, wording: HeaderWording) -> Vec<HeaderPiece> {
    let is_short = wording == HeaderWording::Short;
    let theme = ui.theme;
    let meta = model.meta();
    let piece = |rank, words| HeaderPiece { rank, words, style: theme.text() };
    let sampler = if is_short { String::new() } else { format!(" {}", meta.sampler) };
    let mut pieces = Vec::new();
    pieces.extend([
        piece(1, meta.host.clone()),
        piece(5, format!("{}{sampler}", rate(model))),
        piece(6, number::plural(model.cpu().total(), "sample", "samples")),
        piece(2, processes(model)),
    ]);
    if let Some((cost, of)) = cost(model, ui) {
        pieces.push(piece(7, if wording == HeaderWording::Full { format!("{cost} {of}") } else { cost }));
    }
    let shed = model.shed_now();
    if !shed.is_empty() {
        let words = if is_short { "shed".to_owned() } else { format!("shed: {shed}") };
        pieces.push(HeaderPiece { rank: 8, words, style: theme.warning() });
    }
    if model.cost().rss_bytes > 0 {
        pieces.push(piece(3, number::size(model.cost().rss_bytes)));
    }
    if !meta.refused.is_empty() {
        let families: Vec<&str> = meta.refused.iter().map(|refused| refused.family.as_str()).collect();
        let words = if is_short { format!("{} off", families.len()) } else { format!("off: {}", families.join(" ")) };
        pieces.push(HeaderPiece { rank: 8, words, style: theme.warning() });
    }
    let loss = model.loss();
    if let Some((reason, _)) = loss.iter().max_by_key(|(_, count)| *count) {
        const REASON_NEEDS: u16 = 70;
        let count = number::short(loss.total());
        let has_room = !is_short || ui.size.0 >= REASON_NEEDS;
        let words = if has_room { format!("lost {count}: {}", reason.name()) } else { format!("lost {count}") };
        pieces.push(HeaderPiece { rank: 9, words, style: theme.warning() });
    }
    pieces
}

fn processes(model: &Model) -> String {
    let living = model.processes().filter(|(_, state)| state.is_alive(model.now())).count();
    number::plural(living as u64, "process", "processes")
}

/// The requested sampling rate, after the current one if that is more than 20 % lower.
fn rate(model: &Model) -> String {
    let asked = f64::from(model.meta().rate_hz);
    match model.cpu().rate_now() {
        Some(now) if now < asked * 0.8 => format!("{} of {asked} Hz", number::two_digits(now)),
        _ => format!("{asked} Hz"),
    }
}

/// The current cost of a running capture, or the average of one that has ended.
fn cost(model: &Model, ui: &Ui) -> Option<(String, &'static str)> {
    let cost = model.cost();
    let span = cost.at.as_secs_f64();
    if span <= 0.0 {
        return None;
    }
    let is_running = ui.source == Source::Live && ui.phase == Phase::Running;
    let (kernel, user) = model.cost_now();
    let average = (cost.bpf.as_secs_f64() + cost.cpu.as_secs_f64()) / span;
    let share = if is_running { kernel + user } else { average };
    let word = if is_running { "costs" } else { "cost" };
    let (percent, of) = model.cost_percent(share);
    Some((format!("{word} {percent:.1} %"), of))
}

fn state(ui: &Ui, room: usize) -> (String, Style) {
    let theme = ui.theme;
    match (&ui.source, &ui.phase) {
        (Source::Replay { file }, _) => replay(ui, file, room),
        (_, Phase::Failed(_) | Phase::NeverStarted(_)) => ("FAILED".to_owned(), theme.warning()),
        (_, Phase::Ended) if ui.paused.is_none() => ("ENDED".to_owned(), theme.warning()),
        (Source::Live, _) if ui.paused.is_some() => ("PAUSED".to_owned(), theme.warning()),
        (Source::Live, Phase::Starting) => ("STARTING".to_owned(), theme.dim()),
        (Source::Live, _) => match ui.lag {
            Some(lag) => (format!("LAGGING {} s", lag.0 / 1_000_000_000), theme.warning()),
            None => ("LIVE".to_owned(), theme.good()),
        },
    }
}

/// A replay's position and motion, and as much of the file name as fits.
fn replay(ui: &Ui, file: &str, room: usize) -> (String, Style) {
    const NAME_NEEDS: usize = 10;
    let theme = ui.theme;
    let Some(position) = ui.position else { return ("REPLAY".to_owned(), theme.good()) };
    let (motion, style) = match position.motion {
        Motion::Stopped => ("■".to_owned(), theme.good()),
        Motion::Playing => (format!("▸ {}", position.speed_words()), theme.brand()),
        Motion::Seeking(percent) => (format!("… {percent} %"), theme.warning()),
    };
    let time = number::clock(position.at, position.length);
    let words = format!("REPLAY {motion} {time}");
    let left = room.saturating_sub(text::width(&words, room) + 1);
    let name =
        if left < NAME_NEEDS { String::new() } else { format!(" {}", text::fit_left(text::base_name(file), left)) };
    (format!("{words}{name}"), style)
}

/// The pieces that fit into `room` with `gap` cells between them, in their original order.
fn fitting(pieces: Vec<HeaderPiece>, room: usize, gap: usize) -> Vec<HeaderPiece> {
    let mut order: Vec<(usize, &HeaderPiece)> = pieces.iter().enumerate().collect();
    order.sort_by_key(|(_, piece)| std::cmp::Reverse(piece.rank));
    let mut used = 0;
    let mut kept = Vec::new();
    for (index, piece) in order {
        let width = text::width(&piece.words, room + 1) + gap;
        if used + width <= room {
            used += width;
            kept.push(index);
        }
    }
    pieces.into_iter().enumerate().filter(|(index, _)| kept.contains(index)).map(|(_, piece)| piece).collect()
}

/// The chips for what restricts the current screen.
fn chips(model: &Model, ui: &Ui, navigation: &Navigation, room: u16) -> Vec<HeaderPiece> {
    /// The width from which a whole command fits.
    const CHIP_NEEDS: u16 = 140;
    let (theme, screen) = (ui.theme, navigation.current());
    let reach = screen.reach();
    let chip = |rank, words: String| HeaderPiece { rank, words: format!(" {words} "), style: theme.chip() };
    let mut pieces = Vec::new();
    if reach.follows_window() && (ui.span.is_none() || reach == Reach::Around) {
        pieces.push(chip(3, ui.window.chip(ui.position)));
    }
    let listed_since = model.listed_since();
    if ui.position.is_some() && listed_since > Nanos(0) {
        pieces.push(chip(4, format!("events from {}", number::clock(listed_since, model.now()))));
    }
    if let Some((from, to)) = ui.span {
        let of_span = || format!("{:.2}–{:.2} s", from.as_secs_f64(), to.as_secs_f64());
        pieces.push(chip(5, if reach.follows_span() { of_span() } else { "of all time".to_owned() }));
    }
    pieces.extend(screen.chips(ui).into_iter().map(|Chip(rank, words)| chip(rank, words.to_owned())));
    if let Some(filter) = ui.filter(screen.about().filter) {
        pieces.push(chip(4, text::fit(&format!("/{}", filter.text()), 20)));
    }
    if let Some(picked) = ui.picked {
        // Calls are counted per process, not per thread.
        let is_by_thread = screen.family(ui) != Some(Family::Eval);
        let words = match picked.tid.filter(|_| is_by_thread) {
            Some(tid) if room < CHIP_NEEDS => format!("thread {tid}"),
            Some(tid) => format!("thread {tid} of {}", process_label(model, Some(picked.process))),
            None => process_label(model, Some(picked.process)),
        };
        let most = if room < CHIP_NEEDS { 18 } else { 40 };
        pieces.push(chip(5, text::fit(&words, most)));
    }
    pieces
}

/// The width of a chip with the empty cell before it.
fn width(piece: &HeaderPiece, most: u16) -> usize {
    text::width(&piece.words, usize::from(most)) + 1
}

fn draw_chips(pieces: Vec<HeaderPiece>, area: Rect, buf: &mut Buffer) {
    let pieces = fitting(pieces, usize::from(area.width), 1);
    let used: usize = pieces.iter().map(|piece| width(piece, area.width)).sum();
    let mut x = area.width.saturating_sub(used as u16);
    for piece in pieces {
        x = put(buf, area, x, 0, &piece.words, piece.style) + 1;
    }
}

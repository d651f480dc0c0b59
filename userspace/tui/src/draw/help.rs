//! The help, made from the table of keys.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Block, BorderType, Clear, Widget};

use super::put;
use crate::binding::{self, Context};
use crate::ui::{Tab, Ui};

enum Line {
    Heading(&'static str),
    Key(String, &'static str),
    Space,
}

const MOUSE: [(&str, &str); 3] = [
    ("Click", "select; on what is selected, or a double click: Enter"),
    ("Wheel", "up, down"),
    ("Shift", "held, leaves the mouse to the terminal: to select text"),
];
const WIDTH: u16 = 76;
const KEYS_WIDTH: u16 = 18;

/// The screen in sight first, for that is what one asks about.
fn lines(ui: &Ui) -> Vec<Line> {
    let own = match ui.tab {
        Tab::Overview => Context::Overview,
        Tab::Processes => Context::Processes,
        Tab::Frames => Context::Frames,
        Tab::Flame => Context::Flame,
        Tab::Waits => Context::Waits,
        Tab::Health => Context::Health,
        Tab::Memory => Context::Memory,
        Tab::Transfers => Context::Transfers,
        Tab::Redundancy => Context::Redundancy,
        Tab::Timeline => Context::Timeline,
    };
    let replay: &[Context] = if ui.position.is_some() { &[Context::Replay] } else { &[] };
    let first = [&[own], replay, &[Context::Everywhere]].concat();
    let others = Context::ALL.iter().filter(|context| !first.contains(context));
    let mut lines = Vec::new();
    for context in first.iter().chain(others) {
        let keys: Vec<Line> =
            binding::of(*context).map(|binding| Line::Key(binding::labels(binding.keys), binding.help)).collect();
        if !keys.is_empty() {
            if !lines.is_empty() {
                lines.push(Line::Space);
            }
            lines.push(Line::Heading(context.title()));
            lines.extend(keys);
        }
    }
    lines.extend([Line::Space, Line::Heading("The mouse")]);
    lines.extend(MOUSE.map(|(what, help)| Line::Key(what.to_owned(), help)));
    lines
}

fn frame(ui: &Ui, screen: Rect) -> Rect {
    let lines = lines(ui).len() as u16;
    let width = WIDTH.min(screen.width);
    let height = (lines + 2).min(screen.height);
    Rect { x: screen.x + (screen.width - width) / 2, y: screen.y + (screen.height - height) / 2, width, height }
}

pub(crate) fn scroll_max(ui: &Ui) -> usize {
    let screen = Rect::new(0, 0, ui.size.0, ui.size.1);
    lines(ui).len().saturating_sub(usize::from(frame(ui, screen).height.saturating_sub(2)))
}

pub(super) fn draw(ui: &Ui, top: usize, screen: Rect, buf: &mut Buffer) {
    let theme = ui.theme;
    let area = frame(ui, screen).intersection(screen);
    let top = top.min(scroll_max(ui));
    Clear.render(area, buf);
    let below = scroll_max(ui).saturating_sub(top);
    let scroll = if below > 0 { format!(" ↓ {below} more ") } else { String::new() };
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(theme.dim())
        .title(" Keys ")
        .title_style(theme.heading())
        .title_bottom(scroll);
    let inner = block.inner(area);
    block.render(area, buf);
    for (line, y) in lines(ui).iter().skip(top).take(usize::from(inner.height)).zip(0..) {
        match line {
            Line::Space => {}
            Line::Heading(title) => {
                put(buf, inner, 1, y, title, theme.heading());
            }
            Line::Key(keys, help) => {
                put(buf, inner, 2, y, keys, theme.key());
                put(buf, inner, KEYS_WIDTH, y, help, theme.text());
            }
        }
    }
}

//! The help window, made from the key tables.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Block, BorderType, Clear, Widget};

use crate::binding::{self, Action, Keys};
use crate::navigation::Navigation;
use crate::paint::put;
use crate::ui::Ui;

enum HelpLine {
    Heading(&'static str),
    Key(String, &'static str),
    Space,
}

const MOUSE: [(&str, &str); 3] = [
    ("Click", "select; click the selection or double-click to open it"),
    ("Wheel", "up, down"),
    ("Shift", "hold it to select text as in any terminal"),
];
const WIDTH: u16 = 76;
const KEYS_WIDTH: u16 = 18;

/// Starts with the current screen, because that is what users ask about.
fn lines(ui: &Ui, navigation: &Navigation) -> Vec<HelpLine> {
    let mut tables: Vec<&Keys> = vec![&navigation.current().about().keys[0]];
    tables.extend(ui.position.map(|_| &binding::REPLAY));
    tables.push(&binding::EVERYWHERE);
    let of_screens = navigation.screens().iter().flat_map(|screen| screen.about().keys);
    for keys in of_screens.chain([&binding::REPLAY, &binding::PROMPT, &binding::HELP]) {
        if !tables.iter().any(|shown| std::ptr::eq(*shown, keys)) {
            tables.push(keys);
        }
    }
    let mut lines = Vec::new();
    for keys in tables.into_iter().filter(|keys| !keys.bindings.is_empty()) {
        lines.extend((!lines.is_empty()).then_some(HelpLine::Space));
        lines.push(HelpLine::Heading(keys.title));
        for binding in keys.bindings {
            if binding.action == Action::NextScreen {
                let screens = navigation.screens().iter();
                lines.extend(screens.map(|screen| HelpLine::Key(screen.about().key.to_string(), screen.about().title)));
            }
            lines.push(HelpLine::Key(binding::labels(binding.keys), binding.help));
        }
    }
    lines.extend([HelpLine::Space, HelpLine::Heading("The mouse")]);
    lines.extend(MOUSE.map(|(what, help)| HelpLine::Key(what.to_owned(), help)));
    lines
}

fn frame(ui: &Ui, navigation: &Navigation, screen: Rect) -> Rect {
    let lines = lines(ui, navigation).len() as u16;
    let width = WIDTH.min(screen.width);
    let height = (lines + 2).min(screen.height);
    Rect { x: screen.x + (screen.width - width) / 2, y: screen.y + (screen.height - height) / 2, width, height }
}

pub(crate) fn scroll_max(ui: &Ui, navigation: &Navigation) -> usize {
    let screen = Rect::new(0, 0, ui.size.0, ui.size.1);
    lines(ui, navigation).len().saturating_sub(usize::from(frame(ui, navigation, screen).height.saturating_sub(2)))
}

pub(super) fn draw(ui: &Ui, navigation: &Navigation, top: usize, screen: Rect, buf: &mut Buffer) {
    let theme = ui.theme;
    let area = frame(ui, navigation, screen).intersection(screen);
    let top = top.min(scroll_max(ui, navigation));
    Clear.render(area, buf);
    let below = scroll_max(ui, navigation).saturating_sub(top);
    let scroll = if below > 0 { format!(" ↓ {below} more ") } else { String::new() };
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(theme.dim())
        .title(" Keys ")
        .title_style(theme.heading())
        .title_bottom(scroll);
    let inner = block.inner(area);
    block.render(area, buf);
    for (line, y) in lines(ui, navigation).iter().skip(top).take(usize::from(inner.height)).zip(0..) {
        match line {
            HelpLine::Space => {}
            HelpLine::Heading(title) => {
                put(buf, inner, 1, y, title, theme.heading());
            }
            HelpLine::Key(keys, help) => {
                put(buf, inner, 2, y, keys, theme.key());
                put(buf, inner, KEYS_WIDTH, y, help, theme.text());
            }
        }
    }
}

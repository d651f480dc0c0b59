//! Styles by role. The colours follow the palette of Okabe and Ito, which colour-blind people can tell apart. No meaning
//! depends on colour alone.

use pyobs_model::FrameKind;
use ratatui::style::{Color as Ink, Modifier, Style};

/// How many colours the terminal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    Off,
    /// The sixteen that every terminal has.
    Basic,
    /// The 256 of xterm.
    Rich,
}

impl Color {
    /// From `NO_COLOR`, `COLORTERM` and `TERM`.
    pub fn detect() -> Self {
        let text = |name| std::env::var(name).unwrap_or_default();
        Self::of(&text("NO_COLOR"), &text("COLORTERM"), &text("TERM"))
    }

    fn of(no_color: &str, colorterm: &str, term: &str) -> Self {
        let rich = ["256color", "direct", "truecolor", "kitty", "alacritty", "foot", "ghostty", "wezterm"];
        if !no_color.is_empty() || term.is_empty() || term == "dumb" || term.starts_with("vt") {
            Self::Off
        } else if !colorterm.is_empty() || rich.iter().any(|name| term.contains(name)) {
            Self::Rich
        } else {
            Self::Basic
        }
    }
}

/// How a box of the flame graph stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Emphasis {
    Plain,
    Selected,
    /// The filter does not match the box.
    Faded,
}

/// What a box of the flame graph stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoxKind {
    Root,
    Process,
    Frame(FrameKind),
    /// Children that are too narrow to be drawn by themselves.
    Rest,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    color: Color,
}

impl Theme {
    pub(crate) fn new(color: Color) -> Self {
        Self { color }
    }

    fn pick(self, rich: u8, basic: Ink, off: Modifier) -> Style {
        match self.color {
            Color::Off => Style::new().add_modifier(off),
            Color::Basic => Style::new().fg(basic),
            Color::Rich => Style::new().fg(Ink::Indexed(rich)),
        }
    }

    fn filled(self, rich: (u8, u8), basic: (Ink, Ink), off: Modifier) -> Style {
        match self.color {
            Color::Off => Style::new().add_modifier(off),
            Color::Basic => Style::new().fg(basic.0).bg(basic.1),
            Color::Rich => Style::new().fg(Ink::Indexed(rich.0)).bg(Ink::Indexed(rich.1)),
        }
    }

    pub(crate) fn text(self) -> Style {
        Style::new()
    }

    pub(crate) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Text that Enter follows.
    pub(crate) fn link(self) -> Style {
        Style::new().add_modifier(Modifier::UNDERLINED)
    }

    pub(crate) fn dim(self) -> Style {
        self.pick(245, Ink::DarkGray, Modifier::DIM)
    }

    pub(crate) fn brand(self) -> Style {
        self.pick(214, Ink::Yellow, Modifier::BOLD).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn warning(self) -> Style {
        self.pick(208, Ink::LightRed, Modifier::BOLD).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn good(self) -> Style {
        self.pick(36, Ink::Green, Modifier::BOLD).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn heading(self) -> Style {
        self.pick(74, Ink::Cyan, Modifier::UNDERLINED).add_modifier(Modifier::BOLD)
    }

    /// The heading of the column that the rows are sorted by.
    pub(crate) fn sorted_heading(self) -> Style {
        self.heading().add_modifier(Modifier::UNDERLINED | Modifier::REVERSED)
    }

    pub(crate) fn active_tab(self) -> Style {
        self.filled((16, 214), (Ink::Black, Ink::Yellow), Modifier::REVERSED).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn chip(self) -> Style {
        self.filled((255, 239), (Ink::White, Ink::DarkGray), Modifier::REVERSED)
    }

    pub(crate) fn selected(self) -> Style {
        self.filled((255, 24), (Ink::White, Ink::Blue), Modifier::REVERSED).add_modifier(Modifier::BOLD)
    }

    /// The timeline's column at the cursor.
    pub(crate) fn cursor(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Fills a box after its name. Without colours a line shows how long the box is.
    pub(crate) fn fill(self) -> char {
        if self.color == Color::Off { '─' } else { ' ' }
    }

    pub(crate) fn key(self) -> Style {
        self.pick(214, Ink::Yellow, Modifier::BOLD).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn own(self) -> Style {
        self.pick(208, Ink::Yellow, Modifier::empty())
    }

    pub(crate) fn total(self) -> Style {
        self.pick(74, Ink::Cyan, Modifier::empty())
    }

    pub(crate) fn kind(self, kind: FrameKind) -> Style {
        match kind {
            FrameKind::Python => self.text(),
            FrameKind::Native => self.pick(74, Ink::Cyan, Modifier::ITALIC),
            FrameKind::Kernel => self.pick(175, Ink::Magenta, Modifier::DIM),
        }
    }

    /// `shade` tells neighbours of one kind apart.
    pub(crate) fn flame(self, kind: BoxKind, emphasis: Emphasis, shade: u32) -> Style {
        let shade = |shades: [u8; 3]| shades[(shade % 3) as usize];
        let plain = match kind {
            BoxKind::Root => self.filled((16, 250), (Ink::Black, Ink::Gray), Modifier::BOLD),
            BoxKind::Process => self.filled((16, 248), (Ink::Black, Ink::Gray), Modifier::BOLD),
            BoxKind::Frame(FrameKind::Python) => {
                self.filled((16, shade([214, 220, 179])), (Ink::Black, Ink::Yellow), Modifier::empty())
            }
            BoxKind::Frame(FrameKind::Native) => {
                self.filled((16, shade([74, 117, 110])), (Ink::Black, Ink::Cyan), Modifier::ITALIC)
            }
            BoxKind::Frame(FrameKind::Kernel) => {
                self.filled((16, shade([175, 182, 139])), (Ink::Black, Ink::Magenta), Modifier::UNDERLINED)
            }
            BoxKind::Rest => self.filled((250, 238), (Ink::Gray, Ink::DarkGray), Modifier::DIM),
        };
        match emphasis {
            Emphasis::Plain => plain,
            Emphasis::Selected => self.selected(),
            Emphasis::Faded => self.filled((250, 240), (Ink::Gray, Ink::DarkGray), Modifier::DIM),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_overrides_what_the_terminal_supports() {
        assert_eq!(Color::of("1", "truecolor", "xterm-256color"), Color::Off);
        assert_eq!(Color::of("", "", "xterm-256color"), Color::Rich);
        assert_eq!(Color::of("", "truecolor", "xterm"), Color::Rich);
        assert_eq!(Color::of("", "", "linux"), Color::Basic);
        assert_eq!(Color::of("", "", "dumb"), Color::Off);
        assert_eq!(Color::of("", "", ""), Color::Off);
    }
}

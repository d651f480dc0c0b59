//! Key bindings: the tables from which dispatch, the footer and the help are made. Each screen's own tables are in its file.

use crate::input::Key;

macro_rules! actions {
    ($($action:ident)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Action { $($action,)* }

        #[cfg(test)]
        impl Action {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$action,)*];
        }
    };
}

actions! {
    NextScreen PreviousScreen
    Up Down Left Right PageUp PageDown First Last
    Open Back Threads Expand Collapse Tree
    SortNext SortPrevious SortOwn SortTotal SortName
    SaveRows SaveFlight By Group Fold Measure Calls
    ZoomIn ZoomOut Mark
    SeekBack SeekForward LeapBack LeapForward SeekStart SeekEnd SeekHere Slower Faster
    Filter Window Pause Help Quit
    Accept Cancel Erase EraseAll
}

/// The bindings of one context, such as a screen's table or its detail.
pub(crate) struct Keys {
    pub(crate) title: &'static str,
    pub(crate) bindings: &'static [Binding],
}

pub(crate) struct Binding {
    pub(crate) keys: &'static [Key],
    pub(crate) action: Action,
    /// The text in the footer. Bindings without one are only in the help.
    pub(crate) hint: &'static str,
    pub(crate) help: &'static str,
}

pub(crate) const fn bind(keys: &'static [Key], action: Action, hint: &'static str, help: &'static str) -> Binding {
    Binding { keys, action, hint, help }
}

use Key::{BackTab, Backspace, Char, Ctrl, Down, End, Enter, Esc, Home, Left, PageDown, PageUp, Right, Tab, Up};

pub(crate) const SORT_NEXT: Binding = bind(&[Char('s')], Action::SortNext, "sort", "sort by the next column");
pub(crate) const SORT_PREVIOUS: Binding = bind(&[Char('S')], Action::SortPrevious, "", "sort by the previous column");
pub(crate) const FOLLOW: Binding =
    bind(&[Enter], Action::Open, "follow", "go on to what the line names: frame, thread, segment...");
pub(crate) const MEASURE: Binding =
    bind(&[Char('m')], Action::Measure, "measure", "measure CPU samples, time off CPU, or waits for the GIL");
pub(crate) const BY: Binding = bind(&[Char('l')], Action::By, "lines", "a row per line, or a row per function");

pub(crate) const GROUP: Binding =
    bind(&[Char('g')], Action::Group, "group", "group by process, command, container, user or task");

pub(crate) static EVERYWHERE: Keys = Keys {
    title: "Everywhere",
    bindings: &[
        bind(&[Esc, Backspace], Action::Back, "back", "back: close, zoom out, clear filter, clear selection"),
        bind(&[Char('/')], Action::Filter, "filter", "filter by a pattern; in the flame graph, highlight"),
        bind(&[Char('w')], Action::Window, "window", "look at the last 10 s, the last 60 s or all"),
        bind(&[Char(' ')], Action::Pause, "pause", "freeze the picture, recording goes on; a replay: play"),
        bind(&[Char('x')], Action::SaveRows, "", "write the rows to a CSV file in the current folder"),
        bind(&[Char('R')], Action::SaveFlight, "", "write the last minutes to a recording (not in a replay)"),
        bind(&[Tab], Action::NextScreen, "", "the next screen"),
        bind(&[BackTab], Action::PreviousScreen, "", "the previous screen"),
        bind(&[Up, Char('k')], Action::Up, "", "up"),
        bind(&[Down, Char('j')], Action::Down, "", "down"),
        bind(&[PageUp, Ctrl('b')], Action::PageUp, "", "a page up"),
        bind(&[PageDown, Ctrl('f')], Action::PageDown, "", "a page down"),
        bind(&[Home], Action::First, "", "to the top"),
        bind(&[End], Action::Last, "", "to the bottom"),
        bind(&[Char('?'), Char('h')], Action::Help, "help", "this help"),
        bind(&[Char('q'), Ctrl('c')], Action::Quit, "quit", "quit"),
    ],
};

/// Keys of a replay, on all screens.
pub(crate) static REPLAY: Keys = Keys {
    title: "A replay",
    bindings: &[
        bind(&[Char(',')], Action::SeekBack, "", "a second back"),
        bind(&[Char('.')], Action::SeekForward, "", "a second forward"),
        bind(&[Char('<')], Action::LeapBack, "", "10 s back, or 1/20 of a longer recording"),
        bind(&[Char('>')], Action::LeapForward, "", "10 s forward, or 1/20 of a longer recording"),
        bind(&[Char('{')], Action::SeekStart, "", "to the beginning"),
        bind(&[Char('}')], Action::SeekEnd, "", "to the end"),
        bind(&[Char('[')], Action::Slower, "", "play at half the speed, down to ¼"),
        bind(&[Char(']')], Action::Faster, "", "play at twice the speed, up to 16 times"),
    ],
};

/// Keys while a pattern is being typed. Characters that are not bound are added to it.
pub(crate) static PROMPT: Keys = Keys {
    title: "Typing a pattern",
    bindings: &[
        bind(&[Enter], Action::Accept, "keep", "keep the pattern"),
        bind(&[Esc], Action::Cancel, "cancel", "restore the previous pattern"),
        bind(&[Backspace], Action::Erase, "", "erase a character"),
        bind(&[Ctrl('u')], Action::EraseAll, "clear", "erase all"),
        bind(&[Ctrl('c')], Action::Quit, "", "quit"),
    ],
};

pub(crate) static HELP: Keys = Keys {
    title: "This help",
    bindings: &[
        bind(&[Up, Char('k')], Action::Up, "", "up"),
        bind(&[Down, Char('j')], Action::Down, "", "down"),
        bind(&[PageUp, Ctrl('b')], Action::PageUp, "", "a page up"),
        bind(&[PageDown, Ctrl('f'), Char(' ')], Action::PageDown, "", "a page down"),
        bind(&[Esc, Enter, Char('?'), Char('h'), Char('q')], Action::Back, "close", "close"),
        bind(&[Ctrl('c')], Action::Quit, "", "quit"),
    ],
};

/// The action of a key, from the first table that binds it.
pub(crate) fn action(tables: &[&Keys], key: Key) -> Option<Action> {
    let mut bindings = tables.iter().flat_map(|keys| keys.bindings);
    bindings.find(|binding| binding.keys.contains(&key)).map(|binding| binding.action)
}

pub(crate) fn labels(keys: &[Key]) -> String {
    keys.iter().map(|key| label(*key)).collect::<Vec<_>>().join(" ")
}

pub(crate) fn label(key: Key) -> String {
    match key {
        Char(' ') => "Space".to_owned(),
        Char(c) => c.to_string(),
        Ctrl(c) => format!("Ctrl-{}", c.to_ascii_uppercase()),
        Up => "↑".to_owned(),
        Down => "↓".to_owned(),
        Left => "←".to_owned(),
        Right => "→".to_owned(),
        PageUp => "PgUp".to_owned(),
        PageDown => "PgDn".to_owned(),
        BackTab => "Shift-Tab".to_owned(),
        Backspace => "Bksp".to_owned(),
        Enter | Esc | Tab | Home | End | Key::Delete => format!("{key:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::Screen;
    use crate::screens;
    use crate::tests::synthetic;

    fn tables(screens: &[Box<dyn Screen>]) -> Vec<Vec<&'static Keys>> {
        let of_screens = screens.iter().flat_map(|screen| screen.about().keys);
        of_screens.map(|keys| vec![keys, &EVERYWHERE, &REPLAY]).chain([vec![&PROMPT], vec![&HELP]]).collect()
    }

    fn screens() -> Vec<Box<dyn Screen>> {
        screens::all(&synthetic::model())
    }

    #[test]
    fn every_action_has_a_key() {
        let tables = tables(&screens());
        let bindings: Vec<&Binding> = tables.iter().flatten().flat_map(|keys| keys.bindings).collect();
        for action in Action::ALL {
            let has_key = bindings.iter().any(|binding| binding.action == *action && !binding.keys.is_empty());
            assert!(has_key, "{action:?}");
        }
        assert!(bindings.iter().all(|binding| (1..=56).contains(&binding.help.len())), "the text fits into the help");
    }

    #[test]
    fn no_key_has_two_actions_in_one_context() {
        let screens = screens();
        for tables in tables(&screens) {
            let show = screens.iter().map(|screen| Char(screen.about().key)).filter(|_| tables.len() > 1);
            let bound = tables.iter().flat_map(|keys| keys.bindings).flat_map(|binding| binding.keys).copied();
            let mut keys: Vec<Key> = bound.chain(show).collect();
            let all = keys.len();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), all, "{}", tables[0].title);
        }
    }
}

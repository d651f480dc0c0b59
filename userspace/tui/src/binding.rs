//! The keys: one table that dispatches them, makes the footer and makes the help.

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
    ShowOverview ShowProcesses ShowFrames ShowFlame ShowWaits ShowHealth ShowMemory ShowTransfers ShowRedundancy ShowTimeline NextScreen PreviousScreen
    Up Down Left Right PageUp PageDown First Last
    Open Back Threads Expand Collapse
    SortNext SortPrevious SortOwn SortTotal SortName
    By Fold Split Measure Calls
    ZoomIn ZoomOut Mark
    SeekBack SeekForward LeapBack LeapForward SeekStart SeekEnd SeekHere Slower Faster
    Filter Window Pause Help Quit
    Accept Cancel Erase EraseAll
}

/// Where a key means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    Everywhere,
    /// Findings, and the machine.
    Overview,
    Processes,
    Frames,
    /// One frame, with its callers and callees.
    Detail,
    /// Calls of functions, in the place of the frames.
    Calls,
    Flame,
    Waits,
    /// One wait, with its stacks.
    Wait,
    Health,
    /// What processes share.
    Memory,
    /// One shared segment.
    Segment,
    /// Of UCX.
    Transfers,
    /// One of them.
    Transfer,
    /// Work that changes nothing.
    Redundancy,
    /// What the native code below one line accesses.
    Accesses,
    /// Lanes over time.
    Timeline,
    /// A recording, on any screen.
    Replay,
    /// A pattern is being typed; keys that are not bound are text.
    Prompt,
    Help,
}

impl Context {
    pub(crate) const ALL: &'static [Self] = &[
        Self::Overview,
        Self::Processes,
        Self::Frames,
        Self::Detail,
        Self::Calls,
        Self::Flame,
        Self::Waits,
        Self::Wait,
        Self::Health,
        Self::Memory,
        Self::Segment,
        Self::Transfers,
        Self::Transfer,
        Self::Redundancy,
        Self::Accesses,
        Self::Timeline,
        Self::Everywhere,
        Self::Replay,
        Self::Prompt,
        Self::Help,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Everywhere => "Everywhere",
            Self::Overview => "Overview",
            Self::Processes => "Processes",
            Self::Frames => "Frames",
            Self::Detail => "A frame",
            Self::Calls => "Calls",
            Self::Flame => "Flame",
            Self::Waits => "Waits",
            Self::Wait => "A wait",
            Self::Health => "Health",
            Self::Memory => "Memory",
            Self::Segment => "A segment, or arenas",
            Self::Transfers => "Transfers",
            Self::Transfer => "A transfer",
            Self::Redundancy => "Redundancy",
            Self::Accesses => "A line's accesses",
            Self::Timeline => "Timeline",
            Self::Replay => "A replay",
            Self::Prompt => "Typing a pattern",
            Self::Help => "This help",
        }
    }

    /// Whether it is about one thing that was opened.
    pub(crate) fn is_detail(self) -> bool {
        matches!(self, Self::Detail | Self::Wait | Self::Segment | Self::Transfer | Self::Accesses)
    }

    /// Where a key is looked up, first to last.
    pub(crate) fn chain(self) -> Vec<Self> {
        match self {
            Self::Prompt | Self::Help | Self::Everywhere | Self::Replay => vec![self],
            _ => vec![self, Self::Everywhere, Self::Replay],
        }
    }
}

pub(crate) struct Binding {
    pub(crate) contexts: &'static [Context],
    pub(crate) keys: &'static [Key],
    pub(crate) action: Action,
    /// For the footer; empty where it is not worth the room.
    pub(crate) hint: &'static str,
    pub(crate) help: &'static str,
}

const fn bind(
    contexts: &'static [Context],
    keys: &'static [Key],
    action: Action,
    hint: &'static str,
    help: &'static str,
) -> Binding {
    Binding { contexts, keys, action, hint, help }
}

use Context::{
    Accesses, Calls, Detail, Everywhere, Flame, Frames, Help, Memory, Overview, Processes, Prompt, Redundancy, Replay,
    Segment, Timeline, Transfer, Transfers, Wait, Waits,
};
use Key::{BackTab, Backspace, Char, Ctrl, Down, End, Enter, Esc, Home, Left, PageDown, PageUp, Right, Tab, Up};

pub(crate) const BINDINGS: &[Binding] = &[
    bind(&[Overview], &[Enter], Action::Open, "evidence", "the screen and the row that show what a finding rests on"),
    bind(&[Processes], &[Enter], Action::Open, "select", "show only this process, or thread, on the other screens"),
    bind(&[Processes], &[Char('t')], Action::Threads, "threads", "show or hide the threads of the process"),
    bind(&[Processes], &[Right], Action::Expand, "", "show the threads of the process"),
    bind(&[Processes], &[Left], Action::Collapse, "", "hide the threads of the process"),
    bind(&[Frames], &[Enter], Action::Open, "detail", "callers, callees and lines of the frame"),
    bind(&[Detail], &[Enter], Action::Open, "follow", "go on to this caller, callee or line"),
    bind(
        &[Wait, Segment, Transfer, Accesses],
        &[Enter],
        Action::Open,
        "follow",
        "go on to what the line names: frame, thread, segment...",
    ),
    bind(&[Flame], &[Enter], Action::Open, "zoom", "zoom to the selected box"),
    bind(&[Flame], &[Left], Action::Left, "", "the box to the left"),
    bind(&[Flame], &[Right], Action::Right, "", "the box to the right"),
    bind(&[Waits], &[Enter], Action::Open, "detail", "the stacks of the wait, and who ended it"),
    bind(&[Memory], &[Enter], Action::Open, "detail", "what is known of the segment, or the arenas"),
    bind(&[Transfers], &[Enter], Action::Open, "detail", "the stages of the transfer, and who asked for it"),
    bind(&[Redundancy], &[Enter], Action::Open, "detail", "the calls and pairs of accesses of the line"),
    bind(&[Frames], &[Char('o')], Action::SortOwn, "", "sort by own samples, or time"),
    bind(&[Frames], &[Char('t')], Action::SortTotal, "", "sort by total samples, or time"),
    bind(&[Frames], &[Char('n')], Action::SortName, "", "sort by name"),
    bind(
        &[Processes, Frames, Calls, Waits, Memory, Transfers, Redundancy],
        &[Char('s')],
        Action::SortNext,
        "sort",
        "sort by the next column",
    ),
    bind(
        &[Processes, Frames, Calls, Waits, Memory, Transfers, Redundancy],
        &[Char('S')],
        Action::SortPrevious,
        "",
        "sort by the previous column",
    ),
    bind(&[Timeline], &[Enter], Action::Open, "open", "end the span, or open what the lane is of"),
    bind(&[Timeline], &[Char('v')], Action::Mark, "span", "begin or end a span of time for all screens"),
    bind(&[Timeline], &[Char('t')], Action::SeekHere, "", "a replay: to the time at the cursor"),
    bind(&[Timeline], &[Char('+'), Char('=')], Action::ZoomIn, "zoom in", "half the time, around the cursor"),
    bind(&[Timeline], &[Char('-')], Action::ZoomOut, "out", "twice the time"),
    bind(&[Timeline], &[Left], Action::Left, "", "the cursor to the left; moves along what is zoomed in"),
    bind(&[Timeline], &[Right], Action::Right, "", "the cursor to the right"),
    bind(&[Waits], &[Char('m')], Action::Measure, "GIL waits", "all waits, or those for the GIL and who held it"),
    bind(&[Memory], &[Char('m')], Action::Measure, "arenas", "shared segments, arenas, or MemInfos of Numba"),
    bind(&[Transfers], &[Char('m')], Action::Measure, "threads", "transfers, or the threads behind them"),
    bind(
        &[Frames, Detail, Flame],
        &[Char('m')],
        Action::Measure,
        "measure",
        "measure CPU samples, time off CPU, or waits for the GIL",
    ),
    bind(&[Frames, Detail, Flame, Waits], &[Char('l')], Action::By, "lines", "a row a line, or a row a function"),
    bind(&[Frames, Detail], &[Char('f')], Action::Fold, "fold", "fold native (n:) and kernel (k:) code into Python"),
    bind(&[Flame], &[Char('f')], Action::Fold, "native", "native (n:), kernel (k:): below Python, none, or all"),
    bind(&[Frames, Calls], &[Char('c')], Action::Calls, "calls", "counted calls, or samples"),
    bind(&[Frames, Calls], &[Char('p')], Action::Split, "split", "a row a process, or all processes in one"),
    bind(
        &[Everywhere],
        &[Esc, Backspace],
        Action::Back,
        "back",
        "back: close, zoom out, clear filter, clear selection",
    ),
    bind(&[Everywhere], &[Char('/')], Action::Filter, "filter", "filter by a pattern; in the flame graph, highlight"),
    bind(&[Everywhere], &[Char('w')], Action::Window, "window", "look at the last 10 s, the last 60 s or all"),
    bind(&[Everywhere], &[Char(' ')], Action::Pause, "pause", "freeze the picture, recording goes on; a replay: play"),
    bind(&[Everywhere], &[Char('0')], Action::ShowOverview, "", "Overview"),
    bind(&[Everywhere], &[Char('1')], Action::ShowProcesses, "", "Processes"),
    bind(&[Everywhere], &[Char('2')], Action::ShowFrames, "", "Frames"),
    bind(&[Everywhere], &[Char('3')], Action::ShowFlame, "", "Flame"),
    bind(&[Everywhere], &[Char('4')], Action::ShowWaits, "", "Waits"),
    bind(&[Everywhere], &[Char('5')], Action::ShowHealth, "", "Health"),
    bind(&[Everywhere], &[Char('6')], Action::ShowMemory, "", "Memory"),
    bind(&[Everywhere], &[Char('7')], Action::ShowTransfers, "", "Transfers"),
    bind(&[Everywhere], &[Char('8')], Action::ShowRedundancy, "", "Redundancy"),
    bind(&[Everywhere], &[Char('9')], Action::ShowTimeline, "", "Timeline"),
    bind(&[Everywhere], &[Tab], Action::NextScreen, "", "the next screen"),
    bind(&[Everywhere], &[BackTab], Action::PreviousScreen, "", "the previous screen"),
    bind(&[Everywhere], &[Up, Char('k')], Action::Up, "", "up"),
    bind(&[Everywhere], &[Down, Char('j')], Action::Down, "", "down"),
    bind(&[Everywhere], &[PageUp, Ctrl('b')], Action::PageUp, "", "a page up"),
    bind(&[Everywhere], &[PageDown, Ctrl('f')], Action::PageDown, "", "a page down"),
    bind(&[Everywhere], &[Home, Char('g')], Action::First, "", "to the top"),
    bind(&[Everywhere], &[End, Char('G')], Action::Last, "", "to the bottom"),
    bind(&[Everywhere], &[Char('?'), Char('h')], Action::Help, "help", "this help"),
    bind(&[Everywhere], &[Char('q'), Ctrl('c')], Action::Quit, "quit", "quit"),
    bind(&[Replay], &[Char(',')], Action::SeekBack, "", "a second back"),
    bind(&[Replay], &[Char('.')], Action::SeekForward, "", "a second forward"),
    bind(&[Replay], &[Char('<')], Action::LeapBack, "", "10 s back, or a twentieth of what is longer"),
    bind(&[Replay], &[Char('>')], Action::LeapForward, "", "10 s forward, or a twentieth of what is longer"),
    bind(&[Replay], &[Char('{')], Action::SeekStart, "", "to the beginning"),
    bind(&[Replay], &[Char('}')], Action::SeekEnd, "", "to the end"),
    bind(&[Replay], &[Char('[')], Action::Slower, "", "play at half the speed, down to ¼"),
    bind(&[Replay], &[Char(']')], Action::Faster, "", "play at twice the speed, up to 16 times"),
    bind(&[Prompt], &[Enter], Action::Accept, "keep", "keep the pattern"),
    bind(&[Prompt], &[Esc], Action::Cancel, "cancel", "put back what was there before"),
    bind(&[Prompt], &[Backspace], Action::Erase, "", "erase a character"),
    bind(&[Prompt], &[Ctrl('u')], Action::EraseAll, "clear", "erase all"),
    bind(&[Prompt], &[Ctrl('c')], Action::Quit, "", "quit"),
    bind(&[Help], &[Up, Char('k')], Action::Up, "", "up"),
    bind(&[Help], &[Down, Char('j')], Action::Down, "", "down"),
    bind(&[Help], &[PageUp, Ctrl('b')], Action::PageUp, "", "a page up"),
    bind(&[Help], &[PageDown, Ctrl('f'), Char(' ')], Action::PageDown, "", "a page down"),
    bind(&[Help], &[Esc, Enter, Char('?'), Char('h'), Char('q')], Action::Back, "close", "close"),
    bind(&[Help], &[Ctrl('c')], Action::Quit, "", "quit"),
];

pub(crate) fn action(context: Context, key: Key) -> Option<Action> {
    context
        .chain()
        .into_iter()
        .find_map(|context| of(context).find(|binding| binding.keys.contains(&key)))
        .map(|binding| binding.action)
}

pub(crate) fn of(context: Context) -> impl Iterator<Item = &'static Binding> {
    BINDINGS.iter().filter(move |binding| binding.contexts.contains(&context))
}

/// Every key as (where, keys, what it does), for documentation.
pub fn key_table() -> Vec<(&'static str, String, &'static str)> {
    Context::ALL
        .iter()
        .flat_map(|context| of(*context).map(|binding| (context.title(), labels(binding.keys), binding.help)))
        .collect()
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

    #[test]
    fn every_action_has_a_key() {
        for action in Action::ALL {
            let has_key = BINDINGS.iter().any(|binding| binding.action == *action && !binding.keys.is_empty());
            assert!(has_key, "{action:?}");
        }
    }

    #[test]
    fn no_key_is_bound_twice_in_a_context() {
        for context in Context::ALL {
            let mut keys: Vec<Key> =
                context.chain().into_iter().flat_map(of).flat_map(|binding| binding.keys).copied().collect();
            let all = keys.len();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), all, "{context:?}");
        }
    }

    #[test]
    fn every_binding_says_what_it_does_and_the_help_has_room_for_it() {
        assert!(BINDINGS.iter().all(|binding| (1..=56).contains(&binding.help.len())));
    }
}

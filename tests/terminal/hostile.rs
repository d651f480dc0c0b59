//! Tests that names which a watched process chose to do harm reach a terminal only as text.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;

use pyobs_tests::{Case, Record, Workload, case, needs, workload};

use crate::pty::{SIZES, Terminal};
use crate::screens::quit;

/// A version without qualified names and one with them. Opening each row takes time, so the former has one size only.
const VERSIONS: [(&str, &[(u16, u16)]); 2] = [("3.8", &[(80, 24)]), ("3.12", &SIZES)];

pub fn cases() -> Vec<Case> {
    let live = VERSIONS.map(|(version, sizes)| {
        case(format!("hostile/names_of_{version}_cannot_drive_the_terminal"), move || {
            for size in sizes {
                let names = start(version);
                let pid = names.pid().to_string();
                visit_screens(Terminal::open(*size, ["top", "--pid", &pid]), "LIVE");
            }
        })
        .needs(needs::root())
        .needs(needs::python(version))
    });
    let replayed = case("hostile/names_in_a_recording_cannot_drive_the_terminal", || {
        let names = start("3.12");
        let recording = Record::new().rate(499).pid(names.pid()).seconds(3.0).run();
        visit_screens(Terminal::open((140, 40), ["replay".as_ref(), recording.file.as_os_str()]), "REPLAY");
    });
    live.into_iter().chain([replayed.needs(needs::root()).needs(needs::python("3.12"))]).collect()
}

#[track_caller]
fn start(version: &str) -> Workload {
    let mut names = needs::python(version).unwrap().script(workload("fault_names.py"));
    names.arg0("\u{1b}[2J\u{1b}]0;argv\u{7};<script>\n\u{202e}");
    let mut names = Workload::start(names);
    names.line();
    names
}

/// Visits every screen with the names, and opens rows.
#[track_caller]
fn visit_screens(mut terminal: Terminal, state: &str) {
    terminal.wait_for(state);
    terminal.press("1");
    terminal.wait_for("COMMAND");
    terminal.press("t");
    terminal.wait_for("<i>");
    terminal.press("2");
    terminal.wait_for("alert(");
    for _ in 0..14 {
        terminal.press("\x1b[B\r");
        terminal.wait_for("CALLED BY");
        terminal.press("\x1b");
        terminal.wait_for("TOTAL %");
    }
    terminal.press("3");
    terminal.wait_for("3 Flame");
    terminal.wait_for("burn");
    terminal.press("5");
    terminal.wait_for("PYTHON STACKS");
    terminal.press("1\r");
    terminal.wait_for("2 Frames");
    let raw = terminal.raw();
    quit(terminal);
    has_only_known_sequences(&raw);
}

/// Asserts valid UTF-8 and no controls but a dashboard's: moving, erasing, colours, the alternate screen, the cursor,
/// the mouse and synchronized updates. No title, bell, other mode, string sequence or hidden text.
#[track_caller]
fn has_only_known_sequences(raw: &[u8]) {
    let text = std::str::from_utf8(raw).unwrap_or_else(|error| panic!("not UTF-8: {error}"));
    let mut strange = BTreeSet::new();
    let mut rest = text;
    while let Some(at) = rest.find(char::is_control) {
        rest = &rest[at..];
        let length = sequence(rest).unwrap_or_else(|| {
            strange.insert(rest.chars().take(12).collect::<String>());
            rest.chars().next().map_or(1, char::len_utf8)
        });
        rest = &rest[length..];
    }
    assert!(strange.is_empty(), "foreign sequences: {strange:?}");
    // Characters that reorder, hide or end text, and those without a cell of their own, which would misalign the row.
    let raw: Vec<char> =
        ['\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}', '\u{e0041}', '\u{2028}', '\u{fffe}', '\u{ffff}']
            .into_iter()
            .filter(|c| text.contains(*c))
            .collect();
    assert!(raw.is_empty(), "raw characters: {raw:?}");
}

/// The length of the sequence at the start of `text`, if a dashboard may write it.
fn sequence(text: &str) -> Option<usize> {
    if text.starts_with("\r\n") {
        return Some(2);
    }
    let body = text.strip_prefix("\u{1b}[")?;
    let end = body.find(|c: char| ('@'..='~').contains(&c))?;
    let (parameters, last) = (&body[..end], body[end..].chars().next()?);
    let numbers = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == ';' || c == ':');
    let known = match last {
        'H' => numbers(parameters) && !parameters.is_empty(),
        // Concealed text (8) and blinking (5, 6) are not used.
        'm' => numbers(parameters) && !["8", "5", "6"].contains(&parameters),
        'J' => parameters == "2",
        'h' | 'l' => ["?1049", "?25", "?2026", "?1000", "?1006"].contains(&parameters),
        _ => false,
    };
    known.then_some("\u{1b}[".len() + end + 1)
}

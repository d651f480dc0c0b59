//! Replays a recording in a pseudo-terminal and draws every screen.

use std::process::Command;
use std::time::{Duration, Instant};

use pyobs_tests::pyobs;

use crate::corpus::File;
use crate::golden;
use crate::pty::Terminal;
use crate::verbs;

const SIZE: (u16, u16) = (110, 32);
/// The keys of the screens and the titles of their tabs.
const SCREENS: [(&str, &str); 10] = [
    ("0", "0 Overview"),
    ("1", "1 Processes"),
    ("2", "2 Frames"),
    ("3", "3 Flame"),
    ("4", "4 Waits"),
    ("5", "5 Health"),
    ("6", "6 Memory"),
    ("7", "7 Transfers"),
    ("8", "8 Redundancy"),
    ("9", "9 Timeline"),
];
/// A picture that has not changed for so long is complete.
const STILL: Duration = Duration::from_secs(1);
/// A screen that differs from the golden file may still be being drawn.
const PATIENCE: Duration = Duration::from_secs(10);

pub fn screens(file: &File) {
    let mut replay = Command::new(pyobs());
    replay.args(["replay", &file.file()]);
    verbs::neutral(&mut replay);
    replay.env("TERM", "xterm-256color");
    let mut terminal = Terminal::with(SIZE, replay);
    terminal.wait_for("REPLAY");
    let (mut pictures, name) = (String::new(), format!("{}/replay.txt", file.name));
    let golden = golden::read(&name);
    let (mut patience, mut before) = (PATIENCE, String::new());
    for (key, title) in SCREENS {
        terminal.press(key);
        let expected = section(&golden, title);
        let picture = picture(&terminal, expected, patience);
        if picture != expected {
            // The case has failed. The other screens are drawn only to be shown.
            patience = STILL;
        }
        // Two screens never look alike, so the key has been answered.
        assert_ne!(picture, before, "{title}");
        pictures += &heading(title);
        pictures += &picture;
        before = picture;
    }
    terminal.press("q");
    assert_eq!(terminal.wait().code(), Some(0), "{}", terminal.text());
    golden::check(&name, &pictures);
}

fn heading(title: &str) -> String {
    format!("==== {title}\n")
}

/// The picture of a screen in the golden file.
fn section<'a>(golden: &'a str, title: &str) -> &'a str {
    let rest = golden.split_once(&heading(title)).map_or("", |(_, rest)| rest);
    rest.find("==== ").map_or(rest, |end| &rest[..end])
}

/// The picture once it is that of the golden file, or else once it stays the same.
fn picture(terminal: &Terminal, golden: &str, patience: Duration) -> String {
    let begun = Instant::now();
    let (mut last, mut since) = (String::new(), Instant::now());
    loop {
        let now = lines(&terminal.text());
        let is_still = since.elapsed() >= STILL;
        if now == golden && !golden::updates() || is_still && (golden::updates() || begun.elapsed() >= patience) {
            return now;
        }
        if now != last {
            (last, since) = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Git and editors dislike blanks at the ends of lines.
fn lines(text: &str) -> String {
    let text: String = text.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    format!("{}\n", text.trim_end())
}

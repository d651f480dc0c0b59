//! Golden files: what pyobs printed when someone last looked at it.

use std::env;
use std::fs;

use crate::corpus;

/// Set to have the golden files rewritten.
const UPDATE: &str = "PYOBS_UPDATE_GOLDEN";
/// Lines of a difference that a failure shows.
const SHOWN: usize = 20;

pub fn updates() -> bool {
    env::var_os(UPDATE).is_some()
}

/// Reads a golden file. A missing one counts as empty.
pub fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_default()
}

/// Asserts that a text is that of the golden file, or makes it so.
#[track_caller]
pub fn check(name: &str, text: &str) {
    let golden = read(name);
    if golden == text {
        return;
    }
    if updates() {
        fs::create_dir_all(path(name).parent().unwrap()).unwrap();
        fs::write(path(name), text).unwrap();
        return;
    }
    panic!(
        "the output is not that of {}; if it should be, {UPDATE}=1 rewrites the file:\n{}",
        path(name).display(),
        difference(&golden, text)
    );
}

fn path(name: &str) -> std::path::PathBuf {
    corpus::folder().join("golden").join(name)
}

/// The lines that differ: one by one if there are as many as before, or else all between the common beginning and end.
fn difference(golden: &str, text: &str) -> String {
    let (golden, text): (Vec<&str>, Vec<&str>) = (golden.lines().collect(), text.lines().collect());
    let mut lines = Vec::new();
    if golden.len() == text.len() {
        for (at, (one, other)) in golden.iter().zip(&text).enumerate().filter(|(_, (one, other))| one != other) {
            lines.extend([format!("line {}:", at + 1), format!("- {one}"), format!("+ {other}")]);
        }
    } else {
        let begin = golden.iter().zip(&text).take_while(|(one, other)| one == other).count();
        let rest = golden.len().min(text.len()) - begin;
        let backward = golden.iter().rev().zip(text.iter().rev());
        let end = backward.take(rest).take_while(|(one, other)| one == other).count();
        lines.push(format!("line {}:", begin + 1));
        lines.extend(part('-', &golden[begin..golden.len() - end]));
        lines.extend(part('+', &text[begin..text.len() - end]));
    }
    shorten(lines, 3 * SHOWN).join("\n")
}

fn part(sign: char, lines: &[&str]) -> Vec<String> {
    shorten(lines.iter().map(|line| format!("{sign} {line}")).collect(), SHOWN)
}

fn shorten(mut lines: Vec<String>, most: usize) -> Vec<String> {
    if lines.len() > most {
        let more = lines.len() - most;
        lines.truncate(most);
        lines.push(format!("… and {more} more lines"));
    }
    lines
}

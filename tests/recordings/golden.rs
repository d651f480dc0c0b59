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

/// The golden file of this name; empty if there is none.
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

/// The lines that differ, without those that the beginnings and the ends have in common.
pub fn difference(golden: &str, text: &str) -> String {
    let (golden, text): (Vec<&str>, Vec<&str>) = (golden.lines().collect(), text.lines().collect());
    let begin = golden.iter().zip(&text).take_while(|(one, other)| one == other).count();
    let rest = golden.len().min(text.len()) - begin;
    let (last, other_last) = (golden.iter().rev(), text.iter().rev());
    let end = last.zip(other_last).take(rest).take_while(|(one, other)| one == other).count();
    let part = |sign: char, lines: &[&str]| {
        let part = &lines[begin..lines.len() - end];
        let mut shown: Vec<String> = part.iter().take(SHOWN).map(|line| format!("{sign} {line}")).collect();
        if part.len() > SHOWN {
            shown.push(format!("{sign} … and {} more lines", part.len() - SHOWN));
        }
        shown
    };
    let mut lines = vec![format!("line {}:", begin + 1)];
    lines.extend(part('-', &golden));
    lines.extend(part('+', &text));
    lines.join("\n")
}

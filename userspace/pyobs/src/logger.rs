//! Logs to stderr what `RUST_LOG` selects: from pyobs, aya, and the BPF programs (target `bpf`).

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};

use env_filter::{Builder, Filter};
use log::{Log, Metadata, Record};

use crate::cli::Verb;
use crate::exit;

const VARIABLE: &str = "RUST_LOG";

struct Logger {
    filter: Filter,
    terminal: bool,
}

/// Installs a logger if the variable is set. A dashboard owns the terminal, so its verbs log only if stderr is
/// redirected.
pub(crate) fn install(verb: Option<&Verb>) {
    let Some(wanted) = std::env::var_os(VARIABLE).filter(|wanted| !wanted.is_empty()) else { return };
    let terminal = io::stderr().is_terminal();
    if terminal && matches!(verb, Some(Verb::Top(_) | Verb::Replay(_))) {
        return;
    }
    let filter = match Builder::new().try_parse(&wanted.to_string_lossy()) {
        Ok(builder) => builder.build(),
        Err(error) => {
            exit::say(&format!("nothing is logged: {VARIABLE} has an {error}; write for example {VARIABLE}=debug"));
            return;
        }
    };
    let level = filter.filter();
    if log::set_logger(Box::leak(Box::new(Logger { filter, terminal }))).is_ok() {
        log::set_max_level(level);
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.filter.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.filter.matches(record) {
            return;
        }
        // Overwrites a progress line.
        let start = if self.terminal { "\r\x1b[K" } else { "" };
        let text =
            format!("{start}{:5} {}: {}\n", record.level(), record.target(), escaped(&record.args().to_string()));
        // In one write, because other threads log as well. A closed stderr has no reader to inform.
        let _ = io::stderr().write_all(text.as_bytes());
    }

    fn flush(&self) {}
}

/// Text may come from watched processes, so control characters are escaped, and further lines are indented: text cannot
/// drive a terminal or pose as another message.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (number, line) in text.trim_end().lines().enumerate() {
        if number > 0 {
            escaped.push_str("\n    ");
        }
        for c in line.chars() {
            if c.is_control() {
                let _ = write!(escaped, "{}", c.escape_default());
            } else {
                escaped.push(c);
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_cannot_drive_the_terminal_or_pose_as_two() {
        assert_eq!(escaped("a\u{1b}[2Jb\rc\u{9b}d\te\n"), "a\\u{1b}[2Jb\\rc\\u{9b}d\\te");
        assert_eq!(escaped("0: (b7) r0 = 0\nDEBUG bpf: no\n\n"), "0: (b7) r0 = 0\n    DEBUG bpf: no");
        assert_eq!(escaped("grün"), "grün");
    }
}

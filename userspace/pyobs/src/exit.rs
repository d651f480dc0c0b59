//! Turns an error into one sentence and an exit code (docs/cli.md).

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The operation failed.
    Failed(String),
    /// Wrong arguments.
    Usage(String),
    /// The machine or the user's rights lack something that pyobs needs.
    Lacking(String),
    /// The command of `record -- COMMAND` could not be executed; the code is the one a shell would give.
    Command(u8, String),
    /// The reader closed our output.
    OutputClosed,
}

impl Failure {
    pub(crate) fn failed(error: impl Display) -> Self {
        Self::Failed(error.to_string())
    }

    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::OutputClosed => 0,
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Lacking(_) => 3,
            Self::Command(code, _) => *code,
        }
    }

    fn sentence(&self) -> Option<&str> {
        match self {
            Self::Failed(text) | Self::Usage(text) | Self::Lacking(text) | Self::Command(_, text) => Some(text),
            Self::OutputClosed => None,
        }
    }
}

/// Converts a write error. A reader such as `| head` may close the output at any time.
pub(crate) fn output(result: io::Result<()>) -> Result<(), Failure> {
    result.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::OutputClosed,
        _ => Failure::Failed(format!("the output could not be written: {error}; free some space, or write elsewhere")),
    })
}

pub(crate) fn code(result: Result<u8, Failure>) -> ExitCode {
    result.unwrap_or_else(|failure| tell(&failure)).into()
}

/// Prints the failure, and returns its exit code.
pub(crate) fn tell(failure: &Failure) -> u8 {
    if let Some(sentence) = failure.sentence() {
        say(sentence);
    }
    failure.code()
}

/// Prints one line to stderr. If stderr is closed, there is no one to inform.
pub(crate) fn say(sentence: &str) {
    let _ = writeln!(io::stderr(), "pyobs: {}", one_line(sentence));
}

/// Limits a sentence, because arguments can be long. The end is kept, because it says what is wrong.
const SENTENCE_MAX: usize = 900;

/// Escapes control characters. Names of files and arguments may contain anything, and must not reach a terminal
/// unescaped.
pub(crate) fn one_line(text: &str) -> String {
    let count = text.chars().count();
    let (head, tail) = if count > SENTENCE_MAX { (SENTENCE_MAX / 2, count - SENTENCE_MAX / 2) } else { (count, count) };
    let mut line = String::with_capacity(text.len().min(SENTENCE_MAX));
    for (at, c) in text.chars().enumerate() {
        if at >= head && at < tail {
            if at == head {
                line.push('…');
            }
        } else if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

/// A panic is a bug in pyobs. The user sees one sentence instead of a page.
pub(crate) fn say_panics_in_one_sentence() {
    std::panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        let place = info.location().map(|place| format!(" at {}:{}", place.file(), place.line())).unwrap_or_default();
        say(&format!("a bug in pyobs{place}: {text}; please report it at {}/issues", env!("CARGO_PKG_REPOSITORY")));
        std::process::exit(1);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_match_the_documentation() {
        let text = String::new;
        assert_eq!(Failure::Failed(text()).code(), 1);
        assert_eq!(Failure::Usage(text()).code(), 2);
        assert_eq!(Failure::Lacking(text()).code(), 3);
        assert_eq!(Failure::Command(127, text()).code(), 127);
    }

    #[test]
    fn a_closed_pipe_is_not_an_error_but_a_full_disk_is() {
        let closed = output(Err(io::ErrorKind::BrokenPipe.into())).unwrap_err();
        assert_eq!((closed.code(), closed.sentence()), (0, None));
        let full = output(Err(io::ErrorKind::StorageFull.into())).unwrap_err();
        assert_eq!(full.code(), 1);
    }

    #[test]
    fn a_sentence_cannot_drive_the_terminal() {
        assert_eq!(one_line("a\u{1b}[2Jb\nc\u{9b}d"), "a\\u{1b}[2Jb\\nc\\u{9b}d");
        assert_eq!(one_line("grün"), "grün");
        let long = one_line(&format!("<{}>", "x".repeat(100_000)));
        assert_eq!((long.chars().count(), long.starts_with('<'), long.ends_with('>')), (SENTENCE_MAX + 1, true, true));
    }
}

//! One line of progress on a terminal. Prints nothing elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::exit;

const EVERY: Duration = Duration::from_millis(200);

pub(crate) struct Progress {
    on: bool,
    next: Instant,
    shown: bool,
}

impl Progress {
    /// Prints nothing for the time `after`, because short operations need no progress line.
    pub(crate) fn new(wanted: bool, after: Duration) -> Self {
        Self { on: wanted && io::stderr().is_terminal(), next: Instant::now() + after, shown: false }
    }

    /// Prints the line if it is due. Cheap enough to call for every event.
    pub(crate) fn show(&mut self, line: impl FnOnce() -> String) {
        if !self.on || Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + EVERY;
        self.shown = true;
        let mut stderr = io::stderr();
        let _ = write!(stderr, "\r\x1b[K{}", exit::one_line(&line())).and_then(|()| stderr.flush());
    }

    /// Prints the line now, for an operation that cannot report its progress.
    pub(crate) fn show_now(&mut self, line: &str) {
        self.next = Instant::now();
        self.show(|| line.to_owned());
    }

    pub(crate) fn say(&mut self, sentence: &str) {
        self.clear();
        exit::say(sentence);
    }

    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let mut stderr = io::stderr();
            let _ = write!(stderr, "\r\x1b[K").and_then(|()| stderr.flush());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

//! `pyobs replay`: the dashboard over a recording.

use std::io::{self, IsTerminal};

use pyobs_capture::source;
use pyobs_tui::{Color, Options, ReplayLog, Source};

use super::read;
use crate::cli::Replay;
use crate::exit::Failure;
use crate::signals::Signals;

pub(super) fn run(arguments: &Replay) -> Result<(), Failure> {
    if !io::stdout().is_terminal() {
        return Err(Failure::Usage("replay needs a terminal; `pyobs report FILE` says it in words".to_owned()));
    }
    let (log, meta) = read(&arguments.file, ReplayLog::new, ReplayLog::push)?;
    let source = Source::Replay { file: arguments.file.to_string_lossy().into_owned() };
    let is_here = rustix::system::uname().nodename().to_bytes() == meta.host.as_bytes();
    // The process may be gone, and its pid reused.
    let source_line =
        Box::new(move |_, file: &str, line| is_here.then(|| source::line(None, file, line, &meta.started)).flatten());
    // Not earlier: until the dashboard is there, Ctrl-C must end pyobs at once, even while it reads a long recording.
    let signals = Signals::catch_with_resize()?;
    pyobs_tui::replay(log, Options { source, color: Color::detect(), source_line, signals: Some(Box::new(signals)) })
        .map_err(|error| Failure::Failed(format!("the terminal cannot be used: {error}; check $TERM")))
}

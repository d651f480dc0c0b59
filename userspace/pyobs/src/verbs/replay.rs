use std::io::{self, IsTerminal};

use pyobs_capture::source;
use pyobs_tui::{Color, Options, Source};
use tokio::sync::mpsc;

use super::load;
use crate::cli::Replay;
use crate::exit::Failure;

pub(super) fn run(arguments: &Replay) -> Result<(), Failure> {
    if !io::stdout().is_terminal() {
        return Err(Failure::Usage("replay needs a terminal; `pyobs report FILE` says it in words".to_owned()));
    }
    let model = load(&arguments.file)?;
    let (_, no_batches) = mpsc::channel(1);
    let source = Source::Replay { file: arguments.file.to_string_lossy().into_owned() };
    let (started, host) = (model.meta().started.clone(), model.meta().host.clone());
    let is_here = rustix::system::uname().nodename().to_bytes() == host.as_bytes();
    // The process may be gone, and another have its number.
    let source_line =
        Box::new(move |_, file: &str, line| is_here.then(|| source::line(None, file, line, &started)).flatten());
    pyobs_tui::run(model, no_batches, Options { source, color: Color::detect(), source_line })
        .map_err(|error| Failure::Failed(format!("the terminal cannot be used: {error}; check $TERM")))
}

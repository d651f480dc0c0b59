//! `pyobs replay`: the dashboard over a recording.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread;
use std::time::Duration;

use pyobs_capture::source;
use pyobs_model::{Event, History};
use pyobs_recording::{Error, Reader};
use pyobs_tui::{Color, EventSource, Options, Pulled, ReplayLog, Source};

use super::read;
use crate::cli::Replay;
use crate::exit::Failure;
use crate::saver;
use crate::signals::Signals;

/// Events that go to the dashboard together, and how many such batches may wait for it.
const BATCH: usize = 2048;
const BATCHES: usize = 4;

pub(super) fn run(arguments: &Replay) -> Result<(), Failure> {
    if !io::stdout().is_terminal() {
        return Err(Failure::Usage("replay needs a terminal; `pyobs report FILE` prints text instead".to_owned()));
    }
    let (model, reader) = read(&arguments.file, History::REPLAY)?;
    let meta = model.meta().clone();
    let meta_of_files = meta.clone();
    let source = Source::Replay { file: arguments.file.to_string_lossy().into_owned() };
    let is_here = rustix::system::uname().nodename().to_bytes() == meta.host.as_bytes();
    // The process may be gone, and its pid reused.
    let source_line =
        Box::new(move |_, file: &str, line| is_here.then(|| source::line(None, file, line, &meta.started)).flatten());
    // Not earlier: until the dashboard is there, Ctrl-C must end pyobs at once, even while it reads a long recording. Not
    // later: threads inherit the mask.
    let signals = Signals::catch_with_resize()?;
    let log = ReplayLog::of_source(model, Box::new(Rereader::start(reader)?));
    let save = Box::new(move |saved| saver::save(saved, &meta_of_files));
    let signals: Option<Box<dyn pyobs_tui::Signals>> = Some(Box::new(signals));
    pyobs_tui::replay(log, Options { source, color: Color::detect(), source_line, signals, save })
        .map_err(|error| Failure::Failed(format!("the terminal cannot be used: {error}; check $TERM")))
}

type Batch = Result<Vec<Event>, Error>;

/// A thread that reads the recording again from the beginning on each request.
struct Rereader {
    requests: Sender<SyncSender<Batch>>,
    batches: Receiver<Batch>,
}

impl Rereader {
    fn start(mut reader: Reader) -> Result<Self, Failure> {
        let (requests, requested) = mpsc::channel::<SyncSender<Batch>>();
        thread::Builder::new()
            .name("reader".to_owned())
            .spawn(move || requested.into_iter().for_each(|batches| reread(&mut reader, &batches)))
            .map_err(|error| Failure::Failed(format!("a thread could not be started: {error}; try again")))?;
        let (_, batches) = mpsc::channel();
        Ok(Self { requests, batches })
    }
}

/// Ends early when the dashboard has dropped its end of the channel to seek another time.
fn reread(reader: &mut Reader, batches: &SyncSender<Batch>) {
    let mut batch = Vec::with_capacity(BATCH);
    let read = reader.replay_while(|event| {
        batch.push(event);
        let is_gone =
            batch.len() == BATCH && batches.send(Ok(std::mem::replace(&mut batch, Vec::with_capacity(BATCH)))).is_err();
        if is_gone { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    // Nobody waits for the rest if the dashboard seeks another time.
    _ = batches.send(read.map(|()| batch));
}

impl EventSource for Rereader {
    fn restart(&mut self) {
        let (batches, received) = mpsc::sync_channel(BATCHES);
        self.batches = received;
        // The thread ends only with pyobs: a panic in it exits the process.
        _ = self.requests.send(batches);
    }

    fn next(&mut self, wait: Duration) -> Pulled {
        match self.batches.recv_timeout(wait) {
            Ok(Ok(events)) => Pulled::Events(events),
            Ok(Err(error)) => Pulled::Failed(error.to_string()),
            Err(RecvTimeoutError::Timeout) => Pulled::Later,
            Err(RecvTimeoutError::Disconnected) => Pulled::End,
        }
    }
}

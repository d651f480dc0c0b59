//! `pyobs top`: the live dashboard. One thread captures, and the main thread draws.

use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use pyobs_capture::privileges::Keep;
use pyobs_capture::session::{Session, Targets};
use pyobs_capture::source;
use pyobs_model::{History, Model, Nanos, Pid};
use pyobs_tui::{Batch, Color, Options, Source};
use rustix::pipe::PipeFlags;
use tokio::sync::mpsc::{self, Sender};

use super::{drop_privileges, drop_privileges_for, start, targets};
use crate::advice;
use crate::cli::{Top, Watch};
use crate::exit::Failure;
use crate::saver::Saver;
use crate::signals::Signals;

const PAST: History = History::Window { length: Nanos(600_000_000_000), samples: 500_000 };
const WAIT: Duration = Duration::from_millis(500);
/// Libraries that no process has mapped after this time are reported.
const UNFOUND_AFTER: Nanos = Nanos(10_000_000_000);
/// If the dashboard falls this many batches behind, capture waits for it, and losses of the kernel's ring are counted.
const BATCHES: usize = 64;

pub(super) fn run(arguments: &Top) -> Result<(), Failure> {
    if !io::stdout().is_terminal() {
        return Err(Failure::Usage("top needs a terminal; `pyobs record` writes to a file instead".to_owned()));
    }
    // Before any thread starts, because threads inherit the mask.
    let signals = Signals::catch_with_resize()?;
    let (sender, batches) = mpsc::channel(BATCHES);
    let (begun, beginning) = std::sync::mpsc::channel();
    let (watch, targets) = (arguments.watch.clone(), targets(&arguments.watch));
    // Closed when the dashboard ends. It wakes capture, whose polls are far apart.
    let (gone, here) =
        rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|error| Failure::failed(io::Error::from(error)))?;
    let capture = thread::Builder::new()
        .name("capture".to_owned())
        .spawn(move || match begin(&watch, targets) {
            Ok(session) => {
                // The main thread waits for it.
                let _ = begun.send(Ok(session.meta().clone()));
                capture(session, &sender, &gone);
            }
            Err(failure) => _ = begun.send(Err(failure)),
        })
        .map_err(|error| Failure::Failed(format!("a thread could not be started: {error}; try again")))?;
    let stopped = |_| Failure::Failed("capture ended because of a bug in pyobs".to_owned());
    let meta = beginning.recv().map_err(stopped)??;
    let saver = Saver::start(meta.clone())?;
    // Rights belong to threads, so each drops its own.
    drop_privileges(Keep::Reading)?;
    advice::load();
    let started = meta.started.clone();
    let source_line = Box::new(move |pid: Pid, file: &str, line| source::line(Some(pid.0), file, line, &started));
    let model = Model::new(meta, PAST);
    let save = Box::new(move |saved| saver.save(saved));
    let options =
        Options { source: Source::Live, color: Color::detect(), source_line, signals: Some(Box::new(signals)), save };
    let shown = pyobs_tui::run(model, batches, options);
    drop(here);
    // The dashboard has dropped its end of the channel, so capture ends. If it panicked, the hook has reported that.
    let captured = capture.join();
    shown.map_err(|error| Failure::Failed(format!("the terminal cannot be used: {error}; check $TERM")))?;
    captured.map_err(|_| Failure::Failed("capture ended because of a bug in pyobs".to_owned()))
}

/// Runs on the thread that will poll, because a session cannot move to another thread.
fn begin(watch: &Watch, targets: Targets) -> Result<Session, Failure> {
    let session = start(watch, targets)?;
    drop_privileges_for(&session, Keep::Reading)?;
    Ok(session)
}

/// Captures until the dashboard ends, the watched processes have ended, or the kernel side fails.
fn capture(mut session: Session, sender: &Sender<Batch>, gone: &OwnedFd) {
    if let Err(error) = session.listen(gone) {
        _ = sender.blocking_send(Batch::Failed(error.to_string()));
        return;
    }
    let send = |batch| sender.blocking_send(batch).is_ok();
    let mut is_unfound_told = false;
    let last = loop {
        let mut events = Vec::new();
        if let Err(error) = session.poll(WAIT, &mut events) {
            break Some(Batch::Failed(error.to_string()));
        }
        if !events.is_empty() && !send(Batch::Events(events)) {
            break None;
        }
        let mut notes = session.notes();
        if !is_unfound_told && session.now() >= UNFOUND_AFTER {
            notes.extend(session.unfound());
            is_unfound_told = true;
        }
        for note in notes {
            // A closed dashboard is detected below.
            let _ = send(Batch::Note(note));
        }
        if sender.is_closed() {
            break None;
        }
        if !session.targets_alive() {
            break Some(Batch::Note("every watched process has ended".to_owned()));
        }
    };
    let mut events = Vec::new();
    session.finish(&mut events);
    if let Some(last) = last {
        let _ = send(Batch::Events(events)) && send(last);
    }
}

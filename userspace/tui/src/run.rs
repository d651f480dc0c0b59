//! The event loop: waits for input, a batch of events or the time to draw, then updates the state and draws it.

use std::io;
use std::time::{Duration, Instant};

use pyobs_model::Model;
use tokio::sync::mpsc;

use crate::app::{App, Flow, Msg};
use crate::input::{Input, InputReader};
use crate::replay_log::ReplayLog;
use crate::terminal::TerminalGuard;
use crate::{Batch, Options, Signals};

/// Shows `model`, and applies `batches` to it, until the user quits, the terminal goes away or a signal asks pyobs to quit.
/// When `batches` closes, the capture has ended; the last picture stays.
///
/// # Errors
///
/// If standard output is not a terminal, or the terminal cannot be set up.
pub fn run(model: Model, batches: mpsc::Receiver<Batch>, mut options: Options) -> io::Result<()> {
    let signals = options.signals.take();
    block_on(show(batches, signals, |size| App::new(model, options, size)))
}

/// Shows a recording until the user quits, the terminal goes away or a signal asks pyobs to quit.
///
/// # Errors
///
/// As for [`run()`].
pub fn replay(log: ReplayLog, mut options: Options) -> io::Result<()> {
    let (_, no_batches) = mpsc::channel(1);
    let signals = options.signals.take();
    block_on(show(no_batches, signals, |size| App::replaying(log, options, size)))
}

fn block_on(shown: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(shown)
}

async fn show(
    mut batches: mpsc::Receiver<Batch>,
    signals: Option<Box<dyn Signals>>,
    begin: impl FnOnce((u16, u16)) -> App,
) -> io::Result<()> {
    let mut screen = TerminalGuard::take()?;
    let mut reader = InputReader::start(signals)?;

    let started = Instant::now();
    let mut app = begin(screen.size()?);
    let mut is_open = true;
    loop {
        let deadline = app.deadline().map(|at| tokio::time::Instant::from_std(started + at));
        let msg = tokio::select! {
            biased;
            input = reader.next() => match input {
                Input::Key(key) => Msg::Key(key),
                Input::Mouse(mouse) => Msg::Mouse(mouse),
                Input::Resized => match screen.size() {
                    Ok((width, height)) => Msg::Resize(width, height),
                    Err(_) => return Ok(()),
                },
                Input::Gone => return Ok(()),
            },
            () = sleep_until(deadline) => Msg::Tick,
            batch = batches.recv(), if is_open => match batch {
                Some(batch) => Msg::Batch(batch),
                None => {
                    is_open = false;
                    Msg::Ended
                }
            },
        };
        let begun = Instant::now();
        let flow = app.update(msg, started.elapsed());
        app.account(begun.elapsed());
        if flow == Flow::Quit {
            return Ok(());
        }
        if app.wants_picture(started.elapsed()) {
            app.prepare(started.elapsed());
            let begun = Instant::now();
            let drawn = screen.draw(|frame| app.draw(frame));
            if drawn.is_err() {
                // The terminal went away while a picture was drawn.
                return Ok(());
            }
            app.account(begun.elapsed());
        }
    }
}

async fn sleep_until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at.max(tokio::time::Instant::now() + Duration::from_millis(1))).await,
        None => std::future::pending().await,
    }
}

//! The loop: waits for a key, a batch, a signal or the time to draw.

use std::io;
use std::time::{Duration, Instant};

use pyobs_model::Model;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::app::{App, Flow, Msg};
use crate::input::{Input, Reader};
use crate::replay_log::ReplayLog;
use crate::terminal::Screen;
use crate::{Batch, Options};

/// Shows `model`, and what `batches` add to it, until the user quits, the terminal goes away or a signal says so.
/// The end of `batches` is the end of the capture; its last picture stays.
///
/// # Errors
///
/// When there is no terminal to take.
pub fn run(model: Model, batches: mpsc::Receiver<Batch>, options: Options) -> io::Result<()> {
    block_on(show(batches, |size| App::new(model, options, size)))
}

/// Shows a recording, in the same way.
///
/// # Errors
///
/// When there is no terminal to take.
pub fn replay(log: ReplayLog, options: Options) -> io::Result<()> {
    let (_, no_batches) = mpsc::channel(1);
    block_on(show(no_batches, |size| App::replaying(log, options, size)))
}

fn block_on(shown: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(shown)
}

async fn show(mut batches: mpsc::Receiver<Batch>, begin: impl FnOnce((u16, u16)) -> App) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut resized = signal(SignalKind::window_change())?;
    let mut screen = Screen::take()?;
    let mut reader = Reader::start()?;

    let started = Instant::now();
    let mut app = begin(screen.size()?);
    let mut is_open = true;
    loop {
        let deadline = app.deadline().map(|at| tokio::time::Instant::from_std(started + at));
        let msg = tokio::select! {
            biased;
            _ = terminate.recv() => return Ok(()),
            _ = hang_up.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = resized.recv() => match screen.size() {
                Ok((width, height)) => Msg::Resize(width, height),
                Err(_) => return Ok(()),
            },
            input = reader.next() => match input {
                Input::Key(key) => Msg::Key(key),
                Input::Mouse(mouse) => Msg::Mouse(mouse),
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
                // The terminal went away in the middle of a picture.
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

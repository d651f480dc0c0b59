//! `pyobs record`: attaches, and leaves a complete file, whatever ends the recording.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pyobs_capture::launch::{self, Launch};
use pyobs_capture::session::{Session, Targets};
use pyobs_model::{Event, Family, History, Model};
use pyobs_recording::{Background, Reader, Writer};

use super::{drop_privileges_for, start, targets};
use crate::cli::Record;
use crate::exit::{self, Failure};
use crate::names;
use crate::ownership;
use crate::progress::Progress;
use crate::signals::{Signal, Signals};
use pyobs_model::number::{grouped, size};

/// The time limit for re-reading a recording when it ends, so that pyobs exits soon after Ctrl-C.
const READ_FOR: Duration = Duration::from_secs(1);
const WAIT: Duration = Duration::from_millis(400);

pub(super) fn run(arguments: &Record) -> Result<u8, Failure> {
    // Start it before signals are blocked, because the command inherits the mask.
    let mut command = launch(arguments)?;
    let mut signals = Signals::catch()?;
    let watched = match &command {
        Some(command) => Targets::Launched { pid: command.pid(), program: arguments.command[0].clone() },
        None => targets(&arguments.watch),
    };
    let session = start(&arguments.watch, watched)?;
    session.listen(&signals).map_err(Failure::failed)?;
    let ending = command.as_ref().map(Launch::ending).transpose().map_err(Failure::failed)?;
    if let Some(ending) = &ending {
        session.listen(ending).map_err(Failure::failed)?;
    }
    // Print them now, when the user can still react, and again at the end, when these lines have scrolled away.
    for refusal in session.meta().refusals() {
        exit::say(&refusal);
    }
    let path = arguments.output.clone().unwrap_or_else(|| names::unused("", "pyobs"));
    let writer = Writer::create(&path, session.meta()).map_err(Failure::failed)?;
    drop_privileges_for(&session, ownership::give_away(&path))?;
    if let Some(command) = &mut command
        && let Err(error) = command.go()
    {
        // Nothing was recorded, so leave no empty file.
        drop(writer);
        let _ = fs::remove_file(&path);
        return Err(not_executable(&arguments.command[0].to_string_lossy(), &error));
    }

    let writer = Background::start(writer)
        .map_err(|error| Failure::Failed(format!("a thread could not be started: {error}; try again")))?;
    let mut recording = Recording::new(session, writer, path, command.is_none());
    let ended = recording.run(arguments.duration, command.as_mut(), &mut signals);
    let closed = recording.close();
    // Report it now, because the command may run for days.
    let failure = ended.and(closed).err().map(|failure| exit::tell(&failure));
    let status = command.as_mut().map_or(0, |command| wait(command, &mut signals));
    Ok(failure.unwrap_or(status))
}

fn launch(arguments: &Record) -> Result<Option<Launch>, Failure> {
    if arguments.command.is_empty() {
        return Ok(None);
    }
    let launch = Launch::prepare(&arguments.command);
    launch.map(Some).map_err(|error| Failure::Failed(format!("a process cannot be started: {error}; try again")))
}

fn not_executable(name: &str, error: &io::Error) -> Failure {
    // The system's message, without the error number that the standard library appends.
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    Failure::Command(launch::failure_code(error), format!("cannot run {name}: {text}; check its name and its path"))
}

/// After the recording: waits for the command to end, and passes signals on to it.
fn wait(command: &mut Launch, signals: &mut Signals) -> u8 {
    loop {
        match command.try_wait() {
            Ok(Some(status)) => return launch::exit_code(status),
            Ok(None) => {}
            Err(_) => return 1,
        }
        while let Some(signal) = signals.take() {
            if !pass_on(signal, command) {
                return 1;
            }
        }
        signals.wait(WAIT);
    }
}

/// Returns false if the command cannot be signalled. Ctrl-C has reached it already, because the terminal signals the
/// whole foreground group.
fn pass_on(signal: Signal, command: &Launch) -> bool {
    let pid = i32::try_from(command.pid()).ok().and_then(rustix::process::Pid::from_raw);
    signal == Signal::Interrupt || pid.is_some_and(|pid| rustix::process::kill_process(pid, signal.for_kill()).is_ok())
}

struct Recording {
    session: Session,
    writer: Background,
    path: PathBuf,
    samples: u64,
    lost: u64,
    progress: Progress,
    /// The writer accepts no more events.
    broken: bool,
}

impl Recording {
    /// `alone`: no other process writes to the terminal.
    fn new(session: Session, writer: Background, path: PathBuf, alone: bool) -> Self {
        let progress = Progress::new(alone, Duration::ZERO);
        Self { session, writer, path, samples: 0, lost: 0, progress, broken: false }
    }

    /// Records until the duration is over, the command or the watched processes have ended, or a signal requests the
    /// end.
    fn run(
        &mut self,
        duration: Option<Duration>,
        mut command: Option<&mut Launch>,
        signals: &mut Signals,
    ) -> Result<(), Failure> {
        let mut events = Vec::new();
        let mut passed_on = false;
        loop {
            let left = duration.map_or(WAIT, |duration| duration.saturating_sub(self.elapsed()));
            if left.is_zero() {
                return Ok(());
            }
            self.session.poll(left.min(WAIT), &mut events).map_err(Failure::failed)?;
            self.append(&mut events)?;
            for note in self.session.notes() {
                self.progress.say(&note);
            }
            self.show();
            while let Some(signal) = signals.take() {
                match command.as_deref() {
                    Some(_) if signal == Signal::Interrupt => {}
                    // At the second request, pyobs ends without waiting for the command.
                    Some(command) if !passed_on && pass_on(signal, command) => passed_on = true,
                    _ => return Ok(()),
                }
            }
            let over = match &mut command {
                Some(command) => !matches!(command.try_wait(), Ok(None)),
                None => !self.session.targets_alive(),
            };
            if over {
                if command.is_none() {
                    self.progress.say("every watched process has ended");
                }
                return Ok(());
            }
        }
    }

    /// Time since the recording began.
    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.session.now().0)
    }

    fn append(&mut self, events: &mut Vec<Event>) -> Result<(), Failure> {
        for event in events.iter() {
            match event {
                Event::Sample(_) => self.samples += 1,
                Event::Loss { count, .. } => self.lost = self.lost.saturating_add(*count),
                _ => {}
            }
        }
        match self.writer.append(events) {
            Ok(dropped) => self.lost = self.lost.saturating_add(dropped),
            Err(error) => {
                self.broken = true;
                return Err(Failure::failed(error));
            }
        }
        Ok(())
    }

    fn show(&mut self) {
        let (seconds, samples, lost) = (self.elapsed().as_secs_f64(), self.samples, self.lost);
        self.progress.show(|| {
            let (samples, lost) = (grouped(samples), grouped(lost));
            format!("recording {seconds:.1} s, {samples} samples, {lost} lost, Ctrl-C stops")
        });
    }

    /// Detaches, completes the file, and prints where it is.
    fn close(mut self) -> Result<(), Failure> {
        let (refusals, unfound) = (self.session.meta().refusals(), self.session.unfound());
        let has_redundancy = self.session.meta().probes.iter().any(|probe| probe == Family::Redundancy.name());
        self.progress.show_now("stopping: resolving the last function names, detaching probes");
        let mut last = Vec::new();
        self.session.finish(&mut last);
        // The latest event marks the end.
        let seconds = last.iter().filter_map(Event::at).max().unwrap_or_default().as_secs_f64();
        let (samples, lost) = last_counts(self.samples, self.lost, &last);
        self.progress.clear();
        if self.broken {
            // The user sees the error of the write that failed.
            return Ok(());
        }
        let mut writer = self.writer;
        writer.append(&mut last).and_then(|_| writer.finish()).map_err(Failure::failed)?;
        refusals.iter().chain(&unfound).for_each(|sentence| exit::say(sentence));
        if let Some(sentence) = has_redundancy.then(|| undecided(&self.path)).flatten() {
            exit::say(&sentence);
        }
        exit::say(&summary(&self.path, seconds, samples, lost));
        Ok(())
    }
}

/// A sentence about the lines that the family `redundancy` left undecided. `None` also if the recording cannot be read:
/// the next verb reports that.
fn undecided(path: &Path) -> Option<String> {
    let mut reader = Reader::open(path).ok()?;
    let mut model = Model::new(reader.meta().clone(), History::REPORT);
    let (until, mut is_late) = (Instant::now() + READ_FOR, false);
    let read = reader.replay_while(|event| {
        if is_about_redundancy(&event) {
            model.apply(&event);
        }
        is_late = Instant::now() >= until;
        if is_late { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    read.ok()?;
    if is_late {
        return Some(format!("{}: the report says which lines are undecided", Family::Redundancy.name()));
    }
    pyobs_export::undecided(&model)
}

/// Whether the verdicts of the family `redundancy` depend on this event.
fn is_about_redundancy(event: &Event) -> bool {
    matches!(
        event,
        Event::Frame { .. }
            | Event::Stack { .. }
            | Event::Process { .. }
            | Event::Thread { .. }
            | Event::Sample(_)
            | Event::Access(_)
            | Event::Pair(_)
            | Event::Call(_)
            | Event::Watchpoints { .. }
    )
}

fn last_counts(samples: u64, lost: u64, last: &[Event]) -> (u64, u64) {
    last.iter().fold((samples, lost), |(samples, lost), event| match event {
        Event::Sample(_) => (samples + 1, lost),
        Event::Loss { count, .. } => (samples, lost.saturating_add(*count)),
        _ => (samples, lost),
    })
}

fn summary(path: &Path, seconds: f64, samples: u64, lost: u64) -> String {
    let size = fs::metadata(path).map_or_else(|_| "size unknown".to_owned(), |meta| size(meta.len()));
    let (samples, lost) = (grouped(samples), grouped(lost));
    let shown = path.display();
    format!(
        "recorded {seconds:.1} s, {samples} samples, {lost} lost, in {shown} ({size}); next: `pyobs report {}`",
        quoted(path)
    )
}

/// Quotes a path as one word for a shell.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "/._-+:,@%".contains(c);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_command_can_be_pasted() {
        assert_eq!(quoted(Path::new("a/b-1.pyobs")), "a/b-1.pyobs");
        assert_eq!(quoted(Path::new("my run.pyobs")), "'my run.pyobs'");
        assert_eq!(quoted(Path::new("it's")), r"'it'\''s'");
        assert_eq!(quoted(Path::new("-x")), "'-x'");
    }

    #[test]
    fn the_error_names_a_command_that_cannot_run() {
        let missing = not_executable("pythn", &io::Error::from_raw_os_error(libc::ENOENT));
        let said = "cannot run pythn: No such file or directory; check its name and its path".to_owned();
        assert_eq!(missing, Failure::Command(127, said));
        assert_eq!(not_executable("/etc", &io::Error::from_raw_os_error(libc::EACCES)).code(), 126);
    }
}

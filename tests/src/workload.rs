//! Programs that are watched: starts them, reads their output, and kills them when their case ends.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// No program takes this long; the limit only keeps a hanging case from hanging the suite.
const PATIENCE: Duration = Duration::from_secs(300);

/// A command in its own process group, which the kernel kills when the thread that started it is gone.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.process_group(0);
    // SAFETY: between fork and exec only prctl and signal are called, which are async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // A shell's background jobs ignore SIGINT, and programs under `nohup` SIGHUP. Without this, they would pass
            // that on.
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            Ok(())
        });
    }
    command
}

/// A running program whose standard output is read line by line.
#[derive(Debug)]
pub struct Workload {
    child: Child,
    shown: String,
    lines: Receiver<String>,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Workload {
    /// Starts a command made by [`command`] or by [`crate::Python`].
    #[track_caller]
    pub fn start(mut command: Command) -> Self {
        let shown = format!("{command:?}");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{shown}: {error}"));
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (sender, lines) = channel();
        let stdout = std::thread::spawn(move || {
            let (mut reader, mut all) = (BufReader::new(stdout), String::new());
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                let text = String::from_utf8_lossy(&line).into_owned();
                all.push_str(&text);
                // The receiver may be gone.
                let _ = sender.send(text.trim_end_matches('\n').to_owned());
                line.clear();
            }
            all
        });
        let stderr = std::thread::spawn(move || {
            let mut all = Vec::new();
            let _ = BufReader::new(stderr).read_to_end(&mut all);
            String::from_utf8_lossy(&all).into_owned()
        });
        Self { child, shown, lines, stdout: Some(stdout), stderr: Some(stderr) }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that the program prints.
    #[track_caller]
    pub fn line(&mut self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("{} printed no line in {PATIENCE:?}", self.shown),
            Err(RecvTimeoutError::Disconnected) => {
                let shown = self.shown.clone();
                panic!("{shown} ended and printed no line: {:?}", self.finish())
            }
        }
    }

    /// Skips lines until the program prints this one.
    #[track_caller]
    pub fn wait_for(&mut self, expected: &str) {
        while self.line() != expected {}
    }

    pub fn signal(&self, signal: libc::c_int) {
        let pid = libc::pid_t::try_from(self.pid()).unwrap();
        // SAFETY: the call takes two numbers. The child has not been waited for, so its pid is still its own.
        let sent = unsafe { libc::kill(pid, signal) };
        assert_eq!(sent, 0, "signal {signal} for {}: {}", self.shown, std::io::Error::last_os_error());
    }

    /// Signals the program and its children.
    pub fn signal_group(&self, signal: libc::c_int) {
        let group = libc::pid_t::try_from(self.pid()).unwrap();
        // SAFETY: the call takes two numbers. `command` made the group for this child: its number cannot be reused
        // while a process is in it, nor until all other pids have been used.
        unsafe { libc::kill(-group, signal) };
    }

    /// Whether the program is still running.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until the program ends by itself.
    #[track_caller]
    pub fn wait(mut self) -> Ended {
        let since = Instant::now();
        while self.is_alive() {
            assert!(since.elapsed() < PATIENCE, "{} did not end in {PATIENCE:?}", self.shown);
            std::thread::sleep(Duration::from_millis(5));
        }
        self.finish()
    }

    /// Kills the program and its process group.
    pub fn kill(mut self) -> Ended {
        self.finish()
    }

    fn finish(&mut self) -> Ended {
        let status = self.child.try_wait().ok().flatten();
        self.signal_group(libc::SIGKILL);
        let status = status.or_else(|| self.child.wait().ok()).unwrap();
        let text =
            |reader: Option<JoinHandle<String>>| reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
        Ended { status, stdout: text(self.stdout.take()), stderr: text(self.stderr.take()) }
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        if self.stdout.is_some() {
            self.signal_group(libc::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

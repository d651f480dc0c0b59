//! A program that is watched: started, listened to, and gone when its case is.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Nothing here takes so long; it only keeps a hanging case from hanging the suite.
const PATIENCE: Duration = Duration::from_secs(300);

/// A command that the kernel kills when the thread that starts it is gone, in a process group of its own.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.process_group(0);
    // SAFETY: between fork and exec only prctl and signal are called, which are async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // A shell's background job ignores the one, what `nohup` starts the other, and so would all that they start.
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
                // Nobody may be listening.
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

    /// The next line that it prints.
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

    /// Waits for a line that it prints when it is ready for something.
    #[track_caller]
    pub fn wait_for(&mut self, expected: &str) {
        while self.line() != expected {}
    }

    pub fn signal(&self, signal: libc::c_int) {
        let pid = libc::pid_t::try_from(self.pid()).unwrap();
        // SAFETY: it takes two numbers; the child has not been waited for, so that the pid is still its own.
        let sent = unsafe { libc::kill(pid, signal) };
        assert_eq!(sent, 0, "signal {signal} for {}: {}", self.shown, std::io::Error::last_os_error());
    }

    /// To it and to its children.
    pub fn signal_group(&self, signal: libc::c_int) {
        let group = libc::pid_t::try_from(self.pid()).unwrap();
        // SAFETY: it takes two numbers. The group is the child's own, made by `command`, and nobody else's: its number
        // is not given away while a process is in it, and to a new process only after all other pids.
        unsafe { libc::kill(-group, signal) };
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it has ended by itself.
    #[track_caller]
    pub fn wait(mut self) -> Ended {
        let since = Instant::now();
        while self.is_alive() {
            assert!(since.elapsed() < PATIENCE, "{} did not end in {PATIENCE:?}", self.shown);
            std::thread::sleep(Duration::from_millis(5));
        }
        self.finish()
    }

    /// Kills it and its process group.
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

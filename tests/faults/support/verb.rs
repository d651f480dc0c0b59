//! Runs a verb of pyobs to its end, and keeps its output byte for byte.

use std::ffi::OsStr;
use std::fmt;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pyobs_tests::command;

/// No verb takes this long here; the limit tells a hanging verb from a slow one.
const PATIENCE: Duration = Duration::from_secs(90);

/// No message of pyobs is longer, whatever its input.
const SENTENCE_MAX: usize = 1000;

/// The formats that `export` writes.
pub const FORMATS: [&str; 4] = ["folded", "svg", "speedscope", "json"];

/// The command `pyobs` with these arguments.
pub fn pyobs<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut pyobs = command(pyobs_tests::pyobs());
    pyobs.args(arguments);
    pyobs
}

/// How a program ended, and its output.
pub struct Outcome {
    pub shown: String,
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

/// Runs a command with an empty standard input.
#[track_caller]
pub fn run(command: Command) -> Outcome {
    run_into(command, Stdio::piped())
}

/// Runs a command that writes to `stdout`.
#[track_caller]
pub fn run_into(mut command: Command, stdout: impl Into<Stdio>) -> Outcome {
    let shown = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
    let child = command.spawn().unwrap_or_else(|error| panic!("{shown}: {error}"));
    // A `Command` keeps its end of a pipe open.
    drop(command);
    wait(child, shown)
}

#[track_caller]
fn wait(mut child: Child, shown: String) -> Outcome {
    let stdout = child.stdout.take().map(read);
    let stderr = child.stderr.take().map(read);
    let since = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if since.elapsed() > PATIENCE => {
                let _ = child.kill();
                let _ = child.wait();
                panic!("{shown} hangs: {}", text(stderr));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let stdout = stdout.map(|reader| reader.join().unwrap()).unwrap_or_default();
    Outcome { shown, status, stdout, stderr: text(stderr) }
}

fn read(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        // After an error, the bytes read so far count.
        let _ = from.read_to_end(&mut all);
        all
    })
}

fn text(reader: Option<JoinHandle<Vec<u8>>>) -> String {
    String::from_utf8_lossy(&reader.map(|reader| reader.join().unwrap()).unwrap_or_default()).into_owned()
}

impl fmt::Debug for Outcome {
    /// Formatted for the reader of a failed test.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}, stderr:\n{:.1000}", self.shown, self.status, self.stderr)?;
        write!(f, "stdout:\n{:.1000}", String::from_utf8_lossy(&self.stdout))
    }
}

impl Outcome {
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Asserts that it failed with this code and one sentence, and returns that without its `pyobs: `.
    #[track_caller]
    pub fn fails_with(&self, code: i32) -> &str {
        self.is_calm();
        assert_eq!(self.code(), Some(code), "{self:#?}");
        let lines: Vec<&str> = self.stderr.lines().collect();
        let [line] = lines[..] else { panic!("expected one sentence on stderr, got {}: {self:#?}", lines.len()) };
        line.strip_prefix("pyobs: ").unwrap_or_else(|| panic!("the sentence does not begin with `pyobs: `: {self:#?}"))
    }

    /// Asserts that it ended with 0.
    #[track_caller]
    pub fn succeeds(&self) -> &Self {
        self.is_calm();
        assert_eq!(self.code(), Some(0), "{self:#?}");
        self
    }

    /// Asserts that it ended with 0, or failed with this code and one sentence.
    #[track_caller]
    pub fn succeeds_or_fails_with(&self, code: i32) {
        if self.code() == Some(0) {
            self.is_calm();
        } else {
            self.fails_with(code);
        }
    }

    /// Its standard output, which must be UTF-8.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap_or_else(|error| panic!("{}: {error}", self.shown))
    }

    /// Asserts that no signal ended it, and that stderr has only pyobs's sentences: no panic, backtrace or escape
    /// sequence.
    #[track_caller]
    pub fn is_calm(&self) {
        assert_eq!(self.status.signal(), None, "{self:#?}");
        is_calm(&self.stderr);
    }
}

/// Asserts that stderr has only pyobs's sentences: no panic, backtrace or escape sequence.
#[track_caller]
pub fn is_calm(stderr: &str) {
    for line in stderr.lines() {
        assert!(line.starts_with("pyobs: "), "not a sentence of pyobs: {line:?} in {stderr}");
        assert!(!line.chars().any(char::is_control), "a control character on stderr: {line:?}");
        assert!(line.len() <= SENTENCE_MAX, "a sentence of {} bytes: {:.200}…", line.len(), line);
        for alarm in ["panicked", "a bug in pyobs", "RUST_BACKTRACE", "stack backtrace"] {
            assert!(!line.contains(alarm), "pyobs has a bug: {stderr}");
        }
    }
}

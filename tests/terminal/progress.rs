//! Tests that operations longer than a second show their progress on a terminal, and nowhere else.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use pyobs_tests::{Case, Folder, Record, case, command, needs, workload};

use crate::pty::Terminal;
use crate::python;

/// Enough samples that reading the recording takes at least some tenths of a second.
const SAMPLES: u32 = 400_000;
const ERASE: &str = "\r\x1b[K";
/// Longer than the time before progress is shown.
const PAUSE: Duration = Duration::from_millis(1200);

pub fn cases() -> Vec<Case> {
    let cases = vec![
        case("progress/of_reading_is_shown_on_a_terminal_only", reading),
        case("progress/of_recording_is_shown_on_a_terminal_only", recording),
    ];
    cases.into_iter().map(|case| case.needs(needs::root()).needs(python())).collect()
}

fn spin(seconds: &str) -> Command {
    let mut spin = python().unwrap().script(workload("fault_spin.py"));
    spin.arg(seconds);
    spin
}

/// A recording with the samples of a short one, many times over.
fn large(folder: &Folder) -> std::path::PathBuf {
    let recording = Record::new().rate(999).command(spin("1")).run();
    let large = folder.join("large.pyobs");
    fs::copy(&recording.file, &large).unwrap();
    let copies = format!(
        "WITH RECURSIVE copies (copy) AS (SELECT 1 UNION ALL SELECT copy + 1 FROM copies)
         INSERT INTO samples SELECT samples.* FROM copies, samples LIMIT {SAMPLES}"
    );
    rusqlite::Connection::open(&large).unwrap().execute_batch(&copies).unwrap();
    large
}

/// Stops the process while it reads, so that a second passes regardless of the machine's speed.
#[track_caller]
fn hold(pid: u32, file: &Path) {
    let descriptors = || fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    while !descriptors().any(|entry| fs::read_link(entry.path()).is_ok_and(|path| path == file)) {
        assert!(fs::exists(format!("/proc/{pid}")).unwrap(), "the process did not open {}", file.display());
        std::thread::yield_now();
    }
    let pid = libc::pid_t::try_from(pid).unwrap();
    for signal in [libc::SIGSTOP, libc::SIGCONT] {
        std::thread::sleep(if signal == libc::SIGCONT { PAUSE } else { Duration::from_millis(20) });
        // SAFETY: the call takes two numbers. The child has not been waited for, so its pid is still its own.
        unsafe { libc::kill(pid, signal) };
    }
}

fn reading() {
    let folder = Folder::new();
    let file = large(&folder);
    let path = file.to_str().unwrap();
    let out = folder.join("out");
    let out = out.to_str().unwrap();
    for arguments in [&["report", path][..], &["export", path, "--format", "folded", "-o", out], &["diff", path, path]]
    {
        let mut terminal = Terminal::open((200, 60), arguments);
        hold(terminal.pid(), &file);
        assert_eq!(terminal.wait().code(), Some(0), "{}", terminal.text());
        let raw = String::from_utf8(terminal.raw()).unwrap();
        let shown = raw.split(ERASE).find(|piece| piece.starts_with(&format!("reading {path}: ")));
        let shown = shown.unwrap_or_else(|| panic!("{arguments:?}: no progress: {raw:.1000}"));
        assert!(shown.ends_with(" events"), "{shown:?}");
        assert!(!terminal.text().contains("reading "), "the progress was not erased: {}", terminal.text());

        let mut elsewhere = command(pyobs_tests::pyobs());
        elsewhere.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = elsewhere.spawn().unwrap();
        hold(child.id(), &file);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn recording() {
    let folder = Folder::new();
    let file = folder.join("a.pyobs");
    let arguments = ["record", "--duration", "2", "-o", file.to_str().unwrap()];
    let mut terminal = Terminal::open((200, 24), arguments);
    assert_eq!(terminal.wait().code(), Some(0), "{}", terminal.text());
    let raw = String::from_utf8(terminal.raw()).unwrap();
    let shown: Vec<&str> = raw.split(ERASE).filter(|piece| piece.starts_with("recording ")).collect();
    assert!(shown.len() > 2, "{raw:?}");
    assert!(shown.iter().all(|line| line.contains(" samples, ") && line.ends_with("Ctrl-C stops")), "{shown:#?}");
    assert!(raw.split(ERASE).any(|piece| piece.starts_with("stopping: ")), "{raw:?}");
    let text = terminal.text();
    assert!(text.starts_with("pyobs: recorded ") && !text.contains("Ctrl-C stops"), "{text}");

    let output = command(pyobs_tests::pyobs()).args(arguments).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("pyobs: recorded ") && !stderr.contains(ERASE), "{stderr:?}");
}

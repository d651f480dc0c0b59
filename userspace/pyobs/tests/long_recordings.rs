//! What reads a recording takes memory that does not grow with it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../recording/tests/common/long.rs"]
mod long;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// Milliseconds of the recording: more than are kept of anything. With all events of it in memory, pyobs took 420 MiB.
const STEPS: u64 = 85_000;
/// Long enough to be written in part only, short enough not to take minutes.
const LIMIT: &str = "1000";
/// Of a recording of any length it takes less than 300 MiB (docs/report-json.md).
const MOST_KIB: u64 = 240 << 10;

/// The largest resident size that the process has had so far; `None` when it has ended.
fn peak(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    peak.trim().strip_suffix(" kB")?.parse().ok()
}

/// In KiB, from what is looked at often: it only grows.
#[track_caller]
fn peak_of(arguments: &[&str], file: &Path) -> u64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pyobs"));
    command.args(arguments).arg(file).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut most = 0;
    let status = loop {
        most = peak(child.id()).unwrap_or(0).max(most);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success(), "{arguments:?}: {status}");
    eprintln!("{arguments:?} took {most} KiB");
    most
}

#[test]
fn a_long_recording_is_reported_with_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.pyobs");
    long::write(&path, STEPS).unwrap();
    let bytes = fs::metadata(&path).unwrap().len();
    assert!(bytes > 70 << 20, "{bytes} bytes");
    let peak = peak_of(&["report", "--json", "--limit", LIMIT], &path);
    assert!(peak > 10 << 10, "{peak} KiB cannot be");
    assert!(peak < MOST_KIB, "{peak} KiB of at most {MOST_KIB}");
}

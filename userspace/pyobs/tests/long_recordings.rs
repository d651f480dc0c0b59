//! The memory of verbs that read a recording does not grow with the recording.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../recording/tests/common/long.rs"]
mod long;
#[path = "../../recording/tests/common/many.rs"]
mod many;
#[path = "../../recording/tests/common/meta.rs"]
mod meta;

use std::env;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Milliseconds of the recording: more than is kept of anything but single events of timelines.
const STEPS: u64 = 85_000;
/// Long enough to be written in part only, short enough not to take minutes.
const LIMIT: &str = "1000";
/// Peak of verbs that only show sums.
const SUMS_KIB: u64 = 240 << 10;
/// Peak of exports that also hold their output: each stack of this recording is a line of its own.
const TEXT_KIB: u64 = 400 << 10;
/// Peak of `replay`, which keeps more single events.
const REPLAY_KIB: u64 = 400 << 10;
const PATIENCE: Duration = Duration::from_secs(300);

/// Processes of the recording that has many: several times as many as are kept one by one.
const PROCESSES: u32 = 150_000;

/// A recording that tests share while one of them uses it.
struct Recording(TempDir);

impl Recording {
    fn get() -> Arc<Self> {
        static SHARED: Mutex<Weak<Recording>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap();
        shared.upgrade().unwrap_or_else(|| {
            let recording = Arc::new(Self(tempfile::tempdir().unwrap()));
            long::write(&recording.path(), STEPS).unwrap();
            let bytes = fs::metadata(recording.path()).unwrap().len();
            assert!(bytes > 70 << 20, "{bytes} bytes");
            *shared = Arc::downgrade(&recording);
            recording
        })
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("long.pyobs")
    }
}

/// What users run, if it is built: `cargo xtask test` says where.
fn pyobs() -> PathBuf {
    env::var_os("PYOBS_BIN").map_or_else(|| env!("CARGO_BIN_EXE_pyobs").into(), PathBuf::from)
}

/// The largest resident size that the process has had so far; `None` when it has ended.
fn peak(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    peak.trim().strip_suffix(" kB")?.parse().ok()
}

/// Polls the peak, in KiB, until the process ends. It only grows.
#[track_caller]
fn watch(mut child: Child) -> u64 {
    let mut most = 0;
    let status = loop {
        most = peak(child.id()).unwrap_or(0).max(most);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success(), "{status}");
    assert!(most > 10 << 10, "{most} KiB cannot be");
    most
}

#[track_caller]
fn is_below(most_kib: u64, arguments: &[&str]) {
    of_is_below(&Recording::get().path(), most_kib, arguments, Stdio::null());
}

#[track_caller]
fn of_is_below(recording: &Path, most_kib: u64, arguments: &[&str], out: impl Into<Stdio>) {
    let mut command = Command::new(pyobs());
    command.args(arguments).arg(recording).stdin(Stdio::null()).stdout(out).stderr(Stdio::null());
    let peak = watch(command.spawn().unwrap());
    eprintln!("{arguments:?} took {peak} KiB");
    assert!(peak < most_kib, "{arguments:?}: {peak} KiB, not below {most_kib} KiB");
}

#[test]
fn a_long_recording_is_reported_with_bounded_memory() {
    is_below(SUMS_KIB, &["report", "--json", "--limit", LIMIT]);
}

#[test]
fn every_weight_of_a_long_recording_is_summed_with_bounded_memory() {
    for format in ["folded", "pprof"] {
        is_below(SUMS_KIB, &["export", "--weight", "redundant", "--format", format]);
    }
}

#[test]
fn a_part_of_a_long_recording_is_exported_with_bounded_memory() {
    for format in ["folded", "pprof"] {
        is_below(TEXT_KIB, &["export", "--from", "1", "--to", "84", "--format", format]);
    }
}

/// The sums of all processes, the busy ones and the one that stays are exact, whatever becomes of the others.
#[test]
fn a_recording_of_many_processes_is_reported_with_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (recording, out) = (folder.path().join("many.pyobs"), folder.path().join("report.json"));
    many::write(&recording, PROCESSES).unwrap();
    of_is_below(&recording, SUMS_KIB, &["report", "--json"], File::create(&out).unwrap());
    let report: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();

    let processes = report["processes"].as_array().unwrap();
    let others = processes.iter().find(|process| process["pid"] == 0).unwrap();
    let summed = report["summed"]["processes"].as_u64().unwrap();
    assert_eq!(others["command"], format!("({summed} other processes)"));
    assert_eq!(summed + processes.len() as u64 - 1, u64::from(PROCESSES));
    assert!(processes.len() <= (1 << 14) + 1, "{}", processes.len());

    let (busy, each) = ((PROCESSES - 1) / many::BUSY, many::WEIGHT.as_secs_f64());
    let samples = 2 * (PROCESSES - 1) + busy * (many::BUSY_SAMPLES - 1);
    let sum = |rows: &Value, field: &str| -> f64 {
        rows.as_array().unwrap().iter().filter_map(|row| row[field].as_f64()).sum()
    };
    for (rows, field) in [("processes", "cpu_s"), ("frames", "self_s")] {
        let spent = sum(&report[rows], field);
        assert!((spent - f64::from(samples) * each).abs() < 1e-3, "{rows}: {spent}");
    }
    let slept = sum(&report["offcpu"], "total_s");
    assert!((slept - f64::from(PROCESSES - 1) * many::SLEEP.as_secs_f64()).abs() < 1e-3, "{slept}");

    let named =
        |count: u32| processes.iter().filter(|process| process["samples"] == count && process["pid"] != 0).count();
    assert_eq!((named(PROCESSES - 1), named(many::BUSY_SAMPLES)), (1, busy as usize));
    let stays = processes.iter().find(|process| process["pid"] == many::pid(many::STAYS.0).0).unwrap();
    assert!((stays["cpu_s"].as_f64().unwrap() - f64::from(PROCESSES - 1) * each).abs() < 1e-6, "{stays}");
}

/// What a program has written to its terminal.
#[derive(Clone, Default)]
struct Screen(Arc<Mutex<String>>);

impl Screen {
    fn of(mut out: impl Read + Send + 'static) -> Self {
        let screen = Self::default();
        let written = screen.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut bytes) {
                written.0.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        screen
    }

    /// Waits until the text was written again.
    #[track_caller]
    fn wait_for(&self, text: &str) {
        let begun = Instant::now();
        while !self.0.lock().unwrap().contains(text) {
            assert!(begun.elapsed() < PATIENCE, "no {text:?} on the screen");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn forget(&self) {
        self.0.lock().unwrap().clear();
    }
}

/// Starts at the end, seeks the beginning, plays nothing, and seeks the end again.
#[test]
fn a_long_recording_is_replayed_with_bounded_memory() {
    let (recording, folder) = (Recording::get(), tempfile::tempdir().unwrap());
    let pid_file = folder.path().join("pid");
    let command = r#"stty cols 120 rows 40; echo $$ > "$PID_FILE"; exec "$PYOBS" replay "$RECORDING""#;
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--flush", "--return", "--command", command, "/dev/null"]);
    terminal.env("PYOBS", pyobs()).env("RECORDING", recording.path()).env("PID_FILE", &pid_file);
    terminal.env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut terminal = terminal.spawn().unwrap();
    let (mut keys, screen) = (terminal.stdin.take().unwrap(), Screen::of(terminal.stdout.take().unwrap()));
    screen.wait_for("REPLAY");
    let pid: u32 = fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
    for key in ["{", "}"] {
        screen.forget();
        keys.write_all(key.as_bytes()).unwrap();
        screen.wait_for("\u{25a0}");
    }
    let peak = peak(pid).unwrap();
    keys.write_all(b"q").unwrap();
    assert!(terminal.wait().unwrap().success());
    eprintln!("replay took {peak} KiB");
    assert!(peak > 10 << 10 && peak < REPLAY_KIB, "{peak} KiB, not below {REPLAY_KIB} KiB");
}

//! Watched programs, recordings of them, and figures from the recordings.

use std::{
    fs, iter, panic,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread::{self, sleep},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Setting;
use crate::{process::output, repo};

/// A child process that is killed when this value is dropped.
pub(super) struct Program(Child);

impl Program {
    pub(super) fn start(python: &Path, code: &str) -> Result<Self> {
        let child = Command::new(python)
            .args(["-c", code])
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("{} does not run", python.display()))?;
        Ok(Self(child))
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) struct Recorded {
    pub(super) file: PathBuf,
    /// The parsed output of `pyobs report --json`.
    pub(super) report: Value,
    /// The largest resident set of pyobs while it recorded.
    pub(super) peak_rss_bytes: f64,
    /// The output of the recorded command, if there was one.
    pub(super) stdout: String,
}

/// Runs `pyobs record` with these arguments to its end.
pub(super) fn record(setting: &Setting, name: &str, args: &[String]) -> Result<Recorded> {
    record_and_poll(setting, name, args, |_| ())
}

/// The same; calls `look` with the process id repeatedly while pyobs runs.
pub(super) fn record_and_poll(
    setting: &Setting,
    name: &str,
    args: &[String],
    look: impl FnMut(u32),
) -> Result<Recorded> {
    let file = setting.folder.join(name).with_extension("pyobs");
    if file.exists() {
        fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    }
    let mut command = Command::new(repo::pyobs());
    command.args(["record", "-o"]).arg(&file).args(args);
    // stderr goes to a file: a pipe that is not read while pyobs runs could fill up and stop it.
    let log = file.with_extension("stderr");
    let stderr = fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).spawn()?;
    let peak_rss_bytes = watch(&mut child, look)?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let text = fs::read_to_string(&log).unwrap_or_default();
        bail!("pyobs record {} failed: {}", args.join(" "), text.trim());
    }
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(Recorded { report: report(&file)?, file, peak_rss_bytes, stdout })
}

/// Bounds the concurrent recordings, each by its own pyobs.
const AT_A_TIME: usize = 4;

/// Runs `make` for the numbers below `count`, on one thread per CPU. It receives the number and the index of its thread.
pub(super) fn at_a_time<T: Send>(count: usize, make: impl Fn(usize, usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    let (next, lanes) = (AtomicUsize::new(0), thread::available_parallelism()?.get().min(AT_A_TIME));
    let lane = |lane: usize| -> Result<Vec<T>> {
        let numbers = iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed)).take_while(|number| *number < count);
        numbers.map(|number| make(number, lane)).collect()
    };
    let lane = &lane;
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|number| scope.spawn(move || lane(number))).collect();
        let mut all = Vec::new();
        for lane in lanes {
            all.extend(lane.join().unwrap_or_else(|panic| panic::resume_unwind(panic))?);
        }
        Ok(all)
    })
}

/// Waits until it ends, and returns its memory's high-water mark. stdout is read only after that, which is enough for
/// workloads that print a line.
pub(super) fn watch(child: &mut Child, mut look: impl FnMut(u32)) -> Result<f64> {
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0.0;
    while child.try_wait()?.is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let kib =
            text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse::<f64>().ok());
        peak = kib.map_or(peak, |kib| kib * 1024.0);
        look(child.id());
        sleep(Duration::from_millis(50));
    }
    Ok(peak)
}

/// The parsed output of `pyobs report --json` for a recording.
pub(super) fn report(file: &Path) -> Result<Value> {
    let text = output(Command::new(repo::pyobs()).arg("report").arg(file).args(["--json", "--limit", "1000000"]))?;
    serde_json::from_str(&text).with_context(|| format!("the report on {} is not JSON", file.display()))
}

/// The stacks of a recording: the frames, root first, and the samples.
pub(super) fn folded(recorded: &Recorded) -> Result<Vec<(Vec<String>, f64)>> {
    let mut export = Command::new(repo::pyobs());
    export.arg("export").arg(&recorded.file).args(["--format", "folded", "--native", "full", "-o", "/dev/stdout"]);
    output(&mut export)?.lines().map(stack).collect()
}

fn stack(line: &str) -> Result<(Vec<String>, f64)> {
    let (frames, samples) = line.rsplit_once(' ').with_context(|| format!("{line:?} is not a folded stack"))?;
    let samples = samples.parse().with_context(|| format!("{line:?} does not end in a number"))?;
    Ok((frames.split(';').map(str::to_owned).collect(), samples))
}

/// A number at a place such as `/cost/bpf_s`.
pub(super) fn number(report: &Value, pointer: &str) -> Result<f64> {
    report.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("the report has no number at {pointer}"))
}

/// The share of a core that pyobs's kernel programs used in the last seconds of a recording, from its table `costs`.
const COSTS: &str = "\
import sqlite3, sys
rows = sqlite3.connect(sys.argv[1]).execute('SELECT at_ns, bpf_ns FROM costs ORDER BY at_ns').fetchall()
(end, last), window = rows[-1], float(sys.argv[2]) * 1e9
start, first = next(row for row in rows if row[0] >= end - window)
print((last - first) / (end - start))
";

pub(super) fn kernel_share(python: &Path, file: &Path, last_s: &str) -> Result<f64> {
    let printed = output(Command::new(python).args(["-c", COSTS]).arg(file).arg(last_s))?;
    printed.trim().parse().with_context(|| format!("{printed:?} is not a share"))
}

/// The arguments as a user would type them, without this machine's folders.
pub(super) fn shown(args: &[String]) -> String {
    let words = ["pyobs".to_owned(), "record".to_owned()];
    let args = args.iter().map(|argument| without_folders(argument));
    words.into_iter().chain(args).collect::<Vec<String>>().join(" ")
}

fn without_folders(argument: &str) -> String {
    let path = Path::new(argument);
    let is_path = path.is_absolute() && path.exists();
    let place = path.strip_prefix(repo::root()).ok().map(|inside| Path::new(".").join(inside).display().to_string());
    match (is_path, place, path.file_name()) {
        (true, Some(place), _) => place,
        (true, None, Some(name)) => name.to_string_lossy().into_owned(),
        _ => argument.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folded_line_is_frames_and_a_count() {
        let (frames, samples) = stack("python3.12 (42);main (a b.py);f (a b.py) 17").unwrap();
        assert_eq!(frames, ["python3.12 (42)", "main (a b.py)", "f (a b.py)"]);
        assert!((samples - 17.0).abs() < 1e-9);
        assert!(stack("nothing").is_err());
    }
}

//! Measures what pyobs costs the program that it watches, beside py-spy and beside nothing at all, in the same run.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::{Setting, record::kernel_share, script, table::Table};
use crate::{
    process::{output, progress},
    repo, venvs,
};

pub(super) const VERSION: &str = "3.12";
/// The watchers: their families, if not the defaults, and the share of a core in percent that their kernel programs may
/// use. For the defaults that is what `--budget` allows.
const WATCHERS: [(&str, Option<&str>, f64); 2] = [("pyobs", None, 1.0), ("pyobs-cpu", Some("cpu"), 0.5)];
pub(super) const WORKLOADS: [&str; 3] = ["mixed", "calls", "threads"];
/// Seconds that each profiler is on and off; the seconds before that, in which it starts; and the number of rounds.
const WINDOW_S: &str = "4";
const SETTLE_S: &str = "3";
const ROUNDS: &str = "5";
const COLUMNS: &[&str] = &[
    "workload",
    "profiler",
    "slowdown",
    "10th to 90th percentile",
    "CPU (cores)",
    "RSS (MiB)",
    "programs in the kernel (% of a core)",
];

struct Row {
    name: String,
    slowdown: f64,
    range: String,
    cpu: f64,
    rss: String,
}

impl Row {
    fn cells(&self, workload: &str) -> Vec<String> {
        let (slowdown, cpu) = (format!("{:.3}", self.slowdown), format!("{:.3}", self.cpu));
        vec![workload.to_owned(), self.name.clone(), slowdown, self.range.clone(), cpu, self.rss.clone()]
    }
}

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "Overhead at 99 Hz",
        "The work that a CPython 3.12 program does while it is watched, against what it does just before and after\n\
         (`xtask/src/bench/overhead.py`). `nothing` watches nothing: it shows the noise. `pyobs` records whole stacks,\n\
         waits, the GIL and memory, as by default, and `pyobs-cpu` only whole stacks. The time of its programs in the\n\
         kernel, on all CPUs, is the kernel's own account (`bpf_stats`) of the last window, which noise does not affect.\n\
         The slowdown here is for comparison; “Slowdown at 99 Hz” measures it more precisely.",
        COLUMNS,
    );
    let profilers = profilers(setting)?;
    for workload in WORKLOADS {
        progress(format!("overhead of five profilers over the workload {workload}: about five minutes"));
        let rows = measure(setting.python(VERSION)?, workload, &profilers)?;
        for (row, (name, _, shown)) in rows.iter().zip(&profilers) {
            let Some((.., most)) = WATCHERS.iter().find(|(watcher, ..)| watcher == name) else {
                table.row([row.cells(workload), vec![String::new()]].concat(), shown);
                continue;
            };
            let kernel = 100.0 * kernel_share(setting.python(VERSION)?, &recording(setting, name), WINDOW_S)?;
            table.row([row.cells(workload), vec![format!("{kernel:.2}")]].concat(), shown);
            table.at_most(&format!("{workload}: {name}'s programs in the kernel (% of a core)"), kernel, *most);
        }
        judge(&mut table, workload, &rows);
    }
    Ok(table)
}

fn recording(setting: &Setting, watcher: &str) -> PathBuf {
    setting.folder.join(format!("{watcher}.pyobs"))
}

/// A profiler's name, the command to run, and the command to show.
pub(super) fn profilers(setting: &Setting) -> Result<Vec<(&'static str, String, String)>> {
    let py_spy = py_spy(setting)?;
    let py_spy_args = "record -r 99 -d 999 -f raw -o /dev/null -p {pid}";
    let watcher = |(name, probe, _): (&'static str, Option<&str>, f64)| {
        let probe = probe.map_or_else(String::new, |probe| format!(" --probe {probe}"));
        let args = format!("record --pid {{pid}} --rate 99{probe} -o");
        let file = quoted(&recording(setting, name));
        (name, format!("{} {args} {file}", quoted(&repo::pyobs())), format!("pyobs {args} {name}.pyobs"))
    };
    let others = [
        ("nothing", "sleep 1000".to_owned(), "sleep 1000".to_owned()),
        ("py-spy", format!("{} {py_spy_args}", quoted(&py_spy)), format!("py-spy {py_spy_args}")),
        (
            "py-spy-native",
            format!("{} {py_spy_args} --native", quoted(&py_spy)),
            format!("py-spy {py_spy_args} --native"),
        ),
    ];
    Ok(others.into_iter().chain(WATCHERS.map(watcher)).collect())
}

pub(super) fn quoted(path: &Path) -> String {
    format!("'{}'", path.display())
}

pub(super) fn py_spy(setting: &Setting) -> Result<PathBuf> {
    let pins = repo::root().join("xtask/src/bench/requirements.txt");
    let folder = repo::target().join("venvs/bench");
    let interpreter = venvs::ensure(setting.python(VERSION)?, VERSION, &folder, &pins)?;
    Ok(interpreter.with_file_name("py-spy"))
}

fn measure(python: &Path, workload: &str, profilers: &[(&str, String, String)]) -> Result<Vec<Row>> {
    let mut bench = Command::new(python);
    bench.arg(script("overhead.py")).arg("--python").arg(python).args([
        "--workload",
        workload,
        "--window",
        WINDOW_S,
        "--settle",
        SETTLE_S,
        "--rounds",
        ROUNDS,
    ]);
    bench.args(profilers.iter().map(|(name, command, _)| format!("{name}={command}")));
    output(&mut bench)?.lines().map(|line| parse(line).with_context(|| format!("{line:?} is not a row"))).collect()
}

/// Parses `pyobs        slowdown 1.001 [0.990, 1.010]  cpu 0.004  rss 31 MiB  windows 8`.
fn parse(line: &str) -> Option<Row> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |word: &str| words.iter().position(|other| *other == word).and_then(|at| words.get(at + 1)).copied();
    let (_, range) = line.split_once('[')?;
    Some(Row {
        name: (*words.first()?).to_owned(),
        slowdown: after("slowdown")?.parse().ok()?,
        range: range.split_once(']')?.0.to_owned(),
        cpu: after("cpu")?.parse().ok()?,
        rss: after("rss")?.to_owned(),
    })
}

fn judge(table: &mut Table, workload: &str, rows: &[Row]) {
    let [_, py_spy, native, pyobs, _] = rows else { return };
    table.at_most(&format!("{workload}: CPU of pyobs as a share of py-spy's"), pyobs.cpu / py_spy.cpu, 0.25);
    let native = pyobs.cpu / native.cpu;
    table.at_most(&format!("{workload}: CPU of pyobs as a share of that of py-spy --native"), native, 0.25);
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_row_of_the_bench_script_is_parsed() {
        let row = parse("pyobs        slowdown 1.001 [0.990, 1.010]  cpu 0.004  rss 31 MiB  windows 8").unwrap();
        assert_eq!((row.name.as_str(), row.range.as_str(), row.rss.as_str()), ("pyobs", "0.990, 1.010", "31"));
        assert!((row.slowdown - 1.001).abs() < 1e-9 && (row.cpu - 0.004).abs() < 1e-9);
        assert!(parse("the workload ended by itself").is_none());
    }
}

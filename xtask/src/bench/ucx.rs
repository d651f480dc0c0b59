//! Measures what the family `ucx` costs the transfers that it follows, and whether it counts all of them.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    Setting,
    paired::{Compared, Rounds},
    record::{Recorded, record},
    script,
    table::Table,
};
use crate::{process::output, repo, venvs};

const VERSION: &str = "3.12";
/// A run of this many seconds outlasts the ten or so that the budget takes to bind.
const SETTLED: &str = "20.0";
/// Round trips by UCXX: their bytes and rounds. Their noise is as large as the effect, and larger for short ones.
const TRIPS: [(u64, Rounds); 2] = [(64 << 10, (6, SETTLED)), (1 << 20, (4, SETTLED))];
/// How much longer round trips may take. A send and a receive of eight bytes may take as long as their probes: three each,
/// of this many microseconds at most (docs/families/ucx.md).
const SLOWER: f64 = 0.03;
const TRAPS: f64 = 6.0;
const TRAP_US: f64 = 4.0;
/// Long enough to reach the state in which fast transfers are only counted: after one second, with UCXX after two.
const LONG: Rounds = (5, "8.0");
const MIB: f64 = 1024.0 * 1024.0;
/// Transfers as fast as possible, by as many threads as a small machine has CPUs, and the goal per second.
const FAST: u64 = 2_000_000;
const FAST_THREADS: u64 = 2;
const FAST_RATE: f64 = 200_000.0;
/// Few and many transfers, at a rate at which each is reported, and how much more memory the many may take.
const FEW: u64 = 10_000;
const MANY: u64 = 1_000_000;
const STEADY_RATE: u64 = 4_500;
const MORE_MIB: f64 = 40.0;

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "Transfers",
        "How long messages take while `pyobs record` follows them, compared with just before and after\n\
         (`xtask/src/bench/paired.py`, medians of the rounds): round trips between two watched processes with UCXX\n\
         (`trips.py`, each process on its own CPU), and messages of eight bytes that a program in C sends to itself by\n\
         libucp as fast as it can (`transfers.c`). All of these are too many to follow: they are counted at submission, and\n\
         followed in short bursts. `nobody` follows nothing, in rounds between the others, which shows the noise. The\n\
         budget binds the defaults (\"Overhead\") after some seconds, like `--budget 1`; `+ucx` is both, and no goal\n\
         covers it. Then come the program's highest and a steady rate, the number of transfers counted, and pyobs's\n\
         largest resident set.",
        &["what", "figure", "10th to 90th percentile", "counted", "peak RSS (MiB)"],
    );
    let python = interpreter(setting)?;
    for (size, rounds) in TRIPS {
        trips(setting, &mut table, &python, size, rounds)?;
    }
    let library = libucp(&python)?;
    let program = built(setting)?;
    small(setting, &mut table, &python, &[&program, &library, "1", "0"])?;
    fast(setting, &mut table, &program, &library)?;
    steady(setting, &mut table, &program, &library)?;
    Ok(table)
}

/// An interpreter with UCXX: the tests' environment.
fn interpreter(setting: &Setting) -> Result<PathBuf> {
    let python = setting.python(VERSION)?;
    let version = setting.pythons.pythons.iter().find(|known| known.executable == python).map(|known| &known.version);
    let version = version.context("the interpreter has no version")?;
    let pins = repo::root().join("tests/requirements.txt");
    venvs::ensure(python, version, &repo::target().join("venvs").join(version), &pins)
}

/// The libucp in UCXX's package.
fn libucp(python: &Path) -> Result<String> {
    let print = "import libucx, os; print(os.path.join(os.path.dirname(libucx.__file__), 'lib', 'libucp.so.0'))";
    Ok(output(Command::new(python).args(["-c", print]))?.trim().to_owned())
}

fn built(setting: &Setting) -> Result<String> {
    let program = setting.folder.join("transfers");
    output(
        Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(script("transfers.c")).args(["-ldl", "-lpthread"]),
    )?;
    Ok(program.display().to_string())
}

/// Adds the rows of the same work without a watcher, once, and with it.
fn rows(table: &mut Table, what: &str, compared: &Compared, is_first: bool) {
    for [who, figure, range, command] in compared.rows().into_iter().skip(usize::from(!is_first)) {
        table.row(vec![format!("{what}, {who}"), figure, range, String::new(), String::new()], &command);
    }
}

fn compared(
    setting: &Setting,
    table: &mut Table,
    python: &Path,
    (what, words): (&str, &[&str]),
    (watch, rounds): (&[&str], Rounds),
) -> Result<Compared> {
    let compared = Compared::one(setting, python, words, watch, rounds)?;
    rows(table, what, &compared, true);
    Ok(compared)
}

fn trips(setting: &Setting, table: &mut Table, python: &Path, size: u64, rounds: Rounds) -> Result<()> {
    let what = format!("{} KiB there and back", size >> 10);
    let words = [&python.display().to_string(), &script("trips.py").display().to_string(), &size.to_string()];
    let words = words.map(String::as_str);
    let watches: [(&str, &[&str], bool); 3] =
        [("the defaults", &[], true), ("ucx", &["--probe", "ucx"], true), ("+ucx", &["--probe", "+ucx"], false)];
    let all = Compared::measure(setting, python, &words, &watches.map(|(_, watch, _)| watch), rounds)?;
    for (number, (compared, (probes, _, is_bound))) in all.iter().zip(watches).enumerate() {
        rows(table, &what, compared, number == 0);
        if is_bound {
            let what = format!("{what}, {probes}: longer beyond the unwatched difference");
            table.at_most(&what, compared.longer_share(), SLOWER);
        }
    }
    Ok(())
}

fn small(setting: &Setting, table: &mut Table, python: &Path, words: &[&str]) -> Result<()> {
    let what = "8 bytes, sent and received";
    let more =
        compared(setting, table, python, (what, words), (&["--pid", "PID", "--probe", "ucx"], LONG))?.longer_by();
    table.at_most(&format!("{what}: longer by (µs)"), more, TRAPS * TRAP_US);
    let (what, budget) = (format!("{what}, --budget 1"), ["--pid", "PID", "--probe", "ucx", "--budget", "1"]);
    let held = compared(setting, table, python, (&what, words), (&budget, (3, SETTLED)))?;
    table.at_most(&format!("{what}: longer beyond the unwatched difference"), held.longer_share(), SLOWER);
    Ok(())
}

/// Runs the program under watch. Returns the number of transfers that it printed, their rate, and how many were
/// counted.
fn made(setting: &Setting, words: &[&str]) -> Result<(u64, f64, u64, Recorded)> {
    let args: Vec<String> = ["--probe", "ucx", "--"].iter().chain(words).map(|word| (*word).to_owned()).collect();
    let recorded = record(setting, "ucx", &args)?;
    let (count, seconds) = recorded.stdout.trim().split_once(' ').context("the program printed nothing")?;
    let (count, seconds): (u64, f64) = (count.parse()?, seconds.parse()?);
    let counted = counted(&recorded)?;
    Ok((count, count as f64 / seconds, counted, recorded))
}

/// All transfers that ended, reported or only counted.
fn counted(recorded: &Recorded) -> Result<u64> {
    let counts = recorded.report.get("transfer_counts").and_then(Value::as_array);
    let counts = counts.context("the report has no `transfer_counts`")?;
    Ok(counts.iter().filter_map(|count| count.get("count")?.as_u64()).sum())
}

fn row(table: &mut Table, what: &str, rate: f64, counted: u64, peak: f64, threads: u64) {
    let cells =
        [what.to_owned(), format!("{rate:.0} a second"), String::new(), counted.to_string(), format!("{peak:.1}")];
    table.row(cells.to_vec(), &format!("pyobs record --probe ucx -- transfers libucp.so.0 {threads} COUNT [RATE]"));
}

fn fast(setting: &Setting, table: &mut Table, program: &str, library: &str) -> Result<()> {
    let words = [program, library, &FAST_THREADS.to_string(), &FAST.to_string()];
    let (count, rate, counted, recorded) = made(setting, &words)?;
    row(table, "as fast as possible", rate, counted, recorded.peak_rss_bytes / MIB, FAST_THREADS);
    table.at_least("transfers a second, at the most", rate, FAST_RATE);
    table.goal(format!("at that rate: {counted} counted of {count}"), counted == count);
    Ok(())
}

fn steady(setting: &Setting, table: &mut Table, program: &str, library: &str) -> Result<()> {
    let mut peaks = Vec::new();
    for many in [FEW, MANY] {
        let words = [program, library, "1", &many.to_string(), &STEADY_RATE.to_string()];
        let (count, rate, counted, recorded) = made(setting, &words)?;
        let peak = recorded.peak_rss_bytes / MIB;
        row(table, &format!("{many}, steadily"), rate, counted, peak, 1);
        table.goal(format!("{many}, steadily: {counted} counted of {count}"), counted == count);
        peaks.push(peak);
    }
    if let [few, many] = peaks[..] {
        let what = format!("memory after {MANY} transfers beyond that after {FEW} (MiB)");
        table.at_most(&what, many - few, MORE_MIB);
    }
    Ok(())
}

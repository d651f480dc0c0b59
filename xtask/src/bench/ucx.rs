//! What the family `ucx` costs the transfers that it follows, and whether it counts all of them.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    Setting,
    record::{Recorded, number, record, shown},
    table::{Table, median},
};
use crate::{
    process::{output, progress},
    repo, venvs,
};

const VERSION: &str = "3.12";
/// Runs with and without the probes, in turn.
const ROUNDS: usize = 5;
/// Round trips by UCXX, of so many bytes, so many times.
const TRIPS: [(u64, u64); 2] = [(64 << 10, 4000), (1 << 20, 1000)];
/// Messages of eight bytes by libucp alone; each is a send and a receive.
const MESSAGES: u64 = 100_000;
const MANY_MESSAGES: u64 = 500_000;
const MIB: f64 = 1024.0 * 1024.0;
/// Traps of a transfer of libucp: its beginning, its end, what completes it or gives it back. Each takes this long at the
/// most (docs/families/ucx.md).
const TRAPS: f64 = 3.0;
const TRAP_US: f64 = 4.0;

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "Transfers",
        "How long messages take that `pyobs record` follows, against those that nobody does, in turn, five times each (the\n\
         middle of each); what was counted of them; and the resident set of pyobs. The programs are those of\n\
         `../shared/workloads/ucx`: two processes with UCXX on a thread of its own, and one that calls libucp by ctypes.",
        &["messages", "without (µs)", "with (µs)", "slower", "counted", "peak RSS (MiB)"],
    );
    let python = interpreter(setting)?;
    for (size, count) in TRIPS {
        trips(setting, &mut table, &python, size, count)?;
    }
    small(setting, &mut table, &python, &[], MESSAGES)?;
    small(setting, &mut table, &python, &["--budget", "1"], MANY_MESSAGES)?;
    Ok(table)
}

/// One that has UCXX: the tests' environment.
fn interpreter(setting: &Setting) -> Result<PathBuf> {
    let python = setting.python(VERSION)?;
    let version = setting.pythons.pythons.iter().find(|known| known.executable == python).map(|known| &known.version);
    let version = version.context("the interpreter has no version")?;
    let pins = repo::root().join("tests/requirements.txt");
    venvs::ensure(python, version, &repo::target().join("venvs").join(version), &pins)
}

fn trips(setting: &Setting, table: &mut Table, python: &Path, size: u64, count: u64) -> Result<()> {
    let (size_text, count_text) = (size.to_string(), count.to_string());
    let driver = command(
        setting,
        python,
        "ucxx_async_driver.py",
        &["--mode", "thread", "--delayed", "1", "--future", "1", "--size", &size_text, "--iters", &count_text],
    );
    let measured = in_turn(setting, &driver, &[], |text| {
        let line = text.lines().find(|line| line.starts_with('{')).context("the driver printed no result")?;
        number(&serde_json::from_str::<Value>(line)?, "/us_per_rt")
    })?;
    let slower = measured.with / measured.without;
    // Both sides send and receive each message once.
    let counted = counted(&measured.last)?;
    row(table, &format!("{} KiB there and back", size >> 10), &measured, counted);
    table.at_most(&format!("{} KiB there and back: time with the probes, of that without", size >> 10), slower, 1.03);
    table.goal(format!("{} KiB: {counted} counted of {}", size >> 10, 4 * count), counted >= 4 * count);
    Ok(())
}

fn small(setting: &Setting, table: &mut Table, python: &Path, budget: &[&str], count: u64) -> Result<()> {
    let library = "import libucx, os; print(os.path.join(os.path.dirname(libucx.__file__), 'lib', 'libucp.so.0'))";
    let library = output(Command::new(python).args(["-c", library]))?;
    let driver = command(
        setting,
        python,
        "ctypes_ucp.py",
        &["--size", "8", "--iters", &count.to_string(), "--lib", library.trim()],
    );
    let measured = in_turn(setting, &driver, budget, |text| {
        let after = text.split_whitespace().skip_while(|word| *word != "us/iter").nth(1);
        Ok(after.context("the driver printed no result")?.parse()?)
    })?;
    let counted = counted(&measured.last)?;
    let name = if budget.is_empty() { "8 bytes, sent and received" } else { "the same within a budget of 1 %" };
    row(table, name, &measured, counted);
    if budget.is_empty() {
        let more = measured.with - measured.without;
        table.at_most("8 bytes: more for a message, a send and a receive (µs)", more, 2.0 * TRAPS * TRAP_US);
        table.goal(format!("8 bytes: {counted} counted of {}", 2 * count), counted == 2 * count);
    } else {
        table.at_most("8 bytes within a budget: peak RSS (MiB)", measured.last.peak_rss_bytes / MIB, 150.0);
    }
    Ok(())
}

fn command(setting: &Setting, python: &Path, script: &str, args: &[&str]) -> Vec<String> {
    let script = setting.shared.join("workloads/ucx").join(script);
    let program = [python, script.as_path()].map(|path| path.display().to_string());
    program.into_iter().chain(args.iter().map(ToString::to_string)).collect()
}

struct Measured {
    without: f64,
    with: f64,
    args: Vec<String>,
    last: Recorded,
}

/// The middle of what the command says of itself, alone and under watch.
fn in_turn(
    setting: &Setting,
    command: &[String],
    budget: &[&str],
    read: impl Fn(&str) -> Result<f64>,
) -> Result<Measured> {
    let own = ["--probe", "ucx"].iter().chain(budget).chain(&["--"]).map(ToString::to_string);
    let args: Vec<String> = own.chain(command.iter().cloned()).collect();
    let (mut without, mut with, mut last) = (Vec::new(), Vec::new(), None);
    for round in 0..ROUNDS {
        progress(format!("round {} of {ROUNDS}: {}", round + 1, shown(&args)));
        let [program, rest @ ..] = command else { break };
        without.push(read(&output(Command::new(program).args(rest))?)?);
        let recorded = record(setting, "ucx", &args)?;
        with.push(read(&recorded.stdout)?);
        last = Some(recorded);
    }
    let last = last.context("there was no round")?;
    Ok(Measured { without: median(without), with: median(with), args, last })
}

/// All that were over, told of singly or not.
fn counted(recorded: &Recorded) -> Result<u64> {
    let counts = recorded.report.get("transfer_counts").and_then(Value::as_array);
    let counts = counts.context("the report has no `transfer_counts`")?;
    Ok(counts.iter().filter_map(|count| count.get("count")?.as_u64()).sum())
}

fn row(table: &mut Table, name: &str, measured: &Measured, counted: u64) {
    let cells = vec![
        name.to_owned(),
        format!("{:.1}", measured.without),
        format!("{:.1}", measured.with),
        format!("{:.3}", measured.with / measured.without),
        counted.to_string(),
        format!("{:.0}", measured.last.peak_rss_bytes / MIB),
    ];
    table.row(cells, &shown(&measured.args));
}

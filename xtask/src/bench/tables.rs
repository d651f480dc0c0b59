//! Measures how long unwind tables take to make, and how large they are.

use std::{fs, path::Path, process::Command, thread::sleep, time::Duration};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    Setting,
    record::{Program, number, record_and_poll, shown},
    table::{Table, median},
};
use crate::{process::output, repo, venvs};

const VERSION: &str = "3.12";
const RUNS: usize = 5;
const PROGRAMS: [(&str, &str); 2] =
    [("plain", "import time\ntime.sleep(600)\n"), ("NumPy", "import numpy, time\ntime.sleep(600)\n")];
const MIB: f64 = 1024.0 * 1024.0;
/// The most that all tables may take.
const MOST_MIB: f64 = 64.0;
/// Processes that share their libraries, each briefly busy but often.
const MANY: u64 = 200;
const SHARING: &str = "\
import numpy, os, time
parent = os.getpid()
children = [os.getpid() for _ in range(199) if os.getpid() == parent and os.fork() == 0]
numbers = numpy.random.rand(1000)
while os.getpid() == parent or os.getppid() == parent:
    until = time.thread_time() + 0.002
    while time.thread_time() < until: numpy.sort(numbers)
    time.sleep(0.2)
";

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "Unwind tables",
        "All files that a CPython 3.12 process maps, one after the other. A table belongs to a file, so processes that\n\
         map the same files share it. For 200 processes: the memory of the tables of a `pyobs record` that watches them,\n\
         by the kernel's account (`memlock` in `/proc/PID/fdinfo`). All their chunks of 512 KiB except the last are full.",
        &["process", "run", "files", "time (ms)", "tables (MiB)"],
    );
    let pins = repo::root().join("tests/requirements.txt");
    let folder = repo::target().join("venvs/bench-numpy");
    let numpy = venvs::ensure(setting.python(VERSION)?, VERSION, &folder, &pins)?;
    for (name, code) in PROGRAMS {
        let program = Program::start(&numpy, code)?;
        sleep(Duration::from_secs(3));
        let (mut times, mut sizes) = (Vec::new(), Vec::new());
        for run in 1..=RUNS {
            let result = make(&program.pid().to_string())?;
            let (seconds, bytes) = (number(&result, "/seconds")?, number(&result, "/bytes")?);
            let cells = vec![
                name.to_owned(),
                run.to_string(),
                format!("{:.0}", number(&result, "/files")?),
                format!("{:.1}", seconds * 1e3),
                format!("{:.2}", bytes / MIB),
            ];
            table.row(cells, "cargo run --release -p pyobs-capture --example tables -- PID");
            times.push(seconds * 1e3);
            sizes.push(bytes / MIB);
        }
        table.at_most(&format!("{name}: median time to make the tables (ms)"), median(times), 300.0);
        table.at_most(&format!("{name}: tables (MiB)"), median(sizes), MOST_MIB);
    }
    many(setting, &mut table, &numpy)?;
    Ok(table)
}

fn many(setting: &Setting, table: &mut Table, numpy: &Path) -> Result<()> {
    let program = Program::start(numpy, SHARING)?;
    sleep(Duration::from_secs(5));
    let (args, mut tables) = (["--duration", "15", "--probe", "cpu"].map(str::to_owned), 0.0);
    let recorded = record_and_poll(setting, "tables", &args, |pid| tables = f64::max(tables, tables_of(pid)))?;
    drop(program);
    let processes = recorded.report.get("processes").and_then(Value::as_array);
    let sampled = |process: &&Value| {
        let is_busy = process.get("samples").and_then(Value::as_u64).is_some_and(|samples| samples > 0);
        is_busy && process.get("python").is_some_and(Value::is_string)
    };
    let seen = processes.map_or(0, |processes| processes.iter().filter(sampled).count() as u64);
    let whole =
        100.0 * number(&recorded.report, "/stacks/whole")? / number(&recorded.report, "/stacks/samples")?.max(1.0);
    let of_them = format!("NumPy, {seen} processes, {whole:.1} % of their stacks complete");
    let cells = vec![of_them, "1".to_owned(), String::new(), String::new(), format!("{:.2}", tables / MIB)];
    table.row(cells, &shown(&args));
    table.at_least("sampled processes that share them", seen as f64, MANY as f64);
    table.at_least("their complete stacks (%)", whole, 95.0);
    table.at_most(&format!("{MANY} processes: tables (MiB)"), tables / MIB, MOST_MIB);
    table.at_least(&format!("{MANY} processes: tables (MiB)"), tables / MIB, 1.0);
    Ok(())
}

/// The kernel memory of a process's chunks of rows: arrays of 65,536 words.
fn tables_of(pid: u32) -> f64 {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    texts
        .filter_map(|text| {
            let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
            let is_chunk = field("map_type:") == Some(2)
                && field("value_size:") == Some(8)
                && field("max_entries:") == Some(65_536);
            field("memlock:").filter(|_| is_chunk).map(|bytes| bytes as f64)
        })
        .sum()
}

fn make(pid: &str) -> Result<Value> {
    let args = ["run", "--quiet", "--release", "-p", "pyobs-capture", "--example", "tables", "--", pid];
    let printed = output(Command::new("cargo").current_dir(repo::root()).args(args))?;
    serde_json::from_str(&printed).with_context(|| format!("the example `tables` printed {printed:?}"))
}

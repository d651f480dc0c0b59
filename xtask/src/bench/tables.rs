//! How long unwind tables take to make, and how large they are.

use std::{process::Command, thread::sleep, time::Duration};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    Setting,
    record::{Program, number},
    table::{Table, median},
};
use crate::{process::output, repo, venvs};

const VERSION: &str = "3.12";
const RUNS: usize = 5;
const PROGRAMS: [(&str, &str); 2] =
    [("plain", "import time\ntime.sleep(600)\n"), ("NumPy", "import numpy, time\ntime.sleep(600)\n")];
const MIB: f64 = 1024.0 * 1024.0;

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "Unwind tables",
        "All files that a CPython 3.12 process maps, one after the other. A table belongs to a file, so that processes\n\
         that map the same files share it: 200 take no more than one.",
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
            let said = make(&program.pid().to_string())?;
            let (seconds, bytes) = (number(&said, "/seconds")?, number(&said, "/bytes")?);
            let cells = vec![
                name.to_owned(),
                run.to_string(),
                format!("{:.0}", number(&said, "/files")?),
                format!("{:.1}", seconds * 1e3),
                format!("{:.2}", bytes / MIB),
            ];
            table.row(cells, "cargo run --release -p pyobs-capture --example tables -- PID");
            times.push(seconds * 1e3);
            sizes.push(bytes / MIB);
        }
        table.at_most(&format!("{name}: median time to make the tables (ms)"), median(times), 300.0);
        table.at_most(&format!("{name}: tables (MiB)"), median(sizes), 64.0);
    }
    Ok(table)
}

fn make(pid: &str) -> Result<Value> {
    let args = ["run", "--quiet", "--release", "-p", "pyobs-capture", "--example", "tables", "--", pid];
    let said = output(Command::new("cargo").current_dir(repo::root()).args(args))?;
    serde_json::from_str(&said).with_context(|| format!("the example `tables` said {said:?}"))
}

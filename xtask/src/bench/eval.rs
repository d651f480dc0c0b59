//! Measures what the family `eval` costs a program whose calls it counts.

use std::process::Command;

use anyhow::{Context, Result};

use super::{
    Setting,
    record::{record, shown},
    script,
    table::Table,
};
use crate::process::output;

const VERSIONS: [&str; 4] = ["3.10", "3.11", "3.12", "3.13"];
/// No probe, a probe for functions that never run, and one for those that do.
const CHOSEN: [Option<&str>; 3] = [None, Some("eval=nothing:x"), Some("eval=calls.py:*")];
/// The limit of a call's cost, which is two traps.
const CALL_US: f64 = 6.0;

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "Calls",
        "CPU time of one call of `def function(x): return x`, and of one resumption of a generator, by the program's own\n\
         `time.process_time` over a loop, minus that of the loop: the minimum of seven rounds of 20,000\n\
         (`xtask/src/bench/calls.py`).",
        &["CPython", "probe", "a call (µs)", "a resumption (µs)"],
    );
    for version in VERSIONS {
        for chosen in CHOSEN {
            let (call, resumption, command) = measure(setting, version, chosen)?;
            let probe = chosen.unwrap_or("nothing").to_owned();
            let cells = vec![version.to_owned(), probe.clone(), format!("{call:.3}"), format!("{resumption:.3}")];
            table.row(cells, &command);
            if chosen.is_some() {
                table.at_most(&format!("{version}, {probe}: a call (µs)"), call, CALL_US);
            }
        }
    }
    Ok(table)
}

/// The microseconds of a call and of a resumption, and the command.
fn measure(setting: &Setting, version: &str, chosen: Option<&str>) -> Result<(f64, f64, String)> {
    let python = setting.python(version)?.display().to_string();
    let script = script("calls.py").display().to_string();
    let (printed, command) = match chosen {
        None => (output(Command::new(&python).arg(&script))?, format!("python{version} calls.py")),
        Some(probe) => {
            let args = ["--probe", probe, "--", &python, &script].map(str::to_owned);
            (record(setting, "calls", &args)?.stdout, shown(&args))
        }
    };
    let times = printed.trim().split_once(' ').with_context(|| format!("calls.py printed {printed:?}"))?;
    let (call, resumption): (f64, f64) = (times.0.parse()?, times.1.parse()?);
    Ok((call * 1e6, resumption * 1e6, command))
}

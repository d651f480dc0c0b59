//! Measures pyobs's memory with one process and with 200, and whether it keeps up with 200.

use std::{collections::BTreeSet, thread::sleep, time::Duration};

use anyhow::Result;
use serde_json::Value;

use super::{
    Setting,
    record::{Program, Recorded, number, record, shown},
    table::Table,
};

const MANY: usize = 200;
const MIB: f64 = 1024.0 * 1024.0;
/// Briefly busy but often, so that each of 200 on a small machine is sampled.
const PROGRAM: &str = "\
import time
def busy():
    until = time.thread_time() + 0.005
    while time.thread_time() < until: sum(range(100))
while True:
    busy()
    time.sleep(0.2)
";

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "Memory, and 200 processes at once",
        "The resident set of `pyobs record`, by the kernel's high-water mark and by the report at the end; the losses;\n\
         and for how many of the processes the report names the interpreter and the running function.",
        &["Python processes", "peak RSS (MiB)", "RSS in the report (MiB)", "lost", "named"],
    );
    one(setting, &mut table)?;
    many(setting, &mut table)?;
    Ok(table)
}

fn one(setting: &Setting, table: &mut Table) -> Result<()> {
    let programs = start(setting, 1)?;
    let args = |pid: &str| ["--pid", pid, "--duration", "10"].map(str::to_owned);
    let recorded = record(setting, "memory-1", &args(&programs[0].pid().to_string()))?;
    add_row(table, &recorded, &programs, &shown(&args("PID")))?;
    table.at_most("peak RSS with one process (MiB)", recorded.peak_rss_bytes / MIB, 60.0);
    Ok(())
}

fn many(setting: &Setting, table: &mut Table) -> Result<()> {
    let programs = start(setting, MANY)?;
    let args = ["--duration", "20"].map(str::to_owned);
    let recorded = record(setting, "memory-200", &args)?;
    let named = add_row(table, &recorded, &programs, &shown(&args))?;
    table.at_most("peak RSS with 200 processes (MiB)", recorded.peak_rss_bytes / MIB, 150.0);
    table.goal(
        format!("200 processes: lost {}, nothing may be", loss(&recorded.report)),
        loss(&recorded.report) == "{}",
    );
    table.goal(format!("200 processes: {named} named, all must be"), named == MANY);
    Ok(())
}

fn start(setting: &Setting, count: usize) -> Result<Vec<Program>> {
    let python = setting.python("3.12")?;
    let programs = (0..count).map(|_| Program::start(python, PROGRAM)).collect::<Result<Vec<_>>>()?;
    // Each must have finished its start-up; 200 of them share few cores.
    sleep(Duration::from_millis(1000 + 50 * count as u64));
    Ok(programs)
}

fn add_row(table: &mut Table, recorded: &Recorded, programs: &[Program], command: &str) -> Result<usize> {
    let named = programs.iter().filter(|program| is_named(&recorded.report, program.pid())).count();
    let cells = vec![
        programs.len().to_string(),
        format!("{:.0}", recorded.peak_rss_bytes / MIB),
        format!("{:.0}", number(&recorded.report, "/cost/rss_bytes")? / MIB),
        loss(&recorded.report),
        named.to_string(),
    ];
    table.row(cells, command);
    Ok(named)
}

fn loss(report: &Value) -> String {
    report.get("loss").map_or_else(|| "the report has no `loss`".to_owned(), Value::to_string)
}

/// Whether its interpreter's version is known, and the function in which it spends its time.
fn is_named(report: &Value, pid: u32) -> bool {
    let rows = |key: &str| report.get(key).and_then(Value::as_array).into_iter().flatten();
    let own = |row: &&Value| row.get("pid").and_then(Value::as_u64) == Some(pid.into());
    let has_version = rows("processes").filter(own).any(|process| process.get("python").is_some_and(Value::is_string));
    let functions: BTreeSet<&str> =
        rows("frames").filter(own).filter_map(|row| row.pointer("/frame/function")?.as_str()).collect();
    has_version && functions.contains("busy")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_process_is_named_by_its_version_and_its_function() {
        let frame = |function: &str| json!({"pid": 7, "frame": {"function": function}, "self": 1, "total": 1});
        let report = |python: Value, function: &str| json!({"processes": [{"pid": 7, "python": python}], "frames": [frame(function)]});
        assert!(is_named(&report(json!("3.12.1"), "busy"), 7));
        assert!(!is_named(&report(json!("3.12.1"), "busy"), 8));
        assert!(!is_named(&report(Value::Null, "busy"), 7));
        assert!(!is_named(&report(json!("3.12.1"), "?"), 7));
    }

    #[test]
    fn no_loss_is_an_empty_object() {
        assert_eq!(loss(&json!({"loss": {}})), "{}");
        assert_eq!(loss(&json!({"loss": {"ring_full": 3}})), "{\"ring_full\":3}");
    }
}

//! Kernel time of one sample.

use std::{thread::sleep, time::Duration};

use anyhow::Result;

use super::{
    Setting,
    record::{Program, number, record, shown},
    table::{Table, median},
};

const RUNS: usize = 3;
/// The module, 28 levels of `deep`, and `spin`: 30 frames wherever a sample falls.
const PROGRAM: &str = "\
def spin():
    x = 0
    while True: x = (x * 31 + 7) & 0xffff
def deep(n):
    if n > 1: deep(n - 1)
    else: spin()
deep(28)
";

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "Kernel time per sample",
        "The kernel's own account of the time in pyobs's BPF programs (`bpf_stats`) over the samples of a CPython 3.12\n\
         program that is 30 Python frames deep, at 1 kHz. It includes what the programs spend on samples of other processes.",
        &["run", "samples", "BPF time (s)", "per sample (µs)"],
    );
    let mut costs = Vec::new();
    for run in 1..=RUNS {
        let program = Program::start(setting.python("3.12")?, PROGRAM)?;
        sleep(Duration::from_millis(500));
        let args = |pid: &str| ["--pid", pid, "--rate", "1000", "--duration", "10"].map(str::to_owned);
        let recorded = record(setting, "kernel", &args(&program.pid().to_string()))?;
        let samples = number(&recorded.report, "/stacks/samples")?;
        let bpf_s = number(&recorded.report, "/cost/bpf_s")?;
        let cost = bpf_s / samples.max(1.0) * 1e6;
        let cells = vec![run.to_string(), format!("{samples:.0}"), format!("{bpf_s:.4}"), format!("{cost:.2}")];
        table.row(cells, &shown(&args("PID")));
        costs.push(cost);
    }
    table.at_most("median kernel time per sample (µs)", median(costs), 6.0);
    Ok(table)
}

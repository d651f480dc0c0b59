//! Kernel time of one sample, and how many of them are whole.

use std::{thread::sleep, time::Duration};

use anyhow::Result;

use super::{
    Setting,
    record::{Program, number, record, shown},
    table::{Table, median},
};

const RUNS: usize = 3;
/// The module, 27 levels of `deep`, and `key` and `spin` called by `sorted`: 30 Python frames, and 20 native ones of
/// CPython 3.12 around them.
const PROGRAM: &str = "\
def spin():
    x = 0
    while True: x = (x * 31 + 7) & 0xffff
def key(_): spin()
def deep(n):
    if n > 1: deep(n - 1)
    else: sorted([1, 2], key=key)
deep(27)
";
/// Samples a second, seconds, and the most microseconds that a sample may take.
const RATES: [(&str, &str, f64); 2] = [("1000", "10", 8.0), ("99", "20", 20.0)];

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "Kernel time per sample",
        "The kernel's own account of the time in pyobs's BPF programs (`bpf_stats`) over the samples of a CPython 3.12\n\
         program that is 30 Python and some 20 native frames deep. It includes what the programs spend on samples of\n\
         other processes. Whole are stacks that lead to the outermost frame, Python and native.",
        &["rate (Hz)", "run", "samples", "whole (%)", "BPF time (s)", "per sample (µs)"],
    );
    for (rate, seconds, most) in RATES {
        let (mut costs, mut wholes) = (Vec::new(), Vec::new());
        for run in 1..=RUNS {
            let program = Program::start(setting.python("3.12")?, PROGRAM)?;
            sleep(Duration::from_millis(500));
            let args =
                |pid: &str| ["--pid", pid, "--rate", rate, "--duration", seconds, "--probe", "cpu"].map(str::to_owned);
            let recorded = record(setting, "kernel", &args(&program.pid().to_string()))?;
            let samples = number(&recorded.report, "/stacks/samples")?;
            let whole = 100.0 * number(&recorded.report, "/stacks/whole")? / samples.max(1.0);
            let bpf_s = number(&recorded.report, "/cost/bpf_s")?;
            let cost = bpf_s / samples.max(1.0) * 1e6;
            let cells = vec![
                rate.to_owned(),
                run.to_string(),
                format!("{samples:.0}"),
                format!("{whole:.2}"),
                format!("{bpf_s:.4}"),
                format!("{cost:.2}"),
            ];
            table.row(cells, &shown(&args("PID")));
            costs.push(cost);
            wholes.push(whole);
        }
        table.at_most(&format!("median kernel time per sample at {rate} Hz (µs)"), median(costs), most);
        table.at_most(&format!("stacks that are not whole at {rate} Hz (%)"), 100.0 - median(wholes), 2.0);
    }
    Ok(table)
}

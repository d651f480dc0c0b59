//! Measures the kernel time of a sample, and how many samples are complete.

use std::{thread::sleep, time::Duration};

use anyhow::Result;

use super::{
    Setting,
    record::{Program, number, record, shown},
    table::{Table, median},
};

/// Many short runs: other load comes in bursts, which a median ignores.
const RUNS: usize = 11;

/// A program at the bottom of a deep stack, and what its samples may cost.
struct Case {
    name: &'static str,
    program: &'static str,
    /// Samples a second.
    rate: &'static str,
    seconds: &'static str,
    /// The most microseconds that a sample may take.
    most: f64,
}

/// The module, 28 levels of `deep`, and `spin`: 30 Python frames, all run by one C frame of CPython 3.12.
const PYTHON: &str = "\
def spin():
    x = 0
    while True: x = (x * 31 + 7) & 0xffff
def deep(n):
    if n > 1: deep(n - 1)
    else: spin()
deep(28)
";
/// The module, 27 levels of `deep`, and `key` and `spin` called by `sorted`: 30 Python frames, with 20 native ones of
/// CPython 3.12 around them.
const MIXED: &str = "\
def spin():
    x = 0
    while True: x = (x * 31 + 7) & 0xffff
def key(_): spin()
def deep(n):
    if n > 1: deep(n - 1)
    else: sorted([1, 2], key=key)
deep(27)
";

const CASES: [Case; 3] = [
    Case { name: "Python", program: PYTHON, rate: "1000", seconds: "5", most: 6.0 },
    Case { name: "Python and native", program: MIXED, rate: "1000", seconds: "5", most: 8.0 },
    Case { name: "Python and native", program: MIXED, rate: "99", seconds: "10", most: 20.0 },
];

/// The result of one run.
struct Run {
    cost_us: f64,
    whole: f64,
}

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "Kernel time per sample",
        "The kernel's own account of the time in pyobs's BPF programs (`bpf_stats`) over the samples of a CPython 3.12\n\
         program that is 30 Python frames deep, without and with calls through native code (some 20 native frames). It\n\
         includes what the programs spend on samples of other processes. A stack is whole if it leads to the outermost\n\
         frame, Python and native.",
        &["frames", "rate (Hz)", "runs", "whole (%)", "per sample (µs)"],
    )
    .with_raw(&["frames", "rate (Hz)", "run", "samples", "whole (%)", "BPF time (s)", "per sample (µs)"]);
    let mut runs: [Vec<Run>; CASES.len()] = Default::default();
    // In turn, so that other load affects each case alike.
    for number in 1..=RUNS {
        for (case, runs) in CASES.iter().zip(&mut runs) {
            runs.push(measure(setting, case, number, &mut table)?);
        }
    }
    for (case, runs) in CASES.iter().zip(&runs) {
        let of = |figure: fn(&Run) -> f64| median(runs.iter().map(figure).collect());
        let what = format!("{}, {} Hz", case.name, case.rate);
        let cells = vec![
            case.name.to_owned(),
            case.rate.to_owned(),
            RUNS.to_string(),
            format!("{:.2}", of(|run| run.whole)),
            format!("{:.2}", of(|run| run.cost_us)),
        ];
        table.row(cells, &shown(&args(case, "PID")));
        table.at_most(&format!("{what}: median kernel time per sample (µs)"), of(|run| run.cost_us), case.most);
        table.at_most(&format!("{what}: stacks that are not whole (%)"), 100.0 - of(|run| run.whole), 2.0);
    }
    Ok(table)
}

fn measure(setting: &Setting, case: &Case, number_of_run: usize, table: &mut Table) -> Result<Run> {
    let program = Program::start(setting.python("3.12")?, case.program)?;
    sleep(Duration::from_millis(500));
    let recorded = record(setting, "kernel", &args(case, &program.pid().to_string()))?;
    let samples = number(&recorded.report, "/stacks/samples")?;
    let whole = 100.0 * number(&recorded.report, "/stacks/whole")? / samples.max(1.0);
    let bpf_s = number(&recorded.report, "/cost/bpf_s")?;
    let cost_us = bpf_s / samples.max(1.0) * 1e6;
    let cells = vec![
        case.name.to_owned(),
        case.rate.to_owned(),
        number_of_run.to_string(),
        format!("{samples:.0}"),
        format!("{whole:.2}"),
        format!("{bpf_s:.4}"),
        format!("{cost_us:.2}"),
    ];
    table.raw_row(cells, &shown(&args(case, "PID")));
    Ok(Run { cost_us, whole })
}

fn args(case: &Case, pid: &str) -> [String; 8] {
    ["--pid", pid, "--rate", case.rate, "--duration", case.seconds, "--probe", "cpu"].map(str::to_owned)
}

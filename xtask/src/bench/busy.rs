//! Measures what pyobs costs on a machine whose CPUs are all busy, beside py-spy, in the same run.

use std::{collections::BTreeMap, process::Command, thread::available_parallelism};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{
    Setting, overhead,
    record::{number, report},
    script,
    table::Table,
};
use crate::process::output;

/// The steady state, in which pyobs knows everything that runs and reads nothing for the first time.
const WINDOW: [&str; 2] = ["10", "40"];
const PROBES: [&str; 2] = ["cpu", "default"];
/// How many recordings of each kind, in turn, because a machine's speed changes from minute to minute.
const ROUNDS: usize = 3;
/// Goals: % of the machine for `--probe cpu` and for the defaults, µs of user time per sample, ns of kernel time per
/// thread switch, and how many times as much py-spy must use.
const MACHINE: [f64; 2] = [0.4, 1.0];
const SAMPLE_US: f64 = 25.0;
const SWITCH_NS: f64 = 60.0;
const PY_SPY: f64 = 20.0;
/// The programs that run at thread switches.
const SWITCHES: [&str; 2] = ["offcpu_switch", "offcpu_waking"];
const COLUMNS: &[&str] = &[
    "what",
    "kernel (% of the machine)",
    "user (% of the machine)",
    "samples a second",
    "kernel a sample (µs)",
    "user a sample (µs)",
    "thread switches a second",
    "kernel a switch (ns)",
];

/// What `busy.py` prints about a recording.
#[derive(Deserialize)]
struct Recorded {
    file: std::path::PathBuf,
    seconds: f64,
    samples: f64,
    switches: f64,
    /// Run time in ns, and the number of runs, of each BPF program.
    programs: BTreeMap<String, (f64, f64)>,
    /// CPU time in ns of the threads with each name.
    threads: BTreeMap<String, f64>,
}

impl Recorded {
    fn kernel_ns(&self) -> f64 {
        self.programs.values().map(|(time, _)| time).sum()
    }

    fn user_ns(&self) -> f64 {
        self.threads.values().sum()
    }

    fn spent_ns(&self) -> f64 {
        (self.kernel_ns() + self.user_ns()) / self.seconds
    }

    fn switch_ns(&self) -> f64 {
        SWITCHES.iter().filter_map(|name| self.programs.get(*name)).map(|(time, _)| time).sum::<f64>() / self.switches
    }
}

/// What `busy.py` prints about py-spy.
#[derive(Deserialize)]
struct Beside {
    processes: u32,
    seconds: f64,
    cpu_s: f64,
}

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "A busy machine",
        "Eight processes that keep all CPUs busy (gunicorn, pandas, a process pool: `xtask/src/bench/busy`), from second 10 to 40 of a\n\
         recording with `--budget 100`, so that nothing is dropped. Of three recordings each, in turns, the table has the\n\
         median one. Kernel time is that of pyobs's BPF programs by `bpf_stats`, whose own clock takes some 20 ns of each\n\
         run of a program. User time is that of pyobs's threads by the scheduler's clock, including system calls. Then\n\
         comes py-spy on each of the eight processes at 100 Hz.",
        COLUMNS,
    )
    .with_raw(&["what", "program or thread", "CPU time (ms/s)", "runs a second", "a run (ns)"]);
    let python = overhead::py_spy(setting)?.with_file_name("python");
    let mut bench = Command::new(python);
    bench
        .arg(script("busy.py"))
        .args(WINDOW)
        .arg(crate::repo::pyobs())
        .arg(&setting.folder)
        .args(PROBES.repeat(ROUNDS));
    let printed = output(&mut bench)?;
    let lines: Vec<&str> = printed.lines().collect();
    let [recordings @ .., beside] = &lines[..] else { bail!("busy.py printed nothing") };
    if recordings.len() != PROBES.len() * ROUNDS {
        bail!("busy.py printed {} recordings instead of {}", recordings.len(), PROBES.len() * ROUNDS);
    }
    let cpus = available_parallelism().map_or(1.0, |cpus| cpus.get() as f64);
    let mut shares = Vec::new();
    for ((at, (name, args)), most) in
        [("--probe cpu", " --probe cpu"), ("defaults", "")].into_iter().enumerate().zip(MACHINE)
    {
        let own = recordings.iter().skip(at).step_by(PROBES.len());
        let rounds = own.map(|line| serde_json::from_str(line).with_context(|| format!("{line:?} is not a recording")));
        let mut rounds: Vec<Recorded> = rounds.collect::<Result<_>>()?;
        rounds.sort_by(|one, other| one.spent_ns().total_cmp(&other.spent_ns()));
        let all = rounds.iter().map(|round| format!("{:.2}", round.spent_ns() / 1e7 / cpus)).collect::<Vec<_>>();
        table.remark(format!("{name}: {} % of the machine in the {ROUNDS} recordings.", all.join(", ")));
        let recorded = rounds.swap_remove(ROUNDS / 2);
        let command = format!("pyobs record --budget 100{args}");
        shares.push(show(&mut table, name, &recorded, cpus, &command));
        table.at_most(&format!("{name}: kernel and user time (% of the machine)"), shares[shares.len() - 1], most);
        judge(&mut table, name, &recorded)?;
    }
    let beside: Beside = serde_json::from_str(beside).with_context(|| format!("{beside:?} is not py-spy's result"))?;
    let share = 100.0 * beside.cpu_s / beside.seconds / cpus;
    let name = format!("py-spy on {} processes", beside.processes);
    let mut cells = vec![name, String::new(), format!("{share:.2}")];
    cells.resize(COLUMNS.len(), String::new());
    table.row(cells, "py-spy record -r 100 -p PID");
    table.at_least("py-spy on all processes: times the cost of pyobs --probe cpu", share / shares[0], PY_SPY);
    Ok(table)
}

/// Returns the CPU time of kernel and user space in % of the machine.
fn show(table: &mut Table, name: &str, recorded: &Recorded, cpus: f64, command: &str) -> f64 {
    let Recorded { seconds, samples, switches, .. } = *recorded;
    let (kernel, user) = (recorded.kernel_ns(), recorded.user_ns());
    let share = |ns: f64| 100.0 * ns / 1e9 / seconds / cpus;
    let has_switches = SWITCHES.iter().any(|program| recorded.programs.contains_key(*program));
    let cells = vec![
        name.to_owned(),
        format!("{:.2}", share(kernel)),
        format!("{:.2}", share(user)),
        format!("{:.0}", samples / seconds),
        format!("{:.1}", kernel / 1e3 / samples),
        format!("{:.1}", user / 1e3 / samples),
        format!("{:.0}", switches / seconds),
        if has_switches { format!("{:.0}", recorded.switch_ns()) } else { String::new() },
    ];
    table.row(cells, command);
    for (program, (time, runs)) in &recorded.programs {
        let figures = [time / 1e6 / seconds, runs / seconds, time / runs];
        let [time, runs, each] = figures;
        let cells =
            vec![name.to_owned(), program.clone(), format!("{time:.3}"), format!("{runs:.0}"), format!("{each:.0}")];
        table.raw_row(cells, command);
    }
    for (thread, time) in &recorded.threads {
        let time = format!("{:.3}", time / 1e6 / seconds);
        table.raw_row(vec![name.to_owned(), thread.clone(), time, String::new(), String::new()], command);
    }
    share(kernel + user)
}

fn judge(table: &mut Table, name: &str, recorded: &Recorded) -> Result<()> {
    if name == "--probe cpu" {
        let each = recorded.user_ns() / 1e3 / recorded.samples;
        table.at_most(&format!("{name}: user time a sample (µs)"), each, SAMPLE_US);
    } else {
        table.at_most(&format!("{name}: kernel time a thread switch (ns)"), recorded.switch_ns(), SWITCH_NS);
    }
    let report = report(&recorded.file)?;
    let shed = report.pointer("/cost/shed").and_then(|shed| shed.as_array()).map_or(0, Vec::len);
    table.goal(format!("{name}: nothing is dropped for the budget"), shed == 0);
    let lost = report.get("loss").map(ToString::to_string).unwrap_or_default();
    let taken = number(&report, "/stacks/samples")?;
    table.remark(format!("{name}: {taken:.0} samples in all, losses {lost}."));
    Ok(())
}

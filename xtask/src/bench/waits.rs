//! Measures what pyobs costs a program whose threads only hand over to each other.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{
    Setting,
    paired::{self, Compared},
    record::{number, record, shown},
    script,
    table::Table,
};

const VERSION: &str = "3.12";
/// Budgets for waits alone, in percent: practically unlimited, and the default.
const BUDGETS: [&str; 2] = ["100", "1"];
/// Long enough to keep the budget: pyobs checks after three seconds and then every five.
const SECONDS: &str = "30";
/// The maximum kernel time of a sleep that is only counted, in microseconds, and the maximum slowdown of a hand-over, in
/// percent.
const SLEEP_US: f64 = 2.0;
const LONGER: f64 = 10.0;

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "Waits",
        "Two threads of a CPython 3.12 program that hand over to each other by pipes, on one CPU (`xtask/src/bench/switches.py`).\n\
         First how long a hand-over takes while pyobs watches, compared with just before and after (`paired.py`): with\n\
         the defaults, and with the family `offcpu` alone. `nobody` shows the noise, and programs that do nothing\n\
         (`xtask/src/bench/empty.py`) what any observer of these tracepoints costs. Then the time of pyobs's BPF programs\n\
         by the kernel's own account (`bpf_stats`) per sleep that the kernel counted (`getrusage`), and what was shed to\n\
         keep the budget.",
        &["what", "figure", "10th to 90th percentile", "sleeps a second", "BPF time (% of a core)", "given up"],
    );
    handed_over(setting, &mut table)?;
    for budget in BUDGETS {
        slept(setting, &mut table, budget)?;
    }
    Ok(table)
}

fn switches() -> String {
    script("switches.py").display().to_string()
}

fn handed_over(setting: &Setting, table: &mut Table) -> Result<()> {
    let python = setting.python(VERSION)?;
    let words = [python.display().to_string(), switches()];
    let words = [&words[0][..], &words[1][..]];
    let watches: [&[&str]; 2] = [&["--pid", "PID"], &["--pid", "PID", "--probe", "offcpu"]];
    let compared = Compared::measure(setting, python, &words, &watches, paired::USUAL)?;
    let [defaults, offcpu] = &compared[..] else { bail!("paired.py left a watcher out") };
    let (nothing, command) =
        paired::beside_nothing(setting, python, &words, paired::USUAL, &["sched_switch", "sched_waking"])?;
    let nothing = paired::row("programs that do nothing", &nothing, &command);
    let [_, [_, figure, range, command]] = offcpu.rows();
    let alone = ["pyobs with offcpu alone".to_owned(), figure, range, command];
    for [who, figure, range, command] in defaults.rows().into_iter().chain([alone, nothing]) {
        let cells = vec![format!("a hand-over, {who}"), figure, range, String::new(), String::new(), String::new()];
        table.row(cells, &command);
    }
    let [_, middle, _] = paired::longer(&defaults.watched);
    table.at_most("a hand-over: longer by (%)", middle, LONGER);
    Ok(())
}

fn slept(setting: &Setting, table: &mut Table, budget: &str) -> Result<()> {
    let python = setting.python(VERSION)?.display().to_string();
    let own = ["--probe", "offcpu", "--budget", budget, "--", &python, &switches(), SECONDS].map(str::to_owned);
    let recorded = record(setting, "waits", &own)?;
    let printed =
        recorded.stdout.trim().split_once(' ').with_context(|| format!("{:?} is not a count", recorded.stdout))?;
    let (sleeps, seconds): (f64, f64) = (printed.0.parse()?, printed.1.parse()?);
    let (report, bpf_s) = (&recorded.report, number(&recorded.report, "/cost/bpf_s")?);
    let shed = report.pointer("/cost/shed").and_then(Value::as_array).context("the report has no `shed`")?;
    let sentences: Vec<&str> = shed.iter().filter_map(Value::as_str).collect();
    let waits = report.pointer("/offcpu").and_then(Value::as_array).context("the report has no `offcpu`")?;
    let counted: f64 = waits.iter().filter_map(|wait| wait.get("count")?.as_f64()).sum();
    let each = bpf_s / sleeps * 1e6;
    let what = format!("a sleep, with a budget of {budget} %");
    let cells = vec![
        what.clone(),
        format!("{each:.2} µs of the kernel's time"),
        String::new(),
        format!("{:.0}", sleeps / seconds),
        format!("{:.2}", 100.0 * bpf_s / seconds),
        sentences.join("; "),
    ];
    table.row(cells, &shown(&own));
    table.at_most(&format!("{what}: kernel time (µs)"), each, SLEEP_US);
    // The rest is the program's start, and its threads' waits for the GIL.
    table.at_least(&format!("{what}: counted, of those that the kernel counted"), counted / sleeps, 0.99);
    if budget == "1" {
        let says_rate = sentences.iter().all(|sentence| sentence.contains("times as seldom from"));
        table.goal(
            format!("{what}: what was given up is reported with the remaining rate"),
            !shed.is_empty() && says_rate,
        );
    }
    Ok(())
}

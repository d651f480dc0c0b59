//! Measures a long recording: its size, the cost of writing it, and the time of its report.

use std::{fs, path::Path, process::Command, time::Instant};

use anyhow::{Context, Result};

use super::{
    Setting,
    record::{number, record},
    table::{Table, median},
};
use crate::{
    demo::{self, Pipeline},
    process::{cargo, output, run as run_command},
    repo,
};

const SECONDS: &str = "3600";
const MIB: f64 = 1024.0 * 1024.0;
const REPORTS: usize = 3;
/// This much of its end is written again, to measure the writing alone.
const REWRITTEN_S: &str = "300";

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "An hour",
        "This whole machine with the defaults for an hour, in which it runs the pipeline of `cargo xtask demo` and\n\
         whatever else it is used for. The time of the report in words is the median of three. Writing is the CPU time of\n\
         the thread that rewrites the last five minutes at their own pace (`userspace/recording/examples/rewrite.rs`).",
        &[
            "recorded (s)",
            "samples",
            "processes",
            "size (MiB)",
            "CPU (cores)",
            "writing (cores)",
            "peak RSS (MiB)",
            "lost",
            "report (s)",
        ],
    );
    let pipeline = Pipeline::start(&demo::interpreter()?)?;
    let args = ["--duration", SECONDS].map(str::to_owned);
    let recorded = record(setting, "hour", &args)?;
    drop(pipeline);
    let mut reports = Vec::new();
    for _ in 0..REPORTS {
        let begun = Instant::now();
        output(Command::new(repo::pyobs()).arg("report").arg(&recorded.file))?;
        reports.push(begun.elapsed().as_secs_f64());
    }
    let seconds = number(&recorded.report, "/recording/duration_s")?;
    let size = fs::metadata(&recorded.file)?.len() as f64 / MIB;
    let cpu = number(&recorded.report, "/cost/cpu_s")? / seconds.max(1.0);
    let writing = writing(setting, &recorded.file)?;
    let report = median(reports);
    let lost = recorded.report.get("loss").map(ToString::to_string).unwrap_or_default();
    let processes = recorded.report["processes"].as_array().map_or(0, Vec::len);
    let cells = vec![
        format!("{seconds:.0}"),
        format!("{:.0}", number(&recorded.report, "/stacks/samples")?),
        processes.to_string(),
        format!("{size:.1}"),
        format!("{cpu:.4}"),
        format!("{writing:.4}"),
        format!("{:.0}", recorded.peak_rss_bytes / MIB),
        lost,
        format!("{report:.2}"),
    ];
    table.row(cells, "pyobs record --duration 3600; pyobs report");
    table.at_most("size of an hour (MiB)", size, 200.0);
    table.at_most("writing, of a core", writing, 0.01);
    table.at_most("report in words (s)", report, 3.0);
    Ok(table)
}

fn writing(setting: &Setting, recording: &Path) -> Result<f64> {
    let example = ["--package", "pyobs-recording", "--example", "rewrite"];
    run_command(cargo().args(["build", "--release"]).args(example))?;
    let again = setting.folder.join("hour-again.pyobs");
    let mut rewrite = Command::new(repo::target().join("release/examples/rewrite"));
    let printed = output(rewrite.arg(recording).arg(&again).arg(REWRITTEN_S))?;
    fs::remove_file(&again).with_context(|| format!("cannot remove {}", again.display()))?;
    printed.trim().parse().with_context(|| format!("{printed:?} is no share"))
}

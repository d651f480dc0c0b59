//! Measures what the dashboard costs while it is open.

use std::process::Command;

use anyhow::{Context, Result};

use super::{Setting, table::Table};
use crate::{
    process::{cargo, output, run as run_command},
    repo,
};

/// Runs the dashboard in a terminal, and measures its thread.
const TERMINAL: &str = include_str!("dashboard.py");
const SECONDS: &str = "10";
/// The share of a core.
const MOST: f64 = 0.02;
/// The screens in the order of their keys.
const SCREENS: [&str; 10] =
    ["Overview", "Processes", "Frames", "Flame", "Waits", "Health", "Memory", "Transfers", "Redundancy", "Timeline"];

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "Dashboard",
        "The CPU time of the thread that applies events and draws, on each screen in a terminal of 140x40, with\n\
         synthetic events of 200 processes and 50,000 frames (`userspace/tui/examples/fake`, its `many`), without a\n\
         kernel.",
        &["screen", "of a core (%)", "written (bytes/s)"],
    );
    let example = ["--package", "pyobs-tui", "--example", "fake"];
    run_command(cargo().args(["build", "--release"]).args(example))?;
    let fake = repo::target().join("release/examples/fake");
    let mut terminal = Command::new(setting.python("3.12")?);
    terminal.args(["-c", TERMINAL, SECONDS]).arg(fake).arg("many");
    let mut largest: f64 = 0.0;
    for (line, screen) in output(&mut terminal)?.lines().zip(SCREENS) {
        let mut figures = line.split_whitespace().skip(1);
        let share: f64 = figures.next().context("no share of a core")?.parse()?;
        let written = figures.next().context("no count of bytes")?;
        largest = largest.max(share);
        let cells = vec![screen.to_owned(), format!("{:.2}", 100.0 * share), written.to_owned()];
        table.row(cells, "cargo run --release -p pyobs-tui --example fake many");
    }
    table.at_most("the most expensive screen, of a core", largest, MOST);
    Ok(table)
}

//! How long the dashboard takes to show itself.

use std::process::Command;

use anyhow::{Context, Result};

use super::{
    Setting,
    record::Program,
    table::{Table, median},
};
use crate::{process::output, repo};

const RUNS: usize = 7;
/// A terminal of its own for the dashboard, and a clock.
const TERMINAL: &str = include_str!("first_screen.py");
const PROGRAM: &str = "\
def burn_visibly():
    while True: sum(range(1000))
burn_visibly()
";

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "First screen",
        "From the start of `pyobs top` in a terminal of 120x40 to its first screen, and to the first line of a Python\n\
         function that burns CPU. The middle of seven runs, and the slowest.",
        &["until", "median (s)", "slowest (s)"],
    );
    let python = setting.python("3.12")?;
    let _program = Program::start(python, PROGRAM)?;
    let mut screens = Vec::new();
    let mut functions = Vec::new();
    for _ in 0..RUNS {
        let times = output(Command::new(python).args(["-c", TERMINAL]).arg(repo::pyobs()).arg("burn_visibly"))?;
        let mut times = times.split_whitespace().map(str::parse::<f64>);
        screens.push(times.next().context("no time of the first screen")??);
        if let Some(time) = times.next() {
            functions.push(time?);
        }
    }
    add_row(&mut table, "the first screen", screens.clone());
    if functions.len() == RUNS {
        add_row(&mut table, "the busy function", functions);
    }
    table.at_most("median time to the first screen (s)", median(screens), 1.0);
    Ok(table)
}

fn add_row(table: &mut Table, until: &str, times: Vec<f64>) {
    let slowest = times.iter().copied().fold(0.0, f64::max);
    let cells = vec![until.to_owned(), format!("{:.2}", median(times)), format!("{slowest:.2}")];
    table.row(cells, "pyobs top");
}

//! Measures how long the dashboard takes to appear.

use std::{path::Path, process::Command};

use anyhow::{Context, Result};

use super::{
    Setting,
    record::Program,
    table::{Table, median},
};
use crate::{
    process::{cargo, output},
    repo,
};

const RUNS: usize = 7;
/// Runs the dashboard in a terminal of its own, with a clock.
const TERMINAL: &str = include_str!("first_screen.py");
const FUNCTION: &str = "burn_visibly";
const PROGRAM: &str = "\
def burn_visibly():
    while True: sum(range(1000))
burn_visibly()
";

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "First screen",
        "From the start of the command in a terminal of 120x40 to its first screen, and to the first line of a Python\n\
         function that burns CPU. The median of seven runs, and the slowest. `cargo xtask top` was run before, so it sets\n\
         up and builds nothing.",
        &["until", "median (s)", "slowest (s)"],
    );
    let python = setting.python("3.12")?;
    let _program = Program::start(python, PROGRAM)?;
    let mut top = Command::new(repo::pyobs());
    top.arg("top");
    let mut set_up = cargo();
    set_up.args(["xtask", "top"]);
    for (command, shown, limit) in [(top, "pyobs top", 1.0), (set_up, "cargo xtask top", 2.0)] {
        let (screens, functions) = measure(python, &command)?;
        add_row(&mut table, "the first screen", screens.clone(), shown);
        if functions.len() == RUNS {
            add_row(&mut table, "the busy function", functions, shown);
        }
        table.at_most(&format!("{shown}: median time to the first screen (s)"), median(screens), limit);
    }
    Ok(table)
}

/// Seconds until the first screen, and until the function, for each run that showed them.
fn measure(python: &Path, command: &Command) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut screens, mut functions) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (screen, function) = once(python, FUNCTION, command)?;
        screens.push(screen);
        functions.extend(function);
    }
    Ok((screens, functions))
}

/// Seconds until the first screen, and until the word if it appears within 15 s.
pub(super) fn once(python: &Path, word: &str, command: &Command) -> Result<(f64, Option<f64>)> {
    let mut terminal = Command::new(python);
    terminal.args(["-c", TERMINAL, word]).arg(command.get_program()).args(command.get_args());
    terminal.current_dir(repo::root());
    let times = output(&mut terminal)?;
    let mut times = times.split_whitespace().map(str::parse::<f64>);
    let screen = times.next().context("no time of the first screen")??;
    Ok((screen, times.next().transpose()?))
}

fn add_row(table: &mut Table, until: &str, times: Vec<f64>, command: &str) {
    let slowest = times.iter().copied().fold(0.0, f64::max);
    let cells = vec![until.to_owned(), format!("{:.2}", median(times)), format!("{slowest:.2}")];
    table.row(cells, command);
}

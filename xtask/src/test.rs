//! `cargo xtask test`: the whole suite, and nothing left out in silence.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, bail};

use crate::{
    build,
    errors::usage,
    interpreters,
    process::{cargo, is_root},
    pythons, repo, venvs,
};

struct Options {
    all: bool,
    filters: Vec<String>,
    /// Variables for the tests.
    environment: Vec<(&'static str, PathBuf)>,
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut options = parse(args)?;
    build::release()?;
    let list = interpreters::prepare(options.all)?;
    if options.all {
        options.environment = venvs::others(&pythons::find_all());
    }
    if repo::shared().is_none() {
        eprintln!("skipped the workloads of ../shared: there is no such folder beside this checkout");
    }
    if !is_root() {
        eprintln!("skipped what needs root (each test says so); run `sudo -E cargo xtask test` for those too");
    }
    run_suites(&options, &list)
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options { all: false, filters: Vec::new(), environment: Vec::new() };
    for argument in args {
        match argument.as_str() {
            "--all" => options.all = true,
            flag if flag.starts_with('-') => {
                return usage(format!("`cargo xtask test` does not know {flag}; it takes [--all] [FILTER]..."));
            }
            filter => options.filters.push(filter.to_owned()),
        }
    }
    Ok(options)
}

/// Both always run: a broken unit test must not hide what the whole program does.
fn run_suites(options: &Options, list: &Path) -> Result<()> {
    let units = passes(&["--workspace", "--exclude", "pyobs-tests"], options, list)?;
    let whole = passes(&["--package", "pyobs-tests", "--tests"], options, list)?;
    match (units, whole) {
        (true, true) => Ok(()),
        (false, true) => bail!("unit or documentation tests failed; they come first in what stands above"),
        (true, false) => bail!("whole-program tests failed; see above"),
        (false, false) => bail!("unit or documentation tests failed, and so did whole-program tests; see above"),
    }
}

/// libtest-mimic takes one filter, so several are several runs.
fn passes(selection: &[&str], options: &Options, list: &Path) -> Result<bool> {
    if options.filters.is_empty() {
        return succeeds(command(selection, options, list));
    }
    let mut all = true;
    for filter in &options.filters {
        let mut command = command(selection, options, list);
        command.args(["--", filter]);
        all &= succeeds(command)?;
    }
    Ok(all)
}

fn succeeds(mut command: Command) -> Result<bool> {
    Ok(command.status()?.success())
}

fn command(selection: &[&str], options: &Options, list: &Path) -> Command {
    let mut command = cargo();
    command.args(["test", "--no-fail-fast"]).args(selection);
    command.env("PYOBS_BIN", repo::pyobs()).env("PYOBS_PYTHONS", list);
    if let Some(shared) = repo::shared() {
        command.env("PYOBS_SHARED", shared);
    }
    if options.all {
        command.env("PYOBS_ALL", "1");
        command.envs(options.environment.iter().map(|(name, value)| (*name, value)));
    }
    command
}

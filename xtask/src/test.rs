//! `cargo xtask test`: runs the whole suite, and reports everything that it leaves out.

use std::{
    fs, panic,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use anyhow::{Result, bail};

use crate::{
    build,
    errors::usage,
    interpreters, kernels,
    process::{cargo, is_root},
    readers, repo, root, venvs,
};

struct Options {
    all: bool,
    filters: Vec<String>,
    /// Variables for the tests.
    environment: Vec<(&'static str, PathBuf)>,
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut options = parse(args)?;
    // Finding interpreters waits for the network and for one core, while the build uses all of them.
    let (built, found) = thread::scope(|scope| {
        let found = scope.spawn(|| interpreters::equipped(options.all));
        (build::release(), found.join())
    });
    built?;
    let found = found.unwrap_or_else(|panic| panic::resume_unwind(panic))?;
    let list = interpreters::list(&found)?;
    if options.all {
        options.environment = venvs::others(&found);
        options.environment.extend(root::old());
    }
    match readers::installed() {
        Ok(files) => options.environment.extend(files),
        Err(error) => eprintln!("skipped the readers of npm: {error:#}"),
    }
    if options.wants(kernels::TESTS) {
        // The guests use one core and a half, and the build of the tests has long stretches with one.
        let (built, checked) = thread::scope(|scope| {
            let checked = scope.spawn(|| kernels::of_tests(options.all).and_then(|wanted| kernels::check(&wanted)));
            (succeeds(command(&options, &list, &["--no-run"])), checked.join())
        });
        if !built? {
            bail!("the tests do not compile; see above");
        }
        match checked.unwrap_or_else(|panic| panic::resume_unwind(panic)) {
            Ok(_) => options.environment.push(("PYOBS_KERNELS", kernels::results())),
            Err(error) => eprintln!("skipped the kernels: {error:#}"),
        }
    }
    if !is_root() {
        eprintln!("skipped what needs root (each test says so); run `sudo -E cargo xtask test` for those too");
    }
    run_suites(&options, &list)
}

impl Options {
    /// Whether the filters select tests whose names start like this.
    fn wants(&self, tests: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| filter.contains(tests) || tests.contains(filter))
    }
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

/// One command runs all: a second one would compile shared crates again with other features. libtest-mimic takes one
/// filter, so several filters need several runs.
fn run_suites(options: &Options, list: &Path) -> Result<()> {
    let mut all = true;
    let none = [String::new()];
    let flaky = repo::target().join("flaky/run");
    fs::create_dir_all(repo::target().join("flaky"))?;
    fs::write(&flaky, "")?;
    for filter in if options.filters.is_empty() { &none[..] } else { &options.filters } {
        let mut command = command(options, list, &["--no-fail-fast"]);
        if !filter.is_empty() {
            command.args(["--", filter]);
        }
        command.env("PYOBS_FLAKY_NOTES", &flaky);
        all &= succeeds(command)?;
    }
    // A part of the suite says nothing about how often cases are flaky.
    if options.filters.is_empty() {
        let mut last = command(options, list, &["--no-fail-fast", "--test", "flaky"]);
        last.env("PYOBS_FLAKY", &flaky);
        all &= succeeds(last)?;
    }
    if all { Ok(()) } else { bail!("tests failed; see above") }
}

fn succeeds(mut command: Command) -> Result<bool> {
    Ok(command.status()?.success())
}

fn command(options: &Options, list: &Path, arguments: &[&str]) -> Command {
    let mut command = cargo();
    command.args(["test", "--workspace"]).args(arguments);
    command.env("PYOBS_BIN", repo::pyobs()).env("PYOBS_PYTHONS", list);
    if options.all {
        command.env("PYOBS_ALL", "1");
    }
    command.envs(options.environment.iter().map(|(name, value)| (*name, value)));
    command
}

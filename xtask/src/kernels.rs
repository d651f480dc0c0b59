//! `cargo xtask kernels`: runs the real pyobs on real interpreters under Debian's kernels, each booted by QEMU.

mod boot;
#[path = "../../tests/kernels/checks.rs"]
pub(crate) mod checks;
mod disk;
mod fetch;
pub(crate) mod programs;
mod results;
mod table;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::{build, errors::usage, process::progress, repo};

pub(crate) use results::Outcome;
pub(crate) use table::{reasons, word};

/// The list of kernels; the tests read the same file.
const LIST: &str = include_str!("../../tests/kernels/kernels.toml");
const NEWEST: &str = "newest";
/// The prefix of the tests that read the results.
pub(crate) const TESTS: &str = "kernels/";

#[derive(Deserialize)]
struct List {
    suites: Vec<String>,
    kernel: Vec<Kernel>,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Kernel {
    /// The first version that exists is used.
    versions: Vec<String>,
    #[serde(default)]
    quick: bool,
    /// Older kernels must be refused.
    #[serde(default = "yes")]
    supported: bool,
}

fn yes() -> bool {
    true
}

impl Kernel {
    /// The name in results and tests.
    fn name(&self) -> &str {
        self.versions.first().map_or("", String::as_str)
    }
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let list = list()?;
    let named = |kernel: &&Kernel| args.is_empty() || args.iter().any(|arg| kernel.versions.contains(arg));
    let known = |arg: &&String| list.kernel.iter().any(|kernel| kernel.versions.contains(arg));
    if let Some(unknown) = args.iter().find(|arg| !known(arg)) {
        let names: Vec<&str> = list.kernel.iter().map(Kernel::name).collect();
        return usage(format!("unknown kernel {unknown:?}; expected one of: {}", names.join(", ")));
    }
    let wanted: Vec<Kernel> = list.kernel.iter().filter(named).cloned().collect();
    build::release()?;
    let outcomes = check(&wanted)?;
    print!("{}", table::shown(&outcomes));
    if outcomes.iter().all(Outcome::is_as_expected) {
        return Ok(());
    }
    bail!("some kernels have unexpected results; see above, and the guests' consoles in {}", folder().display())
}

/// The kernels that every test run boots, or all of them.
pub(crate) fn of_tests(all: bool) -> Result<Vec<Kernel>> {
    Ok(list()?.kernel.into_iter().filter(|kernel| all || kernel.quick).collect())
}

/// Boots each kernel and writes a file of results for it, or of the reason why it could not be booted.
pub(crate) fn check(wanted: &[Kernel]) -> Result<Vec<Outcome>> {
    let results = results();
    if results.exists() {
        fs::remove_dir_all(&results).with_context(|| format!("cannot remove {}", results.display()))?;
    }
    fs::create_dir_all(&results).with_context(|| format!("cannot make {}", results.display()))?;
    let disk = programs::ensure().and_then(|()| disk::make(&folder()));
    let mut accelerator = boot::Accelerator::first();
    let mut outcomes = Vec::new();
    for kernel in wanted {
        let outcome = match &disk {
            Ok(disk) => check_one(kernel, disk, &mut accelerator),
            Err(error) => Outcome::skipped(kernel, format!("{error:#}")),
        };
        outcome.write(&results)?;
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

fn check_one(kernel: &Kernel, disk: &Path, accelerator: &mut boot::Accelerator) -> Outcome {
    let image = match list().and_then(|list| fetch::image(&kernel.versions, &list.suites, &folder())) {
        Ok(image) => image,
        Err(error) => return Outcome::skipped(kernel, format!("{error:#}")),
    };
    progress(format!("booting {} under QEMU", image.name));
    let console = folder().join(format!("{}.console", kernel.name()));
    match boot::run(&image.file, disk, &console, accelerator) {
        Ok(ran) => Outcome::of(kernel, &image.name, ran),
        Err(error) => Outcome::broken(kernel, &image.name, format!("{error:#}")),
    }
}

/// The folder of the results, one file per kernel.
pub(crate) fn results() -> PathBuf {
    folder().join("results")
}

fn folder() -> PathBuf {
    repo::target().join("kernels")
}

fn list() -> Result<List> {
    toml::from_str(LIST).context("tests/kernels/kernels.toml is malformed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_kernel_is_the_oldest_that_is_supported() {
        let names: Vec<String> = of_tests(false).unwrap().iter().map(|kernel| kernel.name().to_owned()).collect();
        assert_eq!(names, ["6.1"]);
        assert_eq!(of_tests(true).unwrap().len(), 7);
    }
}

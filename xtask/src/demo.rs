//! `cargo xtask demo`: runs the dashboard beside a pipeline with planted faults.

use std::{
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};

use crate::{
    build,
    errors::lacking,
    process::{as_root, progress, run as run_command},
    pythons::{self, Python},
    repo, venvs,
};

/// The families that find the faults, and a rate with enough samples for that within half a minute, unless the user
/// sets others.
const OPTIONS: [(&str, &str); 2] = [("--probe", "+redundancy,+ucx"), ("--rate", "299")];
/// The version for which all packages have wheels.
const PYTHON: &str = "3.12";

pub(crate) fn run(args: &[String]) -> Result<()> {
    build::release()?;
    let mut dashboard = as_root(repo::pyobs())?;
    dashboard.arg("top");
    for (option, value) in OPTIONS {
        if !args.iter().any(|arg| arg.split('=').next() == Some(option)) {
            dashboard.args([option, value]);
        }
    }
    let _pipeline = Pipeline::start(&interpreter()?)?;
    progress("the pipeline of xtask/demo runs until the dashboard ends; its faults are marked there by `planted`");
    run_command(dashboard.args(args))
}

/// A running pipeline. It ends and cleans up when its standard input closes: when this value is dropped, or this
/// process is killed.
pub(crate) struct Pipeline(Child);

impl Pipeline {
    pub(crate) fn start(python: &Path) -> Result<Self> {
        let program = repo::root().join("xtask/demo/pipeline.py");
        let child = Command::new(python)
            .args(["-B", "-u"])
            .arg(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Ctrl-C is for the dashboard.
            .process_group(0)
            .spawn()
            .with_context(|| format!("{} does not run {}", python.display(), program.display()))?;
        Ok(Self(child))
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        // wait() closes the pipeline's standard input first. It may have ended by itself.
        let _ = self.0.wait();
    }
}

/// An interpreter with the packages that the stages need, if they can be installed.
pub(crate) fn interpreter() -> Result<PathBuf> {
    let found = pythons::find_all();
    let python = pythons::of_version(&found, PYTHON).or(found.pythons.last()).ok_or_else(|| {
        lacking("the pipeline needs a python3 on the PATH; install one, or watch your own with `cargo xtask top`")
    })?;
    Ok(equipped(python).unwrap_or_else(|error| {
        progress(format!("the demo runs without NumPy and UCXX: {error:#}"));
        python.executable.clone()
    }))
}

fn equipped(python: &Python) -> Result<PathBuf> {
    let pins = repo::root().join("xtask/demo/requirements.txt");
    venvs::ensure(&python.executable, &python.version, &repo::target().join("venvs/demo"), &pins)
}

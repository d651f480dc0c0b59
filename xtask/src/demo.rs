//! `cargo xtask demo`: the dashboard beside a pipeline with planted faults, so that there is something to see.

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

/// What sees the faults, with enough samples to be sure of them within half a minute; unless the user names others.
const OPTIONS: [(&str, &str); 2] = [("--probe", "+redundancy,+ucx"), ("--rate", "299")];
/// The interpreter that has wheels of all packages.
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

/// It ends, and removes what it left, when its standard input does: with this value, or when this process is killed.
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
        // Closes its standard input first. It may have ended by itself.
        let _ = self.0.wait();
    }
}

/// With the packages that the stages need, as far as they can be had.
pub(crate) fn interpreter() -> Result<PathBuf> {
    let found = pythons::find_all();
    let python = pythons::of_version(&found, PYTHON).or(found.pythons.last()).ok_or_else(|| {
        lacking("the pipeline needs a python3 on the PATH; install one, or watch your own with `cargo xtask top`")
    })?;
    Ok(equipped(python).unwrap_or_else(|error| {
        progress(format!("the demo does without NumPy and UCXX: {error:#}"));
        python.executable.clone()
    }))
}

fn equipped(python: &Python) -> Result<PathBuf> {
    let pins = repo::root().join("xtask/demo/requirements.txt");
    venvs::ensure(&python.executable, &python.version, &repo::target().join("venvs/demo"), &pins)
}

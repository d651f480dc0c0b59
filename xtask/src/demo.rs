//! `cargo xtask demo`: the dashboard beside a few real programs, so that there is something to see.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};

use crate::{
    build,
    errors::lacking,
    process::{as_root, find, progress, run as run_command},
    repo,
};

const PROGRAMS: [&str; 4] = ["orders.py", "worker_pool.py", "gravity.py", "word_count.py"];

pub(crate) fn run(args: &[String]) -> Result<()> {
    build::release()?;
    let programs = Programs::start()?;
    progress(format!("{} example programs run until the dashboard ends", programs.0.len()));
    run_command(as_root(repo::pyobs())?.arg("top").args(args))
}

/// They end with this value; should this process be killed, each notices that its parent has gone.
struct Programs(Vec<Child>);

impl Programs {
    fn start() -> Result<Self> {
        let python = interpreter()?;
        let folder = repo::root().join("xtask/demo");
        let mut programs = Self(Vec::new());
        for name in PROGRAMS {
            let program = folder.join(name);
            let child = Command::new(&python)
                .arg(&program)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .with_context(|| format!("{} does not run {}", python.display(), program.display()))?;
            programs.0.push(child);
        }
        Ok(programs)
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended by itself, and then there is nothing to stop.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn interpreter() -> Result<PathBuf> {
    find("python3").ok_or_else(|| {
        lacking(
            "the example programs need a python3 on the PATH; install one, or watch your own with `cargo xtask top`",
        )
    })
}

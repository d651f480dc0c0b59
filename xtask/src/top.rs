//! `cargo xtask top`: prepares everything that the dashboard needs, and runs it.

use std::os::unix::process::CommandExt;

use anyhow::{Context, Result};

use crate::{build, process::as_root, repo};

pub(crate) fn run(args: &[String]) -> Result<()> {
    build::release()?;
    let pyobs = repo::pyobs();
    let error = as_root(&pyobs)?.arg("top").args(args).exec();
    Err(error).with_context(|| format!("{} does not run", pyobs.display()))
}

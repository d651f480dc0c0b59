//! `cargo xtask top`: everything that the dashboard needs, then the dashboard.

use std::os::unix::process::CommandExt;

use anyhow::{Context, Result};

use crate::{build, process::as_root, repo};

pub(crate) fn run(args: &[String]) -> Result<()> {
    build::release()?;
    let pyobs = repo::pyobs();
    let error = as_root(&pyobs)?.arg("top").args(args).exec();
    Err(error).with_context(|| format!("{} does not run", pyobs.display()))
}

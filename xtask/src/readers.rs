//! Readers of what goes out that are no program of the system's: under `target/readers`, for the tests.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context, Result};

use crate::{
    errors::lacking,
    process::{find, output, progress},
    repo,
};

/// The variable that tells the tests of it.
pub(crate) const SPEEDSCOPE: &str = "PYOBS_SPEEDSCOPE";

/// The page of speedscope's npm package, of the version that tests/package.json names.
pub(crate) fn speedscope() -> Result<PathBuf> {
    let pins = repo::root().join("tests/package.json");
    let wanted = fs::read_to_string(&pins).with_context(|| format!("cannot read {}", pins.display()))?;
    let folder = repo::target().join("readers");
    let page = folder.join("node_modules/speedscope/dist/release/index.html");
    let held = folder.join("package.json");
    if page.is_file() && fs::read_to_string(&held).is_ok_and(|held| held == wanted) {
        return Ok(page);
    }
    let npm = find("npm").ok_or_else(|| lacking("there is no npm on the PATH; Debian's package npm has one"))?;
    progress(format!("installing the packages of {} into {}", pins.display(), folder.display()));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(&held, wanted).with_context(|| format!("cannot write {}", held.display()))?;
    let quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"];
    output(Command::new(npm).arg("install").args(quiet).current_dir(&folder))?;
    Ok(page)
}

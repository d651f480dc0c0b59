//! Installs npm packages that read exports under `target/readers`, for the tests.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context, Result};

use crate::{
    errors::lacking,
    process::{find, output, progress},
    repo,
};

/// The tests' variables, and the packages' files under `node_modules`.
const FILES: [(&str, &str); 2] = [
    ("PYOBS_SPEEDSCOPE", "speedscope/dist/release/index.html"),
    ("PYOBS_FIREFOX", "@firefox-devtools/profiler-cli/dist/profiler-cli.js"),
];

/// Installs the versions in tests/package.json. Returns the tests' variables and the files.
pub(crate) fn installed() -> Result<Vec<(&'static str, PathBuf)>> {
    let pins = repo::root().join("tests/package.json");
    let wanted = fs::read_to_string(&pins).with_context(|| format!("cannot read {}", pins.display()))?;
    let folder = repo::target().join("readers");
    let files = FILES.map(|(variable, file)| (variable, folder.join("node_modules").join(file)));
    let held = folder.join("package.json");
    let is_there = |(_, file): &(&str, PathBuf)| file.is_file();
    if files.iter().all(is_there) && fs::read_to_string(&held).is_ok_and(|held| held == wanted) {
        return Ok(files.into());
    }
    let npm = find("npm").ok_or_else(|| lacking("there is no npm on the PATH; Debian's package npm has one"))?;
    progress(format!("installing the packages of {} into {}", pins.display(), folder.display()));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(&held, wanted).with_context(|| format!("cannot write {}", held.display()))?;
    let quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"];
    output(Command::new(npm).arg("install").args(quiet).current_dir(&folder))?;
    Ok(files.into())
}

//! Makes virtual environments under `target/venvs`, one per interpreter, with the packages that the tests use.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{
    process::{output, progress},
    pythons::{self, Found},
    repo,
};

/// Gives every interpreter its environment. One whose environment cannot be made is reported as skipped.
pub(crate) fn ensure_all(found: &mut Found) -> Result<()> {
    let pins = repo::root().join("tests/requirements.txt");
    let mut failures = Vec::new();
    for python in found.pythons.iter_mut().filter(|python| python.root.is_none()) {
        let folder = repo::target().join("venvs").join(&python.version);
        match ensure(&python.executable, &python.version, &folder, &pins) {
            Ok(interpreter) => python.venv = Some(interpreter),
            Err(error) => failures.push((format!("the packages of CPython {}", python.version), format!("{error:#}"))),
        }
    }
    for (what, why) in failures {
        found.skip(what, why);
    }
    Ok(())
}

/// Other versions of packages that the tests use: the variable that names an interpreter with them, and the file of
/// their pins.
const OTHERS: [(&str, &str); 3] = [
    ("PYOBS_UCXX_0_46", "requirements-ucxx-0.46.txt"),
    ("PYOBS_UCXX_0_48", "requirements-ucxx-0.48.txt"),
    ("PYOBS_UCXX_DASK", "requirements-dask.txt"),
];
/// The version for which all of them have wheels.
const OTHERS_PYTHON: &str = "3.12";

/// Makes environments for these, for `--all`. One that cannot be made is reported as skipped.
pub(crate) fn others(found: &Found) -> Vec<(&'static str, PathBuf)> {
    let Some(python) = pythons::of_version(found, OTHERS_PYTHON) else { return Vec::new() };
    let mut made = Vec::new();
    for (variable, pins) in OTHERS {
        let folder = repo::target().join("venvs").join(pins.trim_end_matches(".txt"));
        match ensure(&python.executable, &python.version, &folder, &repo::root().join("tests").join(pins)) {
            Ok(interpreter) => made.push((variable, interpreter)),
            Err(error) => eprintln!("skipped the packages of {pins}: {error:#}"),
        }
    }
    made
}

/// The interpreter of an environment with the packages in `pins`. The environment is made if it does not exist or
/// differs.
pub(crate) fn ensure(python: &Path, version: &str, folder: &Path, pins: &Path) -> Result<PathBuf> {
    let wanted = fs::read_to_string(pins).with_context(|| format!("cannot read {}", pins.display()))?;
    let wanted = format!("{}\n{wanted}", python.display());
    let stamp = folder.join("requirements.stamp");
    let interpreter = folder.join("bin/python");
    if interpreter.exists() && fs::read_to_string(&stamp).is_ok_and(|held| held == wanted) {
        return Ok(interpreter);
    }
    progress(format!("CPython {version}: installing the packages of {} into {}", pins.display(), folder.display()));
    // `--copies` would make another ELF file than the one under test.
    output(Command::new(python).args(["-m", "venv", "--clear"]).arg(folder))?;
    let mut pip = Command::new(&interpreter);
    // Only wheels: a build from source needs minutes and a compiler, and may fail for its own reasons.
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
        "--only-binary=:all:",
        "-r",
    ]);
    output(pip.arg(pins))?;
    fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(interpreter)
}

//! `cargo xtask pythons`: finds every interpreter, installs its packages, and writes the list that the tests read.

use std::path::PathBuf;

use anyhow::Result;

use crate::{
    errors::usage,
    pythons::{self, Found},
    root, venvs,
};

pub(crate) fn run(args: &[String]) -> Result<()> {
    let all = match args {
        [] => false,
        [flag] if flag == "--all" => true,
        _ => return usage(format!("`cargo xtask pythons` takes [--all], got {args:?}")),
    };
    println!("{}", list(&equipped(all)?)?.display());
    Ok(())
}

/// Finds the interpreters, and installs their packages.
pub(crate) fn equipped(all: bool) -> Result<Found> {
    let mut found = pythons::find_all();
    venvs::ensure_all(&mut found)?;
    if all {
        root::add(&mut found);
    } else {
        found.skip("CPython 3.14 and 3.15 in another root, and the slow matrices", "only --all runs them");
    }
    Ok(found)
}

/// Prints which are used and what was skipped, and writes the list.
pub(crate) fn list(found: &Found) -> Result<PathBuf> {
    print(found);
    pythons::write_list(&found.pythons)
}

/// Printed before the tests, so that the test runner's verdict comes last.
fn print(found: &Found) {
    for python in &found.pythons {
        let root = python.root.as_ref().map(|root| format!(" in {}", root.display())).unwrap_or_default();
        eprintln!("uses    CPython {}: {}{root}", python.version, python.executable.display());
    }
    for skipped in &found.skipped {
        eprintln!("skipped {}: {}", skipped.what, skipped.why);
    }
}

//! `cargo xtask pythons`: every interpreter, its packages, and the list that the tests read.

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
    println!("{}", prepare(all)?.display());
    Ok(())
}

/// Finds and equips them, says on stderr which are used and what was skipped, and leaves the list.
pub(crate) fn prepare(all: bool) -> Result<PathBuf> {
    let mut found = pythons::find_all();
    venvs::ensure_all(&mut found)?;
    if all {
        root::add(&mut found);
    } else {
        found.skip("CPython 3.14 in another root, and the slow matrices", "only --all runs them");
    }
    say(&found);
    pythons::write_list(&found.pythons)
}

/// Before the tests, because the runner's verdict has the last word.
fn say(found: &Found) {
    for python in &found.pythons {
        let root = python.root.as_ref().map(|root| format!(" in {}", root.display())).unwrap_or_default();
        eprintln!("uses    CPython {}: {}{root}", python.version, python.executable.display());
    }
    for skipped in &found.skipped {
        eprintln!("skipped {}: {}", skipped.what, skipped.why);
    }
}

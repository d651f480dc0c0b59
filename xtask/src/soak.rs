//! `cargo xtask soak`: checks that pyobs does not grow while it watches a busy machine for a long time, that it leaves
//! nothing behind when it is killed, and that programs survive a thousand attachments.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{
    build,
    errors::{lacking, usage},
    process::{is_root, output, run as run_command},
    pythons::{self, Found},
    repo, venvs,
};

/// Minutes of one recording, and how often pyobs attaches and detaches.
const DEFAULTS: [u32; 2] = [60, 1000];
const VERSION: &str = "3.12";

pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut numbers = DEFAULTS.map(|number| number.to_string());
    if args.len() > numbers.len() || args.iter().any(|word| word.parse::<u32>().is_err()) {
        return usage("`cargo xtask soak` takes [MINUTES] [CYCLES]");
    }
    numbers[..args.len()].clone_from_slice(args);
    if !is_root() {
        return Err(lacking("the soak attaches BPF programs, which needs root; run `sudo -E cargo xtask soak`"));
    }
    build::release()?;
    let folder = repo::target().join("soak");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // A copy, which stays the same if pyobs is built again meanwhile.
    let pyobs = folder.join("pyobs");
    fs::copy(repo::pyobs(), &pyobs).with_context(|| format!("cannot copy pyobs to {}", pyobs.display()))?;
    let workloads = repo::root().join("tests/workloads");
    let made =
        |source: &str, name: &str, options: &[&str]| compiled(&workloads.join(source), folder.join(name), options);
    let program = made("ucp_user.c", "ucp_user", &["-O1", "-ldl"])?;
    let libucp = made("ucp.c", "libucp.so.0", &["-shared", "-fPIC", "-O1"])?;
    let library = made("redundancy.c", "redundancy.so", &["-shared", "-fPIC", "-O1"])?;
    let found = pythons::find_all();
    let mut soak = Command::new(python(&found)?);
    soak.arg(repo::root().join("xtask/src/soak/soak.py")).args(numbers).arg(pyobs).arg(&folder);
    soak.args([program, libucp, library]);
    run_command(soak.args(found.pythons.iter().filter(|python| python.root.is_none()).map(|python| &python.executable)))
}

/// An interpreter with what the busy machine of the bench needs.
fn python(found: &Found) -> Result<PathBuf> {
    let python = pythons::of_version(found, VERSION).ok_or_else(|| {
        lacking(format!("the soak runs on CPython {VERSION}, which is neither in pyenv nor on the PATH"))
    })?;
    let pins = repo::root().join("xtask/src/bench/requirements.txt");
    venvs::ensure(&python.executable, VERSION, &repo::target().join("venvs/bench"), &pins)
}

fn compiled(source: &Path, to: PathBuf, options: &[&str]) -> Result<PathBuf> {
    output(Command::new("cc").arg(source).arg("-o").arg(&to).args(options))?;
    Ok(to)
}

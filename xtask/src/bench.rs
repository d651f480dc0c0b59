//! `cargo xtask bench`: measures speed, memory and accuracy, and writes docs/BENCHMARKS.md with the command beside
//! every figure.

mod busy;
mod dashboard;
mod eval;
mod first_screen;
mod hour;
mod kernel;
mod kernels;
mod linkage;
mod machine;
mod memory;
mod overhead;
mod page;
mod paired;
mod paper;
mod record;
mod redundancy;
mod segments;
mod slowdown;
mod table;
mod tables;
mod traps;
mod truth;
mod twins;
mod ucx;
mod waits;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result};

use crate::{
    build,
    errors::{lacking, usage},
    process::{is_root, progress},
    pythons::{self, Found},
    repo,
};
use page::Page;
use table::Table;

/// A bench's name on the command line, and its function.
type Bench = (&'static str, fn(&Setting) -> Result<Table>);

const BENCHES: [Bench; 20] = [
    ("busy", busy::run),
    ("overhead", overhead::run),
    ("slowdown", slowdown::run),
    ("kernel", kernel::run),
    ("kernels", kernels::run),
    ("verifier", kernels::verifier),
    ("tables", tables::run),
    ("memory", memory::run),
    ("redundancy", redundancy::run),
    ("traps", traps::run),
    ("paper", paper::run),
    ("segments", segments::run),
    ("first-screen", first_screen::run),
    ("static", linkage::run),
    ("truth", truth::run),
    ("ucx", ucx::run),
    ("dashboard", dashboard::run),
    ("hour", hour::run),
    ("waits", waits::run),
    ("eval", eval::run),
];

/// Run only if named: each takes from three minutes to an hour.
const LONG: [&str; 10] =
    ["hour", "overhead", "kernels", "verifier", "ucx", "static", "slowdown", "redundancy", "traps", "paper"];

/// What every bench needs.
struct Setting {
    pythons: Found,
    /// Holds recordings and intermediate files.
    folder: PathBuf,
}

impl Setting {
    fn new() -> Result<Self> {
        if !is_root() {
            return Err(lacking("the bench attaches BPF programs, which needs root; run `sudo -E cargo xtask bench`"));
        }
        let folder = repo::target().join("bench");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { pythons: pythons::find_all(), folder })
    }

    /// The interpreter of a version such as "3.12".
    fn python(&self, minor: &str) -> Result<&Path> {
        let python = pythons::of_version(&self.pythons, minor).ok_or_else(|| {
            lacking(format!(
                "this bench runs on CPython {minor}, which is neither in pyenv nor on the PATH; install it"
            ))
        })?;
        Ok(&python.executable)
    }
}

/// A program of this folder.
fn script(name: &str) -> PathBuf {
    repo::root().join("xtask/src/bench").join(name)
}

/// A program of the tests, which knows what it does.
fn workload(name: &str) -> PathBuf {
    repo::root().join("tests/workloads").join(name)
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let wanted = select(args)?;
    build::release()?;
    let setting = Setting::new()?;
    let mut page = Page::read();
    for (name, bench) in wanted {
        let begun = Instant::now();
        progress(format!("bench {name}"));
        let table = bench(&setting).with_context(|| format!("bench {name}"))?;
        page.put(&table)?;
        page.write()?;
        progress(format!("bench {name} took {:.0} s", begun.elapsed().as_secs_f64()));
    }
    progress("wrote docs/BENCHMARKS.md");
    Ok(())
}

fn select(args: &[String]) -> Result<Vec<Bench>> {
    let names = || BENCHES.map(|(name, _)| name).join(", ");
    for name in args {
        if !BENCHES.iter().any(|(known, _)| known == name) {
            return usage(format!("unknown bench {name:?}; expected one of: {}", names()));
        }
    }
    let is_wanted =
        |name: &str| if args.is_empty() { !LONG.contains(&name) } else { args.iter().any(|wanted| wanted == name) };
    Ok(BENCHES.into_iter().filter(|(name, _)| is_wanted(name)).collect())
}

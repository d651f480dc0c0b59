//! `cargo xtask bench`: speed, memory and truth, measured and written to docs/BENCHMARKS.md with the command beside
//! every figure.

mod first_screen;
mod kernel;
mod machine;
mod memory;
mod overhead;
mod record;
mod redundancy;
mod table;
mod tables;
mod truth;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{
    build,
    errors::{lacking, usage},
    process::{is_root, progress},
    pythons::{self, Found},
    repo,
};
use table::Table;

/// Its name on the command line, and what measures it.
type Bench = (&'static str, fn(&Setting) -> Result<Table>);

const BENCHES: [Bench; 7] = [
    ("overhead", overhead::run),
    ("kernel", kernel::run),
    ("tables", tables::run),
    ("memory", memory::run),
    ("redundancy", redundancy::run),
    ("first-screen", first_screen::run),
    ("truth", truth::run),
];

/// What every bench needs.
struct Setting {
    pythons: Found,
    shared: PathBuf,
    /// Recordings and intermediate files.
    folder: PathBuf,
}

impl Setting {
    fn new() -> Result<Self> {
        if !is_root() {
            return Err(lacking("the bench attaches BPF programs, which needs root; run `sudo -E cargo xtask bench`"));
        }
        let shared = repo::shared().ok_or_else(|| {
            lacking("the bench reads its workloads from ../shared, and there is no such folder beside this checkout")
        })?;
        let folder = repo::target().join("bench");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { pythons: pythons::find_all(), shared, folder })
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

pub(crate) fn run(args: &[String]) -> Result<()> {
    let wanted = select(args)?;
    build::release()?;
    let setting = Setting::new()?;
    for (name, bench) in wanted {
        progress(format!("bench {name}"));
        let table = bench(&setting).with_context(|| format!("bench {name}"))?;
        let section = table.markdown()?;
        println!("{section}");
        let path = section_path(&setting, name);
        fs::write(&path, section).with_context(|| format!("cannot write {}", path.display()))?;
    }
    write_document(&setting)
}

fn select(args: &[String]) -> Result<Vec<Bench>> {
    let names = || BENCHES.map(|(name, _)| name).join(" ");
    for name in args {
        if !BENCHES.iter().any(|(known, _)| known == name) {
            return usage(format!("there is no bench {name:?}; there are: {}", names()));
        }
    }
    Ok(BENCHES.into_iter().filter(|(name, _)| args.is_empty() || args.iter().any(|wanted| wanted == name)).collect())
}

fn section_path(setting: &Setting, name: &str) -> PathBuf {
    setting.folder.join(name).with_extension("md")
}

/// Puts together the newest section of every bench, so that one can be measured again by itself.
fn write_document(setting: &Setting) -> Result<()> {
    let mut text = machine::introduction()?;
    for (name, _) in BENCHES {
        if let Ok(section) = fs::read_to_string(section_path(setting, name)) {
            text += &format!("\n{section}");
        }
    }
    let path = repo::root().join("docs/BENCHMARKS.md");
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    progress(format!("wrote {}", path.display()));
    Ok(())
}

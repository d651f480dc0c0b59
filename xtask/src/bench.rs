//! `cargo xtask bench`: speed, memory and truth, measured and written to docs/BENCHMARKS.md with the command beside
//! every figure.

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
mod paired;
mod record;
mod redundancy;
mod segments;
mod slowdown;
mod table;
mod tables;
mod truth;
mod twins;
mod ucx;
mod waits;

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

const BENCHES: [Bench; 17] = [
    ("overhead", overhead::run),
    ("slowdown", slowdown::run),
    ("kernel", kernel::run),
    ("kernels", kernels::run),
    ("verifier", kernels::verifier),
    ("tables", tables::run),
    ("memory", memory::run),
    ("redundancy", redundancy::run),
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

/// Run only when they are asked for: one takes as long as it is called, one a quarter of an hour, and one needs its results.
const LONG: [&str; 3] = ["hour", "kernels", "verifier"];

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
    let path = repo::root().join("docs/BENCHMARKS.md");
    let mut sections = sections(&fs::read_to_string(&path).unwrap_or_default());
    for (name, bench) in wanted {
        progress(format!("bench {name}"));
        let table = bench(&setting).with_context(|| format!("bench {name}"))?;
        let section = table.markdown()?;
        println!("{section}");
        sections = with_section(sections, section);
        let body: String = sections.iter().map(|section| format!("\n{section}")).collect();
        let text = machine::introduction()? + &body;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    progress(format!("wrote {}", path.display()));
    Ok(())
}

fn select(args: &[String]) -> Result<Vec<Bench>> {
    let names = || BENCHES.map(|(name, _)| name).join(" ");
    for name in args {
        if !BENCHES.iter().any(|(known, _)| known == name) {
            return usage(format!("there is no bench {name:?}; there are: {}", names()));
        }
    }
    let is_wanted =
        |name: &str| if args.is_empty() { !LONG.contains(&name) } else { args.iter().any(|wanted| wanted == name) };
    Ok(BENCHES.into_iter().filter(|(name, _)| is_wanted(name)).collect())
}

/// A document's sections, from their headings on, without what comes before the first.
fn sections(document: &str) -> Vec<String> {
    let mut sections: Vec<String> = Vec::new();
    for line in document.lines() {
        if line.starts_with("## ") {
            sections.push(String::new());
        }
        if let Some(section) = sections.last_mut() {
            section.push_str(line);
            section.push('\n');
        }
    }
    sections.into_iter().map(|section| format!("{}\n", section.trim_end())).collect()
}

/// Puts a section in the place of that with the same heading, so that one can be measured again by itself.
fn with_section(mut sections: Vec<String>, new: String) -> Vec<String> {
    match sections.iter_mut().find(|old| old.lines().next() == new.lines().next()) {
        Some(old) => *old = new,
        None => sections.push(new),
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_takes_the_place_of_the_one_with_its_heading() {
        let old = sections("# Title\n\n## A\n\nold\n\n## B\n\nb\n");
        assert_eq!(old, ["## A\n\nold\n", "## B\n\nb\n"]);
        let new = with_section(old, "## A\n\nnew\n".to_owned());
        assert_eq!(new, ["## A\n\nnew\n", "## B\n\nb\n"]);
        assert_eq!(with_section(new, "## C\n".to_owned()).len(), 3);
    }
}

//! Writes docs/BENCHMARKS.md: a summary, and a section for each bench. The single runs go to docs/BENCHMARKS-RAW.md.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};

use super::{
    machine,
    table::{MET, MISSED, Table},
};
use crate::repo;

/// The goals in the summary: the section, and the start of the goal's text.
const HEADLINES: [(&str, &str); 10] = [
    ("A busy machine", "defaults: kernel and user time"),
    ("A busy machine", "--probe cpu: kernel and user time"),
    ("A busy machine", "py-spy on all processes"),
    ("Kernel time per sample", "Python and native, 99 Hz: median kernel time per sample"),
    ("Truth at 999 Hz", "worst difference of a share"),
    ("Waits", "a hand-over: longer by"),
    ("Memory, and 200 processes at once", "peak RSS with 200 processes"),
    ("First screen", "pyobs top: median time to the first screen"),
    ("An hour", "size of an hour"),
    ("Kernels", "kernels where all is as it should be"),
];

/// The page on disk, with new sections added.
pub(super) struct Page {
    sections: Vec<String>,
    raw: Vec<String>,
}

fn page() -> PathBuf {
    repo::root().join("docs/BENCHMARKS.md")
}

fn raw_page() -> PathBuf {
    repo::root().join("docs/BENCHMARKS-RAW.md")
}

impl Page {
    pub(super) fn read() -> Self {
        let of = |path: PathBuf| sections(&fs::read_to_string(path).unwrap_or_default());
        let mut sections = of(page());
        sections.retain(|section| !section.starts_with(SUMMARY));
        Self { sections, raw: of(raw_page()) }
    }

    /// Adds a table, or replaces the one with the same title.
    pub(super) fn put(&mut self, table: &Table) -> Result<()> {
        let section = table.markdown()?;
        println!("{section}");
        put(&mut self.sections, section);
        if let Some(raw) = table.raw_markdown()? {
            put(&mut self.raw, raw);
        }
        Ok(())
    }

    pub(super) fn write(&self) -> Result<()> {
        let body = |sections: &[String]| sections.iter().map(|section| format!("\n{section}")).collect::<String>();
        let text = format!("{}\n{}{}", machine::introduction()?, summary(&self.sections), body(&self.sections));
        let raw = format!("# Single runs of [the benchmarks](BENCHMARKS.md)\n{}", body(&self.raw));
        for (path, text) in [(page(), text), (raw_page(), raw)] {
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

const SUMMARY: &str = "## Summary\n";

/// One line for each headline that has been measured.
fn summary(sections: &[String]) -> String {
    let mut text =
        format!("{SUMMARY}\n| what | goal | figure | met | date | machine |\n| --- | --- | --- | --- | --- | --- |\n");
    for (title, goal) in HEADLINES {
        let section = sections.iter().find(|section| section.lines().next() == Some(&format!("## {title}")));
        if let Some(line) = section.and_then(|section| headline(section, title, goal)) {
            text += &line;
        }
    }
    text
}

/// Turns `- met: what: figure, at most limit` into a line of the summary.
fn headline(section: &str, title: &str, goal: &str) -> Option<String> {
    let measured = section.lines().find_map(|line| line.strip_prefix("Measured on ")?.strip_suffix('.'))?;
    let (date, machine) = measured.split_once(", ")?;
    let (met, sentence) = section.lines().find_map(|line| {
        let (met, sentence) = line.strip_prefix("- ")?.split_once(": ")?;
        (sentence.starts_with(goal) && [MET, MISSED].contains(&met)).then_some((met, sentence))
    })?;
    let (what, figures) = sentence.rsplit_once(": ")?;
    let (figure, limit) = figures.split_once(", ")?;
    let anchor: String =
        title.to_lowercase().chars().filter(|c| *c != ',').map(|c| if c == ' ' { '-' } else { c }).collect();
    let met = if met == MET { "yes" } else { "**no**" };
    Some(format!("| [{what}](#{anchor}) | {limit} | {figure} | {met} | {date} | {machine} |\n"))
}

/// A document's sections, each with its heading, without the text before the first.
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

/// Adds a section, or replaces the one with the same heading.
fn put(sections: &mut Vec<String>, new: String) {
    match sections.iter_mut().find(|old| old.lines().next() == new.lines().next()) {
        Some(old) => *old = new,
        None => sections.push(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_replaces_the_one_with_its_heading() {
        let mut document = sections("# Title\n\n## A\n\nold\n\n## B\n\nb\n");
        assert_eq!(document, ["## A\n\nold\n", "## B\n\nb\n"]);
        put(&mut document, "## A\n\nnew\n".to_owned());
        assert_eq!(document, ["## A\n\nnew\n", "## B\n\nb\n"]);
        put(&mut document, "## C\n".to_owned());
        assert_eq!(document.len(), 3);
    }

    #[test]
    fn the_summary_has_the_headlines_that_were_measured() {
        let section =
            "## An hour\n\nMeasured on 2026-11-25, AMD EPYC.\n\n- met: size of an hour (MiB): 15.270, at most 200\n";
        let line = "| [size of an hour (MiB)](#an-hour) | at most 200 | 15.270 | yes | 2026-11-25 | AMD EPYC |";
        assert_eq!(summary(&[section.to_owned()]).lines().last(), Some(line));
        assert_eq!(summary(&[]).lines().count(), 4);
        let missed = section.replace("- met", "- **missed**");
        assert!(summary(&[missed]).contains("| **no** |"));
    }
}

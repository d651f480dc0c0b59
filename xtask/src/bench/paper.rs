//! Measures how reliably the family `redundancy` finds the waste that the PieProf paper reports, and the speed-up of the paper's
//! fixes (`paper.py`).

use std::{collections::BTreeMap, path::Path, process::Command};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::{
    Setting,
    record::{at_a_time, record, shown},
    script,
    table::{Table, median},
    traps,
};
use crate::{process::output, repo, venvs};

const VERSION: &str = "3.12";
/// The seconds of a recording, and the recordings of each program.
const SECONDS: &str = "20";
const RUNS: usize = 10;
/// The seconds for which a program runs by itself, and how often.
const ALONE: &str = "3";
const TIMES: usize = 3;

/// The paper's category of each program's waste, and the findings that say so.
const CATEGORIES: [(&str, &str, &[&str]); 6] = [
    ("irisdata", "slice underutilization", &["dispatch"]),
    ("cnn", "slice underutilization", &["dispatch"]),
    ("cec_4", "API misuse", &["dispatch"]),
    ("cec_10", "API misuse", &["dispatch"]),
    ("rotate", "repeated calls with the same arguments", &["recomputed"]),
    ("lars_path", "inefficient algorithm", &["dispatch", "recomputed", "dead-store"]),
];

/// What a program says about itself.
#[derive(Deserialize)]
struct Printed {
    file: String,
    lines: Vec<u64>,
    turns_per_second: f64,
}

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "The paper's programs",
        "Loops in which PieProf found waste (`xtask/src/bench/paper.py`): how many of ten recordings of 20 s have a finding of\n\
         the paper's category at one of its lines, which findings are at these lines, and how many times as fast the loop is\n\
         with the paper's fix, without pyobs (the median of three runs). CPython 3.12, as many recordings at a time as there\n\
         are CPUs. The paper reports up to 6.3 times for whole programs.",
        &["program", "category", "found", "findings", "speed-up"],
    );
    let folder = repo::target().join("venvs/bench-traps");
    let pins = repo::root().join("xtask/src/bench/requirements-traps.txt");
    let python = venvs::ensure(setting.python(VERSION)?, VERSION, &folder, &pins)?;
    for (name, category, meant) in CATEGORIES {
        let recordings = at_a_time(RUNS, |_, lane| found(setting, &format!("paper-{lane}"), &python, name))?;
        let is_found = |ids: &&Vec<String>| ids.iter().any(|id| meant.contains(&id.as_str()));
        let count = recordings.iter().filter(is_found).count();
        let mut ids: BTreeMap<&str, usize> = BTreeMap::new();
        for id in recordings.iter().flatten() {
            *ids.entry(id).or_default() += 1;
        }
        let findings: Vec<String> = ids.iter().map(|(id, count)| format!("{id} {count}")).collect();
        let speed_up = speed_up(&python, name)?;
        let command = shown(&arguments(Path::new("python3.12"), name));
        let cells = vec![
            name.to_owned(),
            category.to_owned(),
            format!("{count}/{RUNS}"),
            findings.join(", "),
            format!("{speed_up:.1}"),
        ];
        table.row(cells, &command);
        table.goal(format!("{name}: {count} of {RUNS} recordings name the line and the category"), count == RUNS);
    }
    Ok(table)
}

fn arguments(python: &Path, name: &str) -> Vec<String> {
    traps::arguments(python, &script("paper.py"), &[name, "bad", SECONDS])
}

/// The distinct findings at the wasteful lines, without their prefix.
fn found(setting: &Setting, recording: &str, python: &Path, name: &str) -> Result<Vec<String>> {
    let recorded = record(setting, recording, &arguments(python, name))?;
    let Printed { file, lines, .. } = printed(name, &recorded.stdout)?;
    let at_lines = |line: Option<u64>| line.is_some_and(|line| lines.contains(&line));
    let mut ids = traps::ids(&recorded.report, &file, false, |own, caller| at_lines(own) && at_lines(caller));
    ids.sort();
    ids.dedup();
    Ok(ids)
}

fn speed_up(python: &Path, name: &str) -> Result<f64> {
    let turns = |form: &str| -> Result<f64> {
        let text = output(Command::new(python).arg(script("paper.py")).args([name, form, ALONE]))?;
        Ok(printed(name, &text)?.turns_per_second)
    };
    let ratios = (0..TIMES).map(|_| Ok(1.0 / turns("bad")? * turns("fixed")?)).collect::<Result<Vec<f64>>>()?;
    Ok(median(ratios))
}

fn printed(name: &str, text: &str) -> Result<Printed> {
    serde_json::from_str(text.trim()).with_context(|| format!("paper.py {name} printed {text:?}"))
}

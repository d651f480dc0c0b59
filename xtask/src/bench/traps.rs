//! Measures how much of the waste in known programs the family `redundancy` finds, and how often it accuses a program
//! without any (`traps.py`).

use std::{path::Path, process::Command};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use super::{
    Setting,
    record::{at_a_time, record, shown},
    script,
    table::Table,
};
use crate::{process::output, repo, venvs};

const VERSION: &str = "3.12";
/// The seconds of a recording, and the recordings of each program.
const SECONDS: &str = "20";
const RUNS: usize = 10;
const FORMS: [&str; 3] = ["alone", "hidden", "good"];
const GOOD: usize = 2;
/// The least share of wasteful programs that are found, alone and among useful work, and the greatest of programs
/// without waste that are accused.
const FOUND_ALONE: f64 = 0.9;
const FOUND_HIDDEN: f64 = 0.8;
const ACCUSED: f64 = 0.01;
/// A finding that operands are read again, which is not waste by itself. It counts only for the waste `invariant`, a term
/// that never changes, because nothing else can be found there.
const REREAD: &str = "redundancy/reread";
const INVARIANT: &str = "invariant";

/// What a program says about itself.
#[derive(Deserialize)]
struct Printed {
    /// The file of the wasteful line and of the twin.
    file: String,
    line: u64,
    /// The lines of the twin without waste, and the first one after them.
    good: [u64; 2],
}

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "Traps",
        "Whether a finding names the wasteful line of a program and its caller (`xtask/src/bench/traps.py`): when the program\n\
         does nothing else, and when useful work takes nineteen twentieths of its time. Then whether any finding but `reread`\n\
         accuses the twin that computes the same without waste. CPython 3.12, ten recordings of 20 s each, as many at a time\n\
         as there are CPUs.",
        &["waste", "found alone", "found among useful work", "findings", "twin accused"],
    );
    let folder = repo::target().join("venvs/bench-traps");
    let pins = repo::root().join("xtask/src/bench/requirements-traps.txt");
    let python = venvs::ensure(setting.python(VERSION)?, VERSION, &folder, &pins)?;
    let kinds = output(Command::new(&python).arg(script("traps.py")))?;
    let mut sums = [0; 3];
    let mut count = 0;
    for kind in kinds.lines() {
        let mut of_kind = [0; 3];
        let mut ids: Vec<String> = Vec::new();
        let recordings = at_a_time(RUNS * FORMS.len(), |number, lane| {
            let form = number % FORMS.len();
            Ok((form, recorded(setting, &format!("traps-{lane}"), &python, kind, form)?))
        })?;
        for (form, found) in recordings {
            of_kind[form] += usize::from(!found.is_empty());
            ids.extend(found.into_iter().filter(|_| form != GOOD));
        }
        ids.sort();
        ids.dedup();
        let cell = |number: usize| format!("{number}/{RUNS}");
        let [alone, hidden, accused] = of_kind.map(cell);
        let command = shown(&of_kind_and_form(Path::new("python3.12"), kind, "alone"));
        table.row(vec![kind.to_owned(), alone, hidden, ids.join(", "), accused], &command);
        count += RUNS;
        for (sum, of_kind) in sums.iter_mut().zip(of_kind) {
            *sum += of_kind;
        }
    }
    let [alone, hidden, accused] = sums.map(|sum| sum as f64 / count.max(1) as f64);
    table.at_least("found alone, of all", alone, FOUND_ALONE);
    table.at_least("found among useful work, of all", hidden, FOUND_HIDDEN);
    table.at_most("twins accused, of all", accused, ACCUSED);
    Ok(table)
}

fn of_kind_and_form(python: &Path, kind: &str, form: &str) -> Vec<String> {
    arguments(python, &script("traps.py"), &[kind, form, SECONDS])
}

/// The arguments of `pyobs record` for a program.
pub(super) fn arguments(python: &Path, program: &Path, args: &[&str]) -> Vec<String> {
    let (python, program) = (python.display().to_string(), program.display().to_string());
    let own = ["--rate", "499", "--budget", "5", "--probe", "+redundancy", "--"];
    own.into_iter().chain([&python[..], &program]).chain(args.iter().copied()).map(str::to_owned).collect()
}

/// The findings of one recording.
fn recorded(setting: &Setting, name: &str, python: &Path, kind: &str, form: usize) -> Result<Vec<String>> {
    let recorded = record(setting, name, &of_kind_and_form(python, kind, FORMS[form]))?;
    let printed: Printed = serde_json::from_str(recorded.stdout.trim())
        .with_context(|| format!("traps.py {kind} {} printed {:?}", FORMS[form], recorded.stdout))?;
    let has_reread = kind == INVARIANT && form != GOOD;
    Ok(findings(&recorded.report, &printed, form == GOOD, has_reread))
}

/// The findings at the wasteful line, or anywhere in the twin, without their prefix.
fn findings(report: &Value, printed: &Printed, is_good: bool, has_reread: bool) -> Vec<String> {
    let [first, end] = printed.good;
    let is_in = |line: Option<u64>| line.is_some_and(|line| (first..end).contains(&line));
    ids(report, &printed.file, has_reread, |own, caller| {
        if is_good { is_in(own) || is_in(caller) } else { [own, caller] == [Some(printed.line); 2] }
    })
}

/// The ids, without their prefix, of the findings whose line and caller in `file` satisfy `is_meant`.
pub(super) fn ids(
    report: &Value,
    file: &str,
    has_reread: bool,
    is_meant: impl Fn(Option<u64>, Option<u64>) -> bool,
) -> Vec<String> {
    let findings = report.pointer("/findings").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let is_meant = |finding: &&Value| {
        let line = |key| line(finding.pointer(key).and_then(Value::as_str).unwrap_or_default(), file);
        is_meant(line("/evidence/line"), line("/evidence/caller"))
    };
    let id = |finding: &Value| {
        let id = finding["id"].as_str().filter(|id| has_reread || *id != REREAD)?;
        id.strip_prefix("redundancy/").map(str::to_owned)
    };
    findings.iter().filter(is_meant).filter_map(id).collect()
}

/// The line of a place such as `work (/srv/traps.py:12)`, if it is in this file.
fn line(place: &str, file: &str) -> Option<u64> {
    let (path, line) = place.strip_suffix(')')?.rsplit_once(':')?;
    path.ends_with(&format!("/{file}")).then(|| line.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn finding(id: &str, line: &str, caller: &str) -> Value {
        json!({"id": id, "evidence": {"line": line, "caller": caller}})
    }

    #[test]
    fn only_findings_at_the_line_count() {
        let printed = Printed { file: "traps.py".to_owned(), line: 12, good: [20, 25] };
        let (own, other, twin) = ("f (/b/traps.py:12)", "g (/b/traps.py:13)", "h (/b/traps.py:24)");
        let report = json!({"findings": [
            finding("redundancy/dispatch", own, own),
            finding("redundancy/recomputed", own, other),
            finding("redundancy/recomputed", "mean (/x/numpy/core.py:12)", own),
            finding("redundancy/reread", own, own),
            finding("gil/convoy", own, own),
            finding("redundancy/dead-store", "mean (/x/numpy/core.py:12)", twin),
            finding("redundancy/dispatch", "h (/b/traps.py:25)", "h (/b/traps.py:25)"),
        ]});
        assert_eq!(findings(&report, &printed, false, false), ["dispatch"]);
        assert_eq!(findings(&report, &printed, false, true), ["dispatch", "reread"]);
        assert_eq!(findings(&report, &printed, true, false), ["dead-store"]);
    }
}

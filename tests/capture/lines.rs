//! Tests line tables against the interpreters that wrote them: every offset of thousands of code objects, on every
//! CPython.

use pyobs_capture::cpython::lines::{Format, LineTable};
use pyobs_tests::{Case, Python, Workload, needs, workload};

use crate::{for_pythons, hex};

pub fn cases() -> Vec<Case> {
    const NAME: &str = "every_offset_of_every_code_object_has_the_interpreters_line";
    // The formats are those up to 3.9, of 3.10, and since then. The newest takes longest.
    let need = |python: &Python| if python.minor() == 10 { Ok(()) } else { needs::few(python) };
    for_pythons("lines", NAME, every_offset, need)
}

/// Runs of (end, line), from offset 0.
type Runs = Vec<(u32, Option<u32>)>;

fn runs(text: &str) -> Runs {
    let run = |run: &str| {
        let (end, line) = run.split_once(':').unwrap();
        (end.parse().unwrap(), (!line.is_empty()).then(|| line.parse().unwrap()))
    };
    text.split(',').filter(|text| !text.is_empty()).map(run).collect()
}

/// The first difference between the table's answers and the truth, if any. Every offset is checked, except in the few
/// large tables, which are slow without optimisation: there both ends of each run and some offsets between.
fn difference(table: &LineTable, truth: &Runs) -> Option<String> {
    let mut start = 0;
    for (end, line) in truth {
        let step = if table.bytes.len() > 512 { 16 } else { 1 };
        for offset in (start..*end).step_by(step).chain(start.max(end.saturating_sub(2))..*end) {
            let got = table.line(offset);
            if got != *line {
                return Some(format!("at {offset}: {got:?}, but the interpreter says {line:?}"));
            }
        }
        start = *end;
    }
    None
}

fn every_offset(python: &Python) {
    let mut script = python.script(workload("line_tables.py"));
    script.env("PYTHONWARNINGS", "ignore");
    let ended = Workload::start(script).wait();
    assert!(ended.status.success(), "{}", ended.stderr);
    let format = Format::of(u8::try_from(python.minor()).unwrap());
    let (mut tables, mut differences) = (0u32, Vec::new());
    for row in ended.stdout.lines() {
        let [what, first_line, bytes, by_python, native] = row.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let table = LineTable { format, first_line: first_line.parse().unwrap(), bytes: hex(bytes) };
        tables += 1;
        // The two references mostly agree. Random tables before 3.10 contain entries that dis does not understand.
        let oracles = [("Python", by_python), ("C", native)];
        let distinct = if by_python == native { &oracles[..1] } else { &oracles[..] };
        for (oracle, truth) in distinct {
            differences.extend(difference(&table, &runs(truth)).map(|text| format!("{what} ({oracle}) {text}")));
        }
    }
    assert!(tables > 10_000, "only {tables} code objects were reported");
    let some = &differences[..differences.len().min(5)];
    assert!(differences.is_empty(), "{} of {tables} tables differ, such as {some:#?}", differences.len());
}

//! Line tables against the interpreters that wrote them: every offset of thousands of code objects, by every CPython here.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod at_hand;
mod live_names;

use std::process::Command;
use std::sync::Mutex;

use pyobs_capture::cpython::lines::{Format, LineTable};

/// (end, line) runs from offset 0.
type Runs = Vec<(u32, Option<u32>)>;

fn runs(text: &str) -> Runs {
    let run = |run: &str| {
        let (end, line) = run.split_once(':').unwrap();
        (end.parse().unwrap(), (!line.is_empty()).then(|| line.parse().unwrap()))
    };
    text.split(',').filter(|text| !text.is_empty()).map(run).collect()
}

fn hex(text: &str) -> Box<[u8]> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// The first difference, if any, between the table's answers and the truth. Every offset is asked for, but for the few
/// tables whose size makes that slow without optimisation: there both ends of each run and some in between.
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

#[test]
fn every_offset_of_every_code_object_has_the_line_that_the_interpreter_says() {
    let summary = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for python in at_hand::interpreters() {
            let summary = &summary;
            scope.spawn(move || {
                let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/line_tables.py");
                let output = Command::new(&python.path).args(["-B", "-W", "ignore", script]).output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{}: {said}", python.name());
                let text = String::from_utf8(output.stdout).unwrap();
                let (mut tables, mut offsets, mut differences) = (0u32, 0u64, Vec::new());
                for row in text.lines() {
                    let [what, first_line, bytes, by_python, native] = row.split('\t').collect::<Vec<_>>()[..] else {
                        panic!("{}: {row}", python.name());
                    };
                    let table = LineTable {
                        format: Format::of(python.minor),
                        first_line: first_line.parse().unwrap(),
                        bytes: hex(bytes),
                    };
                    tables += 1;
                    // Mostly the two oracles agree. Random tables before 3.10 have what dis does not understand.
                    let oracles = [("Python", by_python), ("C", native)];
                    let distinct = if by_python == native { &oracles[..1] } else { &oracles[..] };
                    for (oracle, truth) in distinct {
                        let truth = runs(truth);
                        offsets += u64::from(truth.last().map_or(0, |(end, _)| *end));
                        differences.extend(difference(&table, &truth).map(|text| format!("{what} ({oracle}) {text}")));
                    }
                }
                assert!(tables > 10_000, "{} told of {tables} code objects only", python.name());
                summary.lock().unwrap().push((python.name(), tables, offsets, differences));
            });
        }
    });
    let mut summary = summary.into_inner().unwrap();
    summary.sort();
    for (name, tables, offsets, differences) in &summary {
        println!("{name}: {tables} tables, {offsets} offsets, {} tables that differ", differences.len());
        differences.iter().take(5).for_each(|text| println!("    {text}"));
    }
    assert!(summary.iter().all(|(.., differences)| differences.is_empty()), "see above");
}

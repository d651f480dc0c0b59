//! The queries of docs/recording.md, read out of the document, answer what the events add up to that the recording was made of.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use common::{Program, every_event, write};
use pyobs_model::*;
use rusqlite::Connection;
use rusqlite::types::Value;

const DOCUMENT: &str = include_str!("../../../docs/recording.md");

/// A recording, and what it was made of.
struct Made {
    _folder: tempfile::TempDir,
    database: Connection,
    events: Vec<Event>,
    frames: HashMap<u32, Frame>,
    stacks: HashMap<u32, Vec<u32>>,
}

impl Made {
    fn of(events: Vec<Event>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pyobs");
        write(&path, &events);
        let (mut frames, mut stacks) = (HashMap::new(), HashMap::new());
        for event in &events {
            match event {
                Event::Frame { id, frame } => _ = frames.insert(id.0, frame.clone()),
                Event::Stack { id, frames } => _ = stacks.insert(id.0, frames.iter().map(|id| id.0).collect()),
                _ => {}
            }
        }
        Self { database: Connection::open(path).unwrap(), _folder: folder, events, frames, stacks }
    }

    /// Samples of three processes with stacks of eight frames.
    fn samples() -> Self {
        let mut program = Program::new(7, 3, 8);
        let mut events = program.start();
        for _ in 0..3_000 {
            program.sample(2_003_000, &mut events);
        }
        Self::of(events)
    }

    fn of_everything() -> Self {
        Self::of(every_event())
    }

    /// The answer to the query below the sentence that begins so.
    #[track_caller]
    fn ask(&self, sentence: &str) -> Vec<Vec<Value>> {
        let at = DOCUMENT.find(&format!("\n{sentence}")).unwrap_or_else(|| panic!("no query: {sentence}"));
        let query = DOCUMENT[at..].split("```sql\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let mut statement = self.database.prepare(query).unwrap();
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| (0..columns).map(|column| row.get(column)).collect());
        rows.unwrap().map(Result::unwrap).collect()
    }

    fn each_sample(&self) -> impl Iterator<Item = &Sample> + '_ {
        self.events.iter().filter_map(|event| if let Event::Sample(sample) = event { Some(sample) } else { None })
    }

    fn frame(&self, id: u32) -> &Frame {
        &self.frames[&id]
    }

    /// The innermost Python frame.
    fn own_line(&self, stack: u32) -> Option<u32> {
        self.stacks[&stack].iter().rfind(|id| self.frame(**id).kind == FrameKind::Python).copied()
    }

    fn pid(&self, process: ProcessRef) -> i64 {
        let found = self.events.iter().find_map(|event| match event {
            Event::Process { id, process: of } if *id == process => Some(of.pid.0),
            _ => None,
        });
        i64::from(found.unwrap())
    }
}

#[track_caller]
fn int(value: &Value) -> i64 {
    if let Value::Integer(number) = value { *number } else { panic!("no integer: {value:?}") }
}

#[track_caller]
fn real(value: &Value) -> f64 {
    match value {
        Value::Real(number) => *number,
        Value::Integer(number) => *number as f64,
        other => panic!("no number: {other:?}"),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Null => String::new(),
        other => panic!("no text: {other:?}"),
    }
}

fn counted<K: Ord>(keys: impl Iterator<Item = K>) -> BTreeMap<K, i64> {
    let mut counts = BTreeMap::new();
    keys.for_each(|key| *counts.entry(key).or_default() += 1);
    counts
}

/// As many samples of equal weights as these seconds.
fn samples_in(seconds: &Value) -> i64 {
    (real(seconds) / common::WEIGHT.as_secs_f64()).round() as i64
}

#[track_caller]
fn assert_falling(rows: &[Vec<Value>], column: usize) {
    assert!(rows.windows(2).all(|pair| real(&pair[0][column]) >= real(&pair[1][column])), "{rows:?}");
}

#[test]
fn busiest_processes_and_threads() {
    let made = Made::samples();
    let expected = counted(made.each_sample().map(|sample| made.pid(sample.process)));
    let rows = made.ask("The busiest processes");
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| samples_in(&row[2]) == expected[&int(&row[0])]), "{rows:?}");
    assert_falling(&rows, 2);
    let threads = made.ask("The busiest threads");
    let found: BTreeMap<i64, i64> = threads.iter().map(|row| (int(&row[0]), samples_in(&row[3]))).collect();
    assert_eq!(found, expected, "each process has one thread");
    assert!(threads.iter().all(|row| text(&row[2]) == "MainThread"));
}

#[test]
fn hottest_lines_and_functions() {
    let made = Made::samples();
    let whole = made.each_sample().count() as f64;
    let percent = |count: i64| (1000.0 * count as f64 / whole).round() / 10.0;
    let own = counted(made.each_sample().filter_map(|sample| made.own_line(sample.stack.0)));
    let rows = made.ask("The hottest lines");
    assert_eq!(rows.len(), own.len().min(20));
    for row in &rows {
        let (id, count) = own.iter().find(|(id, _)| i64::from(made.frame(**id).line.unwrap()) == int(&row[3])).unwrap();
        assert_eq!((real(&row[0]), text(&row[1])), (percent(*count), made.frame(*id).function.to_string()));
    }
    assert_eq!(real(&rows[0][0]), percent(*own.values().max().unwrap()));
    assert_falling(&rows, 0);

    let functions = |stack: u32| -> BTreeSet<(String, Option<u32>)> {
        let key = |frame: &Frame| (frame.function.to_string(), frame.first_line);
        made.stacks[&stack].iter().map(|id| key(made.frame(*id))).collect()
    };
    let total = counted(made.each_sample().flat_map(|sample| functions(sample.stack.0)));
    let rows = made.ask("Functions by their share with all that they call");
    let mut expected: Vec<f64> = total.values().map(|count| percent(*count)).collect();
    expected.sort_by(|a, b| b.total_cmp(a));
    expected.truncate(20);
    assert_eq!(rows.iter().map(|row| real(&row[0])).collect::<Vec<_>>(), expected);
}

#[test]
fn innermost_frames_and_the_most_frequent_stack() {
    let made = Made::samples();
    let function = |stack: &u32| made.frame(*made.stacks[stack].last().unwrap()).function.to_string();
    let leaves = counted(made.each_sample().map(|sample| function(&sample.stack.0)));
    let rows = made.ask("The innermost frames of any kind");
    assert_eq!(rows.len(), leaves.len().min(20));
    assert!(rows.iter().all(|row| leaves[&text(&row[2])] == samples_in(&row[0])), "{rows:?}");

    let stacks = counted(made.each_sample().map(|sample| sample.stack.0));
    let most = stacks.values().max().unwrap();
    let names = |stack: u32| -> Vec<(String, i64)> {
        let frames = made.stacks[&stack].iter().map(|id| made.frame(*id));
        frames.map(|frame| (frame.function.to_string(), i64::from(frame.line.unwrap()))).collect()
    };
    let rows = made.ask("The stack with the most CPU time");
    let found: Vec<_> = rows.iter().map(|row| (text(&row[0]), int(&row[2]))).collect();
    assert!(stacks.iter().any(|(stack, count)| count == most && names(*stack) == found), "{found:?}");
}

#[test]
fn callers_of_a_function() {
    let made = Made::of_everything();
    let mut expected: BTreeMap<String, i64> = BTreeMap::new();
    for sample in made.each_sample() {
        for pair in made.stacks[&sample.stack.0].windows(2) {
            if &*made.frame(pair[1]).function == "Node.insert" {
                *expected.entry(made.frame(pair[0]).function.to_string()).or_default() += 1;
            }
        }
    }
    let rows = made.ask("Who calls a function");
    let found: BTreeMap<String, i64> = rows.iter().map(|row| (text(&row[0]), samples_in(&row[3]))).collect();
    assert!(!expected.is_empty());
    assert_eq!(found, expected);
}

#[test]
fn busy_cpus_in_each_second() {
    let made = Made::samples();
    let seconds = counted(made.each_sample().map(|sample| (sample.at.0 / 1_000_000_000) as i64));
    let rows = made.ask("CPUs kept busy in each second");
    assert_eq!(rows.len(), seconds.len());
    for row in rows {
        assert_eq!(samples_in(&row[1]), seconds[&int(&row[0])], "{row:?}");
    }
}

#[test]
fn waits_by_reason_and_by_line() {
    let made = Made::of_everything();
    let sleeps = || made.events.iter().filter_map(|event| if let Event::Sleep(it) = event { Some(it) } else { None });
    let rows = made.ask("What threads wait for");
    let found: BTreeSet<(i64, String, i64, u64)> = rows
        .iter()
        .map(|row| (int(&row[0]), text(&row[1]), int(&row[2]), (real(&row[3]) * 1e9).round() as u64))
        .collect();
    let expected = sleeps().map(|it| (made.pid(it.process), it.reason.name().to_owned(), it.count as i64, it.total.0));
    assert_eq!(found, expected.collect());

    let rows = made.ask("The lines at which they wait");
    let found: BTreeSet<(u64, String, i64)> =
        rows.iter().map(|row| ((real(&row[0]) * 1e9).round() as u64, text(&row[2]), int(&row[5]))).collect();
    let expected = sleeps().filter_map(|it| {
        let line = made.frame(made.own_line(it.stack.0)?).line?;
        Some((it.total.0, it.reason.name().to_owned(), i64::from(line)))
    });
    assert_eq!(found, expected.collect());
}

#[test]
fn lines_that_hold_the_gil() {
    let made = Made::of_everything();
    let mut expected: BTreeMap<(i64, i64), u64> = BTreeMap::new();
    for event in &made.events {
        if let Event::GilWait(GilWait { holder: Some(holder), total, .. }) = event
            && let Some(line) = made.own_line(holder.stack.0)
        {
            let line = i64::from(made.frame(line).line.unwrap());
            *expected.entry((i64::from(holder.tid.0), line)).or_default() += total.0;
        }
    }
    let rows = made.ask("The lines that hold the GIL");
    let found: BTreeMap<(i64, i64), u64> =
        rows.iter().map(|row| ((int(&row[1]), int(&row[4])), (real(&row[0]) * 1e9).round() as u64)).collect();
    assert!(!expected.is_empty());
    assert_eq!(found, expected);
    let shares = made.ask("How much of the time the GIL of each process was held");
    // 250 of 3600 seconds, to the last word of what pyobs costs; three waits of 5 ms are hardly any.
    assert_eq!((int(&shares[0][0]), real(&shares[0][1]), real(&shares[0][2])), (4242, 6.9, 0.0));
}

#[test]
fn calls_losses_and_processes() {
    let made = Made::of_everything();
    let calls = made.ask("The most called functions");
    assert_eq!(calls.len(), 1);
    // 9 calls, of which 8 took 99 ns together and the longest 50.
    assert_eq!((int(&calls[0][0]), text(&calls[0][3])), (9, "Node.insert".to_owned()));
    assert!((real(&calls[0][1]) - 0.099 / 8.0).abs() < 1e-9 && (real(&calls[0][2]) - 0.05).abs() < 1e-9, "{calls:?}");

    let losses = made.ask("What was lost:");
    assert_eq!((losses.len(), text(&losses[0][0]), int(&losses[0][1])), (1, "ring_full".to_owned(), 12));
    assert!((real(&losses[0][2]) - 3600.0).abs() < 1e-6, "{losses:?}");

    let came = made.ask("Processes that came or went");
    assert_eq!(came.len(), 1);
    assert_eq!(int(&came[0][0]), 4243);
    assert!((real(&came[0][3]) - 3_600.000_000_003).abs() < 1e-6, "{came:?}");

    let outcomes = made.ask("How good the stacks are");
    assert_eq!(outcomes.iter().map(|row| int(&row[2])).sum::<i64>(), made.each_sample().count() as i64);
}

#[test]
fn memory_that_is_left() {
    let made = Made::of_everything();
    let meminfos = made.ask("The lines that made MemInfos which were not freed");
    // The first was not freed.
    assert_eq!(meminfos.len(), 1);
    assert_eq!((int(&meminfos[0][1]), int(&meminfos[0][2])), (1, 40_000));
    assert_eq!(text(&meminfos[0][3]), made.frame(made.own_line(1).unwrap()).function.to_string());

    let segments = made.ask("The largest shared segments");
    assert_eq!(segments.len(), 2);
    let made_by_4242 = segments.iter().find(|row| row[3] != Value::Null).unwrap();
    assert_eq!((int(&made_by_4242[3]), int(&made_by_4242[4])), (4242, 1));
    assert_eq!(int(&made_by_4242[7]), i64::from(made.frame(made.own_line(1).unwrap()).line.unwrap()));

    let residents = made.ask("What processes have in memory");
    // 9 TiB, of which 4 bytes lie in segments, and 5 are its share.
    assert_eq!((int(&residents[0][0]), int(&residents[0][1]), int(&residents[0][2])), (4242, 9 << 20, 9 << 20));
}

#[test]
fn transfers_by_line_and_kind() {
    let made = Made::of_everything();
    let lines = made.ask("The lines that ask for transfers");
    let sends = lines.iter().find(|row| text(&row[0]) == "tag_send").unwrap();
    assert_eq!((int(&sends[1]), int(&sends[2])), (1, 1 << 20));
    // Registered, submitted, completed and woken at 40, 41, 45 and 47 ns.
    for (column, nanos) in [(3, 1.0), (4, 4.0), (5, 2.0)] {
        assert!((real(&sends[column]) - nanos / 1e3).abs() < 1e-9, "{sends:?}");
    }
    let kinds = made.ask("How many transfers there were of each kind");
    let kind = &kinds[0];
    assert_eq!((int(&kind[0]), text(&kind[1]), text(&kind[2])), (4242, "ucxx".to_owned(), "tag_send".to_owned()));
    assert_eq!((int(&kind[3]), int(&kind[4]), int(&kind[5])), (3, 3 << 20, 1));
}

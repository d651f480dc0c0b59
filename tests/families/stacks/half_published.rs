//! Samples at the moment when the interpreter is about to run a frame: a frame that is published before it is filled in
//! must not add wrong frames.

use std::collections::BTreeMap;

use pyobs_tests::{Case, Place, Python, Record, Recording, Stack, Workload, case, compare, json, needs, workload};
use serde_json::Value;

use super::{Known, python_frames};

const RATE: u32 = 999;

pub fn cases() -> Vec<Case> {
    let publishes = |python: &&Python| python.root.is_none() && (python.is("3.11") || python.is("3.12"));
    Python::all().iter().filter(publishes).map(of).collect()
}

fn of(python: &Python) -> Case {
    let name = format!("{}::unfilled_frames_add_no_frames", python.name());
    let every = needs::every(python);
    let python = python.clone();
    let body = move || {
        let mut program = Workload::start(python.script(workload("half_published.py")));
        let mut children: Vec<Value> = Vec::new();
        loop {
            let line = program.line();
            if line == "ready" {
                break;
            }
            children.push(json::parse(&line));
        }
        let record = Record::new().rate(RATE).argument("--probe").argument("cpu").seconds(4.0);
        let recording = children.iter().fold(record, |record, child| record.pid(pid(child))).run();
        program.kill();
        assert!(recording.status.success(), "{}", recording.stderr);
        let stacks = recording.stacks();
        let walked: Vec<&Stack> = stacks.iter().filter(|stack| is_walked(stack)).collect();
        let wrong: BTreeMap<&str, _> = children.iter().filter_map(|child| differences(&walked, child)).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        let lacking = lacking(&recording);
        assert_eq!(lacking, 0, "fully walked stacks reported as lacking frames: {}", recording.report["stacks"]);
    };
    case(name, body).needs(needs::root()).needs(every)
}

/// Whether the stack reaches the C library's start of the program. Without unwind tables, no C frame of the interpreter
/// is known.
fn is_walked(stack: &Stack) -> bool {
    stack.frames.iter().any(|frame| frame.file().starts_with("libc.so") && frame.function.contains("start"))
}

/// How many fully walked stacks the recording does not call complete.
fn lacking(recording: &Recording) -> i64 {
    let database = rusqlite::Connection::open(&recording.file).unwrap();
    let query = "SELECT count(*) FROM samples JOIN outcomes ON outcomes.id = outcome
        WHERE outcomes.name NOT IN ('complete', 'cut') AND stack IN (
            SELECT stack_frames.stack FROM stack_frames JOIN frames ON frames.id = frame
            WHERE frames.file LIKE '%libc.so%' AND frames.function LIKE '%start%')";
    database.query_row(query, [], |row| row.get(0)).unwrap()
}

fn pid(child: &Value) -> u32 {
    u32::try_from(json::count(child, "/pid")).unwrap()
}

/// The stacks of a child that differ from what it runs: how many frames they have, the last of these, and the samples.
type Wrong = BTreeMap<(usize, Vec<Known>), u64>;

fn differences<'a>(stacks: &[&Stack], child: &'a Value) -> Option<(&'a str, Wrong)> {
    let kind = json::text(child, "/kind");
    let frames: Vec<Known> = serde_json::from_value(child["frames"].clone()).unwrap();
    let (mut right, mut wrong) = (0, Wrong::new());
    for stack in stacks.iter().filter(|stack| stack.pid == pid(child)) {
        let shown = python_frames(stack);
        if shown == frames && leaf(stack) == "_PyEval_EvalFrameDefault" {
            right += stack.samples;
        } else {
            let last = shown.iter().rev().take(3).cloned().collect();
            *wrong.entry((shown.len(), last)).or_default() += stack.samples;
        }
    }
    let samples = right + wrong.values().sum::<u64>();
    compare::at_least(&format!("samples of {kind}"), samples as f64, 20.0);
    (!wrong.is_empty()).then_some((kind, wrong))
}

/// The leaf, without the kernel frames of an interrupt.
fn leaf(stack: &Stack) -> &str {
    let leaf = stack.frames.iter().rev().find(|frame| frame.place != Place::Kernel);
    leaf.map_or("", |frame| frame.function.as_str())
}

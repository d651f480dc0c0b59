//! Samples a program that does nothing but call functions: every call in a stack must be one that the program makes.

use std::collections::{BTreeMap, BTreeSet};

use pyobs_tests::{Case, Python, Record, Recording, UNREADABLE, Workload, case, compare, json, needs, workload};
use serde_json::Value;

use super::{Known, are_fully_unwound, python_frames};

const RATE: u32 = 3000;
const THREADS: &str = "4";
/// How far two clocks may differ, in seconds.
const CLOCKS: f64 = 0.1;

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for python in Python::all() {
        // These versions publish the innermost frame before it is set up; see docs/families/cpu.md.
        let half_published = python.is("3.11") || python.is("3.12");
        let quick = if python.is("3.12") { Ok(()) } else { needs::all() };
        cases.push(calls(python, if half_published { 10 } else { 5 }).needs(quick));
        // The defect that this looks for affected one sample in 35,000.
        cases.push(calls(python, 120).needs(needs::all()));
    }
    cases
}

fn calls(python: &Python, seconds: u32) -> Case {
    let name = format!("{}::every_call_in_a_stack_is_one_of_the_program_for_{seconds}_s", python.name());
    let python = python.clone();
    let body = move || {
        let mut asked = python.script(workload("calls.py"));
        asked.arg("graph");
        let graph = Graph::new(&json::parse(&Workload::start(asked).wait().stdout));
        let mut command = python.script(workload("calls.py"));
        command.args(["run", &seconds.to_string(), THREADS]);
        let recording = Record::new().rate(RATE).command(command).run();
        assert!(recording.status.success(), "{}", recording.stderr);
        graph.has_all_of(&recording);
        are_fully_unwound(&recording, 0.98);
    };
    case(name, body).needs(needs::root())
}

struct Graph {
    /// Caller's function, file and line, and the callee's function and file.
    edges: BTreeSet<(Known, String, String)>,
    lines: BTreeSet<Known>,
}

impl Graph {
    fn new(printed: &Value) -> Self {
        let edges: Vec<(String, String, u32, String, String)> =
            serde_json::from_value(printed["edges"].clone()).unwrap();
        let lines: Vec<(String, String, u32)> = serde_json::from_value(printed["lines"].clone()).unwrap();
        assert!(edges.len() > 100, "the call graph is too small: {} calls", edges.len());
        Self {
            edges: edges
                .into_iter()
                .map(|(file, name, line, to_file, to_name)| ((name, file, line), to_name, to_file))
                .collect(),
            lines: lines.into_iter().map(|(file, name, line)| (name, file, line)).collect(),
        }
    }

    fn has_all_of(&self, recording: &Recording) {
        let (mut all, mut nameless) = (0, 0);
        let mut wrong = BTreeMap::<String, (u64, Vec<Known>)>::new();
        // Before the program is ready it imports modules, so earlier samples are left out.
        let ready: f64 = recording.stdout.lines().next().unwrap_or_default().parse().unwrap();
        let begun = json::number(&recording.report, "/processes/0/started_s") + ready + CLOCKS;
        for stack in recording.stacks_selected(&["--from", &begun.to_string()]) {
            let frames = python_frames(&stack);
            if frames.is_empty() {
                // Samples between two frames, and of threads that start or end.
                continue;
            }
            all += stack.samples;
            nameless += if stack.has(UNREADABLE) { stack.samples } else { 0 };
            if let Some(why) = self.lacks(&frames) {
                wrong.entry(why).or_insert((0, frames)).0 += stack.samples;
            }
        }
        compare::at_least("samples", all as f64, 1000.0);
        assert_eq!(
            nameless, 0,
            "of {all} stacks have frames without a name: {wrong:#?}\n{:#}",
            recording.report["stacks"]
        );
        let count: u64 = wrong.values().map(|(samples, _)| samples).sum();
        assert!(count * 1000 <= all, "{count} of {all} stacks have calls that the program does not make: {wrong:#?}");
    }

    /// The first call that the program does not make, or the leaf's line if it does not exist.
    fn lacks(&self, frames: &[Known]) -> Option<String> {
        let mut caller = (String::new(), String::new(), 0);
        for (function, file, line) in frames {
            let edge = (caller, function.clone(), file.clone());
            if !self.edges.contains(&edge) {
                return Some(format!("{:?} does not call {function} ({file})", edge.0));
            }
            caller = (function.clone(), file.clone(), *line);
        }
        (!self.lines.contains(&caller)).then(|| format!("{caller:?} is not a line of the program"))
    }
}

//! Lines of the program that call a library of arrays in a loop, each time for little work.

use std::sync::Arc;

use pyobs_model::findings::{self, Evidence, Finding};
use pyobs_model::*;

const MAIN: &str = "/srv/train.py";
const PANDAS: &str = "/srv/env/lib/python3.12/site-packages/pandas/core/frame.py";
const DJANGO: &str = "/srv/env/lib/python3.12/site-packages/django/template/base.py";
const NUMPY: &str = "/srv/env/lib/python3.12/site-packages/numpy/lib/_function_base_impl.py";
const STANDARD: &str = "/usr/lib/python3.12/os.py";
const PYTHON: &str = "python3.12";
const LIBRARY: &str = "lib.so";
/// At 100 Hz.
const PERIOD: Nanos = Nanos(10_000_000);

/// What the samples of a process were, each in the loop of the same line.
struct Seen {
    package: &'static str,
    /// Samples in the interpreter and in native code of the library, and what the latter accessed.
    interpreted: u64,
    native: u64,
    touched: Touched,
    /// Samples elsewhere in the process.
    others: u64,
    /// Timed turns, and how long each took.
    turns: u32,
    turn: Nanos,
}

fn iterrows() -> Seen {
    let touched = Touched::Metadata(Some("dict".into()));
    Seen { package: PANDAS, interpreted: 60, native: 30, touched, others: 60, turns: 12, turn: Nanos(24_000) }
}

const TID: Tid = Tid(7);
const AT: Nanos = Nanos(1);

fn python(name: &str, file: &str, line: u32) -> Frame {
    Frame::python(name.into(), file.into(), Some(line), Some(1))
}

/// Native code of the package of a file.
fn native(module: &str, file: &str) -> Frame {
    let package = package::of_file(file);
    Frame { module: Some(module.into()), package, ..Frame::new(FrameKind::Native, "g".into()) }
}

/// A model of one process, with these frames and stacks of them.
fn model(frames: impl IntoIterator<Item = Frame>, stacks: &[&[u32]]) -> Model {
    let probes = vec!["redundancy".to_owned()];
    let mut model = Model::new(Meta { rate_hz: 100, probes, ..Meta::default() }, History::All);
    let process = Process { pid: Pid(7), ppid: Pid(1), command: "python".into(), python: None, started: None };
    model.apply(&Event::Process { id: ProcessRef(0), process });
    for (id, frame) in (0..).zip(frames) {
        model.apply(&Event::Frame { id: FrameId(id), frame });
    }
    for (id, stack) in (0..).zip(stacks) {
        model.apply(&Event::Stack { id: StackId(id), frames: stack.iter().copied().map(FrameId).collect() });
    }
    model
}

fn add_samples(model: &mut Model, stack: u32, count: u64) {
    let (stack, outcome) = (StackId(stack), Outcome::Complete);
    let sample =
        Sample { at: AT, process: ProcessRef(0), tid: TID, cpu: 0, stack, weight: PERIOD, turn_us: None, outcome };
    for _ in 0..count {
        model.apply(&Event::Sample(sample));
    }
}

fn add_accesses(model: &mut Model, stack: u32, touched: &Touched, count: u64) {
    let (stack, touched) = (StackId(stack), Some(touched.clone()));
    let (process, tid) = (ProcessRef(0), TID);
    let access = Access { at: AT, process, tid, stack, weight: 1, touched, stores: false, element_of: None };
    for _ in 0..count {
        model.apply(&Event::Access(access.clone()));
    }
}

/// Turns that four results each have shown.
fn add_turns(model: &mut Model, stack: u32, callee: &str, turns: u32, turn: Nanos, called_by: CalledBy) {
    let (stack, callee) = (StackId(stack), Arc::from(callee));
    let compared = Compared::Turns { count: 4, time: Nanos(4 * turn.0), bytes: Some(16) };
    let call = NativeCall { at: AT, process: ProcessRef(0), tid: TID, stack, callee, called_by, compared };
    for _ in 0..turns / 4 {
        model.apply(&Event::Call(call.clone()));
    }
}

fn findings_of(model: &Model) -> Vec<Finding> {
    let all = findings::find(model, &Selection::default());
    all.into_iter().filter(|finding| finding.id.starts_with("redundancy/")).collect()
}

fn found(seen: &Seen) -> Vec<Finding> {
    let frames = [
        python("train", MAIN, 59),
        python("DataFrame.iterrows", seen.package, 1300),
        native(PYTHON, STANDARD),
        native(LIBRARY, seen.package),
        python("other", MAIN, 70),
    ];
    let mut model = model(frames, &[&[0, 1, 2], &[0, 1, 3], &[4], &[0]]);
    for (stack, count) in [(0, seen.interpreted), (1, seen.native), (2, seen.others)] {
        add_samples(&mut model, stack, count);
    }
    add_accesses(&mut model, 1, &seen.touched, seen.native);
    add_turns(&mut model, 3, "DataFrame.iterrows", seen.turns, seen.turn, CalledBy::Program);
    findings_of(&model)
}

#[test]
fn a_loop_of_small_calls_is_one_finding_at_the_line_of_the_program() {
    let all = found(&iterrows());
    let [finding] = &all[..] else { panic!("{all:?}") };
    assert_eq!(finding.id, "redundancy/chatty");
    let summary = "train (/srv/train.py:59) spends 60% of the run in DataFrame.iterrows of pandas: about 25,000 calls a second \
                   of at most 24.0 µs each, for 16 B of data";
    assert_eq!(finding.summary, summary);
    assert!(finding.advice.contains("itertuples"), "{}", finding.advice);
    assert_eq!(finding.evidence["turns"], Evidence::Count(12));
    assert_eq!(finding.evidence["result_bytes"], Evidence::Count(16));
    // 0.6 s of a second in calls of 24 µs.
    assert_eq!(finding.evidence["calls_per_s"], Evidence::Number(25_000.0));
    assert_eq!(finding.evidence["overhead_share"], Evidence::Number(1.0));
}

#[test]
fn other_lines_are_not_accused() {
    let is_chatty = |seen: &Seen| found(seen).iter().any(|finding| finding.id == "redundancy/chatty");
    assert!(is_chatty(&iterrows()));
    for (what, seen) in [
        ("long calls", Seen { turn: Nanos(2_000_000), ..iterrows() }),
        ("calls that were not timed", Seen { turns: 0, ..iterrows() }),
        ("few turns", Seen { turns: 4, ..iterrows() }),
        ("a library that is not one of arrays", Seen { package: DJANGO, ..iterrows() }),
        ("a small part of the time", Seen { others: 6000, ..iterrows() }),
        (
            "native code that works on data",
            Seen { interpreted: 30, native: 60, touched: Touched::Array("float64 4000".into()), ..iterrows() },
        ),
        ("too few samples", Seen { interpreted: 3, native: 1, others: 10, ..iterrows() }),
    ] {
        assert!(!is_chatty(&seen), "{what}");
    }
}

/// `np.vectorize(doubled)(values)`, which calls `doubled` in a loop.
fn vectorized(in_library: u64, in_function: u64, turn: Nanos) -> Vec<Finding> {
    let frames = [
        python("train", MAIN, 59),
        python("vectorize.__call__", NUMPY, 2300),
        python("vectorize._vectorize_call", NUMPY, 2400),
        native(LIBRARY, NUMPY),
        python("doubled", MAIN, 12),
        native(PYTHON, STANDARD),
    ];
    let mut model = model(frames, &[&[0, 1, 2, 3], &[0, 1, 2, 3, 4], &[0, 1, 2, 3, 4, 3], &[0, 1, 2, 3, 4, 5]]);
    let objects = Touched::Metadata(Some("float".into()));
    for (stack, count) in [(0, in_library), (1, in_function), (2, in_function)] {
        add_samples(&mut model, stack, count);
    }
    add_accesses(&mut model, 0, &objects, in_library);
    add_accesses(&mut model, 2, &objects, in_function);
    add_turns(&mut model, 1, "doubled", 12, turn, CalledBy::Library);
    let all = findings_of(&model);
    all.into_iter().filter(|finding| finding.id == "redundancy/chatty").collect()
}

#[test]
fn a_function_that_a_library_calls_in_a_loop_is_the_fault_of_the_line_that_calls_the_library() {
    let all = vectorized(40, 30, Nanos(700));
    let [finding] = &all[..] else { panic!("{all:?}") };
    let summary = "train (/srv/train.py:59) spends 100% of the run in vectorize.__call__ of numpy, which calls doubled about \
                   1,400,000 times a second, for at most 700 ns each";
    assert_eq!(finding.summary, summary);
    assert_eq!(finding.evidence["called_back"], Evidence::Text("doubled".to_owned()));
    assert_eq!(finding.evidence["samples"], Evidence::Count(100));
    assert!(finding.advice.contains("np.where"), "{}", finding.advice);
    assert_eq!(vectorized(40, 30, Nanos(900_000)).len(), 0, "a function that does much at each call");
}

/// `np.frompyfunc(doubled, 1, 1)(values)` calls `doubled` from native code, without Python code of the library.
#[test]
fn native_code_that_calls_a_function_in_a_loop_is_the_fault_of_the_line_that_calls_it() {
    let frames =
        [python("train", MAIN, 59), native(LIBRARY, NUMPY), python("doubled", MAIN, 12), native(PYTHON, STANDARD)];
    let mut model = model(frames, &[&[0, 1], &[0, 1, 2], &[0, 1, 2, 3]]);
    for stack in 0..3 {
        add_samples(&mut model, stack, 40);
    }
    add_accesses(&mut model, 0, &Touched::Metadata(Some("float".into())), 40);
    add_turns(&mut model, 1, "doubled", 12, Nanos(700), CalledBy::Library);
    let all = findings_of(&model);
    let [finding] = &all[..] else { panic!("{all:?}") };
    let summary = "train (/srv/train.py:59) spends 67% of the run in native code of numpy, which calls doubled about 950,000 \
                   times a second, for at most 700 ns each";
    assert_eq!((finding.id, &*finding.summary), ("redundancy/chatty", summary));
    assert!(finding.advice.contains("np.where"), "{}", finding.advice);
}

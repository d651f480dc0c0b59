//! Lines of the program that call a library of arrays in a loop, each time for little work.

use std::sync::Arc;

use pyobs_model::findings::{self, Evidence, Finding};
use pyobs_model::*;

const MAIN: &str = "/srv/train.py";
const PANDAS: &str = "/srv/env/lib/python3.12/site-packages/pandas/core/frame.py";
const DJANGO: &str = "/srv/env/lib/python3.12/site-packages/django/template/base.py";
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

fn found(seen: &Seen) -> Vec<Finding> {
    let probes = vec!["redundancy".to_owned()];
    let mut model = Model::new(Meta { rate_hz: 100, probes, ..Meta::default() }, History::All);
    let process = Process { pid: Pid(7), ppid: Pid(1), command: "python".into(), python: None, started: None };
    model.apply(&Event::Process { id: ProcessRef(0), process });
    let python = |name: &str, file: &str, line| Frame::python(name.into(), file.into(), Some(line), Some(1));
    let native = |module: &str| Frame { module: Some(module.into()), ..Frame::new(FrameKind::Native, "g".into()) };
    let frames = [
        python("train", MAIN, 59),
        python("DataFrame.iterrows", seen.package, 1300),
        Frame { package: Some("python".into()), ..native(PYTHON) },
        Frame { package: package::of_file(seen.package), ..native(LIBRARY) },
        python("other", MAIN, 70),
    ];
    for (id, frame) in (0..).zip(frames) {
        model.apply(&Event::Frame { id: FrameId(id), frame });
    }
    let stacks: [&[u32]; 4] = [&[0, 1, 2], &[0, 1, 3], &[4], &[0]];
    for (id, stack) in (0..).zip(stacks) {
        model.apply(&Event::Stack { id: StackId(id), frames: stack.iter().copied().map(FrameId).collect() });
    }
    let (at, process, tid) = (Nanos(1), ProcessRef(0), Tid(7));
    for (stack, count) in [(0, seen.interpreted), (1, seen.native), (2, seen.others)] {
        for _ in 0..count {
            model.apply(&Event::Sample(Sample {
                at,
                process,
                tid,
                cpu: 0,
                stack: StackId(stack),
                weight: PERIOD,
                outcome: Outcome::Complete,
            }));
        }
    }
    for _ in 0..seen.native {
        let (stack, touched) = (StackId(1), Some(seen.touched.clone()));
        let access = Access { at, process, tid, stack, weight: 1, touched, stores: false, element_of: None };
        model.apply(&Event::Access(access));
    }
    for _ in 0..seen.turns / 4 {
        let (stack, callee) = (StackId(3), Arc::from("DataFrame.iterrows"));
        let compared = Compared::Turns { count: 4, time: Nanos(4 * seen.turn.0) };
        model.apply(&Event::Call(NativeCall { at, process, tid, stack, callee, compared }));
    }
    let all = findings::find(&model, &Selection::default());
    all.into_iter().filter(|finding| finding.id.starts_with("redundancy/")).collect()
}

#[test]
fn a_loop_of_small_calls_is_one_finding_at_the_line_of_the_program() {
    let all = found(&iterrows());
    let [finding] = &all[..] else { panic!("{all:?}") };
    assert_eq!(finding.id, "redundancy/chatty");
    let summary = "train (/srv/train.py:59) spends 60% of the run in DataFrame.iterrows of pandas: about 42,000 calls a second \
                   of at most 24.0 µs each";
    assert_eq!(finding.summary, summary);
    assert!(finding.advice.contains("itertuples"), "{}", finding.advice);
    assert_eq!(finding.evidence["turns"], Evidence::Count(12));
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
        ("a small part of the time", Seen { others: 3000, ..iterrows() }),
        (
            "native code that works on data",
            Seen { interpreted: 30, native: 60, touched: Touched::Array("float64 4000".into()), ..iterrows() },
        ),
        ("too few samples", Seen { interpreted: 3, native: 1, others: 10, ..iterrows() }),
    ] {
        assert!(!is_chatty(&seen), "{what}");
    }
}

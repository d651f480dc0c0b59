//! Samples in a Perfetto trace, where they have no weights, and which native frames are kept.

mod common;

use std::collections::BTreeMap;

use common::perfetto::timeline;
use common::{ModelBuilder, exported, frame};
use pyobs_export::{Format, Native, Options};
use pyobs_model::*;

const MS: u64 = 1_000_000;

fn sample(at: u64, tid: u32, stack: StackId, weight: u64) -> Event {
    let (at, process, weight) = (Nanos(at * MS), ProcessRef(0), Nanos(weight));
    Event::Sample(Sample {
        at,
        process,
        tid: Tid(tid),
        cpu: 1,
        stack,
        weight,
        turn_us: None,
        outcome: Outcome::Complete,
    })
}

#[test]
fn a_sample_is_repeated_per_sampling_period() {
    let mut it = ModelBuilder::new("h");
    it.process(0, 42, "python3.12 main.py", &[(42, "MainThread"), (43, "worker")]);
    let main = frame(FrameKind::Python, "main", "/srv/main.py", 3, 1);
    let [near, far] = [10, 11].map(|line| frame(FrameKind::Python, "step", "/srv/step.py", line, 9));
    let leaf = frame(FrameKind::Native, "dgemm", "libblas.so.3", 0, 0);
    let first = it.stack(&[main.clone(), near, leaf]);
    let second = it.stack(&[main, far]);
    // The sampling period is 10 ms.
    for (at, tid, stack, weight) in [
        (10, 42, first, 10 * MS),
        (20, 42, second, 25 * MS),
        (30, 43, second, 4 * MS),
        (40, 42, first, 5 * MS),
        (50, 43, first, 7 * MS),
        (60, 42, first, 0),
    ] {
        it.model.apply(&sample(at, tid, stack, weight));
    }
    let all = timeline(&it.model, &Options::default());
    let told: Vec<(u64, u32, u32)> = all.samples.iter().map(|it| (it.at / MS, it.pid, it.tid)).collect();
    assert_eq!(told, [(10, 42, 42), (20, 42, 42), (20, 42, 42), (40, 42, 42), (50, 42, 43)]);
    assert_eq!(all.samples[0].frames, ["main (main.py)", "step (step.py)", "dgemm (libblas.so.3)"]);
    assert_eq!(all.samples[1].frames, ["main (main.py)", "step (step.py)"]);
}

#[test]
fn shares_are_those_of_the_weights() {
    let mut it = ModelBuilder::new("h");
    it.process(0, 42, "python3.12 main.py", &[(42, "MainThread")]);
    let [often, seldom] = ["often", "seldom"].map(|name| it.stack(&[frame(FrameKind::Python, name, "/a.py", 2, 1)]));
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for round in 0..1000 {
        let (stack, name, weight) = if round % 3 == 0 { (seldom, "seldom", 31 * MS) } else { (often, "often", 4 * MS) };
        *expected.entry(format!("{name} (a.py)")).or_default() += weight;
        it.model.apply(&sample(round, 42, stack, weight));
    }
    let mut told: BTreeMap<String, u64> = BTreeMap::new();
    for sample in timeline(&it.model, &Options::default()).samples {
        *told.entry(sample.frames.concat()).or_default() += 10 * MS;
    }
    let all: u64 = expected.values().sum();
    assert!(told.values().sum::<u64>() <= all && told.values().sum::<u64>() + 10 * MS > all);
    for (name, time) in expected {
        assert!(told[&name].abs_diff(time) * 50 < all, "{name}: {} and {time} of {all}", told[&name]);
    }
}

#[test]
fn copies_of_a_sample_are_bounded() {
    let mut it = ModelBuilder::new("h");
    it.process(0, 42, "python3.12 main.py", &[(42, "MainThread")]);
    let stack = it.stack(&[frame(FrameKind::Python, "main", "/a.py", 2, 1)]);
    for at in [1, 2] {
        it.model.apply(&sample(at, 42, stack, u64::MAX));
    }
    assert_eq!(timeline(&it.model, &Options::default()).samples.len(), 2048);
}

#[test]
fn frames_of_the_interpreter_count_for_their_python_frame() {
    use FrameKind::{Kernel, Native as Code, Python};
    let mut it = ModelBuilder::new("h");
    it.process(0, 42, "python3.12 main.py", &[(42, "MainThread")]);
    let native = |function, module| frame(Code, function, module, 0, 0);
    let eval = || native("_PyEval_EvalFrameDefault", "libpython3.12.so.1.0");
    let [main, step] = [("main", 1), ("step", 9)].map(|(name, line)| frame(Python, name, "/srv/main.py", line, line));
    let start = || [native("_start", "python3.12"), native("__libc_start_main", "libc.so.6"), eval()];
    let call = || [native("method_vectorcall", "libpython3.12.so.1.0"), native("apply", "ext.so"), eval()];
    let leaf = [native("dgemm", "libblas.so.3"), frame(Kernel, "asm_exc_page_fault", "vmlinux", 0, 0)];
    let whole: Vec<Frame> =
        start().into_iter().chain([main.clone()]).chain(call()).chain([step.clone()]).chain(leaf).collect();
    it.samples(0, 42, 3, Outcome::Complete, &whole);
    let computing: Vec<Frame> =
        [main, step].into_iter().chain([eval(), native("long_mul", "libpython3.12.so.1.0")]).collect();
    it.samples(0, 42, 2, Outcome::Complete, &computing);
    // The interpreter is starting and has no Python frame yet.
    it.samples(0, 42, 1, Outcome::NoPython, &start());
    let folded = |native| exported(&it.model, Format::Folded, &Options { native, ..Options::default() });
    let begins = "python3.12 (42);_start (python3.12);__libc_start_main (libc.so.6);_PyEval_EvalFrameDefault (libpython3.12.so.1.0)";
    assert_eq!(
        folded(Native::default()),
        format!(
            "python3.12 (42);__libc_start_main (libc.so.6);main (main.py);apply (ext.so);step (main.py);\
             dgemm (libblas.so.3);asm_exc_page_fault [kernel] 3\n{begins} 1\n\
             python3.12 (42);main (main.py);step (main.py) 2\n"
        )
    );
    assert_eq!(folded(Native::None), format!("{begins} 1\npython3.12 (42);main (main.py);step (main.py) 5\n"));
    assert!(folded(Native::Full).contains("main (main.py);method_vectorcall (libpython3.12.so.1.0);apply (ext.so);"));
}

/// Many stacks with just over half a period each would count twice if each were rounded by itself.
#[test]
fn folded_samples_are_not_more_than_were_taken() {
    let mut it = ModelBuilder::new("h");
    it.process(0, 42, "python3.12 a.py", &[(42, "a")]);
    let period = it.model.meta().period().0;
    for number in 0..100 {
        let stack = it.stack(&[frame(FrameKind::Python, &format!("f{number}"), "a.py", 1, 1)]);
        it.model.apply(&sample(number, 42, stack, period * 6 / 10));
    }
    let text = exported(&it.model, Format::Folded, &Options::default());
    let sum: u64 = text.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(sum, 60);
}

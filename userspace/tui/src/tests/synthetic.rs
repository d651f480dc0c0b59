//! A small world with known shares: 1000 samples within 10 s.

use std::sync::Arc;

use pyobs_model::{
    Event, Frame, FrameId, FrameKind, History, Meta, Model, Nanos, Outcome, Pid, Process, ProcessRef, Reason, Sample,
    StackId, Tid,
};

pub(super) fn meta() -> Meta {
    Meta {
        started: "2026-10-02T08:15:00Z".into(),
        host: "build-7".into(),
        kernel: "6.1.0-37-amd64".into(),
        pyobs: "0.1.0".into(),
        rate_hz: 99,
        probes: vec!["cpu".into()],
        sampler: "cpu-clock".into(),
    }
}

pub(super) fn model() -> Model {
    Model::new(meta(), History::Window { length: Nanos(60_000_000_000), samples: 100_000 })
}

/// As a replay has it.
pub(super) fn filled() -> Model {
    let mut model = Model::new(meta(), History::All);
    for event in events() {
        model.apply(&event);
    }
    model
}

pub(super) fn python(function: &str, file: &str, line: u32) -> Frame {
    Frame {
        kind: FrameKind::Python,
        function: function.into(),
        module: None,
        file: Some(file.into()),
        line: Some(line),
        first_line: Some(line / 10 * 10 + 1),
    }
}

fn compiled(kind: FrameKind, function: &str, module: &str) -> Frame {
    Frame { kind, function: function.into(), module: Some(module.into()), file: None, line: None, first_line: None }
}

pub(super) fn process(pid: u32, python: Option<&str>, command: &str) -> Process {
    Process { pid: Pid(pid), ppid: Pid(1), command: command.into(), python: python.map(Into::into), started: None }
}

pub(super) fn define(frames: &[Frame], stacks: &[&[u32]]) -> Vec<Event> {
    let frames = (0..).map(FrameId).zip(frames).map(|(id, frame)| Event::Frame { id, frame: frame.clone() });
    let stacks = (0..).map(StackId).zip(stacks).map(|(id, stack)| {
        let frames: Arc<[FrameId]> = stack.iter().map(|id| FrameId(*id)).collect();
        Event::Stack { id, frames }
    });
    frames.chain(stacks).collect()
}

pub(super) fn sample(at_ms: u64, process: u32, tid: u32, stack: u32, outcome: Outcome) -> Event {
    let at = Nanos(at_ms * 1_000_000);
    Event::Sample(Sample { at, process: ProcessRef(process), tid: Tid(tid), cpu: 0, stack: StackId(stack), outcome })
}

pub(super) fn events() -> Vec<Event> {
    let packages = "/srv/app/.venv/lib/python3.12/site-packages";
    let frames = [
        python("<module>", "/srv/app/train.py", 88),
        python("Trainer.fit", "/srv/app/trainer.py", 142),
        python("Trainer.fit", "/srv/app/trainer.py", 145),
        python("Linear.forward", &format!("{packages}/net/layers.py"), 61),
        compiled(FrameKind::Native, "cblas_dgemm", "libopenblas.so.0"),
        python("normalize", "/srv/app/normalize.py", 31),
        compiled(FrameKind::Kernel, "clear_page_erms", "kernel"),
        python("<module>", "/usr/bin/gunicorn", 8),
        python("Cart.total.<locals>.<genexpr>", "/opt/web/shop/cart.py", 104),
        python("walk", "/opt/web/shop/tree.py", 12),
    ];
    let stacks: &[&[u32]] = &[&[0, 1, 3, 4], &[0, 2, 5], &[0, 2, 5, 6], &[7, 8], &[7, 9, 9, 9], &[4]];
    let mut events = define(&frames, stacks);
    for (id, state) in (0..).map(ProcessRef).zip([
        process(4242, Some("3.12.1"), "/srv/app/.venv/bin/python3 -m train --epochs 40"),
        process(918, Some("3.11.2"), "/usr/bin/python3 /usr/bin/gunicorn shop.wsgi"),
        process(77120, Some("3.8.20"), "python3.8 idle.py"),
        process(77121, Some("3.13.1"), "python3.13 gone.py"),
    ]) {
        events.push(Event::Process { id, process: state });
    }
    for (id, tid, name) in [(0, 4242, "python3"), (0, 4243, "loader-0"), (1, 918, "gunicorn"), (2, 77120, "python3.8")]
    {
        events.push(Event::Thread { process: ProcessRef(id), tid: Tid(tid), name: name.into() });
    }
    // Of each 100 samples: 40 dgemm, 20 + 10 normalize, 15 genexpr, 10 walk, 5 without Python.
    let shape = |n: u64| match n {
        0..40 => (0, 4242, 0, Outcome::Complete),
        40..60 => (0, 4243, 1, Outcome::Complete),
        60..70 => (0, 4243, 2, Outcome::Complete),
        70..85 => (1, 918, 3, Outcome::Complete),
        85..94 => (1, 918, 4, Outcome::Complete),
        94..95 => (1, 918, 4, Outcome::Truncated),
        95..96 => (0, 4242, 5, Outcome::Failed(Reason::FrameUnreadable)),
        _ => (0, 4242, 5, Outcome::NoPython),
    };
    for n in 0..1000 {
        let (process, tid, stack, outcome) = shape(n % 100);
        events.push(sample(n * 10, process, tid, stack, outcome));
    }
    events.push(Event::ProcessEnd { id: ProcessRef(3), at: Nanos(5_000_000_000) });
    let loss = |reason, count| Event::Loss { at: Nanos(9_000_000_000), reason, count };
    events.extend([loss(Reason::NotAttachedYet, 7), loss(Reason::RingFull, 1234)]);
    for seconds in [9, 10] {
        events.push(Event::Cost {
            at: Nanos(seconds * 1_000_000_000),
            bpf: Nanos(seconds * 600_000),
            cpu: Nanos(seconds * 3_400_000),
            rss_bytes: 41 << 20,
        });
    }
    events
}

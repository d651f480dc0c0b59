//! What tasks compute, where they block their loop, and which finding that makes.

use pyobs_model::families::Times;
use pyobs_model::findings::{self, Severity};
use pyobs_model::views::{self, Group, Look};
use pyobs_model::*;

const MS: u64 = 1_000_000;
const PROCESS: ProcessRef = ProcessRef(0);

fn frame(function: &str, line: u32) -> Frame {
    Frame::python(function.into(), "/srv/app/server.py".into(), Some(line), Some(line / 10 * 10))
}

/// Two tasks of one coroutine, with a stack each, and a stack of the loop alone.
fn model(history: History) -> Model {
    let meta = Meta { rate_hz: 99, cpus: 2, probes: Family::names(), ..Meta::default() };
    let mut model = Model::new(meta, history);
    for (frame, id) in [frame("run", 1), frame("handler", 20), frame("query", 31), frame("handler", 25)].iter().zip(0..)
    {
        model.apply(&Event::Frame { id: FrameId(id), frame: frame.clone() });
    }
    for (frames, id) in [&[0, 1, 2][..], &[0, 1, 2], &[0], &[3]].iter().zip(0..) {
        let frames = frames.iter().copied().map(FrameId).collect();
        model.apply(&Event::Stack { id: StackId(id), frames });
    }
    let process = Process { pid: Pid(7), ppid: Pid(1), command: "python".into(), python: None, started: None };
    model.apply(&Event::Process { id: PROCESS, process });
    for (id, name) in [(0, "Task-1"), (1, "Task-2")] {
        let task = Task { process: PROCESS, kind: TaskKind::Asyncio, name: Some(name.into()), coroutine: FrameId(1) };
        model.apply(&Event::Task { id: TaskId(id), task });
        model.apply(&Event::StackTask { stack: StackId(id), task: TaskId(id) });
    }
    model
}

fn all() -> Model {
    model(History::All)
}

fn sample(model: &mut Model, at_ms: u64, stack: u32) {
    sample_in_turn(model, at_ms, stack, None);
}

/// A sample taken while the loop's turn has lasted for this many milliseconds.
fn sample_in_turn(model: &mut Model, at_ms: u64, stack: u32, turn_ms: Option<u64>) {
    let (at, tid, stack) = (Nanos(at_ms * MS), Tid(7), StackId(stack));
    let turn_us = turn_ms.and_then(|turn| std::num::NonZeroU32::new(turn as u32 * 1000));
    let (weight, outcome) = (Nanos(10 * MS), Outcome::Complete);
    model.apply(&Event::Sample(Sample { at, process: PROCESS, tid, cpu: 0, stack, weight, turn_us, outcome }));
}

fn sleep(model: &mut Model, at_ms: u64, ms: u64, stack: u32, reason: WaitReason) {
    let (at, total) = (Nanos(at_ms * MS), Nanos(ms * MS));
    model.apply(&Event::Sleep(Sleep {
        from: at.saturating_sub(total),
        at,
        process: PROCESS,
        tid: Tid(7),
        stack: StackId(stack),
        reason,
        waker: None,
        count: 1,
        total,
        length: total,
        stacks: 1,
    }));
}

fn status(model: &mut Model, at_ms: u64, task: u32, state: Option<TaskState>) {
    let (at, task, stack) = (Nanos(at_ms * MS), TaskId(task), StackId(3));
    model.apply(&Event::TaskStatus(TaskStatus { at, task, state, awaits: Some(TaskId(0)), stack }));
}

fn blocked(model: &Model) -> Vec<findings::Finding> {
    let found = findings::find(model, &Selection::default()).into_iter();
    found.filter(|finding| finding.id == "tasks/blocked").collect()
}

#[test]
fn tasks_with_equal_stacks_are_told_apart() {
    let mut model = all();
    (0..5).for_each(|number| sample(&mut model, 100 * number, 0));
    (0..2).for_each(|number| sample(&mut model, 100 * number, 1));
    sample(&mut model, 700, 2);
    sleep(&mut model, 900, 40, 1, WaitReason::Io);
    sleep(&mut model, 990, 60, 1, WaitReason::Gil);
    sleep(&mut model, 5000, 4000, 2, WaitReason::Poll);
    let rows = views::tasks(&model, &Selection::default());
    let [first, second] = &rows[..] else { panic!("{rows:#?}") };
    assert_eq!((first.task, first.cpu.samples, first.blocked.count), (TaskId(1), 2, 1));
    assert_eq!(first.blocked, Times { count: 1, total: Nanos(40 * MS), max: Nanos(40 * MS) });
    assert_eq!((second.task, second.cpu.samples, second.cpu.time), (TaskId(0), 5, Nanos(50 * MS)));
    let lines = views::task_lines(&model, &Selection::default(), TaskId(1));
    assert_eq!(lines.iter().map(|line| line.frame).collect::<Vec<_>>(), [Some(FrameId(2))]);
}

#[test]
fn a_stack_grouped_by_task_begins_with_it_and_leaves_out_the_loop() {
    let model = all();
    let names = |group, stack| {
        let frames = Look { group, ..Look::default() }.frames(&model, StackId(stack));
        frames.map(|id| model.frame(id).unwrap().function.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(Group::None, 1), ["run", "handler", "query"]);
    assert_eq!(names(Group::Task, 1), ["handler (Task-2)", "handler", "query"]);
    assert_eq!(names(Group::Task, 2), ["run"]);
}

#[test]
fn a_long_sleep_is_a_finding_and_so_are_many_short_ones() {
    let mut model = all();
    sleep(&mut model, 1000, 49, 0, WaitReason::Io);
    model.advance(Nanos(10_000 * MS));
    assert_eq!(blocked(&model), []);
    sleep(&mut model, 2000, 50, 1, WaitReason::Io);
    let found = blocked(&model);
    let [finding] = &found[..] else { panic!("{found:#?}") };
    assert_eq!(finding.severity, Severity::Warning);
    assert!(finding.detail.contains("in handler (Task-1), handler (Task-2)."), "{}", finding.detail);
    (0..60).for_each(|number| sleep(&mut model, 2100 + 100 * number, 40, 1, WaitReason::Io));
    assert_eq!(blocked(&model)[0].severity, Severity::Serious);
    // A wait for the GIL is another thread's fault.
    let mut model = all();
    sleep(&mut model, 2000, 900, 0, WaitReason::Gil);
    model.advance(Nanos(10_000 * MS));
    assert_eq!(blocked(&model), []);
}

#[test]
fn a_task_is_alive_until_it_ends() {
    let mut model = all();
    status(&mut model, 1000, 0, Some(TaskState::Waiting));
    status(&mut model, 1000, 1, Some(TaskState::Created));
    sleep(&mut model, 2000, 80, 0, WaitReason::Sleep);
    assert!(blocked(&model)[0].summary.ends_with("while 1 other task waited"));
    assert_eq!(model.tasks().status(TaskId(1)).map(|status| status.since), Some(Nanos(1000 * MS)));
    status(&mut model, 3000, 1, None);
    assert_eq!((model.tasks().status(TaskId(1)), model.tasks().alive_in(PROCESS)), (None, 1));
    assert!(blocked(&model)[0].summary.ends_with("at a time"));
}

#[test]
fn the_tasks_of_a_program_that_has_ended_are_shown_afterwards_only() {
    let window = History::Window { length: Nanos(60_000 * MS), samples: 1000 };
    for (history, alive) in [(History::All, 1), (window, 0)] {
        let mut model = model(history);
        status(&mut model, 1000, 0, Some(TaskState::Waiting));
        model.apply(&Event::ProcessEnd { id: PROCESS, at: Nanos(2000 * MS) });
        assert_eq!(model.tasks().alive_in(PROCESS), alive, "{history:?}");
    }
}

#[test]
fn what_is_undefined_or_out_of_turn_is_ignored() {
    let mut model = all();
    let task = Task { process: PROCESS, kind: TaskKind::Asyncio, name: None, coroutine: FrameId(99) };
    model.apply(&Event::Task { id: TaskId(2), task: task.clone() });
    model.apply(&Event::Task { id: TaskId(7), task: Task { coroutine: FrameId(0), ..task } });
    model.apply(&Event::StackTask { stack: StackId(2), task: TaskId(2) });
    model.apply(&Event::StackTask { stack: StackId(99), task: TaskId(0) });
    status(&mut model, 1000, 2, Some(TaskState::Running));
    assert_eq!(model.tasks().iter().count(), 2);
    assert_eq!((model.tasks().of(StackId(2)), model.tasks().of(StackId(99))), (None, None));
    assert_eq!(model.tasks().alive().count(), 0);
}

#[test]
fn a_turn_that_computes_for_long_starves_its_loop() {
    let mut model = all();
    // A turn of 90 ms: 70 ms in Task-1, then 20 ms in Task-2.
    for turn_ms in (10..=90).step_by(10) {
        sample_in_turn(&mut model, 100 + turn_ms, u32::from(turn_ms > 70), Some(turn_ms));
    }
    // A short turn, and a long one that hardly computes. Samples of the first one that come late do not count for it.
    sample_in_turn(&mut model, 240, 1, Some(30));
    sample_in_turn(&mut model, 500, 1, Some(200));
    for _ in 0..9 {
        sample_in_turn(&mut model, 195, 0, Some(95));
    }
    sample_in_turn(&mut model, 510, 1, Some(210));
    // The turn that goes on.
    for turn_ms in (10..=60).step_by(10) {
        sample_in_turn(&mut model, 600 + turn_ms, 0, Some(turn_ms));
    }
    let rows = views::starved_loops(&model, &Selection::default());
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(row.turns, Times { count: 2, total: Nanos(150 * MS), max: Nanos(90 * MS) });
    assert_eq!(row.tasks.iter().copied().collect::<Vec<_>>(), [TaskId(0), TaskId(1)]);
    let finding =
        findings::find(&model, &Selection::default()).into_iter().find(|it| it.id == "tasks/starved").unwrap();
    assert!(
        finding.summary.starts_with("query (/srv/app/server.py:31) computed for 150 ms of "),
        "{}",
        finding.summary
    );
    let later = Selection { from: Some(Nanos(300 * MS)), ..Selection::default() };
    assert_eq!(views::starved_loops(&model, &later)[0].turns.count, 1);
}

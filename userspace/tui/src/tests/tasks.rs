//! Synthetic tasks of asyncio, and tests of how the screens show them.

use insta::assert_snapshot;
use pyobs_model::{
    Event, Family, FrameId, Nanos, Outcome, ProcessRef, Sleep, StackId, Task, TaskId, TaskKind, TaskState, TaskStatus,
    Tid, WaitReason,
};

use super::{Bench, LARGE, Source, USUAL, synthetic};
use crate::Batch;

const MS: u64 = 1_000_000;

/// A server: one task computes, one sleeps without awaiting, one awaits the first, and twenty wait for requests.
pub(super) fn events() -> Vec<Event> {
    let frames = [
        synthetic::python("run", "/usr/lib/python3.12/asyncio/runners.py", 194),
        synthetic::python("Handle._run", "/usr/lib/python3.12/asyncio/events.py", 84),
        synthetic::python("resize", "/srv/app/images.py", 12),
        synthetic::python("scale", "/srv/app/images.py", 31),
        synthetic::python("fetch", "/srv/app/handlers.py", 15),
        synthetic::python("gather", "/srv/app/handlers.py", 41),
        synthetic::python("serve", "/srv/app/handlers.py", 55),
        synthetic::python("Queue.get", "/usr/lib/python3.12/asyncio/queues.py", 158),
    ];
    // Two stacks of running tasks, one of the loop alone, and what the suspended tasks await.
    let stacks: &[&[u32]] = &[&[0, 1, 2, 3], &[0, 1, 4], &[0, 1], &[2], &[4], &[5], &[6, 7]];
    let mut events = synthetic::define(&frames, stacks);
    events.push(Event::Process {
        id: ProcessRef(0),
        process: synthetic::process(4242, Some("3.12.1"), "/usr/bin/python3 -m server"),
    });
    events.push(Event::Thread { process: ProcessRef(0), tid: Tid(4242), name: "python3".into() });
    let mut task = |id: u32, coroutine: u32, name: Option<&str>| {
        let task = Task {
            process: ProcessRef(0),
            kind: TaskKind::Asyncio,
            name: name.map(Into::into),
            coroutine: FrameId(coroutine),
        };
        events.push(Event::Task { id: TaskId(id), task });
    };
    task(0, 2, Some("resizer"));
    task(1, 4, Some("Task-2"));
    task(2, 5, Some("Task-3"));
    (3..23).for_each(|id| task(id, 6, Some(&format!("Task-{}", id + 1))));
    events.extend(
        [(0, 0), (1, 1), (3, 0), (4, 1), (5, 2)]
            .map(|(stack, task)| Event::StackTask { stack: StackId(stack), task: TaskId(task) }),
    );
    events.extend((0..300).map(|number| synthetic::sample(number * 30, 0, 4242, 0, Outcome::Complete)));
    events.extend((0..100).map(|number| synthetic::sample(number * 90, 0, 4242, 2, Outcome::Complete)));
    events.extend((1..20).map(|number| {
        Event::Sleep(Sleep {
            from: Nanos(number * 500 * MS),
            at: Nanos((number * 500 + 150) * MS),
            process: ProcessRef(0),
            tid: Tid(4242),
            stack: StackId(1),
            reason: WaitReason::Sleep,
            waker: None,
            count: 1,
            total: Nanos(150 * MS),
            length: Nanos(150 * MS),
            stacks: 1,
        })
    }));
    let mut status = |at_ms: u64, task: u32, state, awaits: Option<u32>, stack: u32| {
        let (at, awaits) = (Nanos(at_ms * MS), awaits.map(TaskId));
        events.push(Event::TaskStatus(TaskStatus { at, task: TaskId(task), state, awaits, stack: StackId(stack) }));
    };
    status(9_100, 0, Some(TaskState::Running), None, 3);
    status(9_100, 1, Some(TaskState::Waiting), None, 4);
    status(2_000, 2, Some(TaskState::Waiting), Some(0), 5);
    (3..23).for_each(|id| status(1_000, id, Some(TaskState::Waiting), None, 6));
    status(8_000, 22, None, None, 6);
    events
}

fn bench(size: (u16, u16)) -> Bench {
    let model = synthetic::model_of(&[Family::Cpu, Family::OffCpu, Family::Tasks]);
    let mut bench = Bench::new(model, Source::Live, size);
    bench.send(Batch::Events(events()));
    bench.draw();
    bench
}

#[test]
fn the_list_of_tasks() {
    for size in [USUAL, LARGE] {
        assert_snapshot!(format!("tasks_{}x{}", size.0, size.1), bench(size).keys("a").picture());
    }
}

#[test]
fn one_task_and_whom_it_holds_up() {
    let mut bench = bench(USUAL);
    assert_snapshot!("task", bench.keys("a\n").picture());
    let picture = bench.picture();
    assert!(picture.contains("AWAITED BY") && picture.contains("gather (Task-3)"), "{picture}");
}

#[test]
fn a_flame_graph_grouped_by_task_begins_with_tasks() {
    let mut bench = bench(LARGE);
    let before = bench.keys("3").picture();
    // After commands, containers and users.
    let grouped = bench.keys("gggg").picture();
    assert!(before.contains("Handle._run") && !before.contains("resize (resizer)"), "{before}");
    assert_snapshot!("flame_by_task", grouped);
    assert_eq!(bench.keys("g").picture(), before);
}

#[test]
fn without_tasks_there_is_nothing_to_group() {
    let mut bench = Bench::live(USUAL);
    let before = bench.keys("3").picture();
    assert!(bench.keys("ggg").picture().contains("by user"));
    assert_eq!(bench.keys("g").picture(), before);
}

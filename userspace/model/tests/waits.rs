//! Sums over waits and calls, and findings about them.

use std::sync::Arc;

use pyobs_model::families::Times;
use pyobs_model::findings::{self, Severity};
use pyobs_model::report::Report;
use pyobs_model::views::{self, By, GilRow, Group, Look, Native, Weight};
use pyobs_model::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const PROCESS: ProcessRef = ProcessRef(0);

// Stacks of `model`.
const COMPUTE: StackId = StackId(0);
/// Python, then C, then the kernel.
const RECEIVE: StackId = StackId(1);
/// Another line of the same function.
const COMPUTE_MORE: StackId = StackId(2);
const NONE: StackId = StackId(3);

// Threads of `model`.
const MAIN: Tid = Tid(42);
const IO: Tid = Tid(43);

fn model(history: History) -> Model {
    let probes = Family::names();
    let mut model = Model::new(Meta { rate_hz: 99, cpus: 2, probes, ..Meta::default() }, history);
    let python =
        |function: &str, line| Frame::python(function.into(), "/app/main.py".into(), Some(line), Some(line / 10 * 10));
    let other = |kind, function: &str| Frame { module: Some("m".into()), ..Frame::new(kind, function.into()) };
    let frames = [
        python("compute", 11),
        python("receive", 25),
        other(FrameKind::Native, "sock_recv"),
        other(FrameKind::Native, "recv"),
        other(FrameKind::Kernel, "do_syscall_64"),
        other(FrameKind::Kernel, "__x64_sys_recvfrom"),
        other(FrameKind::Kernel, "schedule"),
        python("compute", 13),
    ];
    for (frame, id) in frames.into_iter().zip(0..) {
        model.apply(&Event::Frame { id: FrameId(id), frame });
    }
    for (frames, id) in [&[0][..], &[1, 2, 3, 4, 5, 6], &[7], &[]].into_iter().zip(0..) {
        let frames: Arc<[FrameId]> = frames.iter().map(|id| FrameId(*id)).collect();
        model.apply(&Event::Stack { id: StackId(id), frames });
    }
    let command = "python3 main.py".into();
    let process = Process { pid: Pid(42), ppid: Pid(1), command, python: Some("3.12.1".into()), started: None };
    model.apply(&Event::Process { id: PROCESS, process: process.clone() });
    model
        .apply(&Event::Process { id: ProcessRef(1), process: Process { started: Some(Nanos(9 * SECOND)), ..process } });
    for (tid, name) in [(MAIN, "MainThread"), (IO, "io")] {
        model.apply(&Event::Thread { process: PROCESS, tid, name: name.into() });
    }
    model
}

fn sleep(at: u64, stack: StackId, count: u64, total: u64, length: u64) -> Sleep {
    let (at, total, length) = (Nanos(at), Nanos(total), Nanos(length));
    Sleep {
        from: at.saturating_sub(total),
        stacks: count,
        at,
        process: PROCESS,
        tid: IO,
        stack,
        reason: WaitReason::Io,
        count,
        total,
        length,
        waker: None,
    }
}

/// A piece of a wait of the I/O thread.
fn wait(at: u64, holder: Option<StackId>, count: u64, length: u64) -> GilWait {
    let (at, length) = (Nanos(at), Nanos(length));
    let holder = holder.map(|stack| GilHolder { tid: MAIN, stack });
    GilWait {
        from: at.saturating_sub(length),
        stacks: count,
        at,
        process: PROCESS,
        tid: IO,
        stack: RECEIVE,
        holder,
        count,
        total: length,
        length,
    }
}

fn held(at: u64, tid: Tid, held: u64) -> Event {
    Event::GilHeld { at: Nanos(at), process: PROCESS, tid, held: Nanos(held) }
}

fn times(count: u64, total: u64, max: u64) -> Times {
    Times { count, total: Nanos(total), max: Nanos(max) }
}

/// Everything that a model can answer.
fn digest(model: &Model) {
    let everything = Selection::default();
    for weight in Weight::ALL {
        let look = Look { weight, ..Look::default() };
        assert_eq!(views::tree(model, &everything, look), views::tree(model, &everything, look));
        views::frames(model, &everything, Look { group: Group::Process, ..look });
    }
    for by in [By::Line, By::Function] {
        views::sleeps(model, &everything, by, Group::None);
        views::gil_waits(model, &everything, by, Group::None);
    }
    for share in views::gil_shares(model, &everything).values() {
        assert!((0.0..=1.0).contains(&share.held_share()) && share.wanted_share() >= 0.0);
    }
    Report::new(model, &everything, None);
}

#[test]
fn a_sleep_event_counts_all_sleeps_that_it_represents() {
    let mut model = model(History::All);
    let waker = |tid| Some(Waker { pid: Pid(9), tid: Tid(tid), name: "peer".into() });
    model.apply(&Event::Sleep(Sleep { waker: waker(1), ..sleep(SECOND, RECEIVE, 3, 30 * MS, 12 * MS) }));
    model.apply(&Event::Sleep(Sleep { waker: waker(2), ..sleep(2 * SECOND, RECEIVE, 1, 70 * MS, 70 * MS) }));
    model.apply(&Event::Sleep(Sleep { reason: WaitReason::Poll, ..sleep(2 * SECOND, RECEIVE, 1, MS, MS) }));
    model.advance(Nanos(10 * SECOND));
    let rows = views::sleeps(&model, &Selection::default(), By::Line, Group::None);
    assert_eq!(rows.len(), 2);
    let row = &rows[0];
    assert_eq!((row.tid, row.reason, row.times), (IO, WaitReason::Io, times(4, 100 * MS, 70 * MS)));
    assert!((row.share - 0.01).abs() < 1e-9, "{row:?}");
    assert_eq!(row.waker, waker(2), "the one who ended the longest sleeps together");
    // From 1.5 s on.
    let late = Selection { from: Some(Nanos(SECOND * 3 / 2)), to: Some(Nanos(SECOND * 5 / 2)), ..Selection::default() };
    let rows = views::sleeps(&model, &late, By::Line, Group::None);
    assert_eq!(rows[0].times, times(1, 70 * MS, 70 * MS));
    assert!((rows[0].share - 0.07).abs() < 1e-9, "{rows:?}");
    let other = Selection { tid: Some(MAIN), ..Selection::default() };
    assert!(views::sleeps(&model, &other, By::Line, Group::None).is_empty());
}

#[test]
fn pieces_of_a_sleep_are_one_sleep() {
    let mut model = model(History::All);
    let pieces = [(20, 1, 10, 10), (30, 0, 10, 20), (45, 0, 15, 35), (60, 1, 5, 5)];
    for (at, count, total, length) in pieces {
        model.apply(&Event::Sleep(sleep(at * MS, RECEIVE, count, total * MS, length * MS)));
    }
    let whole = |from: Option<u64>| -> Vec<(u64, u64, u64)> {
        let selection = Selection { from: from.map(|from| Nanos(from * MS)), ..Selection::default() };
        let all = views::whole_sleeps(&model, &selection);
        all.iter().map(|it| (it.at.0 / MS, it.length.0 / MS, it.total.0 / MS)).collect()
    };
    assert_eq!(whole(None), [(45, 35, 35), (60, 5, 5)]);
    assert_eq!(whole(Some(25)), [(45, 20, 20), (60, 5, 5)]);
}

#[test]
fn throttled_time_is_keyed_by_line_whatever_native_code_ran() {
    let mut model = model(History::All);
    for stack in [RECEIVE, COMPUTE] {
        model.apply(&Event::Sleep(Sleep { reason: WaitReason::Throttled, ..sleep(SECOND, stack, 1, MS, MS) }));
    }
    let rows = views::sleeps(&model, &Selection::default(), By::Line, Group::None);
    let places: Vec<_> = rows.iter().map(|row| (row.frame, row.inner)).collect();
    assert_eq!(places, [(Some(FrameId(0)), None), (Some(FrameId(1)), None)]);
}

#[test]
fn waits_of_the_processes_of_a_group_are_one_row() {
    let mut model = model(History::All);
    for (process, user) in [(PROCESS, "ada"), (ProcessRef(1), "ada")] {
        let placement = Placement { user: Some(user.into()), uid: Some(process.0), ..Placement::default() };
        model.apply(&Event::Placement { process, placement });
        for tid in [MAIN, IO] {
            model.apply(&Event::Sleep(Sleep { process, tid, ..sleep(10 * SECOND, RECEIVE, 1, MS, MS) }));
        }
    }
    let rows = |group| -> Vec<(ProcessRef, Tid, u64)> {
        let rows = views::sleeps(&model, &Selection::default(), By::Line, group);
        rows.iter().map(|row| (row.process, row.tid, row.times.count)).collect()
    };
    assert_eq!(rows(Group::None).len(), 4);
    assert_eq!(rows(Group::Process), [(PROCESS, Tid(0), 2), (ProcessRef(1), Tid(0), 2)]);
    for group in [Group::User, Group::Command, Group::Container] {
        assert_eq!(rows(group), [(PROCESS, Tid(0), 4)], "{group:?}");
    }
}

#[test]
fn a_wait_is_keyed_by_line_and_inner_function() {
    let mut model = model(History::All);
    for stack in [RECEIVE, COMPUTE, COMPUTE_MORE, NONE] {
        model.apply(&Event::Sleep(sleep(SECOND, stack, 1, MS, MS)));
    }
    let places = |by| -> Vec<(Option<u32>, Option<u32>)> {
        let rows = views::sleeps(&model, &Selection::default(), by, Group::None);
        rows.iter().map(|row| (row.frame.map(|id| id.0), row.inner.map(|id| id.0))).collect()
    };
    assert_eq!(places(By::Line), [(None, None), (Some(0), None), (Some(1), Some(3)), (Some(7), None)]);
    assert_eq!(places(By::Function)[..2], [(Some(0), None), (None, None)], "two lines of one function");
    let kernel: Arc<[FrameId]> = [1, 4, 5, 6].map(FrameId).into();
    model.apply(&Event::Stack { id: StackId(4), frames: kernel });
    model.apply(&Event::Sleep(sleep(SECOND, StackId(4), 1, 5 * MS, MS)));
    let first = &views::sleeps(&model, &Selection::default(), By::Line, Group::None)[0];
    assert_eq!(first.inner, Some(FrameId(5)), "the system call, for `schedule` says nothing");
}

#[test]
fn pieces_of_a_gil_wait_are_one_wait() {
    let mut model = model(History::All);
    for (at, holder, count) in [(5, COMPUTE, 1), (10, COMPUTE, 0), (15, COMPUTE_MORE, 0), (100, COMPUTE_MORE, 1)] {
        model.apply(&Event::GilWait(wait(at * MS, Some(holder), count, 5 * MS)));
    }
    // Pieces of another thread in between do not belong to this wait.
    model.apply(&Event::GilWait(GilWait { tid: MAIN, ..wait(12 * MS, None, 1, 90 * MS) }));
    let sums = |selection: &Selection| -> Vec<(Option<u32>, Times)> {
        let sums = model.gil().sums(selection).into_iter().filter(|(key, _)| key.waiter.tid == IO);
        sums.map(|(key, sum)| (key.holder.map(|holder| holder.stack.0), sum.times)).collect()
    };
    let (first, second) = ((Some(0), times(1, 10 * MS, 15 * MS)), (Some(2), times(1, 10 * MS, 15 * MS)));
    assert_eq!(sums(&Selection::default()), [first, second]);
    // A wait that began before the selection continues in it.
    let late = Selection { from: Some(Nanos(8 * MS)), to: Some(Nanos(50 * MS)), ..Selection::default() };
    assert_eq!(sums(&late), [(Some(0), times(0, 2 * MS, 7 * MS)), (Some(2), times(0, 5 * MS, 7 * MS))]);
    let rows = views::gil_waits(&model, &Selection::default(), By::Function, Group::None);
    let behind: Vec<&GilRow> = rows.iter().filter(|row| row.holder == Some(MAIN)).collect();
    assert_eq!((behind.len(), behind[0].times), (1, times(2, 20 * MS, 15 * MS)));
    assert_eq!((behind[0].frame, behind[0].holder_frame), (Some(FrameId(1)), Some(FrameId(0))));
}

#[test]
fn gil_shares_relate_to_the_time_the_process_was_watched() {
    let mut model = model(History::All);
    model.apply(&held(2 * SECOND, MAIN, SECOND));
    model.apply(&held(4 * SECOND, MAIN, SECOND));
    model.apply(&held(4 * SECOND, IO, SECOND / 2));
    model.apply(&Event::GilWait(wait(4 * SECOND, None, 1, 3 * SECOND)));
    model.apply(&Event::GilWait(GilWait { tid: MAIN, ..wait(4 * SECOND, None, 1, 3 * SECOND) }));
    model.apply(&Event::GilHeld { at: Nanos(10 * SECOND), process: ProcessRef(1), tid: Tid(7), held: Nanos(SECOND) });
    model.apply(&Event::ProcessEnd { id: PROCESS, at: Nanos(5 * SECOND) });
    model.advance(Nanos(11 * SECOND));
    let shares = views::gil_shares(&model, &Selection::default());
    let share = &shares[&PROCESS];
    assert_eq!((share.observed, share.held), (Nanos(5 * SECOND), Nanos(SECOND * 5 / 2)));
    assert_eq!((share.held_share(), share.wanted_share()), (0.5, 1.2));
    assert_eq!(share.holder().map(|(tid, thread)| (tid, thread.held.0)), Some((MAIN, 2 * SECOND)));
    assert_eq!(shares[&ProcessRef(1)].held_share(), 0.5, "it started when 9 of 11 seconds were over");
    let some = Selection { from: Some(Nanos(3 * SECOND)), to: Some(Nanos(9 * SECOND)), ..Selection::default() };
    assert_eq!(views::gil_shares(&model, &some)[&PROCESS].observed, Nanos(2 * SECOND));
}

#[test]
fn calls_ignore_the_selected_thread() {
    let mut model = model(History::All);
    let calls = |at, count, max| Calls {
        at: Nanos(at),
        process: PROCESS,
        function: FrameId(0),
        count,
        timed: count - 1,
        total: Nanos(100),
        max: Nanos(max),
    };
    model.apply(&Event::Calls(calls(1, 10, 60)));
    model.apply(&Event::Calls(calls(2, 5, 40)));
    let of_thread = Selection { tid: Some(MAIN), ..Selection::default() };
    for selection in [Selection::default(), of_thread] {
        let sums: Vec<_> = model.eval().sums(&selection).into_values().collect();
        assert_eq!(sums.iter().map(|sum| (sum.times, sum.timed)).collect::<Vec<_>>(), [(times(15, 200, 60), 13)]);
    }
    let first = Selection { to: Some(Nanos(2)), ..Selection::default() };
    assert_eq!(model.eval().sums(&first).into_values().next().unwrap().times.count, 10);
    assert_eq!(Report::new(&model, &first, None).calls.unwrap()[0].line, Some(11));
}

#[test]
fn a_window_forgets_waits_and_calls() {
    let mut model = model(History::Window { length: Nanos(10 * SECOND), samples: 3 });
    for at in 1..=5 {
        model.apply(&Event::Sleep(sleep(at * SECOND, RECEIVE, 1, MS, MS)));
        model.apply(&Event::GilWait(wait(at * SECOND, None, 1, MS)));
        model.apply(&held(at * SECOND, MAIN, SECOND));
    }
    let counts = |model: &Model| {
        let everything = Selection::default();
        let sleeps = model.offcpu().sleeps(&everything).count();
        (sleeps, model.gil().waits(&everything).count(), model.gil().held(&everything).values().map(|it| it.0).sum())
    };
    assert_eq!(counts(&model), (3, 3, 3 * SECOND), "never more than the limit");
    let share = &views::gil_shares(&model, &Selection::default())[&PROCESS];
    assert_eq!(share.observed, Nanos(3 * SECOND), "what was held before 2 s is forgotten");
    model.advance(Nanos(14 * SECOND + 1));
    assert_eq!(counts(&model), (1, 1, SECOND));
    model.advance(Nanos(20 * SECOND));
    assert_eq!(counts(&model), (0, 0, 0));
}

#[test]
fn frames_and_trees_use_the_requested_weight() {
    let mut model = model(History::All);
    let outcome = Outcome::Complete;
    model.apply(&Event::Sample(Sample {
        at: Nanos(1),
        process: PROCESS,
        tid: MAIN,
        cpu: 0,
        stack: COMPUTE,
        weight: Nanos(10_101_010),
        turn_us: None,
        outcome,
    }));
    model.apply(&Event::Sleep(sleep(2, RECEIVE, 2, 700, 400)));
    model.apply(&Event::Sleep(sleep(3, COMPUTE_MORE, 1, 50, 50)));
    model.apply(&Event::GilWait(wait(4, Some(COMPUTE), 1, 30)));
    let everything = Selection::default();
    for (weight, total, leaf) in [(Weight::Cpu, 10_101_010, 0), (Weight::OffCpu, 750, 1), (Weight::Gil, 30, 1)] {
        let look = Look { by: By::Line, native: Native::None, weight, ..Look::default() };
        let view = views::frames(&model, &everything, look);
        assert_eq!((view.total, view.rows[0].frame), (total, FrameId(leaf)), "{weight}");
        let tree = views::tree(&model, &everything, look);
        assert_eq!(tree.nodes[0].total, total, "{weight}");
        assert_eq!(weight.pieces(&model, &everything).map(|(_, _, weight)| weight).sum::<u64>(), total);
    }
}

#[test]
fn undefined_ids_are_ignored_and_sums_do_not_overflow() {
    let mut model = model(History::All);
    let (nobody, nowhere) = (ProcessRef(9), StackId(9));
    for event in [
        Event::Sleep(Sleep { process: nobody, ..sleep(1, RECEIVE, 1, 1, 1) }),
        Event::Sleep(sleep(1, nowhere, 1, 1, 1)),
        Event::GilWait(GilWait { process: nobody, ..wait(1, None, 1, 1) }),
        Event::GilWait(GilWait { stack: nowhere, ..wait(1, None, 1, 1) }),
        Event::GilWait(wait(1, Some(nowhere), 1, 1)),
        Event::GilHeld { at: Nanos(1), process: nobody, tid: MAIN, held: Nanos(1) },
    ] {
        model.apply(&event);
    }
    let max = Nanos(u64::MAX);
    let calls = Calls { at: max, process: PROCESS, function: FrameId(0), count: max.0, timed: max.0, total: max, max };
    model.apply(&Event::Calls(Calls { process: nobody, ..calls }));
    model.apply(&Event::Calls(Calls { function: FrameId(99), ..calls }));
    {
        let report = Report::new(&model, &Selection::default(), None);
        assert_eq!((report.offcpu.unwrap().len(), report.gil.unwrap().len(), report.calls.unwrap().len()), (0, 0, 0));
    }
    for _ in 0..3 {
        model.apply(&Event::Sleep(sleep(max.0, RECEIVE, max.0, max.0, max.0)));
        model.apply(&Event::Sleep(sleep(max.0, COMPUTE, max.0, max.0, max.0)));
        model.apply(&Event::GilWait(wait(max.0, Some(COMPUTE), 0, max.0)));
        model.apply(&Event::GilWait(wait(0, Some(COMPUTE), max.0, max.0)));
        model.apply(&held(max.0, MAIN, max.0));
        model.apply(&Event::Calls(calls));
        digest(&model);
    }
    // A process that was watched for no time at all.
    model.apply(&Event::ProcessEnd { id: PROCESS, at: Nanos(0) });
    digest(&model);
}

/// One thread computes for 10 s. Another needs the GIL `waits` times, waits `waited` each time and uses it for `used`.
fn convoy(waits: u64, waited: u64, used: u64, computed: u64) -> Model {
    let mut model = model(History::All);
    for round in 1..=waits {
        let at = 10 * SECOND * round / waits;
        model.apply(&Event::GilWait(wait(at, Some(if round % 4 == 0 { COMPUTE_MORE } else { COMPUTE }), 1, waited)));
        model.apply(&held(at, IO, used));
    }
    model.apply(&held(10 * SECOND, MAIN, computed));
    model.advance(Nanos(10 * SECOND));
    model
}

#[test]
fn a_convoy_is_found_and_named() {
    let found = findings::find(&convoy(400, 5 * MS, MS / 10, 9 * SECOND), &Selection::default());
    assert_eq!(found.len(), 1);
    let finding = &found[0];
    assert_eq!((finding.id, finding.severity, finding.pid), ("gil/convoy", Severity::Warning, Some(Pid(42))));
    assert_eq!(finding.summary, "thread 43 (io) waits 5.0 ms for the GIL each time, behind 42 (MainThread)");
    for part in [
        "43 (io) waited 400 times for the GIL, 5.0 ms on average and 2.00 s of 10.00 s in all (20%)",
        "mostly at receive (/app/main.py:25)",
        "42 (MainThread) held it 90% of the time, mostly at compute (/app/main.py:11)",
    ] {
        assert!(finding.detail.contains(part), "{part}: {}", finding.detail);
    }
    let serious = findings::find(&convoy(1200, 5 * MS, MS / 10, 9 * SECOND), &Selection::default());
    assert_eq!(serious[0].severity, Severity::Serious);
}

/// The computing thread gets half of a CPU, and keeps the GIL while it waits for the CPU.
#[test]
fn a_convoy_on_a_busy_machine_is_found() {
    let of = |asleep: u64| {
        let mut model = convoy(400, 5 * MS, MS / 10, 4 * SECOND);
        for tick in 0..4 * 99 {
            let (at, outcome) = (Nanos(tick * 25 * MS), Outcome::Complete);
            model.apply(&Event::Sample(Sample {
                at,
                process: PROCESS,
                tid: MAIN,
                cpu: 0,
                stack: COMPUTE,
                weight: Nanos(10_101_010),
                turn_us: None,
                outcome,
            }));
        }
        model.apply(&Event::Sleep(Sleep { tid: MAIN, ..sleep(9 * SECOND, NONE, 1, asleep, asleep) }));
        findings::find(&model, &Selection::default())
    };
    let [finding] = &of(0)[..] else { panic!() };
    assert!(finding.detail.contains("(MainThread) held it 100% of the time"), "{}", finding.detail);
    assert_eq!(of(7 * SECOND), [], "it sleeps most of the time");
}

#[test]
fn threads_waiting_behind_one_share_a_finding() {
    let mut model = convoy(400, 5 * MS, MS / 10, 9 * SECOND);
    for (tid, waited) in [(50, 6 * MS), (51, 4 * MS), (52, 3 * MS)] {
        for round in 1..=400 {
            let wait = wait(10 * SECOND * round / 400, Some(COMPUTE), 1, waited);
            model.apply(&Event::GilWait(GilWait { tid: Tid(tid), ..wait }));
        }
    }
    let found = findings::find(&model, &Selection::default());
    let [finding] = &found[..] else { panic!("{found:#?}") };
    assert_eq!(finding.summary, "4 threads, such as 50, wait 6.0 ms for the GIL each time, behind 42 (MainThread)");
    assert!(finding.detail.contains("So did 43 (io) 2.00 s, 51 1.60 s, 52 1.20 s."), "{}", finding.detail);
    assert_eq!(finding.evidence["waiter_tids"], findings::Evidence::Text("50 43 51 52".to_owned()));
    assert_eq!(finding.evidence["waits"], findings::Evidence::Count(1600));
}

#[test]
fn the_finding_says_what_the_holder_does() {
    let of = |ran: u64, asleep: u64| {
        let mut model = convoy(100, 50 * MS, MS / 10, ran.min(SECOND));
        for tick in 0..ran * 100 / SECOND {
            let (at, outcome, weight) = (Nanos(tick * 10 * MS), Outcome::Complete, Nanos(10 * MS));
            let (process, tid, stack) = (PROCESS, MAIN, COMPUTE);
            model.apply(&Event::Sample(Sample { at, process, tid, cpu: 0, stack, weight, turn_us: None, outcome }));
        }
        model.apply(&held(9 * SECOND, MAIN, ran));
        model.apply(&Event::Sleep(Sleep { tid: MAIN, ..sleep(9 * SECOND, COMPUTE, 1, asleep, asleep) }));
        for round in 1..=100 {
            model.apply(&Event::GilWait(wait(10 * SECOND * round / 100, Some(COMPUTE), 1, 10 * MS)));
        }
        let found = findings::find(&model, &Selection::default());
        let [finding] = &found[..] else { panic!("{found:#?}") };
        finding.detail.clone()
    };
    for (ran, asleep, said) in [
        (9 * SECOND, 0, "the holder runs native code that keeps the GIL."),
        (3 * SECOND, 0, "It was runnable for 10.00 s and got the CPU for 3.00 s of it"),
        (SECOND, 9 * SECOND, "It slept for at least 5.00 s of that time, in code that keeps the GIL."),
    ] {
        let detail = of(ran, asleep);
        assert!(detail.contains(said) && !detail.contains("gives the GIL away when"), "{said}: {detail}");
    }
}

#[test]
fn other_waits_are_not_a_convoy() {
    for (why, model) in [
        ("nobody computes", convoy(400, 5 * MS, MS / 10, 4 * SECOND)),
        ("seldom", convoy(19, 200 * MS, MS / 10, 9 * SECOND)),
        ("the waits are short", convoy(1600, 19 * MS / 10, MS / 10, 9 * SECOND)),
        ("little is lost", convoy(180, 5 * MS, MS / 10, 9 * SECOND)),
        ("both compute", convoy(900, 5 * MS, 4 * MS, 6 * SECOND)),
    ] {
        assert_eq!(findings::find(&model, &Selection::default()), [], "{why}");
    }
    let mut elsewhere = convoy(400, 5 * MS, MS / 10, 9 * SECOND);
    let holder = Some(GilHolder { tid: Tid(77), stack: COMPUTE });
    elsewhere.apply(&Event::GilWait(GilWait { holder, ..wait(10 * SECOND, None, 1, 3 * SECOND) }));
    assert_eq!(findings::find(&elsewhere, &Selection::default()), [], "another one held it");
}

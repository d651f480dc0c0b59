//! A report from sums and the latest events says what one from all events says.

use std::collections::BTreeMap;

use pyobs_model::report::Report;
use pyobs_model::views::Weight;
use pyobs_model::*;

const MS: u64 = 1_000_000;
const THREADS: u64 = 5;
const STACKS: u64 = 40;
/// Three times as many events of each kind as are kept one by one.
const COUNT: u64 = 3 << 16;

fn model(history: History) -> Model {
    let mut model = empty(history);
    begin(0, &mut model);
    for number in 0..COUNT {
        step(ProcessRef(0), number, &mut model);
        if number == COUNT / 2 {
            overlap(&mut model);
        }
    }
    model
}

fn begin(id: u32, model: &mut Model) {
    let (pid, python) = (Pid(7 + id), Some("3.12.1".into()));
    let process = Process { pid, ppid: Pid(1), command: "python".into(), python, started: None };
    model.apply(&Event::Process { id: ProcessRef(id), process });
}

/// Stacks of two frames each.
fn empty(history: History) -> Model {
    let meta = Meta { rate_hz: 99, cpus: 2, probes: Family::names(), ..Meta::default() };
    let mut model = Model::new(meta, history);
    for id in 0..STACKS as u32 {
        let line = Some(id + 1);
        let frame = Frame::python(format!("f{id}").into(), "/app/main.py".into(), line, line);
        model.apply(&Event::Frame { id: FrameId(id), frame });
        model.apply(&Event::Stack { id: StackId(id), frames: [FrameId(0), FrameId(id)].into() });
    }
    model
}

fn step(process: ProcessRef, number: u64, model: &mut Model) {
    let (from, at) = (Nanos(number * MS), Nanos(number * MS + MS / 2));
    let (tid, stack) = (Tid((number % THREADS) as u32), StackId((number * 7 % STACKS) as u32));
    let (weight, outcome) = (Nanos(MS), Outcome::Complete);
    model.apply(&Event::Sample(Sample { at, process, tid, cpu: 0, stack, weight, turn_us: None, outcome }));
    let (reason, count, total, length, stacks) = (WaitReason::Io, 1, Nanos(number % 900), Nanos(number % 900), 1);
    let waker = Some(Waker { pid: Pid(7), tid: Tid((number % 2) as u32), name: "w".into() });
    model.apply(&Event::Sleep(Sleep { from, at, process, tid, stack, reason, count, total, length, stacks, waker }));
    // Waits of several pieces, so that some are folded in part.
    let (holder, count) = (Some(GilHolder { tid: Tid(9), stack }), u64::from((number / THREADS).is_multiple_of(4)));
    model.apply(&Event::GilWait(GilWait { from, at, process, tid, stack, holder, count, total, length, stacks }));
    model.apply(&Event::GilHeld { at, process, tid, held: total });
    let function = FrameId((number % STACKS) as u32);
    model.apply(&Event::Calls(Calls { at, process, function, count: 2, timed: 1, total, max: total }));
    let touched = Some(Touched::Array("float64 8x40".into()));
    model.apply(&Event::Access(Access { at, process, tid, stack, weight: 1, touched, stores: true, element_of: None }));
    // The stores of every other stack are redundant.
    if number.is_multiple_of(64) {
        let (kind, touched, equal) =
            (PairKind::Store, Touched::Array("float64 8x40".into()), (number / 64).is_multiple_of(2));
        let (first, second) = (stack, StackId(u32::from(equal) * 7 + 1));
        let (bytes, unread, address) = (8, None, None);
        model.apply(&Event::Pair(Pair {
            at,
            process,
            tid,
            first,
            second,
            kind,
            touched,
            equal,
            bytes,
            unread,
            address,
        }));
    }
}

/// Two sleeps and waits of several kinds that begin before a range and fill more of it than there is.
fn overlap(model: &mut Model) {
    let (process, tid, stack, from, at) = (ProcessRef(0), Tid(1), StackId(3), Nanos(0), Nanos(COUNT * MS / 2));
    let (count, total, length, stacks) = (100, Nanos(COUNT * MS / 2 - 1000 * MS), Nanos(900 * MS), 100);
    for _ in 0..2 {
        let (reason, waker) = (WaitReason::Lock, None);
        model.apply(&Event::Sleep(Sleep {
            from,
            at,
            process,
            tid,
            stack,
            reason,
            count,
            total,
            length,
            stacks,
            waker,
        }));
        let holder = None;
        model.apply(&Event::GilWait(GilWait { from, at, process, tid, stack, holder, count, total, length, stacks }));
    }
}

/// Sums and few single events of a range say what all events say of it.
#[test]
fn sums_cover_a_range() {
    let (from, to) = (Some(Nanos(COUNT * MS / 4 + MS / 4)), Some(Nanos(COUNT * MS / 8 * 7)));
    let (all, sums) = (model(History::All), model(History::Sums { events: 1000, from, to }));
    let range = Selection { from, to, ..Selection::default() };
    let (expected, found) = (Report::new(&all, &range, None), Report::new(&sums, &range, None));
    assert_eq!(found.offcpu, expected.offcpu);
    assert_eq!(found.gil, expected.gil);
    assert_eq!(found.calls, expected.calls);
    assert_eq!(found.redundancy, expected.redundancy);
    for (found, expected) in found.processes.iter().zip(&expected.processes) {
        assert_eq!((found.samples, found.cpu_s, &found.gil), (expected.samples, expected.cpu_s, &expected.gil));
        assert_eq!(found.threads, expected.threads);
    }
    for weight in Weight::ALL {
        assert_eq!(weight.sums(&sums, &range), weight.sums(&all, &range), "{weight}");
        assert!(weight.pieces(&sums, &range).count() <= 1000, "{weight}");
    }
    assert!(!Weight::Redundant.sums(&all, &range).is_empty());
    let waited = sums.offcpu().threads(&range)[&(ProcessRef(0), Tid(1), WaitReason::Lock)].total;
    assert!(waited < to.unwrap().saturating_sub(from.unwrap()), "{waited:?} is scaled to the time");
    // Of another time only the single events are known.
    let other = Selection { from: None, ..range.clone() };
    assert!(sums.cpu().sums(&other).into_values().map(|sum| sum.samples).sum::<u64>() <= 1000);
    assert!(sums.cpu().since(&other) > Nanos(0) && sums.cpu().since(&range) == Nanos(0));
}

#[test]
fn sums_are_of_all_events() {
    let (all, sums) = (model(History::All), model(History::REPORT));
    let report = |model| Report::new(model, &Selection::default(), None);
    let (expected, found) = (report(&all), report(&sums));
    assert_eq!(found.offcpu, expected.offcpu);
    assert_eq!(found.gil, expected.gil);
    assert_eq!(found.calls, expected.calls);
    assert_eq!(found.stacks, expected.stacks);
    assert_eq!(found.redundancy, expected.redundancy);
    for (found, expected) in found.processes.iter().zip(&expected.processes) {
        assert_eq!((found.samples, found.cpu_s, &found.gil), (expected.samples, expected.cpu_s, &expected.gil));
        assert_eq!(found.threads, expected.threads);
    }
    let counts = |report: &Report<'_>| {
        let mut frames: Vec<_> =
            report.frames.iter().flatten().map(|row| (row.frame.line, row.own, row.total)).collect();
        frames.sort_unstable();
        frames
    };
    assert_eq!(counts(&found), counts(&expected));
    assert!(expected.summed.is_empty());
    assert_eq!(found.summed["samples"], COUNT - EVENTS_KEPT as u64);
    assert!(!found.summed.contains_key("places") && found.left_out.is_empty());
    let parts = Selection { tid: Some(Tid(1)), ..Selection::default() };
    let of_thread = |model| Report::new(model, &parts, None).offcpu.unwrap().to_vec();
    assert_eq!(of_thread(&sums), of_thread(&all));
}

/// The sums by stack or function of everything but accesses, whose lines have a bound of their own.
fn by_stack(model: &Model) -> BTreeMap<(&'static str, u32), [u64; 2]> {
    let (all, mut sums) = (Selection::default(), BTreeMap::new());
    let mut add = |kind, of: u32, count: u64, total: Nanos| {
        let [counts, totals]: &mut [u64; 2] = sums.entry((kind, of)).or_default();
        (*counts, *totals) = (*counts + count, *totals + total.0);
    };
    for (place, sum) in model.cpu().sums(&all) {
        add("samples", place.stack.0, sum.samples, sum.time);
    }
    for (key, sum) in model.offcpu().sums(&all) {
        add("sleeps", key.place.stack.0, sum.times.count, sum.times.total);
    }
    for (key, sum) in model.gil().sums(&all) {
        add("waits", key.waiter.stack.0, sum.times.count, sum.times.total);
    }
    for held in model.gil().held(&all).into_values() {
        add("held", 0, 0, held);
    }
    for (key, sum) in model.eval().sums(&all) {
        add("calls", key.function.0, sum.times.count, sum.times.total);
    }
    sums
}

#[test]
fn what_many_processes_did_is_summed_as_if_one_had_done_it() {
    const EACH: u64 = 3;
    let (mut one, mut many) = (empty(History::REPORT), empty(History::REPORT));
    begin(0, &mut one);
    for id in 0..(COUNT / EACH) as u32 {
        begin(id, &mut many);
        // The stack is the same at each step.
        let first = u64::from(id) * EACH * STACKS;
        for number in (first..).step_by(STACKS as usize).take(EACH as usize) {
            step(ProcessRef(0), number + u64::from(id) % STACKS, &mut one);
            step(ProcessRef(id), number + u64::from(id) % STACKS, &mut many);
        }
        many.apply(&Event::ProcessEnd { id: ProcessRef(id), at: Nanos((first + EACH * STACKS) * MS) });
    }
    assert!(many.processes().count() <= (1 << 14) + 1 && many.summed()["processes"] > COUNT / EACH / 2);
    assert_eq!(by_stack(&many), by_stack(&one));
    let everyone = many.processes().map(|(_, state)| state.samples).sum::<u64>();
    assert_eq!((everyone, many.process_counts()), (COUNT, (COUNT / EACH, COUNT / EACH)));
    // Late events of one that is no longer known by itself.
    step(ProcessRef(1), COUNT * STACKS, &mut many);
    step(ProcessRef(0), COUNT * STACKS, &mut one);
    assert_eq!(by_stack(&many), by_stack(&one));
}

//! What counts as a change between two recordings, and what does not.

use std::sync::Arc;

use pyobs_model::diff::{Diff, Verdict};
use pyobs_model::*;

const MS: u64 = 1_000_000;

/// The given number of samples of each function in turn, and `sleeps` sleeps of 1 ms in the last function, 100 ms
/// apart.
fn model(folder: &str, functions: &[(&str, u64)], sleeps: u64) -> Model {
    let probes = Family::names();
    let meta = Meta { rate_hz: 100, cpus: 2, probes, ..Meta::default() };
    let mut model = Model::new(meta, History::All);
    let process = Process { pid: Pid(7), ppid: Pid(1), command: "python".into(), python: None, started: None };
    model.apply(&Event::Process { id: ProcessRef(0), process });
    let mut at = 0;
    for ((function, samples), id) in functions.iter().zip(0..) {
        let file = format!("{folder}/main.py").into();
        let frame = Frame::python((*function).into(), file, Some(id), Some(id));
        model.apply(&Event::Frame { id: FrameId(id), frame });
        model.apply(&Event::Stack { id: StackId(id), frames: Arc::from([FrameId(id)]) });
        for _ in 0..*samples {
            at += 10 * MS;
            let (process, tid, stack) = (ProcessRef(0), Tid(7), StackId(id));
            model.apply(&Event::Sample(Sample {
                at: Nanos(at),
                process,
                tid,
                cpu: 0,
                stack,
                weight: Nanos(10_000_000),
                turn_us: None,
                outcome: Outcome::Complete,
            }));
        }
    }
    let stack = StackId(functions.len() as u32 - 1);
    for sleep in 1..=sleeps {
        model.apply(&Event::Sleep(Sleep {
            from: Nanos(sleep * 100 * MS).saturating_sub(Nanos(MS)),
            stacks: 1,
            at: Nanos(sleep * 100 * MS),
            process: ProcessRef(0),
            tid: Tid(7),
            stack,
            reason: WaitReason::Io,
            count: 1,
            total: Nanos(MS),
            length: Nanos(MS),
            waker: None,
        }));
    }
    model
}

/// Transfers that were pending for `micros` to twice as many microseconds.
fn transfers(model: &mut Model, micros: u64) {
    for id in 0..1000 {
        let submitted = id * MS;
        let transfer = Transfer {
            process: ProcessRef(0),
            library: Library::Ucx,
            operation: Operation::TagSend,
            bytes: 8,
            tag: None,
            through: 0,
            buffer: 0,
            registered: None,
            submitted: Some(Nanos(submitted)),
            completed: Some(Nanos(submitted + (micros + id * micros / 1000) * 1000)),
            immediate: false,
            status: Some(0),
            tid: Tid(7),
            submitter: Some(Tid(7)),
            completer: Some(Tid(7)),
            protocol: None,
            parent: None,
            hash: None,
        };
        let change = TransferChange::Seen(Box::new(transfer));
        model.apply(&Event::Transfer { at: Nanos(submitted), id: TransferId(id), change });
    }
}

/// The functions whose own share changed.
fn verdicts(diff: &Diff) -> Vec<(&str, Verdict)> {
    let rows = diff.frames.as_ref().map_or(&[][..], |rows| &rows.changed);
    rows.iter().filter_map(|row| Some((&*row.place.function, row.own.verdict?))).collect()
}

#[test]
fn the_same_recording_or_another_run_is_no_change() {
    let one = model("/a", &[("f", 500), ("g", 300), ("h", 200)], 40);
    let diff = Diff::new(&one, &one);
    assert!(!diff.changed);
    assert_eq!(diff.frames.map(|rows| rows.compared), Some(3));
    // The differences are within chance, and the folder differs.
    let other = model("/b", &[("startup", 3), ("f", 520), ("g", 270), ("h", 215)], 45);
    let diff = Diff::new(&one, &other);
    assert!(!diff.changed, "{diff:#?}");
}

#[test]
fn changes_beyond_chance_are_listed_largest_first() {
    let before = model("/a", &[("f", 500), ("g", 300), ("old", 200)], 0);
    let after = model("/a", &[("f", 200), ("g", 700), ("young", 100)], 0);
    let diff = Diff::new(&before, &after);
    let expected = [("g", Verdict::More), ("f", Verdict::Less), ("old", Verdict::Gone), ("young", Verdict::New)];
    assert!(diff.changed);
    assert_eq!(verdicts(&diff), expected);
}

#[test]
fn more_work_per_second_changes_the_total() {
    // Both take 20 s.
    let before = model("/a", &[("f", 500)], 200);
    let after = model("/a", &[("f", 1500)], 200);
    let cpu = Diff::new(&before, &after).totals.cpu_per_s;
    assert_eq!(cpu.and_then(|delta| delta.verdict), Some(Verdict::More));
}

#[test]
fn sleeps_are_compared_per_second() {
    let functions = [("f", 1000)];
    let (none, some) = (model("/a", &functions, 0), model("/a", &functions, 100));
    let verdict = |before: &Model, after: &Model| {
        let rows = Diff::new(before, after).offcpu.map(|rows| rows.changed).unwrap_or_default();
        rows.first().and_then(|row| row.per_s.verdict)
    };
    assert_eq!(verdict(&none, &some), Some(Verdict::New));
    assert_eq!(verdict(&some, &none), Some(Verdict::Gone));
    assert_eq!(verdict(&none, &model("/a", &functions, 3)), None, "three may be chance");
}

#[test]
fn percentiles_of_transfers_are_compared() {
    let functions = [("f", 1000)];
    let side = |micros| {
        let mut model = model("/a", &functions, 0);
        transfers(&mut model, micros);
        model
    };
    let diff = Diff::new(&side(100), &side(300));
    let rows = diff.transfers.map(|rows| rows.changed).unwrap_or_default();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].stage, rows[0].operation), ("pending", Operation::TagSend));
    for delta in [rows[0].p50, rows[0].p90, rows[0].p99] {
        assert!(delta.is_none_or(|delta| delta.verdict == Some(Verdict::More)), "{delta:?}");
    }
    assert!(rows[0].p50.is_some());
    assert!(!Diff::new(&side(100), &side(104)).changed);
}

#[test]
fn families_off_in_one_recording_are_not_compared() {
    let full = model("/a", &[("f", 500)], 0);
    let meta = Meta { probes: vec!["cpu".into()], ..full.meta().clone() };
    let diff = Diff::new(&full, &Model::new(meta, History::All));
    assert!(diff.offcpu.is_none() && diff.transfers.is_none() && diff.frames.is_some());
}

/// Adds arenas and segments that the first function creates and never frees, and pairs of stores in it, `equal` of
/// which are redundant.
fn memory(model: &mut Model, count: u64, equal: u64) {
    for id in 0..count {
        let (at, process) = (Nanos(id * MS), ProcessRef(0));
        let (address, bytes) = (id << 20, 1 << 20);
        let arena = Arena { process, kind: "pymalloc".into(), address, bytes, born: true, parent: None };
        for change in [ArenaChange::Begun(arena), ArenaChange::Born(StackId(0))] {
            model.apply(&Event::Arena { at, id: ArenaId(id as u32), change });
        }
        let (kind, creator) = (SegmentKind::Shm, Some(Pid(7)));
        let segment = Segment { dev: 1, ino: id, generation: 0, kind, name: None, linked: true, bytes, creator };
        for change in [SegmentChange::Begun(segment), SegmentChange::Born(StackId(0))] {
            model.apply(&Event::Segment { at, id: SegmentId(id as u32), change });
        }
    }
    for pair in 0..200 {
        let (process, tid, first, second) = (ProcessRef(0), Tid(7), StackId(0), StackId(0));
        let (kind, touched, unread) = (PairKind::Store, Touched::Unknown, None);
        let (at, equal, address, bytes) = (Nanos(pair * MS), pair < equal, None, 8);
        let pair = Pair { at, process, tid, first, second, kind, touched, address, bytes, equal, unread };
        model.apply(&Event::Pair(pair));
    }
}

#[test]
fn births_and_redundant_pairs_are_compared_by_place() {
    let side = |count, equal| {
        let mut model = model("/a", &[("f", 1000)], 0);
        memory(&mut model, count, equal);
        model
    };
    let diff = Diff::new(&side(10, 20), &side(100, 180));
    let arenas = diff.arenas.map(|rows| rows.changed).unwrap_or_default();
    let more = Some(Verdict::More);
    assert_eq!(arenas.iter().map(|row| (row.born.verdict, row.kept.verdict)).collect::<Vec<_>>(), [(more, more)]);
    assert_eq!((arenas[0].kept_bytes_before, arenas[0].kept_bytes_after), (10 << 20, 100 << 20));
    let segments = diff.segments.map(|rows| rows.changed).unwrap_or_default();
    assert_eq!(segments.iter().map(|row| row.made.verdict).collect::<Vec<_>>(), [more]);
    assert_eq!(segments[0].place.as_ref().map(|place| &*place.function), Some("f"));
    let pairs = diff.redundancy.map(|rows| rows.changed).unwrap_or_default();
    assert_eq!(pairs.iter().map(|row| (row.equal.verdict, row.equal.after)).collect::<Vec<_>>(), [(more, 0.9)]);
    let diff = Diff::new(&side(10, 100), &side(12, 110));
    assert!(!diff.changed, "{diff:#?}");
}

/// Waits of 5 ms for the GIL, 100 ms apart, of the first function behind the second.
fn gil_waits(count: u64) -> Model {
    let mut model = model("/a", &[("asks", 500), ("holds", 500)], 0);
    for wait in 1..=count {
        let (at, process, tid, total) = (Nanos(wait * 100 * MS), ProcessRef(0), Tid(7), Nanos(5 * MS));
        let holder = Some(GilHolder { tid: Tid(8), stack: StackId(1) });
        let wait = GilWait {
            from: at.saturating_sub(total),
            stacks: 1,
            at,
            process,
            tid,
            stack: StackId(0),
            holder,
            count: 1,
            total,
            length: total,
        };
        model.apply(&Event::GilWait(wait));
    }
    model
}

#[test]
fn waits_for_the_gil_are_compared_by_waiter_and_holder() {
    let rows = |before, after| Diff::new(&gil_waits(before), &gil_waits(after)).gil.unwrap();
    for (before, after, verdict) in
        [(20, 95, Verdict::More), (95, 20, Verdict::Less), (0, 95, Verdict::New), (95, 0, Verdict::Gone)]
    {
        let rows = rows(before, after);
        let [row] = &rows.changed[..] else { panic!("{rows:#?}") };
        assert_eq!((rows.compared, row.per_s.verdict), (1, Some(verdict)), "{before} {after}");
        let functions = [&row.waiter, &row.holder].map(|place| &*place.as_ref().unwrap().function);
        assert_eq!((functions, row.count_before, row.count_after), (["asks", "holds"], before, after));
        // In 10 s.
        assert!((row.per_s.after - after as f64 * 0.0005).abs() < 1e-9, "{row:?}");
    }
    assert_eq!(rows(60, 65).changed, []);
    assert_eq!(rows(0, 3).changed, [], "three may be chance");
}

#[test]
fn every_list_reports_less_and_gone() {
    let side = |count, equal| {
        let mut model = model("/a", &[("f", 1000)], 0);
        memory(&mut model, count, equal);
        model
    };
    for (after, equal, verdict) in [(10, 20, Verdict::Less), (0, 0, Verdict::Gone)] {
        let diff = Diff::new(&side(100, 180), &side(after, equal));
        let verdict = Some(verdict);
        let arenas = diff.arenas.unwrap().changed;
        assert_eq!(
            arenas.iter().map(|row| (row.born.verdict, row.kept.verdict)).collect::<Vec<_>>(),
            [(verdict, verdict)]
        );
        assert_eq!((arenas[0].kept_bytes_before, arenas[0].kept_bytes_after), (100 << 20, after << 20));
        let segments = diff.segments.unwrap().changed;
        let told = segments.iter().map(|row| (row.kind, row.made.verdict, row.residue.verdict));
        assert_eq!(told.collect::<Vec<_>>(), [(SegmentKind::Shm, verdict, verdict)]);
        assert_eq!((segments[0].bytes_before, segments[0].bytes_after), (100 << 20, after << 20));
        let pairs = diff.redundancy.unwrap().changed;
        let told = pairs.iter().map(|row| (row.equal.verdict, row.redundant_bytes_before, row.redundant_bytes_after));
        assert_eq!(told.collect::<Vec<_>>(), [(verdict, 180 * 8, equal * 8)]);
    }
}

#[test]
fn shorter_stages_are_less_and_missing_transfers_are_not_compared() {
    let side = |micros: Option<u64>| {
        let mut model = model("/a", &[("f", 1000)], 0);
        micros.into_iter().for_each(|micros| transfers(&mut model, micros));
        model
    };
    let rows = Diff::new(&side(Some(3000)), &side(Some(1000))).transfers.unwrap().changed;
    let [row] = &rows[..] else { panic!("{rows:#?}") };
    assert_eq!((row.stage, row.count_before, row.count_after), ("pending", 1000, 1000));
    for (delta, before) in [(row.p50, 4497e-6), (row.p90, 5697e-6)] {
        let delta = delta.unwrap();
        assert_eq!(delta.verdict, Some(Verdict::Less));
        assert!((delta.before - before).abs() < 1e-9 && (delta.after - before / 3.0).abs() < 1e-9, "{delta:?}");
    }
    let gone = Diff::new(&side(Some(300)), &side(None)).transfers.unwrap();
    assert_eq!((gone.compared, gone.changed), (1, Vec::new()));
}

#[test]
fn findings_in_one_recording_are_listed_but_are_no_change() {
    let side = |count| {
        let mut model = model("/a", &[("f", 1000)], 0);
        memory(&mut model, count, 100);
        model
    };
    let told = |before, after| {
        let diff = Diff::new(&side(before), &side(after));
        (diff.findings.new, diff.findings.gone, diff.changed)
    };
    let residue = || vec!["shm/residue".to_owned()];
    assert_eq!(told(0, 1), (residue(), Vec::new(), false), "one segment may be chance");
    assert_eq!(told(1, 0), (Vec::new(), residue(), false));
    assert_eq!(told(1, 1), (Vec::new(), Vec::new(), false));
}

//! What goes in comes out.

mod common;

use common::{Program, every_event, meta, read, write};
use pyobs_model::{
    Compared, Event, GilWait, Nanos, NativeCall, Pair, Pid, ProcessRef, Reason, Sample, Selection, Sleep, Tid,
    WaitReason, Waker, views,
};
use pyobs_recording::{Reader, Writer};

#[test]
fn every_event_comes_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    write(&path, &every_event());
    assert_eq!(read(&path), every_event());
    let reader = Reader::open(&path).unwrap();
    assert_eq!(*reader.meta(), meta());
    assert!(reader.is_finished());
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing is left beside the recording: {left:?}");
}

#[test]
fn a_recording_from_before_a_column_was_added_opens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    write(&path, &every_event());
    // The last of several that were added one after the other, too.
    let drop = "ALTER TABLE access_pairs DROP COLUMN address; ALTER TABLE native_calls DROP COLUMN result_bytes";
    rusqlite::Connection::open(&path).unwrap().execute_batch(drop).unwrap();
    let without = |event: Event| match event {
        Event::Pair(pair) => Event::Pair(Pair { address: None, ..pair }),
        Event::Call(NativeCall {
            at,
            process,
            tid,
            stack,
            callee,
            called_by,
            compared: Compared::Turns { count, time, .. },
        }) => {
            let compared = Compared::Turns { count, time, bytes: None };
            Event::Call(NativeCall { at, process, tid, stack, callee, called_by, compared })
        }
        event => event,
    };
    let expected: Vec<_> = every_event().into_iter().map(without).collect();
    assert_eq!(read(&path), expected);
    assert_ne!(expected, every_event());
}

#[test]
fn waits_from_before_they_had_a_beginning_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    write(&path, &every_event());
    let drop = ["sleeps", "gil_waits"]
        .map(|table| format!("ALTER TABLE {table} DROP COLUMN from_ns; ALTER TABLE {table} DROP COLUMN stacks;"));
    rusqlite::Connection::open(&path).unwrap().execute_batch(&drop.concat()).unwrap();
    let without = |event: Event| match event {
        Event::Sleep(it) => Event::Sleep(Sleep { from: it.at.saturating_sub(it.total), stacks: it.count, ..it }),
        Event::GilWait(it) => Event::GilWait(GilWait { from: it.at.saturating_sub(it.total), stacks: it.count, ..it }),
        event => event,
    };
    let expected: Vec<_> = every_event().into_iter().map(without).collect();
    assert_eq!(read(&path), expected);
    assert_ne!(expected, every_event());
}

#[test]
fn news_of_a_process_replace_what_was_known() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    let mut events = every_event();
    let known = events.iter().find_map(|event| match event {
        Event::Process { id: ProcessRef(0), process } => Some(process.clone()),
        _ => None,
    });
    let mut news = known.unwrap();
    news.command = "python3.12 after exec".into();
    events.push(Event::Process { id: ProcessRef(0), process: news.clone() });
    write(&path, &events);
    assert!(read(&path).contains(&Event::Process { id: ProcessRef(0), process: news }));
}

#[test]
fn measures_come_back_with_their_beginnings_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    let measures = [
        (10, "cpu", "samples 1/2", true),
        (11, "offcpu", "stacks 1/8", true),
        (12, "cpu", "samples 1/2", false),
        (13, "cpu", "samples 1/2", true),
    ];
    let measures = measures.map(|(at, family, measure, on)| Event::measure(Nanos(at), family, measure, on));
    write(&path, &measures);
    assert_eq!(read(&path), measures);
    let database = rusqlite::Connection::open(&path).unwrap();
    // A version without measures and without start-up work.
    database.execute_batch("DROP TABLE shed; ALTER TABLE costs DROP COLUMN startup_ns; INSERT INTO costs VALUES (20, 3, 2, 1); INSERT INTO sheds VALUES (21, 'fewer');").unwrap();
    drop(database);
    let old = [
        Event::Cost { at: Nanos(20), bpf: Nanos(3), cpu: Nanos(2), startup: Nanos(0), rss_bytes: 1 },
        Event::Shed { at: Nanos(21), what: "fewer".into() },
    ];
    assert_eq!(read(&path), old);
}

#[test]
fn samples_come_in_the_order_of_time_whatever_the_order_of_writing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    let mut program = Program::new(1, 3, 5);
    let mut events = program.start();
    for _ in 0..20_000 {
        program.sample(1000, &mut events);
    }
    let samples = |events: &[Event]| -> Vec<Sample> {
        events.iter().filter_map(|event| if let Event::Sample(sample) = event { Some(*sample) } else { None }).collect()
    };
    let mut expected = samples(&events);
    expected.sort_by_key(|sample| sample.at);
    let (definitions, mut timed): (Vec<_>, Vec<_>) = events.into_iter().partition(|event| event.at().is_none());
    for chunk in timed.chunks_mut(1000) {
        chunk.reverse();
    }
    write(&path, &[definitions, timed].concat());
    assert_eq!(samples(&read(&path)), expected);
}

#[test]
fn all_families_come_in_the_order_of_time_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    let (definitions, mut timed): (Vec<_>, Vec<_>) = every_event().into_iter().partition(|event| event.at().is_none());
    timed.reverse();
    write(&path, &[definitions, timed].concat());
    assert_eq!(read(&path), every_event());
}

#[test]
fn numbers_that_sqlite_cannot_hold_are_cut_and_text_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    let mut events = every_event();
    for event in &mut events {
        if let Event::Sleep(Sleep { count, total, length, waker, .. }) = event {
            (*count, *total, *length) = (u64::MAX, Nanos(u64::MAX), Nanos(u64::MAX));
            *waker = Some(Waker { pid: Pid(u32::MAX), tid: Tid(u32::MAX), name: "x".repeat(1 << 21).into() });
        }
    }
    write(&path, &events);
    let events = read(&path);
    let sleeps: Vec<_> =
        events.iter().filter_map(|it| if let Event::Sleep(it) = it { Some(it) } else { None }).collect();
    assert_eq!(sleeps.len(), WaitReason::ALL.len());
    for sleep in sleeps {
        assert_eq!((sleep.count, sleep.total), (i64::MAX as u64, Nanos(i64::MAX as u64)));
        assert_eq!(sleep.waker.as_ref().map(|waker| (waker.pid.0, waker.name.len())), Some((u32::MAX, 1 << 20)));
    }
}

#[test]
fn a_recording_of_a_pyobs_without_a_family_opens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    write(&path, &every_event());
    let database = rusqlite::Connection::open(&path).unwrap();
    database.execute_batch("DROP TABLE sleeps; DROP TABLE gil_waits; DROP TABLE gil_held; DROP TABLE calls").unwrap();
    drop(database);
    let is_new =
        |event: &Event| matches!(event, Event::Sleep(_) | Event::GilWait(_) | Event::GilHeld { .. } | Event::Calls(_));
    let old: Vec<Event> = every_event().into_iter().filter(|event| !is_new(event)).collect();
    assert_eq!(read(&path), old);
}

#[test]
fn the_model_of_a_time_range_has_its_samples_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    write(&path, &every_event());
    let mut reader = Reader::open(&path).unwrap();
    let all = reader.model(None, None).unwrap();
    assert_eq!(
        all.cpu().total(),
        every_event().iter().filter(|event| matches!(event, Event::Sample(_))).count() as u64
    );
    let (from, to) = (Nanos(2_000_000_014), Nanos(4_000_000_028));
    let some = reader.model(Some(from), Some(to)).unwrap();
    assert_eq!(some.cpu().total(), 2);
    let selection = Selection { from: Some(from), to: Some(to), ..Selection::default() };
    let frames = |model, selection| {
        let look = views::Look { group: views::Group::Process, ..views::Look::default() };
        views::frames(model, selection, look)
    };
    assert_eq!(frames(&some, &Selection::default()), frames(&all, &selection));
    assert_eq!(some.offcpu().sums(&Selection::default()).len(), 0);
}

#[test]
fn the_model_of_a_time_range_has_its_waits_and_calls_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    write(&path, &every_event());
    let mut reader = Reader::open(&path).unwrap();
    let all = reader.model(None, None).unwrap();
    let every = Selection::default();
    assert_eq!(all.offcpu().sums(&every).len(), WaitReason::ALL.len());
    assert_eq!((all.gil().sums(&every).len(), all.gil().held(&every).len(), all.eval().sums(&every).len()), (3, 1, 1));
    // From the second sleep to the second piece of the wait, and the calls but not what was held.
    let ranges = [(100_000_000_001, 200_010_000_000), (300_000_000_001, 300_000_000_002)];
    for ((from, to), expected) in ranges.into_iter().zip([(WaitReason::ALL.len() - 1, 2, 0, 0), (0, 0, 0, 1)]) {
        let (from, to) = (Some(Nanos(from)), Some(Nanos(to)));
        let selection = Selection { from, to, ..Selection::default() };
        for (model, selection) in [(&reader.model(from, to).unwrap(), &every), (&all, &selection)] {
            let (sleeps, waits) = (model.offcpu().sums(selection), model.gil().sums(selection));
            let (held, calls) = (model.gil().held(selection), model.eval().sums(selection));
            assert_eq!((sleeps.len(), waits.len(), held.len(), calls.len()), expected);
        }
    }
}

#[test]
fn text_of_100_kb_is_kept_and_of_100_mb_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    let mut events = every_event();
    for (event, length) in events.iter_mut().zip([100_000, 100_000_000]) {
        let Event::Frame { frame, .. } = event else { panic!("frames come first") };
        frame.function = "é".repeat(length / 2).into();
    }
    write(&path, &events);
    let lengths: Vec<usize> = read(&path)
        .iter()
        .filter_map(|event| if let Event::Frame { frame, .. } = event { Some(frame.function.len()) } else { None })
        .collect();
    assert_eq!(lengths[..2], [100_000, 1 << 20]);
}

#[test]
fn a_recording_can_be_read_while_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    let mut writer = Writer::create(&path, &meta()).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    assert!(!reader.is_finished());
    assert_eq!(reader.model(None, None).unwrap().cpu().total(), 0);
    writer.append(&every_event()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(750));
    // A reader in the middle of its transaction keeps the commit waiting, and nothing else.
    let mut looked = 0;
    reader
        .replay(|_| {
            if looked == 0 {
                writer.append(&[]).unwrap();
            }
            looked += 1;
        })
        .unwrap();
    writer.append(&[]).unwrap();
    let samples = reader.model(None, None).unwrap().cpu().total();
    assert_eq!(samples, 3 + Reason::ALL.len() as u64, "three outcomes, and a failure for each reason");
    writer.finish().unwrap();
    assert!(Reader::open(&path).unwrap().is_finished());
}

#[test]
fn a_writer_that_is_dropped_keeps_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    let mut writer = Writer::create(&path, &meta()).unwrap();
    writer.append(&every_event()).unwrap();
    drop(writer);
    assert_eq!(read(&path), every_event());
    assert!(!Reader::open(&path).unwrap().is_finished());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn tables_and_columns_of_a_newer_pyobs_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    write(&path, &every_event());
    let database = rusqlite::Connection::open(&path).unwrap();
    database
        .execute_batch(
            "CREATE TABLE waits (at_ns INTEGER, stack INTEGER); INSERT INTO waits VALUES (1, 1);
             ALTER TABLE samples ADD COLUMN weight INTEGER; INSERT INTO meta VALUES ('colour', 'blue');",
        )
        .unwrap();
    drop(database);
    assert_eq!(read(&path), every_event());
}

//! What goes in comes out.

mod common;

use common::{Program, every_event, meta, read, write};
use pyobs_model::{Event, Nanos, ProcessRef, Reason, Sample, Selection, views};
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
    let frames = |model, selection| views::frames(model, selection, views::Look::default(), true);
    assert_eq!(frames(&some, &Selection::default()), frames(&all, &selection));
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

//! Files that are no recordings, places where none can be, and damage: each is one sentence, none a panic or a hang.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Program, Random, every_event, meta, write};
use pyobs_model::{Event, Selection, report};
use pyobs_recording::{Error, Reader, Writer};
use rusqlite::Connection;

/// Reads all that there is to read.
fn digest(path: &Path) -> Result<(usize, Option<String>), Error> {
    let mut reader = Reader::open(path)?;
    let mut events = 0;
    reader.replay(|_| events += 1)?;
    let model = reader.model(None, None)?;
    // Its lists are made when they are looked at.
    let report = report::Report::new(&model, &Selection::default(), None);
    assert!(!format!("{report:?}").is_empty());
    Ok((events, reader.damage()))
}

#[track_caller]
fn refused(result: Result<impl Sized, Error>, words: &str) {
    let Err(error) = result else { panic!("not refused: {words}") };
    let sentence = error.to_string();
    assert!(sentence.contains(words), "{sentence}");
    assert!(!sentence.contains('\n') && sentence.len() < 400, "one sentence: {sentence}");
}

#[test]
fn what_is_no_recording_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    refused(Reader::open(&at("none.pyobs")), "none.pyobs: no such file");
    refused(Reader::open(folder.path()), "is a folder");
    std::fs::write(at("empty"), "").unwrap();
    refused(Reader::open(&at("empty")), "empty: its recording was cut off");
    std::fs::write(at("text"), "hello\n".repeat(1000)).unwrap();
    refused(Reader::open(&at("text")), "text is not a pyobs recording");
    std::fs::write(at("short"), "SQLite format 3\0").unwrap();
    refused(Reader::open(&at("short")), "short is not a pyobs recording");
    Connection::open(at("other")).unwrap().execute_batch("CREATE TABLE meta (key, value)").unwrap();
    refused(Reader::open(&at("other")), "other is not a pyobs recording");
    refused(Reader::open(Path::new("/dev/null")), "is no regular file");
    refused(Reader::open(&at("\u{1b}[31m")), r"\u{1b}[31m");
    refused(Reader::open(&at("text/x")), "text/x");
}

#[test]
fn a_newer_format_is_refused_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    write(&path, &every_event());
    Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 2").unwrap();
    refused(Reader::open(&path), "is a recording of format 2, and this pyobs reads formats up to 1; use a newer pyobs");
    // Yet it is a recording, and may be replaced by one.
    write(&path, &every_event());
    assert!(digest(&path).is_ok());
}

#[test]
fn a_format_without_a_number_is_refused_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    write(&path, &every_event());
    Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 0").unwrap();
    refused(Reader::open(&path), "a.pyobs is damaged (its format has no number) and cannot be read; record again");
}

#[test]
fn only_recordings_and_empty_files_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let create = |path: &Path| Writer::create(path, &meta()).and_then(Writer::finish);
    std::fs::write(at("text"), "mine").unwrap();
    refused(create(&at("text")), "text exists and is not a pyobs recording");
    assert_eq!(std::fs::read(at("text")).unwrap(), b"mine");
    std::fs::write(at("empty"), "").unwrap();
    create(&at("empty")).unwrap();
    create(&at("empty")).unwrap();
    refused(create(folder.path()), "is a folder");
    refused(create(&folder.path().join("..")), "is a folder");
    symlink(at("empty"), at("link")).unwrap();
    refused(create(&at("link")), "is a symbolic link");
    symlink(at("nothing"), at("dangling")).unwrap();
    refused(create(&at("dangling")), "is a symbolic link");
    assert!(!at("nothing").exists());
    refused(create(&at("no/where.pyobs")), "its folder does not exist");
    refused(create(&at("text/where.pyobs")), "its folder does not exist");
    refused(create(Path::new("/dev/full")), "is no regular file");
    refused(create(Path::new("/proc/a.pyobs")), "/proc/a.pyobs");
    symlink(folder.path(), at("folder")).unwrap();
    create(&at("folder/b.pyobs")).unwrap();
    // What an older recording left beside it is not taken for the new one's.
    std::fs::write(at("c.pyobs-journal"), [7; 4096]).unwrap();
    create(&at("c.pyobs")).unwrap();
    assert!(!at("c.pyobs-journal").exists());
}

#[test]
fn two_writers_of_one_file_do_not_meet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    let mut command = std::process::Command::new("python3");
    let script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); \
                  c.execute('BEGIN IMMEDIATE'); print('locked', flush=True); sys.stdin.read()";
    write(&path, &every_event());
    command.args(["-c", script]).arg(&path).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let Ok(mut other) = command.spawn() else {
        eprintln!("skipped: no python3 to hold the lock from another process");
        return;
    };
    let mut said = [0; 6];
    std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut said).unwrap();
    refused(Writer::create(&path, &meta()), "is in use by another program");
    assert!(digest(&path).is_ok(), "reading does not disturb");
    drop(other.stdin.take());
    other.wait().unwrap();
    write(&path, &every_event());
}

#[test]
fn a_recording_that_is_locked_is_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    write(&path, &every_event());
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let begun = Instant::now();
    refused(Reader::open(&path), "is in use by another program");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_truncated_recording_gives_what_is_readable() {
    let folder = tempfile::tempdir().unwrap();
    let (path, cut) = (folder.path().join("a.pyobs"), folder.path().join("cut.pyobs"));
    let mut program = Program::new(1, 3, 20);
    let mut events = program.start();
    for _ in 0..20_000 {
        program.sample(1000, &mut events);
    }
    write(&path, &events);
    let bytes = std::fs::read(&path).unwrap();
    let mut usable = 0;
    for length in (0..bytes.len()).step_by(bytes.len() / 61) {
        std::fs::write(&cut, &bytes[..length]).unwrap();
        match digest(&cut) {
            Ok((events, damage)) => {
                assert!(damage.is_some(), "{length} of {} bytes are not all", bytes.len());
                usable += usize::from(events > 100);
            }
            Err(error) => refused(Err::<(), _>(error), "cut.pyobs"),
        }
    }
    assert!(usable > 20, "more than a third of the cuts leaves something to read: {usable}");
}

#[test]
fn flipped_bytes_never_panic_nor_hang() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bad) = (folder.path().join("a.pyobs"), folder.path().join("bad.pyobs"));
    let mut program = Program::new(2, 3, 20);
    let mut events = every_event();
    let _ = program.start();
    for _ in 0..500 {
        program.sample(1000, &mut events);
    }
    write(&path, &events);
    let bytes = std::fs::read(&path).unwrap();
    let mut random = Random(3);
    let begun = Instant::now();
    for round in 0..400 {
        let mut bytes = bytes.clone();
        for _ in 0..=random.below(if round % 2 == 0 { 3 } else { 100 }) {
            // Headers of pages are where it hurts most.
            let place = if random.below(2) == 0 {
                random.below(bytes.len() as u64)
            } else {
                random.below(bytes.len() as u64 / 4096) * 4096 + random.below(120)
            };
            bytes[place as usize] = random.next() as u8;
        }
        std::fs::write(&bad, &bytes).unwrap();
        if let Err(error) = digest(&bad) {
            refused(Err::<(), _>(error), "bad.pyobs");
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(300), "{:?}", begun.elapsed());
}

/// Runs SQL over a good recording and reads the result.
#[track_caller]
fn forged(sql: &str) -> (usize, Option<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    write(&path, &every_event());
    let forger = Connection::open(&path).unwrap();
    forger.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    forger.execute_batch(sql).unwrap();
    drop(forger);
    let begun = Instant::now();
    let result = digest(&path).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(60), "{sql}");
    result
}

#[test]
fn forged_values_are_left_out_and_counted() {
    let all = every_event().len();
    for sql in [
        "UPDATE samples SET at_ns = -1 WHERE rowid = 3",
        "UPDATE samples SET tid = 1 << 40 WHERE rowid = 3",
        "UPDATE samples SET outcome = 999 WHERE rowid = 3",
        "UPDATE samples SET stack = 'x' WHERE rowid = 3",
        "UPDATE samples SET cpu = zeroblob(100) WHERE rowid = 3",
        "UPDATE sleeps SET total_ns = -1 WHERE rowid = 3",
        "UPDATE sleeps SET reason = x'00' WHERE rowid = 3",
        "UPDATE sleeps SET waker_name = NULL WHERE rowid = 2",
        "UPDATE sleeps SET waker_tid = 1 << 40 WHERE rowid = 2",
        "UPDATE gil_waits SET count = 0.5 WHERE rowid = 3",
        "UPDATE gil_waits SET holder_stack = NULL WHERE rowid = 1",
        "UPDATE gil_held SET held_ns = 'long'",
        "UPDATE calls SET function = -1",
        "UPDATE segment_changes SET change = 'melted' WHERE rowid = 3",
        "UPDATE segment_changes SET fds = 'two' WHERE rowid = 2",
        "UPDATE segments SET kind = 'cloud' WHERE id = 1",
        "UPDATE losses SET count = 9223372036854775807",
        "UPDATE threads SET process = 77 WHERE rowid = 1",
        "UPDATE threads SET name = x'00' WHERE rowid = 1",
        "INSERT INTO frames (id, kind, function) VALUES (4000000000, 'python', 'far')",
        "INSERT INTO frames (id, kind, function) VALUES (-5, 'python', 'below')",
        "INSERT INTO stacks VALUES (4294967295, 1)",
    ] {
        let (events, damage) = forged(sql);
        assert!(events >= all - 1, "{sql}: {events}");
        assert!(damage.unwrap_or_default().contains("invalid rows"), "{sql}");
    }
}

#[test]
fn waits_of_what_was_never_defined_and_endless_ones_do_no_harm() {
    for sql in [
        "UPDATE sleeps SET stack = 4000000000; UPDATE gil_waits SET holder_stack = 77; UPDATE calls SET function = 77",
        "UPDATE sleeps SET process = 77; UPDATE gil_waits SET process = 77; UPDATE gil_held SET process = 77;
         UPDATE calls SET process = 77",
        "UPDATE sleeps SET total_ns = 0x7fffffffffffffff, count = total_ns, length_ns = total_ns, reason = 'lunch';
         UPDATE gil_waits SET total_ns = 0x7fffffffffffffff, count = total_ns, length_ns = total_ns;
         UPDATE gil_held SET held_ns = 0x7fffffffffffffff; UPDATE calls SET total_ns = 0x7fffffffffffffff, timed = total_ns",
    ] {
        let (events, damage) = forged(sql);
        assert_eq!((events, damage), (every_event().len(), None), "{sql}: each number by itself makes sense");
    }
}

#[test]
fn a_damaged_definition_does_not_shift_the_others() {
    let (events, damage) = forged("UPDATE frames SET kind = 'java' WHERE id = 1");
    assert_eq!(events, every_event().len(), "a stand-in takes its place");
    assert!(damage.is_some());
    let (events, _) = forged("DELETE FROM stacks WHERE id = 0; DELETE FROM processes WHERE id = 0");
    assert_eq!(events, every_event().len());
}

#[test]
fn cycles_and_endless_paths_end() {
    let (_, damage) = forged("UPDATE nodes SET parent = 3 WHERE id = 1");
    assert!(damage.is_some());
    let (_, damage) = forged("UPDATE nodes SET parent = id");
    assert!(damage.is_some());
}

/// A recording with one path of 20,000 frames and stacks that end on it at `ends`, and the frames of its stacks.
#[track_caller]
fn stacks_on_a_long_path(ends: &str) -> Vec<usize> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    write(&path, &every_event());
    let forger = Connection::open(&path).unwrap();
    let sql = format!(
        "PRAGMA foreign_keys = OFF; DELETE FROM nodes; DELETE FROM stacks;
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
         INSERT INTO nodes SELECT i, nullif(i - 1, 0), 0 FROM n; INSERT INTO stacks (leaf) SELECT id FROM nodes WHERE {ends};
         UPDATE stacks SET id = id - 1;",
    );
    forger.execute_batch(&sql).unwrap();
    drop(forger);
    let mut reader = Reader::open(&path).unwrap();
    let mut lengths = Vec::new();
    let each = |event| {
        if let Event::Stack { frames, .. } = event {
            lengths.push(frames.len());
        }
    };
    reader.replay(each).unwrap();
    assert!(reader.damage().is_some());
    lengths
}

#[test]
fn stacks_deeper_than_any_pyobs_writes_are_left_empty() {
    assert_eq!(stacks_on_a_long_path("id IN (10, 16384, 16385, 20000)"), [10, 16384, 0, 0]);
}

#[test]
fn a_small_file_does_not_fill_the_memory() {
    // If it were believed: 10,000 stacks of 6,000 to 16,000 frames.
    let lengths = stacks_on_a_long_path("id BETWEEN 6000 AND 16000");
    assert_eq!(lengths.len(), 10_001);
    assert!(lengths.iter().sum::<usize>() <= 1 << 25);
}

#[test]
fn pages_that_point_at_each_other_do_not_make_rows_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    let mut program = Program::new(4, 3, 5);
    let mut events = program.start();
    for _ in 0..20_000 {
        program.sample(1000, &mut events);
    }
    write(&path, &events);
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'samples'";
    let root: usize =
        Connection::open(&path).unwrap().query_row(root, [], |row| row.get::<_, u32>(0)).unwrap() as usize;
    let mut bytes = std::fs::read(&path).unwrap();
    // SQLite's file format, "B-tree Pages": an interior page of a table, whose cells begin with a page's number.
    let page = &mut bytes[(root - 1) * 4096..root * 4096];
    assert_eq!(page[0], 5);
    let cells = usize::from(u16::from_be_bytes([page[3], page[4]]));
    assert!(cells > 50, "{cells}");
    for cell in 0..cells {
        let at = usize::from(u16::from_be_bytes([page[12 + 2 * cell], page[13 + 2 * cell]]));
        let first = usize::from(u16::from_be_bytes([page[12], page[13]]));
        page.copy_within(first..first + 4, at);
    }
    std::fs::write(&path, bytes).unwrap();
    let (read, damage) = digest(&path).unwrap();
    assert!(read < events.len() - 19_000, "{read} of {}", events.len());
    assert!(damage.unwrap().contains("only the readable parts of samples"));
}

#[test]
fn text_of_100_mb_costs_its_row_only() {
    let (events, damage) = forged("UPDATE frames SET function = printf('%.*c', 100000000, 'x') WHERE id = 1");
    assert_eq!(events, every_event().len());
    assert!(damage.is_some());
}

#[test]
fn views_and_computed_columns_in_place_of_tables_are_not_run() {
    let endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS rowid, \
                   i AS at_ns, 0 AS process, \
                   1 AS tid, 0 AS cpu, 0 AS stack, 0 AS outcome FROM n";
    forged(&format!("DROP TABLE samples; CREATE VIEW samples AS {endless}"));
    forged(
        "DROP TABLE sheds; CREATE TABLE sheds (at_ns INTEGER, what TEXT AS (hex(zeroblob(100000000))));
         INSERT INTO sheds (at_ns) VALUES (1), (2), (3);",
    );
    forged("DROP TABLE losses; CREATE VIRTUAL TABLE losses USING fts5(at_ns, reason, count)");
    forged("DROP TABLE costs; CREATE TABLE costs (at_ns PRIMARY KEY, bpf_ns, cpu_ns, rss_bytes) WITHOUT ROWID");
}

#[test]
fn a_recording_without_meta_data_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    write(&path, &every_event());
    Connection::open(&path).unwrap().execute_batch("DROP TABLE meta").unwrap();
    refused(Reader::open(&path), "is damaged");
}

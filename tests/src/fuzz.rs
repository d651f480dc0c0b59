//! Fuzz targets: every decoder of bytes that another program may have written.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::{env, fs, process};

use pyobs_capture::fuzz::{TARGETS, Target};
use pyobs_model::report::Report;
use pyobs_model::{Family, History, Meta, Model, Selection, findings};
use pyobs_recording::{Reader, Writer};
use rusqlite::Connection;
use rusqlite::types::Value;

/// How many rows one input may add to a recording.
const ROWS_MAX: usize = 64;

pub fn targets() -> impl Iterator<Item = Target> {
    let here: [Target; 2] = [("terminal", terminal), ("recordings", recordings)];
    TARGETS.into_iter().chain(here)
}

fn terminal(input: &[u8]) {
    pyobs_tui::decode_all(input);
}

thread_local! {
    static EMPTY: OnceCell<Vec<u8>> = const { OnceCell::new() };
}

/// Fills a recording with arbitrary rows, and reads it as `report` does.
fn recordings(input: &[u8]) {
    let path = env::temp_dir().join(format!("pyobs-fuzz-{}.pyobs", process::id()));
    EMPTY.with(|empty| fs::write(&path, empty.get_or_init(|| recording(&path)))).expect("the recording can be written");
    fill(&path, &mut Input(input));
    if let Ok(mut reader) = Reader::open(&path) {
        let mut model = Model::new(reader.meta().clone(), History::All);
        if reader.replay(|event| model.apply(&event)).is_ok() {
            let report = Report::new(&model, &Selection::default(), None);
            serde_json::to_string(&report).expect("a report is always JSON");
            findings::find(&model, &Selection::default());
        }
        reader.damage();
    }
    fs::remove_file(&path).expect("the recording can be removed");
}

/// A recording without rows.
fn recording(path: &PathBuf) -> Vec<u8> {
    let meta = Meta {
        started: "2026-01-01T00:00:00.000Z".to_owned(),
        host: String::new(),
        kernel: String::new(),
        pyobs: String::new(),
        rate_hz: 99,
        cpus: 2,
        probes: Family::names(),
        refused: Vec::new(),
        sampler: "cpu-clock".to_owned(),
        segment_repair: String::new(),
    };
    Writer::create(path, &meta).and_then(Writer::finish).expect("a recording can be made");
    let bytes = fs::read(path).expect("the recording can be read");
    fs::remove_file(path).expect("the recording can be removed");
    bytes
}

/// Adds the rows that an input describes: for each a table and its values.
fn fill(path: &PathBuf, input: &mut Input<'_>) {
    let connection = Connection::open(path).expect("a recording is a database");
    let mut tables = connection.prepare("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").unwrap();
    let tables: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    connection.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN").unwrap();
    for _ in 0..ROWS_MAX {
        let Some(number) = input.byte() else { break };
        let table = &tables[usize::from(number) % tables.len()];
        let columns: i64 =
            connection.query_row("SELECT count(*) FROM pragma_table_info(?1)", [table], |row| row.get(0)).unwrap();
        let places = vec!["?"; columns as usize].join(", ");
        let values: Vec<Value> = (0..columns).map(|_| input.value()).collect();
        // A constraint may refuse the row.
        let _ = connection
            .execute(&format!("INSERT OR REPLACE INTO {table} VALUES ({places})"), rusqlite::params_from_iter(values));
    }
    connection.execute_batch("COMMIT").unwrap();
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn take(&mut self, length: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken.to_vec()
    }

    /// A value of any type. Small numbers, which refer to other rows, are the most frequent.
    fn value(&mut self) -> Value {
        let Some(kind) = self.byte() else { return Value::Null };
        let wide = |bytes: Vec<u8>| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(&bytes);
            i64::from_le_bytes(word)
        };
        match kind {
            0..=63 => Value::Integer(i64::from(kind)),
            64..=95 => Value::Integer(wide(self.take(2))),
            96..=127 => Value::Integer(wide(self.take(8))),
            128..=159 => Value::Real(f64::from_bits(wide(self.take(8)).cast_unsigned())),
            160..=207 => Value::Text(String::from_utf8_lossy(&self.take(usize::from(kind - 160))).into_owned()),
            208..=247 => Value::Blob(self.take(usize::from(kind - 208))),
            248.. => Value::Null,
        }
    }
}

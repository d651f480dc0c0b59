//! Reads a recording back into events.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use pyobs_model::{Event, History, Meta, Model, Nanos};
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::merge::Merge;
use crate::tables::{self, Damage, Range, Reading, Source, meta, processes, stacks, tasks as task_tables};
use crate::value::MAX_TEXT;
use crate::{Error, file};

/// How long to wait for a commit of a recording that is being written.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// How many prepared statements are cached: more than there are tables.
const STATEMENTS: usize = 64;

/// A recording that is being read. The file is never changed.
#[derive(Debug)]
pub struct Reader {
    source: Source,
    meta: Meta,
    finished: bool,
    opening: Damage,
    damage: Damage,
}

impl Reader {
    pub fn open(path: &Path) -> Result<Self, Error> {
        file::check(path)?;
        let mut damage = Damage::default();
        let connection = connect(path, &mut damage)?;
        let source = Source { connection, path: path.to_owned() };
        let mut reading = Reading { source: &source, range: Range::default(), damage };
        let (meta, finished) = meta::read(&mut reading)?;
        let damage = reading.damage;
        Ok(Self { source, meta, finished, opening: damage.clone(), damage })
    }

    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Whether the recording was ended, rather than cut off or still being written.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// One sentence about the damage found so far; `None` if there was none.
    pub fn damage(&self) -> Option<String> {
        self.damage.sentence()
    }

    /// Emits all events: definitions first, then the others in time order. Memory does not grow with the number of events.
    pub fn replay(&mut self, mut each: impl FnMut(Event)) -> Result<(), Error> {
        self.replay_while(|event| {
            each(event);
            ControlFlow::Continue(())
        })
    }

    /// The same, until `each` breaks off.
    pub fn replay_while(&mut self, each: impl FnMut(Event) -> ControlFlow<()>) -> Result<(), Error> {
        self.play(Range::default(), each)
    }

    /// The model of a recording, with only what the families saw in `from..to`.
    pub fn model(&mut self, from: Option<Nanos>, to: Option<Nanos>) -> Result<Model, Error> {
        let mut model = Model::new(self.meta.clone(), History::All);
        self.play(Range { from, to }, |event| {
            model.apply(&event);
            ControlFlow::Continue(())
        })?;
        Ok(model)
    }

    fn play(&mut self, range: Range, mut each: impl FnMut(Event) -> ControlFlow<()>) -> Result<(), Error> {
        let source = &self.source;
        let mut reading = Reading { source, range, damage: self.opening.clone() };
        // One transaction gives a consistent snapshot of a recording that is still being written.
        let snapshot = source.connection.unchecked_transaction();
        let snapshot = snapshot.map_err(|error| Error::sqlite(source.path(), error))?;
        let mut flow = ControlFlow::Continue(());
        let mut define = |event| {
            if flow.is_continue() {
                flow = each(event);
            }
        };
        stacks::read(&mut reading, &mut define)?;
        task_tables::define(&mut reading, &mut define)?;
        let mut merge = Merge::default();
        processes::read(&mut reading, &mut merge)?;
        tables::read(&mut reading, self.meta.period(), &mut merge)?;
        if flow.is_continue() {
            merge.give(&mut reading, each)?;
        }
        drop(snapshot);
        self.damage = reading.damage;
        Ok(())
    }
}

fn connect(path: &Path, damage: &mut Damage) -> Result<Connection, Error> {
    if file::ends_within_page(path)? {
        return connect_copy(path, damage);
    }
    let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    match open(path, read_only, damage) {
        Err(error) if needs_undo(&error) => connect_copy(path, damage),
        result => result.map_err(|error| refuse(path, error)),
    }
}

fn connect_copy(path: &Path, damage: &mut Damage) -> Result<Connection, Error> {
    let copy = file::Copy::of(path)?;
    let writable = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // The copy is unlinked once it is open: SQLite no longer needs its name.
    open(&copy.file, writable, damage).map_err(|error| refuse(path, error))
}

/// Opens a file after its header was checked, and verifies that SQLite can use it.
fn open(path: &Path, flags: OpenFlags, damage: &mut Damage) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_WAIT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    // A row of `frames` has three texts.
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, (4 * MAX_TEXT) as i32)?;
    connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, MAX_TEXT as i32)?;
    connection.execute_batch("PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY;")?;
    match is_whole(&connection, path) {
        Ok(whole) => damage.broken |= !whole,
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => {
            // Lets SQLite read a file that is shorter than its header states.
            connection.execute_batch("PRAGMA writable_schema = ON")?;
            is_whole(&connection, path)?;
            damage.broken = true;
        }
        Err(error) => return Err(error),
    }
    Ok(connection)
}

/// Whether the file is as long as its header states.
fn is_whole(connection: &Connection, path: &Path) -> rusqlite::Result<bool> {
    // In one transaction, because the file may be growing.
    let snapshot = connection.unchecked_transaction()?;
    snapshot.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    let pages: i64 = snapshot.pragma_query_value(None, "page_count", |row| row.get(0))?;
    let page: i64 = snapshot.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let length = std::fs::metadata(path).map_or(u64::MAX, |found| found.len());
    Ok(u64::try_from(pages.saturating_mul(page)).is_ok_and(|expected| expected <= length))
}

/// Whether a half-finished commit must be rolled back, which takes the right to write.
fn needs_undo(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen))
}

fn refuse(path: &Path, error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            Error::NotReadable(path.into())
        }
        Some(ErrorCode::NotADatabase) => Error::corrupt(path, "its first page is not valid"),
        _ => Error::sqlite(path, error),
    }
}

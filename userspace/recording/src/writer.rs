//! Writes events to a recording.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pyobs_model::{Event, Meta, Nanos};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::tables::{self, Often, cpu, meta, stacks};
use crate::{Error, file, schema};

/// Appends closer together than this share a commit.
const COMMIT_EVERY: Duration = Duration::from_millis(400);

/// How long the last commit waits for a program that is reading the recording.
const FINISH_WAIT: Duration = Duration::from_secs(10);

/// How long a commit waits for another writer, which is never pyobs itself.
const BEGIN_WAIT: Duration = Duration::from_secs(5);

/// A recording that is being written.
///
/// After each commit the file is complete by itself (SQLite's rollback journal in mode `TRUNCATE`, not a write-ahead log), so
/// it can be copied, and read without the right to write next to it. A writer holds the write lock from beginning to end:
/// others can read but not write.
#[derive(Debug)]
pub struct Writer {
    connection: Connection,
    path: PathBuf,
    nodes: stacks::Nodes,
    latest: Nanos,
    committed: Instant,
    /// Whether there are events that were not committed.
    is_pending: bool,
    stopped: bool,
}

impl Writer {
    /// Creates a recording at `path`. An existing file is replaced only if it is empty or a recording that no process is writing.
    pub fn create(path: &Path, meta: &Meta) -> Result<Self, Error> {
        let target = file::make(path)?;
        let connection = start(&target, meta).map_err(|error| {
            // An empty file would look like a recording that was cut off.
            file::remove(&target);
            Error::sqlite(path, error)
        })?;
        Ok(Self {
            connection,
            path: path.to_owned(),
            nodes: stacks::Nodes::default(),
            latest: Nanos(0),
            committed: Instant::now(),
            is_pending: false,
            stopped: false,
        })
    }

    /// Adds events, and commits if the last commit was at least 0.4 s ago. While [`Self::is_pending`], call it at least that
    /// often, even without events. It waits for the disk, but not for a program that is reading the file: then it commits later.
    /// After an error, earlier commits are safe and further events are refused.
    pub fn append(&mut self, events: &[Event]) -> Result<(), Error> {
        if self.stopped {
            return Err(Error::Stopped(self.path.as_path().into()));
        }
        if !events.is_empty() {
            self.is_pending = true;
            self.insert(events).map_err(|error| self.fail(error))?;
        }
        if !self.is_pending || self.committed.elapsed() < COMMIT_EVERY {
            return Ok(());
        }
        match self.commit(Duration::ZERO) {
            Ok(()) => self.begin(),
            Err(error) if is_busy(&error) => Ok(()),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Whether events wait for a commit.
    pub fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Commits the rest and marks the recording as complete.
    pub fn finish(mut self) -> Result<(), Error> {
        if self.stopped {
            return Err(Error::Stopped(self.path.as_path().into()));
        }
        let result = meta::finish(&self.connection, self.latest).and_then(|()| self.commit(FINISH_WAIT));
        result.map_err(|error| self.fail(error))?;
        self.remove_journal();
        self.stopped = true;
        Ok(())
    }

    fn insert(&mut self, events: &[Event]) -> rusqlite::Result<()> {
        let mut often = Often::prepare(&self.connection)?;
        for event in events {
            tables::insert(&self.connection, &mut often, &mut self.nodes, event)?;
            self.latest = self.latest.max(event.at().unwrap_or_default());
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), Error> {
        let begun = self.connection.busy_timeout(BEGIN_WAIT);
        begun.and_then(|()| self.connection.execute_batch("BEGIN IMMEDIATE")).map_err(|error| self.fail(error))
    }

    fn commit(&mut self, wait: Duration) -> rusqlite::Result<()> {
        self.connection.busy_timeout(wait)?;
        self.connection.execute_batch("COMMIT")?;
        (self.committed, self.is_pending) = (Instant::now(), false);
        Ok(())
    }

    fn fail(&mut self, error: rusqlite::Error) -> Error {
        self.stopped = true;
        let _ = self.connection.execute_batch("ROLLBACK");
        self.remove_journal();
        Error::sqlite(&self.path, error)
    }

    /// An empty journal is harmless, but would stay next to the recording forever.
    fn remove_journal(&self) {
        let _ = self.connection.pragma_update(None, "journal_mode", "DELETE");
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.stopped && self.commit(Duration::ZERO).is_ok() {
            self.remove_journal();
        }
    }
}

fn start(target: &Path, meta: &Meta) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(target, flags)?;
    connection.set_prepared_statement_cache_capacity(64);
    // No spilling: between commits the file does not change and readers are not locked out. The first commit does not wait for
    // the disk: the capture is running already, and a power failure loses only an empty recording.
    connection.execute_batch(
        "PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = OFF; PRAGMA cache_spill = OFF;
         PRAGMA foreign_keys = OFF; PRAGMA temp_store = MEMORY; BEGIN IMMEDIATE;",
    )?;
    schema::create(&connection)?;
    meta::write(&connection, meta)?;
    cpu::prepare(&connection)?;
    // FULL, because after a power failure a stale journal must not roll back the last commit.
    connection.execute_batch("COMMIT; PRAGMA synchronous = FULL; BEGIN IMMEDIATE;")?;
    Ok(connection)
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

#[cfg(test)]
mod tests {
    use pyobs_model::{ProcessRef, Sample, StackId, Tid};

    use super::*;
    use crate::Reader;

    fn meta() -> Meta {
        Meta {
            started: String::new(),
            host: String::new(),
            kernel: String::new(),
            pyobs: String::new(),
            rate_hz: 99,
            cpus: 2,
            probes: Vec::new(),
            sampler: String::new(),
            segment_repair: String::new(),
            refused: Vec::new(),
        }
    }

    fn samples(count: u64) -> Vec<Event> {
        let sample = |at| Sample {
            at: Nanos(at),
            process: ProcessRef(0),
            tid: Tid(1),
            cpu: 0,
            stack: StackId(0),
            weight: Nanos(10_101_010),
            turn_us: None,
            outcome: pyobs_model::Outcome::Complete,
        };
        (0..count).map(|at| Event::Sample(sample(at))).collect()
    }

    #[test]
    fn a_full_disk_is_a_sentence_and_costs_only_what_was_not_committed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pyobs");
        let mut writer = Writer::create(&path, &meta()).unwrap();
        writer.append(&samples(100)).unwrap();
        writer.commit(Duration::ZERO).unwrap();
        writer.begin().unwrap();
        writer.connection.pragma_update(None, "max_page_count", 20).unwrap();
        let error = writer.append(&samples(100_000)).unwrap_err();
        assert!(matches!(error, Error::DiskFull(_)), "{error}");
        assert!(error.to_string().contains("the disk is full"));
        assert!(matches!(writer.append(&[]), Err(Error::Stopped(_))));
        assert!(matches!(writer.finish(), Err(Error::Stopped(_))));
        let mut read = 0;
        Reader::open(&path).unwrap().replay(|_| read += 1).unwrap();
        assert_eq!(read, 100);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no journal is left");
    }
}

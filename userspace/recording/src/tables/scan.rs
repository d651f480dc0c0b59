//! Reads rows of an untrusted database.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pyobs_model::{Nanos, Selection};
use rusqlite::{Connection, ErrorCode, Row, params};

use crate::Error;
use crate::table::{Cells, Sort, Table};
use crate::value::integer;

/// The parts of a recording that could not be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Set when the file itself is damaged, not only values in it.
    pub(crate) broken: bool,
    rows: BTreeMap<&'static str, u64>,
}

impl Damage {
    pub(crate) fn row(&mut self, table: &'static str) {
        *self.rows.entry(table).or_default() += 1;
    }

    /// The rest of a table cannot be read.
    pub(crate) fn rest(&mut self, table: &'static str) {
        self.broken = true;
        self.row(table);
    }

    /// One sentence; `None` if nothing was damaged.
    pub(crate) fn sentence(&self) -> Option<String> {
        let tables = self.rows.keys().copied().collect::<Vec<_>>().join(", ");
        let rows: u64 = self.rows.values().sum();
        match (self.broken, rows) {
            (false, 0) => None,
            (false, _) => Some(format!("the recording is damaged: {rows} invalid rows of {tables} were skipped")),
            (true, 0) => Some("the recording is damaged: only its readable parts were used".to_owned()),
            (true, _) => Some(format!("the recording is damaged: only the readable parts of {tables} were used")),
        }
    }
}

/// The times `from..to`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Range {
    pub(crate) from: Option<Nanos>,
    pub(crate) to: Option<Nanos>,
}

impl Range {
    /// Whether the range ends after `at`.
    pub(crate) fn ends_after(self, at: Nanos) -> bool {
        self.to.is_none_or(|to| at < to)
    }

    pub(crate) fn has(self, at: Nanos) -> bool {
        self.from.is_none_or(|from| at >= from) && self.ends_after(at)
    }

    pub(crate) fn selection(self) -> Selection {
        Selection { from: self.from, to: self.to, ..Selection::default() }
    }
}

/// Which rows of a table are read. Only a table with a column `at_ns` can be read in part.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rows {
    All,
    /// Those in the range.
    Within,
    /// Those from the beginning of the range on. What ends after the range may have begun in it.
    Since,
    /// Those up to the end of the range, because a state depends on all changes before it.
    Until,
}

/// An open recording.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) connection: Connection,
    pub(crate) path: PathBuf,
}

impl Source {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether `table` is a plain table that has `columns`. A view, a virtual table or a generated column would run code of the
    /// file's author.
    fn has(&self, table: &str, columns: &[&str]) -> rusqlite::Result<bool> {
        let kind = "SELECT type FROM pragma_table_list WHERE schema = 'main' AND name = ?1";
        let mut kind = self.connection.prepare(kind)?;
        let mut rows = kind.query([table])?;
        if !rows.next()?.is_some_and(|row| row.get_ref(0).is_ok_and(|kind| kind.as_str() == Ok("table"))) {
            return Ok(false);
        }
        let mut plain = self.connection.prepare("SELECT name FROM pragma_table_xinfo(?1) WHERE hidden = 0")?;
        let mut rows = plain.query([table])?;
        let mut found = 0;
        while let Some(row) = rows.next()? {
            found +=
                usize::from(row.get_ref(0).is_ok_and(|name| columns.iter().any(|column| name.as_str() == Ok(*column))));
        }
        Ok(found == columns.len())
    }

    /// The columns that the recording has of a table; `None` if it does not have the table.
    fn columns<T: Table>(&self) -> rusqlite::Result<Option<Vec<&'static str>>> {
        let (table, mut columns) = (T::TABLE.name, T::TABLE.names(Sort::Plain));
        if !self.has(table, &columns)? {
            return Ok(None);
        }
        for column in T::TABLE.names(Sort::Newer) {
            if !self.has(table, &[column])? {
                break;
            }
            columns.push(column);
        }
        Ok(Some(columns))
    }
}

/// Row ids after `after`, up to `until`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) after: i64,
    pub(crate) until: i64,
}

impl Span {
    pub(crate) const ALL: Self = Self { after: i64::MIN, until: i64::MAX };
}

/// A recording that is being read, and the damage found so far.
pub(crate) struct Reading<'s> {
    pub(crate) source: &'s Source,
    pub(crate) range: Range,
    pub(crate) damage: Damage,
}

impl Reading<'_> {
    fn condition(&self, rows: Rows) -> String {
        let (from, to) = match rows {
            Rows::All => (None, None),
            Rows::Within => (self.range.from, self.range.to),
            Rows::Since => (self.range.from, None),
            Rows::Until => (None, self.range.to),
        };
        let from = from.map(|from| format!(" AND at_ns >= {}", integer(from.0)));
        let to = to.map(|to| format!(" AND at_ns < {}", integer(to.0)));
        from.unwrap_or_default() + &to.unwrap_or_default()
    }

    /// The query for a span of a table's rows; `None` if the recording does not have the table.
    pub(crate) fn query<T: Table>(&mut self, rows: Rows) -> Result<Option<String>, Error> {
        let table = T::TABLE.name;
        match self.source.columns::<T>() {
            // An older pyobs did not have this family.
            Ok(columns) => Ok(columns.map(|columns| self.query_of(table, &columns, rows))),
            Err(error) => self.judge(error, table).map(|()| None),
        }
    }

    /// The query for columns that a table is known to have.
    pub(crate) fn query_of(&self, table: &str, columns: &[&str], rows: Rows) -> String {
        let (list, condition) = (columns.join(", "), self.condition(rows));
        format!(
            "SELECT rowid, {list} FROM main.{table} NOT INDEXED WHERE rowid > ?1 AND rowid <= ?2 {condition} ORDER BY rowid"
        )
    }

    /// Calls `each` with each row of a table, by row id. A row that is invalid or that `each` refuses counts as damage.
    pub(crate) fn scan<T: Table>(&mut self, rows: Rows, mut each: impl FnMut(T) -> Option<()>) -> Result<(), Error> {
        let Some(query) = self.query::<T>(rows)? else { return Ok(()) };
        self.rows(&query, Span::ALL, |_, row| each(row))
    }

    /// The same for a span of the rows that `query` gives.
    pub(crate) fn rows<T: Table>(
        &mut self,
        query: &str,
        span: Span,
        mut each: impl FnMut(&mut Self, T) -> Option<()>,
    ) -> Result<(), Error> {
        let table = T::TABLE.name;
        self.walk(table, query, span, |reading, id, row| {
            let row = if id < 0 { None } else { T::read(Cells::of(row)) };
            if row.and_then(|row| each(reading, row)).is_none() {
                reading.damage.row(table);
            }
        })
    }

    /// Calls `each` with the raw rows of `query`.
    pub(crate) fn walk(
        &mut self,
        table: &'static str,
        query: &str,
        span: Span,
        mut each: impl FnMut(&mut Self, i64, &Row<'_>),
    ) -> Result<(), Error> {
        let mut last = span.after;
        loop {
            match self.step(table, query, (&mut last, span.until), &mut each) {
                Ok(()) => return Ok(()),
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::TooBig) => {
                    self.damage.row(table);
                    let next =
                        format!("SELECT rowid FROM main.{table} NOT INDEXED WHERE rowid > ?1 ORDER BY rowid LIMIT 1");
                    match self.source.connection.query_row(&next, [last], |row| row.get::<_, i64>(0)) {
                        Ok(id) if id > last => last = id,
                        Ok(_) | Err(_) => return Ok(()),
                    }
                }
                Err(error) => return self.judge(error, table),
            }
        }
    }

    fn step(
        &mut self,
        table: &'static str,
        query: &str,
        (last, until): (&mut i64, i64),
        each: &mut impl FnMut(&mut Self, i64, &Row<'_>),
    ) -> rusqlite::Result<()> {
        let source = self.source;
        let mut statement = source.connection.prepare_cached(query)?;
        let mut rows = statement.query(params![*last, until])?;
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(0)?;
            // Pages that point at each other would return the same rows forever.
            if id <= *last {
                self.damage.rest(table);
                return Ok(());
            }
            *last = id;
            each(self, id, row);
        }
        Ok(())
    }

    /// Reads rows that are also read elsewhere, without counting their damage twice.
    pub(crate) fn quietly<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        let damage = self.damage.clone();
        let result = read(self);
        self.damage = damage;
        result
    }

    /// Damage ends the reading of one table. Any other error ends the whole reading.
    fn judge(&mut self, error: rusqlite::Error, table: &'static str) -> Result<(), Error> {
        match error.sqlite_error_code() {
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::OutOfMemory
                | ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen,
            ) => Err(Error::sqlite(self.source.path(), error)),
            _ => {
                self.damage.rest(table);
                Ok(())
            }
        }
    }
}

/// Fills gaps in a sequence of ids, because the model needs them without gaps.
#[derive(Debug, Default)]
pub(crate) struct Dense {
    next: u32,
    filled: u32,
}

impl Dense {
    /// More gaps than this are not accidental damage.
    const MAX_FILLED: u32 = 1 << 16;

    pub(crate) fn from(next: u32) -> Self {
        Self { next, filled: 0 }
    }

    /// The missing ids before `id`, for which the caller makes placeholders. `None` if `id` is out of order or too far.
    pub(crate) fn missing(&mut self, id: u32) -> Option<std::ops::Range<u32>> {
        let next = id.checked_add(1)?;
        let gap = id.checked_sub(self.next)?;
        self.filled = self.filled.checked_add(gap).filter(|filled| *filled <= Self::MAX_FILLED)?;
        let missing = self.next..id;
        self.next = next;
        Some(missing)
    }

    pub(crate) fn len(&self) -> u32 {
        self.next
    }
}

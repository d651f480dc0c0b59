//! Reading rows that may hold anything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyobs_model::{Nanos, Selection};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, Row, params};

use super::{bounded, integer};
use crate::Error;

/// What of a recording could not be used.
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

    /// One sentence, or nothing when all was well.
    pub(crate) fn sentence(&self) -> Option<String> {
        let tables = self.rows.keys().copied().collect::<Vec<_>>().join(", ");
        let rows: u64 = self.rows.values().sum();
        match (self.broken, rows) {
            (false, 0) => None,
            (false, _) => {
                Some(format!("the recording is damaged: {rows} rows of {tables} do not make sense and were left out"))
            }
            (true, 0) => Some("the recording is damaged: only what is readable of it was used".to_owned()),
            (true, _) => Some(format!("the recording is damaged: only what is readable of {tables} was used")),
        }
    }
}

/// A value of a row, checked; a wrong type or range is `None`.
pub(crate) trait Field {
    fn number(&self, column: usize) -> Option<u64>;
    fn small(&self, column: usize) -> Option<u32>;
    fn text(&self, column: usize) -> Option<Arc<str>>;
    /// Outer `None`: neither NULL nor a good value.
    fn maybe_number(&self, column: usize) -> Option<Option<u64>>;
    fn maybe_small(&self, column: usize) -> Option<Option<u32>>;
    fn maybe_text(&self, column: usize) -> Option<Option<Arc<str>>>;
}

impl Field for Row<'_> {
    fn number(&self, column: usize) -> Option<u64> {
        self.get_ref(column).ok()?.as_i64().ok()?.try_into().ok()
    }

    fn small(&self, column: usize) -> Option<u32> {
        self.get_ref(column).ok()?.as_i64().ok()?.try_into().ok()
    }

    fn text(&self, column: usize) -> Option<Arc<str>> {
        match self.get_ref(column).ok()? {
            ValueRef::Text(bytes) => Some(bounded(&String::from_utf8_lossy(bytes)).into()),
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_) => None,
        }
    }

    fn maybe_number(&self, column: usize) -> Option<Option<u64>> {
        if is_null(self, column)? { Some(None) } else { self.number(column).map(Some) }
    }

    fn maybe_small(&self, column: usize) -> Option<Option<u32>> {
        if is_null(self, column)? { Some(None) } else { self.small(column).map(Some) }
    }

    fn maybe_text(&self, column: usize) -> Option<Option<Arc<str>>> {
        if is_null(self, column)? { Some(None) } else { self.text(column).map(Some) }
    }
}

fn is_null(row: &Row<'_>, column: usize) -> Option<bool> {
    Some(row.get_ref(column).ok()? == ValueRef::Null)
}

/// The events of `from..to`, of tables that have a column `at_ns`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Range {
    pub(crate) from: Option<Nanos>,
    pub(crate) to: Option<Nanos>,
}

impl Range {
    /// For [`Source::scan`].
    pub(crate) fn condition(self) -> String {
        let from = self.from.map(|from| format!(" AND at_ns >= {}", integer(from.0)));
        let to = self.to.map(|to| format!(" AND at_ns < {}", integer(to.0)));
        from.unwrap_or_default() + &to.unwrap_or_default()
    }

    /// The same, with what ends after the range: it may have begun in it.
    pub(crate) fn condition_of_spells(self) -> String {
        Self { to: None, ..self }.condition()
    }

    pub(crate) fn selection(self) -> Selection {
        Selection { from: self.from, to: self.to, ..Selection::default() }
    }
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

    /// Whether `table` is what a recording must have under this name: a plain table that has `columns`. A view, a
    /// virtual table or a generated column would run code of the file's author.
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

    /// Calls `each` with (row id, row) for each row of a table, in the order of row ids; column 0 is the row id, the
    /// columns asked for follow. What `each` refuses, or what cannot be read, is counted in `damage`.
    pub(crate) fn scan(
        &self,
        table: &'static str,
        columns: &[&str],
        condition: &str,
        damage: &mut Damage,
        each: impl FnMut(u64, &Row<'_>) -> Option<()>,
    ) -> Result<(), Error> {
        self.scan_newer(table, (columns, &[]), condition, damage, each)
    }

    /// The same of a table that has got more columns since there are recordings: where all of these are there, they follow
    /// the others, else none does.
    pub(crate) fn scan_newer(
        &self,
        table: &'static str,
        (columns, newer): (&[&str], &[&str]),
        condition: &str,
        damage: &mut Damage,
        mut each: impl FnMut(u64, &Row<'_>) -> Option<()>,
    ) -> Result<(), Error> {
        let has = |columns| self.has(table, columns);
        let columns = match has(columns).and_then(|all| Ok((all, has(newer)?))) {
            Ok((true, true)) => [columns, newer].concat(),
            Ok((true, false)) => columns.to_vec(),
            // A recording of a pyobs that did not have this family yet.
            Ok((false, _)) => return Ok(()),
            Err(error) => return self.judge(error, table, damage),
        };
        let list = columns.join(", ");
        let sql =
            format!("SELECT rowid, {list} FROM main.{table} NOT INDEXED WHERE rowid > ?1 {condition} ORDER BY rowid");
        let mut last = i64::MIN;
        loop {
            match self.rows(&sql, &mut last, table, damage, &mut each) {
                Ok(()) => return Ok(()),
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::TooBig) => {
                    damage.row(table);
                    let next =
                        format!("SELECT rowid FROM main.{table} NOT INDEXED WHERE rowid > ?1 ORDER BY rowid LIMIT 1");
                    match self.connection.query_row(&next, [last], |row| row.get::<_, i64>(0)) {
                        Ok(id) if id > last => last = id,
                        Ok(_) | Err(_) => return Ok(()),
                    }
                }
                Err(error) => return self.judge(error, table, damage),
            }
        }
    }

    fn rows(
        &self,
        sql: &str,
        last: &mut i64,
        table: &'static str,
        damage: &mut Damage,
        each: &mut impl FnMut(u64, &Row<'_>) -> Option<()>,
    ) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query(params![*last])?;
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(0)?;
            // Pages that point at each other make rows come again, and could do so for ever.
            if id <= *last {
                damage.rest(table);
                return Ok(());
            }
            *last = id;
            if u64::try_from(id).ok().and_then(|id| each(id, row)).is_none() {
                damage.row(table);
            }
        }
        Ok(())
    }

    /// Damage costs the rest of one table; anything else ends the reading.
    fn judge(&self, error: rusqlite::Error, table: &'static str, damage: &mut Damage) -> Result<(), Error> {
        match error.sqlite_error_code() {
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::OutOfMemory
                | ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen,
            ) => Err(Error::sqlite(self.path(), error)),
            _ => {
                damage.rest(table);
                Ok(())
            }
        }
    }
}

/// Ids that a recording numbers without a gap, as the model needs them.
#[derive(Debug, Default)]
pub(crate) struct Dense {
    next: u32,
    filled: u32,
}

impl Dense {
    /// More gaps than this are no damage but malice.
    const MAX_FILLED: u32 = 1 << 16;

    pub(crate) fn from(next: u32) -> Self {
        Self { next, filled: 0 }
    }

    /// The ids before `id` that are missing, to be filled with something; `None` when `id` is no id.
    pub(crate) fn missing(&mut self, id: u64) -> Option<std::ops::Range<u32>> {
        let id = u32::try_from(id).ok().filter(|id| *id < u32::MAX)?;
        let gap = id.checked_sub(self.next)?;
        self.filled = self.filled.checked_add(gap).filter(|filled| *filled <= Self::MAX_FILLED)?;
        let missing = self.next..id;
        self.next = id + 1;
        Some(missing)
    }

    pub(crate) fn len(&self) -> u32 {
        self.next
    }
}

//! What makes a SQLite database a recording.

use rusqlite::Connection;

use crate::table::Description;
use crate::tables;

/// `PRAGMA application_id`: "pyob" in ASCII.
pub const APPLICATION_ID: u32 = u32::from_be_bytes(*b"pyob");

/// `PRAGMA user_version`. It grows only if an older reader would misunderstand the file. New tables and columns do not count,
/// because a reader ignores those that it does not know.
pub const VERSION: u32 = 1;

/// The offsets of these numbers in a SQLite file, big-endian.
pub(crate) const APPLICATION_ID_AT: usize = 68;
pub(crate) const VERSION_AT: usize = 60;
pub(crate) const PAGE_SIZE_AT: usize = 16;
pub(crate) const HEADER: usize = 100;
pub(crate) const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Creates all tables in an empty database.
pub(crate) fn create(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(&format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};"))?;
    tables::all().try_for_each(|table| connection.execute_batch(&table.create()))
}

/// The section of docs/recording.md about the tables.
pub fn documentation() -> String {
    let sections = tables::all().map(Description::document);
    format!("## Tables\n\n{}", sections.collect::<Vec<_>>().join("\n"))
}

//! Writes events to a `.pyobs` file, a SQLite database, and reads them back (schema: docs/recording.md).
//!
//! A [`Writer`] commits the events of a running capture at least once a second, so a recording cut off by a power failure or
//! `kill -9` still opens and lacks at most the last second. A [`Reader`] returns the same events: definitions before what
//! refers to them, then everything that has a time, in time order.
//!
//! A recording is untrusted input: the reader checks every value, bounds its allocations by the size of the file, and never
//! writes to it.

mod background;
mod error;
mod file;
mod merge;
mod reader;
mod schema;
mod table;
mod tables;
mod value;
mod writer;

pub use background::Background;
pub use error::Error;
pub use reader::Reader;
pub use schema::{APPLICATION_ID, VERSION, documentation};
pub use writer::Writer;

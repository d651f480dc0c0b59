//! Events in and out of a `.pyobs` file, which is a SQLite database (schema: docs/recording.md).
//!
//! A [`Writer`] takes the events of a running capture and commits them at least once a second, so that a recording
//! which was cut off by a power failure or a `kill -9` opens and holds all but the last second. A [`Reader`] gives the
//! same events back: definitions before what refers to them, then everything that has a time, in the order of time.
//!
//! A recording is hostile input, for anyone may have written it: the reader takes nothing from it unchecked, bounds
//! what it allocates by the size of the file, and never writes to it.

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

//! What all families share.

pub mod checks;
pub mod copies;
pub mod cpython;
pub mod files;
pub mod gil;
pub mod maps;
pub mod memory;
pub mod messages;
pub mod native;
pub mod news;
pub mod probe;
pub mod python;
pub mod registers;
pub mod ring;
pub mod system_call;
pub mod tables;
pub mod task;
pub mod walk;

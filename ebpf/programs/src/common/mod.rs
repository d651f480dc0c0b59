//! What all families share.

pub mod checks;
pub mod cpython;
pub mod maps;
pub mod memory;
pub mod ring;
pub mod task;
pub mod walk;

//! CPython: finds interpreters in files and processes, and reads their structures and code objects.

pub mod asyncio_debug;
pub mod attached;
pub mod attributes;
mod code;
pub mod copied;
pub mod debug_offsets;
mod debug_words;
mod effects;
pub mod entries;
pub mod find;
pub mod lines;
pub mod long_table;
mod loops;
pub mod mapped;
pub mod names;
pub mod offsets;
mod opcodes;
pub mod operands;
pub mod thread_local;
pub mod version;

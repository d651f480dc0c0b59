//! What all families share: the ring ([`ring`]), the maps that user space fills ([`maps`]), reads of memory
//! ([`memory`]), the kernel's tasks and files, and the stack walker ([`walk`]) with its parts.

pub mod call_site;
pub mod checks;
pub mod copies;
pub mod cpython;
pub mod files;
pub mod frames;
pub mod gil;
pub mod iterator;
pub mod maps;
pub mod memory;
pub mod messages;
pub mod native;
pub mod new_code;
mod object;
pub mod probe;
pub mod registers;
pub mod ring;
pub mod system_call;
pub mod tables;
pub mod task;
pub mod typed;
pub mod walk;

//! Everything that touches a live kernel or process.
//!
//! [`session::Session`] attaches the BPF programs, takes their records from the ring buffer and turns them
//! into [`pyobs_model::Event`]s with every frame named. Watched processes are never stopped, written to or
//! waited for: memory is read with `process_vm_readv`, files through `/proc/PID/map_files`.

mod blocking;
mod budget;
mod bytes;
mod cache;
mod containers;
mod copies;
pub mod cpython;
pub mod doctor;
pub mod dump;
pub mod elf;
mod families;
pub mod family;
pub mod files;
mod frame_cache;
pub mod fuzz;
mod intern;
pub mod kernel;
pub mod launch;
pub mod libc_layout;
mod limits;
mod loader;
mod machine;
mod machine_load;
pub mod memory;
pub mod native;
mod pattern;
mod pipeline;
mod placements;
mod prefetch;
pub mod privileges;
mod process_maps;
pub mod registry;
mod rights;
pub mod session;
pub mod source;

pub use machine::utc;

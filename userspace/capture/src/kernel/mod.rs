//! The running kernel: its structures, the BPF object in it, its notices of new mappings, its symbols.

pub mod bpf;
pub mod btf;
pub mod calls;
pub mod clocks;
pub mod cost;
pub mod features;
mod interrupts;
pub mod iterators;
pub mod object;
pub mod probed_files;
pub mod program;
pub mod release;
pub mod sideband;
mod sparse;
pub mod symbols;
pub mod ticks;
pub mod tracefs;
pub mod uprobes;

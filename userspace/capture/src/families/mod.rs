//! One probe family a folder: what it takes from the kernel, and what its records mean. `family.rs` has the contract.

pub mod arena;
pub mod cpu;
pub mod eval;
mod extension;
pub mod gil;
pub mod nrt;
pub mod offcpu;
pub mod redundancy;
pub mod shm;
pub mod ucx;

//! The probe families, one module each: which programs a family loads and what its records mean. `family.rs`
//! defines the contract.

pub mod arena;
pub mod cpu;
pub mod eval;
mod extension;
pub mod gil;
pub mod heap;
pub mod nrt;
pub mod offcpu;
pub mod redundancy;
pub mod shm;
pub mod tasks;
pub mod ucx;

//! The BPF programs of pyobs: one file for each probe family, and `common` for what they share.
//!
//! They copy facts and walk frames, within fixed bounds. Names, lines, joins and findings are user space's work.
#![no_std]
#![no_main]
// Atomic additions: `core::sync` has none for a target without compare-and-swap.
#![expect(internal_features, reason = "the only way to them is an intrinsic")]
#![feature(core_intrinsics)]

mod arena;
mod calls;
mod code;
mod common;
mod copied;
mod cpu;
mod eval;
mod heap;
mod mappings;
mod nrt;
mod offcpu;
mod process;
mod redundancy;
mod shm;
mod ucx;

//! The BPF programs of pyobs: one file per probe family.
//!
//! They are small, bounded and dumb: they copy facts and walk frames. Names, lines, joins and judgement are user
//! space's.
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
mod nrt;
mod offcpu;
mod process;
mod redundancy;
mod shm;
mod ucx;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier rejects a program in which this is reachable.
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

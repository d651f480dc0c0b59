//! For tests: a sample as [`crate::cpu`] takes it, followed by copies of the stack memory.

use aya_ebpf::{Global, helpers::generated::bpf_probe_read_user, macros::perf_event, programs::PerfEventContext};
use pyobs_abi::{
    copy::{BELOW, PAGE_SIZE, PAGES_MAX, StackCopy},
    record,
};

use crate::{
    common::{
        registers::Registers,
        ring::{self, Route},
        walk::Walk,
    },
    cpu,
};

/// The number of pages to copy. User space sets it.
#[unsafe(no_mangle)]
static COPY_PAGES: Global<u32> = Global::new(0);

#[perf_event]
pub fn cpu_sample_copied(context: PerfEventContext) -> u32 {
    cpu::sample(&context, copy)
}

#[inline(always)]
fn copy(walk: &Walk, registers: &Registers) {
    let first = registers.sp.wrapping_sub(BELOW) & !(PAGE_SIZE as u64 - 1);
    for page in 0..PAGES_MAX {
        if page >= COPY_PAGES.load() {
            break;
        }
        let address = first.wrapping_add(u64::from(page) * PAGE_SIZE as u64);
        let record = ring::in_place(|record: *mut StackCopy| fill(record, walk, registers, address));
        let sent = ring::send(record, Route::lazy());
        // Memory below the stack pointer need not be mapped; above it, an unmapped page is the end of the stack.
        if !sent && address.wrapping_add(PAGE_SIZE as u64) > registers.sp {
            break;
        }
    }
}

#[inline(always)]
fn fill(record: *mut StackCopy, walk: &Walk, registers: &Registers, address: u64) -> bool {
    // SAFETY: the record is ours until it is sent; the helper fails on an address that cannot be read.
    unsafe {
        (*record).header = walk.sample.header;
        (*record).header.kind = record::STACK_COPY;
        (*record).ip = registers.ip;
        (*record).sp = registers.sp;
        (*record).bp = registers.bp;
        (*record).after = registers.after.into();
        (*record).address = address;
        let bytes = (&raw mut (*record).bytes).cast();
        bpf_probe_read_user(bytes, PAGE_SIZE as u32, address as *const _) == 0
    }
}

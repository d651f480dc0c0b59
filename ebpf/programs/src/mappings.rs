//! The programs at the kernel's tracepoints of mappings, which show mmap(2) and munmap(2) without a program at system
//! calls ([`crate::calls`]).
//!
//! Both run inside the call, so the saved registers have its arguments. They suffice for [`arena`] and [`heap`]. For `shm`
//! they show that a watched process begins to share memory; user space then attaches the programs at system calls.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use pyobs_abi::{
    calls::number,
    control::{AT_MAPPINGS, FAMILIES, FAMILY_ARENA, FAMILY_HEAP},
};

use crate::{
    arena, calls,
    common::{maps::control, system_call::Call},
    heap,
};

/// Addresses from here on are errors: `MAX_ERRNO` in
/// <https://github.com/torvalds/linux/blob/v6.1/include/linux/err.h>.
const ERRORS: u64 = -4095_i64 as u64;

/// The families whose mappings are reported here.
#[inline(always)]
fn families() -> u64 {
    control(FAMILIES) & control(AT_MAPPINGS)
}

/// `vm_unmapped_area(unsigned long addr, struct vm_unmapped_area_info *info)`: the kernel has chosen where to map
/// something. The memory is not mapped yet, which fails only if a limit of the process is reached.
#[raw_tracepoint(tracepoint = "vm_unmapped_area")]
pub fn memory_mapped(context: RawTracePointContext) -> i32 {
    let (call, start, families) = (Call::current(), context.arg::<u64>(0), families());
    if families == 0 || start >= ERRORS {
        return 0;
    }
    match call.number() {
        number::MMAP => calls::mapped(&call, start, families),
        number::MREMAP if families & FAMILY_HEAP != 0 => calls::moved(&call, start),
        _ => {}
    }
    0
}

/// `ma_write(const char *fn, struct ma_state *mas, unsigned long piv, void *val)`: an entry of a maple tree changes.
/// Each process's mappings are in such a tree. A munmap(2) changes one to three entries, while no other thread can map
/// the memory again, so its end may be reported repeatedly.
#[raw_tracepoint(tracepoint = "ma_write")]
pub fn memory_unmapped(_context: RawTracePointContext) -> i32 {
    let call = Call::current();
    if call.number() != number::MUNMAP {
        return 0;
    }
    let families = families();
    if families & FAMILY_ARENA != 0 {
        arena::report_unmapped(&call);
    }
    if families & FAMILY_HEAP != 0 {
        heap::report_unmapped(&call);
    }
    0
}

//! The family `heap`: which code makes a process grow, and which memory it gives back.
//!
//! The kernel counts the resident anonymous pages of each process. Each page fault of a watched process compares that
//! count with the one at the last sample. Once it has grown by a step, the stack of the fault is sampled and stands for
//! all of that growth, so large pages count with their size. The sampled page represents the memory: if it faults
//! again, the memory was given back meanwhile.

use aya_ebpf::{
    Global,
    helpers::bpf_ktime_get_ns,
    macros::{map, raw_tracepoint},
    maps::{Array, HashMap},
    programs::RawTracePointContext,
};
use pyobs_abi::{
    control,
    heap::{BLOCK_MIN, FILTERS, Filter, Freed, Growth, PAGES_MAX, UNKNOWN, filter_bit, page_key},
    process::Process,
    record::{self, Loss},
    stack::flags,
};

use crate::common::{
    files::{File, Mapping},
    maps::{HAS_FIND_VMA, control, pid, process, put, watched},
    memory::kernel,
    registers::Registers,
    ring::{self, Route},
    system_call::Call,
    typed::TypedTask,
    walk::{SLOT_TASK, Walk},
};

#[unsafe(no_mangle)]
static TASK_MM: Global<u32> = Global::new(0);
/// Where a `struct mm_struct` counts resident anonymous pages.
#[unsafe(no_mangle)]
static MM_ANONYMOUS: Global<u32> = Global::new(0);
/// Whether that count is a `percpu_counter`, as from Linux 6.2 on.
#[unsafe(no_mangle)]
static MM_IS_PER_CPU: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
static TASK_PAGEFAULT_DISABLED: Global<u32> = Global::new(0);

/// The processes whose growth is sampled. User space and forks make their entries.
#[map]
static HEAP_GROWTH: HashMap<u32, Growth> = HashMap::with_max_entries(16384, 0);

/// The sampled pages, by [`page_key`].
#[map]
static HEAP_PAGES: HashMap<u64, u64> = HashMap::with_max_entries(PAGES_MAX, 0);

#[map]
static HEAP_FILTERS: Array<Filter> = Array::with_max_entries(FILTERS, 0);

/// `X86_PF_PROT` of a fault's error code: the page was there, but not for this access.
/// <https://github.com/torvalds/linux/blob/v6.1/arch/x86/include/asm/trap_pf.h>
const WAS_THERE: u64 = 1;
/// A step is this part of what the process has, within bounds in pages.
const STEPS: i64 = 512;
const STEP_MIN: i64 = 64;
const STEP_MAX: i64 = 16384;
/// CPUs report their counts in batches of at least 32 pages (`percpu_counter_batch` in
/// <https://github.com/torvalds/linux/blob/v6.2/lib/percpu_counter.c>), so a smaller decrease may be noise.
const NOISE: i64 = 64;
/// Nanoseconds between two samples of a process. The second one stands for the growth in between.
const GAP: u64 = 1_000_000;

const PAGE_MASK: u64 = !0xfff;
/// mmap(2): PROT_WRITE; MAP_SHARED and MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS, MAP_NORESERVE and MAP_STACK.
const PROT_WRITE: u64 = 2;
const FLAGS_SEEN: u64 = 0x0f | 0x10 | 0x20 | 0x4000 | 0x20000;
const PRIVATE_ANONYMOUS: u64 = 0x22;

/// `page_fault_user(unsigned long address, struct pt_regs *regs, unsigned long error_code)`
#[raw_tracepoint(tracepoint = "page_fault_user")]
pub fn heap_fault(context: RawTracePointContext) -> i32 {
    fault(context.arg(0), context.arg(2), 0);
    0
}

/// `page_fault_kernel`: the kernel copies something into memory of the process, in a system call.
#[raw_tracepoint(tracepoint = "page_fault_kernel")]
pub fn heap_fault_in_kernel(context: RawTracePointContext) -> i32 {
    // Reads of BPF programs and of the profiler fault as well. They add no memory, and may hold this CPU's walk state.
    if TypedTask::current().0.field::<i32>(&TASK_PAGEFAULT_DISABLED) == 0 {
        fault(context.arg(0), context.arg(2), flags::KERNEL_MODE);
    }
    0
}

#[inline(always)]
fn fault(address: u64, error: u64, mode: u32) {
    let tgid = pid();
    let Some(growth) = HEAP_GROWTH.get_ptr_mut(tgid) else { return };
    let key = page_key(tgid, address);
    if error & WAS_THERE == 0 && may_be_sampled(tgid, address) && HEAP_PAGES.remove(key).is_ok() {
        report_freed(address & PAGE_MASK, !PAGE_MASK + 1, 0);
    }
    let Some(pages) = anonymous_pages() else { return };
    // SAFETY: the pointer is into the process's entry, which is aligned. Threads that fault at once may both take a
    // sample; user space drops the second.
    let Growth { accounted, sampled } = unsafe { *growth };
    if accounted == UNKNOWN || pages + NOISE < accounted {
        // SAFETY: as above.
        unsafe { (*growth).accounted = pages };
        return;
    }
    if pages - accounted < STEP_MIN {
        return;
    }
    let times = control(control::HEAP_STEPS).max(1);
    if pages - accounted < (pages / STEPS).clamp(STEP_MIN, STEP_MAX) * times as i64 {
        return;
    }
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    if now.wrapping_sub(sampled) < GAP * times || !is_anonymous(address) {
        return;
    }
    // SAFETY: as above.
    unsafe { *growth = Growth { accounted: pages, sampled: now } };
    let Some(process) = process(tgid) else { return };
    remember(tgid, address);
    sample(process, address & PAGE_MASK, [accounted, pages], mode);
}

/// Returns how many anonymous pages the current process has, as far as its CPUs have reported them.
#[inline(always)]
fn anonymous_pages() -> Option<i64> {
    let memory = TypedTask::current().0.follow(&TASK_MM);
    if MM_IS_PER_CPU.load() != 0 {
        return Some(memory.field(&MM_ANONYMOUS));
    }
    // The verifier does not know an array of atomic counters as a field.
    kernel(memory.0 as u64 + u64::from(MM_ANONYMOUS.load()))
}

#[inline(always)]
fn may_be_sampled(pid: u32, address: u64) -> bool {
    let (word, bit) = filter_bit(address);
    HEAP_FILTERS.get(pid % FILTERS).is_some_and(|filter| filter[word & 127] & bit != 0)
}

#[inline(never)]
fn remember(pid: u32, address: u64) {
    let (word, bit) = filter_bit(address);
    if let Some(filter) = HEAP_FILTERS.get_ptr_mut(pid % FILTERS) {
        // SAFETY: the pointer is to an element of the map. If another CPU or user space changes the word at once, the bit
        // may be lost: then only /proc/PID/pagemap shows that the page is gone.
        unsafe { (*filter)[word & 127] |= bit };
    }
    put(&HEAP_PAGES, &page_key(pid, address), &0, Loss::HeapTable);
}

/// A process that is a copy of a watched one grows as well.
#[inline(always)]
pub fn fork(parent: u32, child: u32) {
    if HEAP_GROWTH.get_ptr(parent).is_some() {
        put(&HEAP_GROWTH, &child, &Growth::NEW, Loss::HeapTable);
    }
}

/// A process ends or becomes another program.
#[inline(always)]
pub fn end(pid: u32) {
    let _ = HEAP_GROWTH.remove(pid);
}

/// Whether an address is in anonymous memory. If the lookup fails, the sample waits for the next fault. Linux before 5.17
/// has no lookup; there, a page of a file may represent growth.
#[inline(never)]
fn is_anonymous(address: u64) -> bool {
    if HAS_FIND_VMA.load() == 0 {
        return true;
    }
    Mapping::find(address).is_some_and(|mapping| File::of_mapping(mapping).is_none())
}

#[inline(never)]
fn sample(process: &Process, address: u64, pages: [i64; 2], mode: u32) {
    let registers = Registers::saved();
    let number = Walk::number(SLOT_TASK);
    let Some(walk) = Walk::begin(number, SLOT_TASK) else { return };
    walk.sample.flags |= mode;
    walk.sample.header = ring::header(record::HEAP_TOUCHED);
    walk.sample.weight = (pages[1] - pages[0]) as u64 * 4096;
    walk.sample.detail = [address, pages[1] as u64 * 4096];
    walk.start(process, &registers);
    Walk::run(number);
    walk.send();
}

/// Whether an mmap(2) gets memory for one purpose. Allocators that divide up what they map (glibc's arenas, jemalloc,
/// mimalloc) map it without PROT_WRITE or with MAP_NORESERVE. Stacks hold no data of their own.
#[inline(always)]
pub fn is_block(call: &Call) -> bool {
    call.second() >= BLOCK_MIN && call.third() & PROT_WRITE != 0 && call.fourth() & FLAGS_SEEN == PRIVATE_ANONYMOUS
}

/// Reports the range of a munmap(2).
#[inline(never)]
pub fn report_unmapped(call: &Call) {
    if call.second() >= BLOCK_MIN && watched().is_some() {
        report_freed(call.first(), call.second(), 0);
    }
}

/// Reports that mremap(2) moves memory.
#[inline(never)]
pub fn report_moved(call: &Call, to: u64) {
    if call.second() >= BLOCK_MIN && watched().is_some() {
        report_freed(call.first(), call.second(), to);
    }
}

/// Not inlined, as those below, to keep the caller's frame small: the frames of a walk share 512 bytes with it.
#[inline(never)]
fn report_freed(address: u64, bytes: u64, to: u64) {
    ring::send(&Freed { header: ring::header(record::HEAP_FREED), address, bytes, to }, Route::lazy());
}

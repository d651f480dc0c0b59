//! The context and the output of iterators.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_seq_write;
use pyobs_abi::Shared;

/// Words that the contexts of all iterators over tasks begin with:
/// <https://github.com/torvalds/linux/blob/v6.1/kernel/bpf/task_iter.c>
const META: usize = 0;
pub const TASK: usize = 1;

/// # Safety
/// `context` is that of an iterator's program, and has a word there.
#[inline(always)]
pub unsafe fn word(context: *const c_void, index: usize) -> u64 {
    // SAFETY: the verifier checks the access, and knows what the word is. Volatile, so that it is one load.
    unsafe { context.cast::<u64>().add(index).read_volatile() }
}

/// Writes a row to what user space reads.
#[inline(always)]
pub fn write<T: Shared>(context: *const c_void, row: &T) {
    // SAFETY: the iterator's meta is a pointer that the verifier knows, to a structure that begins with the file to
    // write to (`struct bpf_iter_meta` in <https://github.com/torvalds/linux/blob/v6.1/include/linux/bpf.h>); the row
    // is plain integers without padding.
    unsafe {
        let meta = word(context, META) as *const u64;
        let sequence = meta.read_volatile() as *mut _;
        bpf_seq_write(sequence, (&raw const *row).cast(), size_of::<T>() as u32);
    }
}

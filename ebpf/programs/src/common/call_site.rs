//! A key for the native call that a thread is in, made of the Python frames that led to it.

use core::{ffi::c_void, hint::black_box};

use aya_ebpf::{helpers::generated::bpf_probe_read_user, macros::map, maps::PerCpuArray};
use pyobs_abi::{
    hash::mix,
    process::{Layout, Process},
};

use super::{
    cpython::{Top, innermost, top_frame},
    memory::user,
};

/// The words of a frame that go into the key: from its beginning, or from its instruction on in 3.10 and older, where
/// the variables lie further behind. Calls that differ only in later words have the same key.
const FRAME_WORDS: usize = 32;
const LONG_WORDS: usize = 56;

/// Scratch space for a frame.
#[map]
static CALL_SITE_FRAME: PerCpuArray<[u64; LONG_WORDS]> = PerCpuArray::with_max_entries(1, 0);

/// Returns the key. While it stays the same, the thread has run no bytecode: the innermost frame and its caller, with
/// their instructions and variables, are the same. Words are compared and never dereferenced.
///
/// Only for programs that are not entered twice on a CPU.
#[inline(always)]
pub fn call_site(process: &Process, layout: &Layout) -> u64 {
    let Top::Frame { frame: top, .. } = top_frame(process, layout, 0) else { return 1 };
    let frame = innermost(layout, top);
    let own = add_frame(layout, frame, 1);
    let previous: u64 = user(frame.wrapping_add(layout.frame_previous.into())).unwrap_or(0);
    if previous == 0 { own } else { add_frame(layout, previous, own) }
}

#[inline(always)]
fn add_frame(layout: &Layout, frame: u64, sum: u64) -> u64 {
    let is_long = layout.lasti_unit != 0;
    let start = if is_long { frame.wrapping_add(u64::from(layout.frame_instruction) & !7) } else { frame };
    let count = if is_long { LONG_WORDS } else { FRAME_WORDS };
    let Some(words) = CALL_SITE_FRAME.get_ptr_mut(0) else { return sum };
    // SAFETY: the pointer is into this CPU's slot, which no other program uses meanwhile; the helper checks the source.
    unsafe {
        let bytes = black_box((count * 8) as u32);
        if bytes > (LONG_WORDS * 8) as u32 || bpf_probe_read_user(words.cast(), bytes, start as *const c_void) != 0 {
            return mix(sum, frame);
        }
        let mut sum = mix(sum, frame);
        for index in 0..LONG_WORDS {
            if index >= count {
                break;
            }
            sum = mix(sum, (*words)[index]);
        }
        sum
    }
}

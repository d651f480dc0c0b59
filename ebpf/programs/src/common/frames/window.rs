//! Reads of Python frames. A read of user memory costs about 100 ns whatever its size, so one read fetches several
//! frames.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use pyobs_abi::process::{FRAME_MAX, WINDOW_MAX};

use crate::common::{
    memory::PAGE,
    walk::{WINDOW_WORDS, Walk},
};

impl Walk {
    /// Makes sure that the present frame is in the window. A new window begins below the frame, because callees' frames
    /// follow those of their callers, and stays within the frame's page, which is mapped for certain.
    #[inline(always)]
    pub fn read_frame(&mut self) -> bool {
        let size = u64::from(self.layout.frame_size.min(FRAME_MAX as u32));
        if self.frame < self.window_start || self.frame.wrapping_add(size) > self.window_end {
            let below = (self.frame & (PAGE - 1)).min(u64::from(self.layout.frame_window)).min(WINDOW_MAX as u64) & !7;
            let (start, length) = (self.frame.wrapping_sub(below), (below + size) as u32);
            if length > (WINDOW_WORDS * 8) as u32 {
                return false;
            }
            // SAFETY: the window holds `length` bytes; the helper checks the source.
            if unsafe { bpf_probe_read_user(self.window.as_mut_ptr().cast(), length, start as *const c_void) } != 0 {
                return false;
            }
            self.window_start = start;
            self.window_end = start.wrapping_add(length.into());
        }
        self.at = self.frame.wrapping_sub(self.window_start) as u32;
        true
    }

    /// Returns the word at `offset` in the present frame. Its upper bytes are zero if it is not aligned.
    #[inline(always)]
    pub fn field(&self, offset: u32) -> u64 {
        let offset = self.at.wrapping_add(offset);
        let index = (offset as usize >> 3) & (WINDOW_WORDS - 1);
        self.window[index] >> ((offset & 7) * 8)
    }
}

//! The stack walker: a state machine that takes one frame a step, so that `bpf_loop` drives it where the kernel has
//! that and a bounded loop elsewhere.
//!
//! The state lives in a map value. On the BPF stack the verifier would track its counters through every iteration
//! and give up ("too large").

use core::ffi::c_void;

use aya_ebpf::{
    helpers::generated::{bpf_loop, bpf_probe_read_user},
    macros::map,
    maps::PerCpuArray,
};
use pyobs_abi::{
    cpu::{CpuSample, walk},
    process::{FRAME_MAX, Layout, NONE, WINDOW_MAX},
    stack::{FRAMES_MAX, Frame, KERNEL_MAX},
};

use super::{checks::code_check, memory::user};

/// Steps of a walk: every frame, and the entry frames between them that are no Python frames.
const STEPS: u32 = 2 * FRAMES_MAX as u32;
/// Steps without `bpf_loop`: what an old verifier takes.
const STEPS_BOUNDED: u32 = 96;
/// A power of two that holds all that a stack can have, so that a mask bounds every index.
const WORDS: usize = 2048;
const _: () = assert!(KERNEL_MAX + 2 * FRAMES_MAX < WORDS);
/// What is read at once; a power of two, so that a mask bounds every index.
const WINDOW_WORDS: usize = (FRAME_MAX + WINDOW_MAX) / 8;
const _: () = assert!(WINDOW_WORDS.is_power_of_two());
const PAGE: u64 = 4096;

/// `_PyInterpreterFrame.owner` from which on it is no Python frame but the C stack's entry into the interpreter
/// (FRAME_OWNED_BY_CSTACK in 3.12 and 3.13, _BY_INTERPRETER and above from 3.14).
const OWNER_NOT_PYTHON: u64 = 3;
/// Low bits that mark a `_PyStackRef` from 3.14 on. Objects are aligned to 16 bytes, so plain pointers have none.
const TAG_BITS: u64 = 7;
/// No object lies in the first page.
const LOWEST_OBJECT: u64 = 4096;

#[repr(C)]
pub struct Walk {
    /// The record as it goes out: the sample, then words. The two must lie side by side.
    pub sample: CpuSample,
    pub words: [u64; WORDS],
    layout: Layout,
    /// The frame to take next.
    frame: u64,
    /// What was read last: from `window_start` to `window_end`, the present frame in it.
    window: [u64; WINDOW_WORDS],
    window_start: u64,
    window_end: u64,
    /// Where in `window` the present frame is, in bytes.
    at: u32,
}

#[map]
static WALK: PerCpuArray<Walk> = PerCpuArray::with_max_entries(1, 0);

const CONTINUE: i64 = 0;
const STOP: i64 = 1;

impl Walk {
    /// This CPU's state. The sampler does not nest: perf events of one CPU do not interrupt each other's programs.
    #[inline(always)]
    pub fn mine() -> Option<&'static mut Self> {
        // SAFETY: the pointer is into this CPU's slot, and the program cannot be re-entered on this CPU.
        WALK.get_ptr_mut(0).map(|walk| unsafe { &mut *walk })
    }

    /// Sets out from the innermost frame. Kernel frames are in place by now: Python frames follow them.
    #[inline(always)]
    pub fn start(&mut self, layout: &Layout, frame: u64) {
        self.layout = *layout;
        self.frame = frame;
        self.window_start = 0;
        self.window_end = 0;
        self.sample.walk = walk::TRUNCATED;
    }

    #[inline(always)]
    pub fn run(&mut self) {
        let mut state: *mut Self = self;
        // SAFETY: the callback has the signature that the helper calls, and `state` lives through the call.
        unsafe { bpf_loop(STEPS, step_callback as *mut c_void, (&raw mut state).cast(), 0) };
    }

    /// For kernels before 5.17.
    #[inline(always)]
    pub fn run_bounded(&mut self) {
        for _ in 0..STEPS_BOUNDED {
            if self.step() == STOP {
                break;
            }
        }
    }

    #[inline(always)]
    fn end(&mut self, outcome: u32) -> i64 {
        self.sample.walk = outcome;
        STOP
    }

    #[inline(always)]
    fn step(&mut self) -> i64 {
        if self.frame == 0 {
            return self.end(walk::COMPLETE);
        }
        if self.sample.frames >= FRAMES_MAX as u32 {
            return STOP;
        }
        if !self.read_frame() {
            return self.end(walk::FRAME_UNREADABLE);
        }
        let previous = self.field(self.layout.frame_previous);
        if self.layout.frame_owner != NONE && self.field(self.layout.frame_owner) & 0xff >= OWNER_NOT_PYTHON {
            self.frame = previous;
            return CONTINUE;
        }
        let code = self.field(self.layout.frame_code) & !TAG_BITS;
        if code < LOWEST_OBJECT {
            return self.end(walk::FRAME_INVALID);
        }
        let instruction = self.field(self.layout.frame_instruction);
        let offset = if self.layout.lasti_unit == 0 {
            instruction.wrapping_sub(self.bytecode(code)) as i64
        } else {
            i64::from(instruction as u32 as i32) * i64::from(self.layout.lasti_unit)
        };
        let check = code_check(&self.sample.header, &self.layout, code);
        self.push(Frame::python(code, check, offset));
        self.frame = previous;
        CONTINUE
    }

    /// Puts the present frame into the window, if it is not there yet. A read costs some 80 ns whatever its size, so it
    /// takes along what lies below the frame, up to the page's start: that much is mapped, for the frame is.
    #[inline(always)]
    fn read_frame(&mut self) -> bool {
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

    /// Where the bytecode that the present frame runs begins. Free-threaded builds have a copy for each thread
    /// (`_PyCode_GetTLBCFast`, Include/internal/pycore_code.h); 0, which no offset fits, where it cannot be read.
    #[inline(always)]
    fn bytecode(&self, code: u64) -> u64 {
        if self.layout.frame_copy == NONE {
            return code.wrapping_add(self.layout.code_start.into());
        }
        let index = self.field(self.layout.frame_copy) as u32;
        let Some(copies) = user::<u64>(code.wrapping_add(self.layout.code_copies.into())) else { return 0 };
        user(copies.wrapping_add(8 + 8 * u64::from(index))).unwrap_or(0)
    }

    /// The word of the present frame that begins at `offset`; its upper bytes are zero where it is not aligned.
    #[inline(always)]
    fn field(&self, offset: u32) -> u64 {
        let offset = self.at.wrapping_add(offset);
        let index = (offset as usize >> 3) & (WINDOW_WORDS - 1);
        self.window[index] >> ((offset & 7) * 8)
    }

    #[inline(always)]
    fn push(&mut self, frame: Frame) {
        let index = self.sample.kernel_frames as usize + 2 * self.sample.frames as usize;
        self.words[index & (WORDS - 1)] = frame.address;
        self.words[(index + 1) & (WORDS - 1)] = frame.detail;
        self.sample.frames += 1;
    }

    /// The record: the sample and the words in use.
    #[inline(always)]
    pub fn record(&self) -> &[u8] {
        let words = self.sample.kernel_frames as usize + 2 * self.sample.frames as usize;
        let length = size_of::<CpuSample>() + 8 * (words & (WORDS - 1));
        // SAFETY: `words` follows `sample` without a gap (repr(C), both aligned to 8) and holds the masked length.
        unsafe { core::slice::from_raw_parts((&raw const *self).cast(), length) }
    }
}

unsafe extern "C" fn step_callback(_index: u32, state: *mut c_void) -> i64 {
    // SAFETY: `run` passes a pointer to a pointer to the state.
    unsafe { (**state.cast::<*mut Walk>()).step() }
}

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
    process::{FRAME_MAX, Layout, NONE, fold},
    stack::{FRAMES_MAX, Frame, KERNEL_MAX},
};

use super::memory::user;

/// Steps of a walk: every frame, and the entry frames between them that are no Python frames.
const STEPS: u32 = 2 * FRAMES_MAX as u32;
/// Steps without `bpf_loop`: what an old verifier takes.
const STEPS_BOUNDED: u32 = 96;
/// A power of two that holds all that a stack can have, so that a mask bounds every index.
const WORDS: usize = 2048;
const _: () = assert!(KERNEL_MAX + 2 * FRAMES_MAX < WORDS);
const FRAME_WORDS: usize = FRAME_MAX / 8;

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
    /// The present frame's bytes.
    header: [u64; FRAME_WORDS],
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
        let size = self.layout.frame_size;
        if size == 0 || size > FRAME_MAX as u32 {
            return self.end(walk::FRAME_INVALID);
        }
        // SAFETY: the destination holds FRAME_MAX bytes and `size` is not above; the helper checks the source.
        if unsafe { bpf_probe_read_user(self.header.as_mut_ptr().cast(), size, self.frame as *const c_void) } != 0 {
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
        let check = user::<u64>(code.wrapping_add(self.layout.code_check.into())).map_or(0, fold);
        self.push(Frame::python(code, check, offset));
        self.frame = previous;
        CONTINUE
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
        let index = (offset as usize >> 3) & (FRAME_WORDS - 1);
        self.header[index] >> ((offset & 7) * 8)
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

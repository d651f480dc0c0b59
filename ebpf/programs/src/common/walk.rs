//! The stack walker: a state machine that takes a few frames in each step, so that `bpf_loop` drives it on kernels that
//! have it, and a bounded loop elsewhere. It takes the native frames first, from the leaf to the root, then the Python
//! frames, each chain of them with the C frame that runs it.
//!
//! The state lives in a map value. On the BPF stack, the verifier would track its counters through every iteration and
//! give up ("too large").

use core::{ffi::c_void, hint::black_box, mem::offset_of};

use aya_ebpf::{
    helpers::{bpf_get_smp_processor_id, generated::bpf_loop},
    macros::map,
    maps::Array,
};
use pyobs_abi::{
    control::FAMILY_GIL,
    process::{FRAME_MAX, Layout, PYTHON, Process, WINDOW_MAX},
    stack::{
        FRAMES_MAX, Frame, GENERATORS, KERNEL_MAX, NATIVE_MAX, Sample, flags, loop_word, native, native_address, walk,
    },
};

use super::{
    copies::copy_code,
    cpython::{Top, top_frame},
    gil::holder,
    maps::{HAS_LOOP, LAYOUTS, is_on},
    messages, new_code,
    registers::Registers,
    ring::{self, Route},
};

/// Bounds the steps of a walk: enough for all frames and the shims between them if each step takes a quarter of what it
/// can, as some do. Beyond that the stack is truncated.
const STEPS: u32 = (NATIVE_MAX + 3 * FRAMES_MAX) as u32 / (FRAMES_A_STEP / 4);
/// A power of two that holds the largest stack, so that a mask bounds every index.
const WORDS: usize = 8192;
const _: () = assert!(KERNEL_MAX + NATIVE_MAX + 2 * FRAMES_MAX < WORDS);
/// The size of a read of Python frames; a power of two, so that a mask bounds every index.
pub const WINDOW_WORDS: usize = (FRAME_MAX + WINDOW_MAX) / 8;
const _: () = assert!(WINDOW_WORDS.is_power_of_two());
/// The size of a read of the C stack; a power of two, so that a mask bounds every index.
pub const STACK_WORDS: usize = 256;
const _: () = assert!(STACK_WORDS.is_power_of_two());
/// Frames that one step takes. Each step is a call, which costs as much as a small frame.
const FRAMES_A_STEP: u32 = 8;
/// Bounds the C frames of the interpreter's loop that are remembered. Frames beyond that are not joined.
const EVALS: usize = FRAMES_MAX;
const _: () = assert!(EVALS.is_power_of_two());

/// A C frame of the interpreter's loop.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Eval {
    /// Its range: from its stack pointer to its CFA.
    pub start: u64,
    pub end: u64,
    /// The number of its native word.
    pub word: u64,
}

/// What is being walked.
pub struct Phase;

impl Phase {
    pub const NATIVE: u32 = 0;
    pub const PYTHON: u32 = 1;
    /// Python frames, with no native frames before them.
    pub const BEGIN: u32 = 2;
}

/// What every walk uses comes first: a walk touches few pages, which are not in the CPU's caches when it begins.
#[repr(C)]
pub struct Walk {
    pub layout: Layout,
    pub phase: u32,
    /// How the Python walk ends if nothing worse happens: one of `walk`, or 0.
    pub failure: u32,
    /// Which of its CPU's states this is.
    pub slot: u32,

    /// This state's index in `WALKS`.
    pub number: u32,
    pub padding: u32,
    /// Not 0 if a Python frame runs new code that could not be copied.
    pub has_unknown_code: u64,

    // Native frames.
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
    /// The last part of the stack that was read: from `stack_start` to `stack_end`.
    pub stack_start: u64,
    pub stack_end: u64,
    pub stack: [u64; STACK_WORDS],
    /// The mappings of the process.
    pub mappings: u32,
    pub mapping_count: u32,
    pub mapping_set: u32,
    pub loops: [[u64; 2]; 2],

    // Python frames.
    /// The thread state.
    pub state: u64,
    /// What the thread state points to: the innermost frame or a `_PyCFrame`; 0 for none.
    pub top: u64,
    pub code_type: u64,
    /// The code of the event loop's function that runs one turn; 0 if unknown.
    pub turn_code: u64,
    /// The frame to take next.
    pub frame: u64,
    /// A frame before it in its chain, to detect a cycle; 0 for none.
    pub mark: u64,
    /// The runs of generators' frames so far, and whether the frame before the present one is in the last of them.
    pub runs: u32,
    pub in_run: u32,
    /// The distance from a `_PyCFrame` to the end of its C frame.
    pub distance: u64,
    /// The frame with which the next chain must begin; 0 after the last.
    pub expected: u64,
    pub evals: u32,
    /// The number of the C frame whose chain is walked.
    pub eval: u32,
    /// The number of the C frame with the first chain.
    pub first_eval: u32,
    /// The number of frames before the present chain, and before the previous one.
    pub chain_start: u32,
    pub previous_chain_start: u32,
    /// The offset of the present frame in `window`, in bytes.
    pub at: u32,
    /// The last part of memory that was read: from `window_start` to `window_end`, with the present frame in it.
    pub window_start: u64,
    pub window_end: u64,
    pub window: [u64; WINDOW_WORDS],

    /// The present native frame is at an instruction of its own, not behind a call.
    pub leaf: bool,
    /// The chains are found through `_PyCFrame`s.
    pub anchored: bool,

    /// The record as it is sent: the sample, then the words. The two must be neighbours.
    pub sample: Sample,
    pub words: [u64; WORDS],
    eval_frames: [Eval; EVALS],
}

/// The states: [`SLOTS`] for each CPU. Not a per-CPU array, whose values may not be this large. User space sets the
/// size.
#[map]
static WALKS: Array<Walk> = Array::with_max_entries(SLOTS, 0);

/// The states of a CPU. A walk in interrupt context can begin while one in another context is under way.
pub const SLOTS: u32 = 3;
pub const SLOT_INTERRUPT: u32 = 0;
pub const SLOT_TASK: u32 = 1;
/// For programs that can be preempted, which have to make sure that only one uses it.
pub const SLOT_PROBE: u32 = 2;

pub const CONTINUE: i64 = 0;
pub const STOP: i64 = 1;

#[inline(always)]
pub fn state(number: u32) -> Option<&'static mut Walk> {
    // SAFETY: a state belongs to one CPU and one context, which is not entered again while it runs.
    WALKS.get_ptr_mut(number).map(|walk| unsafe { &mut *walk })
}

impl Walk {
    /// Returns the number of this CPU's state for a context.
    #[inline(always)]
    pub fn number(slot: u32) -> u32 {
        // SAFETY: the helper has no preconditions.
        SLOTS * unsafe { bpf_get_smp_processor_id() } + slot
    }

    /// A state, made ready for a new record.
    #[inline(always)]
    pub fn begin(number: u32, slot: u32) -> Option<&'static mut Self> {
        let walk = state(number)?;
        walk.slot = slot;
        walk.number = number;
        walk.sample.weight = 0;
        walk.sample.flags = 0;
        walk.failure = 0;
        walk.has_unknown_code = 0;
        walk.sample.walk = walk::NO_PYTHON;
        walk.sample.native = native::NONE;
        walk.sample.kernel_frames = 0;
        walk.sample.native_frames = 0;
        walk.sample.frames = 0;
        walk.sample.detail = [0; 2];
        (walk.sample.generators, walk.sample.generator_frames) = ([0; GENERATORS], [0; GENERATORS]);
        (walk.runs, walk.in_run) = (0, 0);
        walk.sample.turn = 0;
        Some(walk)
    }

    /// Begins at the registers. Kernel frames are in place by now; the others follow them.
    #[inline(always)]
    pub fn start(&mut self, process: &Process, registers: &Registers) {
        self.ip = if registers.after { registers.ip.wrapping_sub(1) } else { registers.ip };
        (self.sp, self.bp) = (registers.sp, registers.bp);
        self.leaf = true;
        self.anchored = false;
        (self.evals, self.eval, self.first_eval) = (0, 0, 0);
        self.stack_end = 0;
        (self.mappings, self.mapping_count) = (process.mappings, process.mapping_count);
        self.mapping_set = process.mapping_set;
        self.phase = Phase::NATIVE;
        (self.state, self.top) = (0, 0);
        self.loops = [[0; 2]; 2];
        if process.flags & PYTHON != 0 {
            self.python(process, registers.ip);
        }
    }

    #[inline(always)]
    fn python(&mut self, process: &Process, ip: u64) {
        let Some(layout) = LAYOUTS.get(process.layout) else { return };
        let pc = if self.sample.flags & flags::KERNEL_MODE == 0 { ip } else { 0 };
        match top_frame(process, layout, pc) {
            Top::Nothing => {}
            Top::Unreadable => self.sample.walk = walk::THREAD_STATE_UNREADABLE,
            Top::Frame { state, frame } => {
                self.layout = *layout;
                self.loops = process.loops;
                self.code_type = process.code_type;
                self.turn_code = process.turn.code;
                self.top = frame;
                self.state = state;
                if is_on(FAMILY_GIL) && holder(process, layout, state) == Some(state) {
                    self.sample.flags |= flags::HOLDS_GIL;
                }
            }
        }
    }

    /// Begins at the frames of another thread of the current process, which has no registers to unwind from.
    #[inline(always)]
    pub fn start_at(&mut self, process: &Process, layout: &Layout, frame: u64) {
        self.anchored = false;
        (self.evals, self.eval, self.first_eval) = (0, 0, 0);
        self.layout = *layout;
        self.code_type = process.code_type;
        self.turn_code = 0;
        self.top = frame;
        self.phase = Phase::BEGIN;
    }

    /// Walks with the state of this number.
    #[inline(always)]
    pub fn run(mut number: u32) {
        if HAS_LOOP.load() != 0 {
            // SAFETY: the callback has the signature that the helper calls, and `number` lives through the call.
            unsafe { bpf_loop(STEPS, step_callback as *mut c_void, (&raw mut number).cast(), 0) };
            return;
        }
        for _ in 0..STEPS {
            if walk_step(number) != CONTINUE as u64 {
                break;
            }
        }
    }

    /// Takes some frames.
    #[inline(always)]
    fn step(&mut self) -> i64 {
        // Hidden from the compiler, which would unroll the loop. Code that is not in the CPU's caches costs more than
        // the loop.
        let frames = black_box(FRAMES_A_STEP);
        let mut taken = 0;
        if self.phase == Phase::NATIVE {
            while taken < frames {
                if let Err(outcome) = self.native_step() {
                    return self.end_native(outcome);
                }
                taken += 1;
            }
            return CONTINUE;
        }
        if self.phase != Phase::PYTHON {
            return self.begin_python();
        }
        while taken < frames {
            let step = self.python_step();
            if self.follow(step) != CONTINUE {
                return STOP;
            }
            taken += 1;
        }
        CONTINUE
    }

    #[inline(always)]
    pub fn end(&mut self, outcome: u32) -> i64 {
        if self.sample.walk != walk::THREAD_STATE_UNREADABLE {
            let failed = outcome == walk::COMPLETE && self.failure != 0;
            self.sample.walk = if failed { self.failure } else { outcome };
        }
        STOP
    }

    #[inline(always)]
    pub fn end_native(&mut self, outcome: u32) -> i64 {
        self.sample.native = outcome;
        self.first_eval = self.eval;
        self.begin_python()
    }

    #[inline(always)]
    pub fn push_native(&mut self, word: u64) {
        let number = self.sample.native_frames;
        self.sample.native_frames = number + 1;
        self.set_native(number, word);
    }

    #[inline(always)]
    pub fn set_native(&mut self, number: u32, word: u64) {
        let index = self.sample.kernel_frames as usize + number as usize;
        self.words[index & (WORDS - 1)] = word;
    }

    #[inline(always)]
    pub fn keep_eval(&mut self, eval: Eval) -> bool {
        if self.evals >= EVALS as u32 {
            return false;
        }
        self.eval_frames[self.evals as usize & (EVALS - 1)] = eval;
        self.evals += 1;
        true
    }

    #[inline(always)]
    pub fn eval_at(&self, number: u32) -> Option<Eval> {
        if number >= self.evals {
            return None;
        }
        Some(self.eval_frames[number as usize & (EVALS - 1)])
    }

    /// Sets how many Python frames a C frame of the loop has.
    #[inline(always)]
    pub fn set_count(&mut self, number: u32, count: u32) {
        let Some(eval) = self.eval_at(number) else { return };
        let index = self.sample.kernel_frames as usize + eval.word as usize;
        let word = &mut self.words[index & (WORDS - 1)];
        *word = loop_word(native_address(*word), count);
    }

    /// Takes a Python frame. `is_seen` if a walk on this CPU had its code object before.
    #[inline(always)]
    pub fn push(&mut self, frame: Frame, is_seen: bool) {
        let before = self.sample.kernel_frames as usize + self.sample.native_frames as usize;
        let index = before + 2 * self.sample.frames as usize;
        self.words[index & (WORDS - 1)] = frame.address;
        self.words[(index + 1) & (WORDS - 1)] = frame.detail;
        self.sample.frames += 1;
        let pid = self.sample.header.pid;
        if !is_seen && frame.check() != 0 && new_code::mark_seen(pid, frame.address, frame.check()) {
            let is_copied = self.layout.code_size != 0 && copy_code(self.number, frame.address, frame.check()) != 0;
            self.has_unknown_code |= u64::from(!is_copied);
        }
    }

    /// Returns the Python frame with this number, from 0 for the innermost.
    #[inline(always)]
    pub fn python_frame(&self, number: u32) -> Option<Frame> {
        if number >= self.sample.frames {
            return None;
        }
        let index = (self.sample.kernel_frames + self.sample.native_frames + 2 * number) as usize;
        Some(Frame { address: self.words[index & (WORDS - 1)], detail: self.words[(index + 1) & (WORDS - 1)] })
    }

    /// Sends the record, and wakes user space if it may not know the code in it.
    #[inline(always)]
    pub fn send(&self) {
        if messages::are_on() && (self.sample.walk > walk::COMPLETE || self.sample.native > native::COMPLETE) {
            let Sample { header, walk, native, .. } = &self.sample;
            messages::incomplete(header.pid, header.tid, *walk, *native);
        }
        let is_urgent = new_code::should_wake(self.has_unknown_code != 0, self.sample.header.time);
        ring::send(self.record(), if is_urgent { Route::urgent() } else { Route::lazy() });
    }

    /// Returns the record: the sample and the words in use.
    #[inline(always)]
    pub fn record(&self) -> &[u8] {
        let sample = &self.sample;
        let words = sample.kernel_frames as usize + sample.native_frames as usize + 2 * sample.frames as usize;
        let length = size_of::<Sample>() + 8 * (words & (WORDS - 1));
        // SAFETY: `words` follows `sample` without a gap (repr(C), both aligned to 8) and holds the masked length. The
        // pointer is derived from the state as a whole, so it may lead from one field to the other.
        unsafe { core::slice::from_raw_parts((&raw const *self).cast::<u8>().add(offset_of!(Self, sample)), length) }
    }
}

/// One step of the state of this number. A function of its own, so that it is verified once, not for each iteration.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn walk_step(number: u32) -> u64 {
    let Some(walk) = state(number) else { return STOP as u64 };
    walk.step() as u64
}

unsafe extern "C" fn step_callback(_index: u32, number: *mut c_void) -> i64 {
    // SAFETY: `run` passes a pointer to the number.
    let stop = walk_step(unsafe { *number.cast::<u32>() });
    // The verifier knows nothing about the result of a function, and has to see that this is 0 or 1.
    i64::from(black_box(stop) != CONTINUE as u64)
}

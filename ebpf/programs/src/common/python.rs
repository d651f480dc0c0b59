//! A step from a Python frame to its caller, and the joining of Python frames with the C frames that run them.
//!
//! Each C frame of the interpreter's loop runs a chain of Python frames of its own. Which, is told by what lies in the
//! C frame: a `_PyCFrame` that points to the innermost of them (3.11, 3.12), a shim below the outermost (3.12 and
//! newer). A thread can be caught while the loop is being entered or left: the `_PyCFrame` is published before it is
//! filled in, so that what it points to is whatever lay there. A chain therefore counts only once it has led to its own
//! C frame's end, and neither in a circle nor (3.11) to an end that is another's; else it is taken back, and the walk goes
//! on from the next C frame.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use pyobs_abi::{
    process::{FRAME_MAX, NONE, WINDOW_MAX, entry},
    record::GIL_HOLDER,
    stack::{FRAMES_MAX, Frame, flags, native, walk},
};

use super::{
    checks::{NO_CODE, UNREADABLE, check_code},
    memory::{PAGE, user},
    walk::{CONTINUE, Phase, STOP, WINDOW_WORDS, Walk},
};

/// `_PyInterpreterFrame.owner` from which on it is no Python frame but the C stack's entry into the interpreter
/// (FRAME_OWNED_BY_CSTACK in 3.12 and 3.13, _BY_INTERPRETER and above from 3.14).
const OWNER_NOT_PYTHON: u64 = 3;
/// Low bits that mark a `_PyStackRef` from 3.14 on. Objects are aligned to 16 bytes, so plain pointers have none.
const TAG_BITS: u64 = 7;
/// No object lies in the first page.
const LOWEST_OBJECT: u64 = 4096;
/// More than a `PyThreadState` of 3.11 takes.
const THREAD_STATE_MAX: u64 = 4096;

/// The C frames in which a greenlet begins, up to its first `_PyCFrame`, take less than this.
const GREENLET_START_MAX: u64 = 16 << 10;

/// Where a step from a Python frame leads.
pub enum Step {
    To(u64),
    /// The present C frame's chain ends here; the next begins with this frame, or is not known by it (0).
    EndOfChain(u64),
    /// What looked like the present C frame's chain is none.
    Drop(u32),
    /// The frame cannot be one: so is its chain, where there are several.
    Bad(u32),
    End(u32),
    Truncated,
}

impl Walk {
    /// Sets out from the innermost frame, when the native frames are done.
    #[inline(always)]
    pub fn begin_python(&mut self) -> i64 {
        if self.top == 0 {
            return self.end(walk::NO_PYTHON);
        }
        self.sample.walk = walk::TRUNCATED;
        self.window_end = 0;
        self.expected = 0;
        self.chain_start = 0;
        self.mark = 0;
        if self.anchored {
            return self.begin_chain();
        }
        let mut frame = self.top;
        if self.layout.cframe_frame != NONE {
            // No C frame has it: the native frames were cut short, or the thread runs no Python now.
            match user(self.top.wrapping_add(self.layout.cframe_frame.into())) {
                Some(current) => frame = current,
                None => return self.end(walk::FRAME_UNREADABLE),
            }
            self.evals = 0;
        }
        if frame == 0 {
            return self.end(walk::NO_PYTHON);
        }
        self.frame = frame;
        self.phase = Phase::PYTHON;
        CONTINUE
    }

    /// Sets out from the innermost Python frame of the present C frame, which its `_PyCFrame` knows.
    #[inline(always)]
    fn begin_chain(&mut self) -> i64 {
        self.phase = Phase::PYTHON;
        self.chain_start = self.sample.frames;
        self.mark = 0;
        let Some(eval) = self.eval_at(self.eval) else {
            // The last C frame is done.
            return self.end_of_chains();
        };
        let cframe = eval.end.wrapping_sub(self.distance);
        let Some(frame) = user::<u64>(cframe.wrapping_add(self.layout.cframe_frame.into())) else {
            return self.end(walk::FRAME_UNREADABLE);
        };
        // A chain that ends in nothing is the last of its interpreter: the C frame below runs another's.
        let leads_on = self.expected == 0 || self.expected == frame;
        if self.layout.entry == entry::FLAG && self.eval != self.first_eval && !leads_on {
            // What the C frame before had was no chain.
            if self.eval != self.first_eval + 1 {
                self.sample.flags |= flags::UNJOINED;
            }
            self.sample.flags |= flags::UNPUBLISHED;
            self.sample.frames = self.previous_chain_start;
            self.chain_start = self.previous_chain_start;
            self.set_count(self.eval - 1, 0);
        }
        self.frame = frame;
        CONTINUE
    }

    /// All C frames have their Python frames; nothing may be left.
    #[inline(always)]
    fn end_of_chains(&mut self) -> i64 {
        if self.expected == 0 {
            return self.end(walk::COMPLETE);
        }
        if self.sample.native == native::COMPLETE {
            self.sample.flags |= flags::UNJOINED;
        }
        self.anchored = false;
        self.frame = self.expected;
        CONTINUE
    }

    /// The present C frame's chain has led to its end.
    #[inline(always)]
    fn end_chain(&mut self, previous: u64) -> i64 {
        let is_last = previous == 0 && self.ends_greenlet();
        if previous == 0 && !is_last && self.ends_too_soon() {
            return self.drop_chain(walk::FRAME_INVALID);
        }
        self.set_count(self.eval, self.sample.frames.wrapping_sub(self.chain_start));
        if is_last {
            return self.end(walk::COMPLETE);
        }
        self.expected = previous;
        self.previous_chain_start = self.chain_start;
        self.eval += 1;
        if self.anchored {
            return self.begin_chain();
        }
        self.chain_start = self.sample.frames;
        self.frame = previous;
        CONTINUE
    }

    /// Whether a chain that ends in nothing cannot be the innermost C frame's, where that is being entered or left: only the
    /// first C frame of an interpreter has such a one, and there is a `_PyCFrame` before it in the thread state itself.
    #[inline(always)]
    fn ends_too_soon(&self) -> bool {
        if self.layout.entry != entry::FLAG || self.eval != self.first_eval || self.eval + 1 >= self.evals {
            return false;
        }
        let Some(eval) = self.eval_at(self.eval) else { return false };
        if eval.word != 0 {
            return false;
        }
        let cframe = self.cframe(eval.end.wrapping_sub(self.distance));
        cframe.is_none_or(|[_, outer]| !self.is_in_thread_state(outer))
    }

    /// Whether a chain whose last frame has no caller is a greenlet's. The C frames below it belong to another greenlet. A greenlet
    /// starts with a `_PyCFrame` of its own on the C stack, which has no frame and points to the thread state's (`set_new_cframe` in
    /// TPythonState.cpp of greenlet 3). The first C frame of an interpreter points to the thread state's directly.
    #[inline(always)]
    fn ends_greenlet(&self) -> bool {
        if !self.anchored || self.eval + 1 >= self.evals || self.sample.frames == self.chain_start {
            return false;
        }
        let Some(eval) = self.eval_at(self.eval) else { return false };
        let Some([_, outer]) = self.cframe(eval.end.wrapping_sub(self.distance)) else { return false };
        if outer < eval.end || outer.wrapping_sub(eval.end) >= GREENLET_START_MAX {
            return false;
        }
        self.cframe(outer).is_some_and(|[frame, previous]| frame == 0 && self.is_in_thread_state(previous))
    }

    /// `current_frame` and `previous` of a `_PyCFrame`, which lie side by side.
    #[inline(always)]
    fn cframe(&self, address: u64) -> Option<[u64; 2]> {
        user(address.wrapping_add(self.layout.cframe_frame.into()))
    }

    #[inline(always)]
    fn is_in_thread_state(&self, address: u64) -> bool {
        address.wrapping_sub(self.state) < THREAD_STATE_MAX
    }

    /// Whether the present frame was met before in its chain. What is kept to be met again is the frame at each power of two,
    /// so that a cycle is known before it is four times as long as what there is to meet.
    #[inline(always)]
    fn is_met_again(&mut self) -> bool {
        if self.frame == self.mark {
            return true;
        }
        let count = self.sample.frames.wrapping_sub(self.chain_start);
        if count & count.wrapping_sub(1) == 0 {
            self.mark = self.frame;
        }
        false
    }

    /// What looked like the present C frame's chain is none.
    #[inline(always)]
    fn drop_chain(&mut self, outcome: u32) -> i64 {
        // A loop that has called something is neither being entered nor left.
        if self.eval_at(self.eval).is_none_or(|eval| eval.word != 0) {
            self.failure = outcome;
        }
        // Only the innermost can be caught in the making.
        if self.eval != self.first_eval {
            self.sample.flags |= flags::UNJOINED;
        }
        self.sample.flags |= flags::UNPUBLISHED;
        self.sample.frames = self.chain_start;
        self.set_count(self.eval, 0);
        self.eval += 1;
        // Of the next chain it is not known where it should begin.
        self.first_eval = self.eval;
        self.expected = 0;
        self.begin_chain()
    }

    /// Goes where a step leads: in one place, for there is much to it.
    #[inline(always)]
    pub fn follow(&mut self, step: Step) -> i64 {
        match step {
            Step::To(frame) => {
                self.frame = frame;
                CONTINUE
            }
            Step::EndOfChain(previous) => self.end_chain(previous),
            Step::Drop(outcome) => self.drop_chain(outcome),
            Step::Bad(outcome) if self.anchored => self.drop_chain(outcome),
            Step::Bad(outcome) | Step::End(outcome) => self.end(outcome),
            Step::Truncated => STOP,
        }
    }

    #[inline(always)]
    pub fn python_step(&mut self) -> Step {
        if self.frame == 0 {
            if self.anchored && self.layout.entry == entry::SHIM_AND_CFRAME {
                return Step::Drop(walk::FRAME_INVALID);
            }
            if self.anchored {
                // 3.11: a C frame about to return has no frame any more.
                return Step::EndOfChain(0);
            }
            return Step::End(walk::COMPLETE);
        }
        if self.is_met_again() {
            return Step::Bad(walk::FRAME_INVALID);
        }
        if !self.read_frame() {
            return Step::Bad(walk::FRAME_UNREADABLE);
        }
        let previous = self.field(self.layout.frame_previous);
        if self.layout.entry >= entry::SHIM_AND_CFRAME && self.is_shim() {
            return self.shim(previous);
        }
        if self.sample.frames >= FRAMES_MAX as u32 {
            return Step::Truncated;
        }
        let code = self.field(self.layout.frame_code) & !TAG_BITS;
        if code < LOWEST_OBJECT {
            return Step::Bad(walk::FRAME_INVALID);
        }
        let check = match check_code(self.number, code) {
            UNREADABLE => 0,
            NO_CODE if self.anchored => return Step::Drop(walk::FRAME_INVALID),
            // The frames of a thread that goes on meanwhile.
            NO_CODE if self.sample.header.kind == GIL_HOLDER => return Step::End(walk::FRAME_INVALID),
            check => check as u32,
        };
        let instruction = self.field(self.layout.frame_instruction);
        let offset = if self.layout.lasti_unit == 0 {
            instruction.wrapping_sub(self.bytecode(code)) as i64
        } else {
            i64::from(instruction as u32 as i32) * i64::from(self.layout.lasti_unit)
        };
        self.push(Frame::python(code, check, offset));
        if self.anchored && self.layout.entry == entry::FLAG && self.field(self.layout.frame_owner) & 0xff != 0 {
            return Step::EndOfChain(previous);
        }
        Step::To(previous)
    }

    /// Whether the present frame is the C stack's. What lies in a C frame of the loop is no Python frame, whatever it
    /// says of itself: those have memory of their own.
    #[inline(always)]
    fn is_shim(&self) -> bool {
        if self.field(self.layout.frame_owner) & 0xff >= OWNER_NOT_PYTHON {
            return true;
        }
        self.eval_at(self.eval).is_some_and(|eval| self.frame >= eval.start && self.frame < eval.end)
    }

    #[inline(always)]
    fn shim(&mut self, previous: u64) -> Step {
        let Some(eval) = self.eval_at(self.eval) else { return Step::To(previous) };
        if self.frame >= eval.start && self.frame < eval.end {
            return Step::EndOfChain(previous);
        }
        if self.anchored {
            return Step::Drop(walk::FRAME_INVALID);
        }
        if self.frame >= eval.end {
            // The C frame has no Python frame now: it is being entered or left.
            self.set_count(self.eval, 0);
            self.eval += 1;
            // It is taken again, as the next C frame's.
            self.mark = 0;
            return Step::To(self.frame);
        }
        // A shim of none of the C frames: 3.14 has one at the bottom of each thread's frames.
        Step::To(previous)
    }

    /// Puts the present frame into the window, if it is not there yet. A read costs some 100 ns whatever its size, so it
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
}

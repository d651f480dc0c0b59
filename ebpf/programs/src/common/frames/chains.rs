//! The joining of frames with the C frames that run them, from 3.11 on.
//!
//! Each C frame of the interpreter's loop runs a chain of Python frames. A thread can be caught while the loop is being
//! entered or left, when what its C frame points to is not a chain. So a chain counts only once it has led to the end
//! of its own C frame, without a cycle and (3.11) without reaching the end of another C frame. Otherwise its frames are
//! taken back, and the walk goes on with the next C frame.

use pyobs_abi::{
    process::entry,
    stack::{flags, native, walk},
};

use super::v3_11;
use crate::common::{
    memory::user,
    walk::{CONTINUE, Eval, Phase, Walk},
};

/// More than the size of a `PyThreadState` of 3.11 or 3.12.
const THREAD_STATE_MAX: u64 = 4096;

/// Bounds how far the first `_PyCFrame` of a greenlet lies above its innermost C frame of the loop. Beyond that, the
/// end of the greenlet is not recognised, and its C frames are joined with the frames of another.
const GREENLET_START_MAX: u64 = 16 << 10;

impl Walk {
    /// Begins the chain of the present C frame at the frame that its `_PyCFrame` points to.
    #[inline(always)]
    pub fn begin_chain(&mut self) -> i64 {
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
        if v3_11::contradicts_previous(self, frame) {
            self.take_back_previous();
        }
        self.frame = frame;
        CONTINUE
    }

    /// Removes the frames of the C frame inside the present one, which was caught while it was being entered or left.
    #[inline(always)]
    fn take_back_previous(&mut self) {
        if self.eval != self.first_eval + 1 {
            self.sample.flags |= flags::UNJOINED;
        }
        self.sample.frames = self.previous_chain_start;
        self.take_back_generators();
        self.chain_start = self.previous_chain_start;
        self.set_count(self.eval - 1, 0);
    }

    /// All C frames have their Python frames. If frames are left, the native walk ended too soon or a C frame was
    /// missed.
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

    /// The chain of the present C frame has led to its end. `previous` is the first frame of the next one.
    #[inline(always)]
    pub fn end_chain(&mut self, previous: u64) -> i64 {
        let is_last = previous == 0 && self.ends_greenlet();
        if previous == 0 && !is_last && v3_11::ends_too_soon(self) {
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

    /// What the present C frame pointed to is not a chain: takes its frames back.
    #[inline(always)]
    pub fn drop_chain(&mut self, outcome: u32) -> i64 {
        // A loop that has called a function is neither being entered nor left.
        if self.eval_at(self.eval).is_none_or(|eval| eval.word != 0) {
            self.failure = outcome;
        }
        // Nor is a C frame other than the innermost.
        if self.eval != self.first_eval {
            self.sample.flags |= flags::UNJOINED;
        }
        self.sample.frames = self.chain_start;
        self.take_back_generators();
        self.set_count(self.eval, 0);
        self.eval += 1;
        // Where the next chain should begin is unknown.
        self.first_eval = self.eval;
        self.expected = 0;
        self.begin_chain()
    }

    /// Whether a chain whose last frame has no caller is that of a greenlet. The C frames further out then belong to
    /// another greenlet.
    ///
    /// A greenlet starts with a `_PyCFrame` of its own on the C stack, without a frame, that points to the thread
    /// state's. The first C frame of an interpreter points to the thread state's directly. See `set_new_cframe` in
    /// <https://github.com/python-greenlet/greenlet/blob/3.0.0/src/greenlet/TPythonState.cpp>.
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

    /// Returns `current_frame` and `previous` of a `_PyCFrame`, which are neighbours.
    #[inline(always)]
    pub fn cframe(&self, address: u64) -> Option<[u64; 2]> {
        user(address.wrapping_add(self.layout.cframe_frame.into()))
    }

    #[inline(always)]
    pub fn is_in_thread_state(&self, address: u64) -> bool {
        address.wrapping_sub(self.state) < THREAD_STATE_MAX
    }

    /// Remembers a C frame of the loop that the native walk came through. `word` is the number of its native word,
    /// `start` its stack pointer and `end` its CFA.
    #[inline(always)]
    pub fn note_run(&mut self, word: u32, start: u64, end: u64) {
        if self.layout.entry == entry::EACH {
            return;
        }
        let number = self.evals;
        if !self.keep_eval(Eval { start, end, word: word.into() }) {
            return;
        }
        // The distance from the `_PyCFrame` to the CFA is the same in all C frames of the loop.
        let has_cframe = self.top >= start && self.top < end;
        if has_cframe && self.layout.entry != entry::SHIM && !self.anchored {
            self.anchored = true;
            self.eval = number;
            self.distance = end.wrapping_sub(self.top);
        }
    }
}

//! Python frames: from each to its caller, and to the C frame of the interpreter's loop that runs it.
//!
//! [`Walk::python_step`] takes one frame of any CPython. A file for each generation draws what lies in memory, and
//! holds what only that generation does: [`v3_6`] (3.6 to 3.10), [`v3_11`], [`v3_12`] and [`v3_13`] (3.13 and newer).
//! Offsets come from [`Layout`](pyobs_abi::process::Layout), which user space fills.

mod chains;
mod generators;
mod turns;
mod v3_11;
mod v3_12;
mod v3_13;
mod v3_6;
mod window;

use pyobs_abi::{
    process::{NONE, entry},
    record::GIL_HOLDER,
    stack::{FRAMES_MAX, Frame, walk},
};

use super::{
    checks::{NO_CODE, SEEN, UNREADABLE, check_code},
    memory::user,
    walk::{CONTINUE, Phase, STOP, Walk},
};

pub use v3_13::TAG_BITS;

/// No object lies in the first page.
pub const LOWEST_OBJECT: u64 = 4096;

/// Where a step from a Python frame leads.
pub enum Step {
    To(u64),
    /// The chain of the present C frame ends here. The next one begins with this frame, or 0 if that is unknown.
    EndOfChain(u64),
    /// What the present C frame pointed to is not a chain.
    Drop(u32),
    /// This is not a frame. If there are chains, the present one is dropped, else the walk ends.
    Bad(u32),
    End(u32),
    Truncated,
}

impl Walk {
    /// Begins with the innermost Python frame, once the native frames are done.
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
            // The `_PyCFrame` is in none of the C frames: the native walk was truncated, or the thread runs no Python
            // now.
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

    /// Takes the present frame, and returns where to go from it.
    #[inline(always)]
    pub fn python_step(&mut self) -> Step {
        if self.frame == 0 {
            return match self.layout.entry {
                entry::SHIM_AND_CFRAME if self.anchored => v3_12::NO_FRAME,
                _ if self.anchored => v3_11::NO_FRAME,
                _ => Step::End(walk::COMPLETE),
            };
        }
        if self.detect_cycle() {
            return Step::Bad(walk::FRAME_INVALID);
        }
        if !self.read_frame() {
            return Step::Bad(walk::FRAME_UNREADABLE);
        }
        let previous = self.field(self.layout.frame_previous);
        if v3_12::is_shim(self) {
            return v3_12::shim(self, previous);
        }
        if self.sample.frames >= FRAMES_MAX as u32 {
            return Step::Truncated;
        }
        let code = self.field(self.layout.frame_code) & !TAG_BITS;
        if code < LOWEST_OBJECT {
            return Step::Bad(walk::FRAME_INVALID);
        }
        let checked = check_code(self.number, code);
        let check = match checked {
            UNREADABLE => 0,
            NO_CODE if self.anchored => return Step::Drop(walk::FRAME_INVALID),
            // The holder of the GIL runs on while its frames are walked.
            NO_CODE if self.sample.header.kind == GIL_HOLDER => return Step::End(walk::FRAME_INVALID),
            check => check as u32,
        };
        let instruction = self.field(self.layout.frame_instruction);
        let offset = match self.layout.lasti_unit {
            0 => instruction.wrapping_sub(v3_13::bytecode(self, code)) as i64,
            unit => v3_6::offset(instruction, unit),
        };
        self.see_generator();
        self.see_turn(code);
        self.push(Frame::python(code, check, offset), checked & SEEN != 0);
        if v3_11::is_entry(self) {
            return Step::EndOfChain(previous);
        }
        Step::To(previous)
    }

    /// Goes where a step leads. In one place, because the verifier would follow each copy of this code.
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

    /// Whether the present frame was already met in its chain (Brent's algorithm). Remembers the frame at each power of
    /// two, so a cycle is found before the walk has taken four times as many steps as there are frames.
    #[inline(always)]
    fn detect_cycle(&mut self) -> bool {
        if self.frame == self.mark {
            return true;
        }
        let count = self.sample.frames.wrapping_sub(self.chain_start);
        if count & count.wrapping_sub(1) == 0 {
            self.mark = self.frame;
        }
        false
    }
}

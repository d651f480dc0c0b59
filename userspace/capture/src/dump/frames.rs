//! The Python frames of a thread state, read from outside.
//!
//! `ebpf/programs/src/common/frames` has drawings of the structures. Unlike the kernel side, this walk need not match
//! Python frames with C frames.

use foldhash::HashSet;
use pyobs_abi::process::{self, NONE, entry};
use pyobs_abi::stack::{FRAMES_MAX, Frame};

use crate::memory::Memory;

/// From this `owner` on, a frame is a shim: see `frames/v3_12.rs`.
const OWNER_NOT_PYTHON: u8 = 3;
/// The low bits that mark a `_PyStackRef`, from 3.14 on.
pub const TAG_BITS: u64 = 7;
/// No object lies in the first page.
const LOWEST_OBJECT: u64 = 4096;
/// Frames and shims that a walk takes.
const STEPS_MAX: usize = 2 * FRAMES_MAX;

/// A Python frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The address of the frame itself.
    pub address: u64,
    /// Its code object and position.
    pub frame: Frame,
}

/// The frames of a thread, innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    pub list: Vec<At>,
    /// The frames that one C frame of the interpreter's loop runs, from 3.11 on: how many, and the address of the shim in
    /// that C frame (from 3.12 on, else 0).
    pub runs: Vec<(u32, u64)>,
    words: Vec<(u64, u64)>,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    #[default]
    Complete,
    /// It has more frames than are read.
    Truncated,
    Unreadable,
}

impl At {
    /// A frame outside the stack of a thread, such as that of a coroutine.
    pub fn read(memory: &impl Memory, layout: &process::Layout, frame: u64) -> Option<Self> {
        let code = memory.read_u64(frame.wrapping_add(layout.frame_code.into())).ok()? & !TAG_BITS;
        if code < LOWEST_OBJECT {
            return None;
        }
        let offset = Frames::default().offset(memory, layout, frame, code)?;
        Some(Self { address: frame, frame: Frame::python(code, 0, offset) })
    }
}

impl Frames {
    /// The frames of a thread state.
    pub fn of(memory: &impl Memory, layout: &process::Layout, state: u64) -> Self {
        let mut frames = Self::default();
        if frames.walk(memory, layout, state).is_none() {
            frames.outcome = Outcome::Unreadable;
        }
        frames
    }

    /// The words that the walk went by: where each lies, and its value.
    pub fn words(&self) -> &[(u64, u64)] {
        &self.words
    }

    fn word(&mut self, memory: &impl Memory, address: u64) -> Option<u64> {
        let word = memory.read_u64(address).ok()?;
        self.words.push((address, word));
        Some(word)
    }

    fn walk(&mut self, memory: &impl Memory, layout: &process::Layout, state: u64) -> Option<()> {
        let mut frame = self.word(memory, state.wrapping_add(layout.thread_frame.into()))?;
        if frame != 0 && layout.cframe_frame != NONE {
            frame = self.word(memory, frame.wrapping_add(layout.cframe_frame.into()))?;
        }
        let mut seen = HashSet::default();
        for _ in 0..STEPS_MAX {
            if frame == 0 {
                return Some(());
            }
            if !seen.insert(frame) {
                return None;
            }
            let at = |field: u32| frame.wrapping_add(field.into());
            let previous = self.word(memory, at(layout.frame_previous))?;
            let has_shims = layout.entry >= entry::SHIM_AND_CFRAME && layout.frame_owner != NONE;
            if has_shims && memory.read_u8(at(layout.frame_owner)).ok()? >= OWNER_NOT_PYTHON {
                self.end_run(frame);
                frame = previous;
                continue;
            }
            if self.list.len() >= FRAMES_MAX {
                break;
            }
            let code = self.word(memory, at(layout.frame_code))? & !TAG_BITS;
            if code < LOWEST_OBJECT {
                return None;
            }
            let offset = self.offset(memory, layout, frame, code)?;
            self.list.push(At { address: frame, frame: Frame::python(code, 0, offset) });
            if layout.entry == entry::FLAG && memory.read_u8(at(layout.frame_owner)).ok()? != 0 {
                self.end_run(0);
            }
            frame = previous;
        }
        self.outcome = Outcome::Truncated;
        Some(())
    }

    fn end_run(&mut self, shim: u64) {
        let before: u32 = self.runs.iter().map(|(count, _)| count).sum();
        let count = self.list.len() as u32 - before;
        if count > 0 {
            self.runs.push((count, shim));
        }
    }

    /// The offset of the frame's instruction in its bytecode. Of the innermost frame it changes all the time, and is
    /// not among the words that have to stay the same.
    fn offset(&mut self, memory: &impl Memory, layout: &process::Layout, frame: u64, code: u64) -> Option<i64> {
        let at = frame.wrapping_add(layout.frame_instruction.into());
        if layout.lasti_unit != 0 {
            let index = memory.read_u32(at).ok()?;
            return Some(i64::from(index as i32) * i64::from(layout.lasti_unit));
        }
        let instruction = if self.list.is_empty() { memory.read_u64(at).ok()? } else { self.word(memory, at)? };
        Some(instruction.wrapping_sub(bytecode(memory, layout, frame, code)?) as i64)
    }
}

/// The address of the bytecode that a frame runs: see `frames/v3_13.rs`.
fn bytecode(memory: &impl Memory, layout: &process::Layout, frame: u64, code: u64) -> Option<u64> {
    if layout.frame_copy == NONE {
        return Some(code.wrapping_add(layout.code_start.into()));
    }
    let index = memory.read_u32(frame.wrapping_add(layout.frame_copy.into())).ok()?;
    let copies = memory.read_u64(code.wrapping_add(layout.code_copies.into())).ok()?;
    memory.read_u64(copies.wrapping_add(8 + 8 * u64::from(index))).ok()
}

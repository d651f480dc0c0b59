//! Interns frames and stacks as small numbers. A new one is emitted as an event before it is used.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::HashMap;
use foldhash::quality::RandomState;
use pyobs_model::{Event, Frame, FrameId, StackId};

/// Distinct frames, some 200 bytes each, and stacks, some 40, so that days of watching stay within bounds. Further ones
/// get no number.
const FRAMES_MAX: usize = 200_000;
const STACKS_MAX: usize = 200_000;

#[derive(Debug, Default)]
pub struct Interner {
    frames: HashMap<Frame, FrameId>,
    /// By two hashes with seeds of their own. A stack's frames would take five times the memory. That any two of a
    /// million stacks share both hashes has a probability of 2^-89.
    stacks: HashMap<[u64; 2], StackId>,
    seeds: [RandomState; 2],
}

impl Interner {
    /// `None` if the table is full.
    pub fn frame(&mut self, frame: Frame, events: &mut Vec<Event>) -> Option<FrameId> {
        if let Some(id) = self.frames.get(&frame) {
            return Some(*id);
        }
        if self.frames.len() >= FRAMES_MAX {
            return None;
        }
        let id = FrameId(self.frames.len() as u32);
        events.push(Event::Frame { id, frame: frame.clone() });
        self.frames.insert(frame, id);
        Some(id)
    }

    /// `frames` is root first. `None` if the table is full.
    pub fn stack(&mut self, frames: &[FrameId], events: &mut Vec<Event>) -> Option<StackId> {
        let key = self.seeds.each_ref().map(|seed| seed.hash_one(frames));
        if let Some(id) = self.stacks.get(&key) {
            return Some(*id);
        }
        if self.stacks.len() >= STACKS_MAX {
            return None;
        }
        let id = StackId(self.stacks.len() as u32);
        events.push(Event::Stack { id, frames: Arc::from(frames) });
        self.stacks.insert(key, id);
        Some(id)
    }
}

//! Interns frames and stacks as small numbers. A new one is emitted as an event before it is used.

use std::sync::Arc;

use foldhash::HashMap;
use pyobs_model::{Event, Frame, FrameId, StackId};

/// Distinct frames and stacks, about 100 bytes each, so that days of watching stay within bounds. Further
/// ones get no number.
const FRAMES_MAX: usize = 200_000;
const STACKS_MAX: usize = 200_000;

#[derive(Debug, Default)]
pub struct Interner {
    frames: HashMap<Frame, FrameId>,
    stacks: HashMap<Arc<[FrameId]>, StackId>,
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
        if let Some(id) = self.stacks.get(frames) {
            return Some(*id);
        }
        if self.stacks.len() >= STACKS_MAX {
            return None;
        }
        let id = StackId(self.stacks.len() as u32);
        let frames: Arc<[FrameId]> = Arc::from(frames);
        events.push(Event::Stack { id, frames: Arc::clone(&frames) });
        self.stacks.insert(frames, id);
        Some(id)
    }
}

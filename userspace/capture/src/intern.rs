//! Interns frames and stacks as small numbers. A new one is emitted as an event before it is used.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use foldhash::HashMap;
use foldhash::quality::RandomState;
use pyobs_model::{Event, Frame, FrameId, StackId, Task, TaskId};

/// Bound the distinct frames, stacks and tasks, and with them the memory. Further ones get no number.
const FRAMES_MAX: usize = 200_000;
const STACKS_MAX: usize = 200_000;
const TASKS_MAX: usize = 200_000;

#[derive(Debug, Default)]
pub struct Interner {
    /// Keyed by two independently seeded hashes instead of the frames, to save memory. Together they have 128 bits, so a
    /// collision is not expected.
    frames: HashMap<[u64; 2], FrameId>,
    /// The same for stacks and tasks.
    stacks: HashMap<[u64; 2], StackId>,
    tasks: HashMap<[u64; 2], TaskId>,
    seeds: [RandomState; 2],
}

impl Interner {
    /// `None` if the table is full.
    pub fn frame(&mut self, frame: Frame, events: &mut Vec<Event>) -> Option<FrameId> {
        let key = self.key(&frame);
        if let Some(id) = self.frames.get(&key) {
            return Some(*id);
        }
        if self.frames.len() >= FRAMES_MAX {
            return None;
        }
        let id = FrameId(self.frames.len() as u32);
        events.push(Event::Frame { id, frame });
        self.frames.insert(key, id);
        Some(id)
    }

    /// `frames` is root first, and `task` is the task that runs there. `None` if the table is full.
    pub fn stack(&mut self, frames: &[FrameId], task: Option<TaskId>, events: &mut Vec<Event>) -> Option<StackId> {
        let key = self.key((frames, task));
        if let Some(id) = self.stacks.get(&key) {
            return Some(*id);
        }
        if self.stacks.len() >= STACKS_MAX {
            return None;
        }
        let id = StackId(self.stacks.len() as u32);
        events.push(Event::Stack { id, frames: Arc::from(frames) });
        events.extend(task.map(|task| Event::StackTask { stack: id, task }));
        self.stacks.insert(key, id);
        Some(id)
    }

    /// `None` if the table is full.
    pub fn task(&mut self, task: Task, events: &mut Vec<Event>) -> Option<TaskId> {
        let key = self.key(&task);
        if let Some(id) = self.tasks.get(&key) {
            return Some(*id);
        }
        if self.tasks.len() >= TASKS_MAX {
            return None;
        }
        let id = TaskId(self.tasks.len() as u32);
        events.push(Event::Task { id, task });
        self.tasks.insert(key, id);
        Some(id)
    }

    fn key(&self, of: impl Hash + Copy) -> [u64; 2] {
        self.seeds.each_ref().map(|seed| seed.hash_one(of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hashes_of_a_stack_are_independent() {
        let interner = Interner::default();
        let keys = [0, 1, 2].map(|last| interner.key([FrameId(7), FrameId(last)]));
        assert!(keys.iter().all(|[one, other]| one != other), "{keys:?}");
        assert_ne!(keys[0][0] ^ keys[0][1], keys[1][0] ^ keys[1][1]);
    }

    #[test]
    fn a_stack_keeps_its_number_and_is_defined_once() {
        let (mut interner, mut events) = (Interner::default(), Vec::new());
        let stacks: Vec<[FrameId; 2]> =
            (0..100).flat_map(|one| [1, 2].map(|two| [FrameId(one), FrameId(two)])).collect();
        for _ in 0..2 {
            for (id, stack) in (0..).zip(&stacks) {
                assert_eq!(interner.stack(stack, None, &mut events), Some(StackId(id)));
            }
        }
        assert_eq!(events.len(), stacks.len());
    }
}

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
        number(&mut self.frames, key, FRAMES_MAX, FrameId, |id| events.push(Event::Frame { id, frame }))
    }

    /// `frames` is root first, and `task` is the task that runs there. `None` if the table is full.
    pub fn stack(&mut self, frames: &[FrameId], task: Option<TaskId>, events: &mut Vec<Event>) -> Option<StackId> {
        let key = self.key((frames, task));
        number(&mut self.stacks, key, STACKS_MAX, StackId, |id| {
            events.push(Event::Stack { id, frames: Arc::from(frames) });
            events.extend(task.map(|task| Event::StackTask { stack: id, task }));
        })
    }

    /// `None` if the table is full.
    pub fn task(&mut self, task: Task, events: &mut Vec<Event>) -> Option<TaskId> {
        let key = self.key(&task);
        number(&mut self.tasks, key, TASKS_MAX, TaskId, |id| events.push(Event::Task { id, task }))
    }

    fn key(&self, of: impl Hash + Copy) -> [u64; 2] {
        self.seeds.each_ref().map(|seed| seed.hash_one(of))
    }
}

/// Returns the number of `key`, and defines it first if it is new.
fn number<Id: Copy>(
    known: &mut HashMap<[u64; 2], Id>,
    key: [u64; 2],
    most: usize,
    id: fn(u32) -> Id,
    define: impl FnOnce(Id),
) -> Option<Id> {
    if let Some(id) = known.get(&key) {
        return Some(*id);
    }
    if known.len() >= most {
        return None;
    }
    let id = id(known.len() as u32);
    define(id);
    known.insert(key, id);
    Some(id)
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

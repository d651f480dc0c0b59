//! Frames that were named before, by what the kernel saw.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use pyobs_abi::stack::Frame as RawFrame;
use pyobs_model::{FrameId, Nanos};

/// Frames that are kept for a process image; then it begins anew.
const FRAMES_MAX: usize = 100_000;
/// Ancestors whose names a process knows.
const ANCESTORS_MAX: usize = 8;

/// A name, and when it was learnt.
#[derive(Clone, Copy, Debug)]
struct Known {
    frame: FrameId,
    at: Nanos,
}

type Names = Rc<RefCell<HashMap<(u64, u64), Known>>>;

/// Names of one process image. A forked child has its parent's memory, and so the names that its parent had by then:
/// a child that lives for milliseconds is named without being read.
#[derive(Debug, Default)]
pub struct FrameCache {
    own: Names,
    /// The parent's, its parent's and so on, each with the time of the fork.
    inherited: Vec<(Names, Nanos)>,
}

impl FrameCache {
    pub fn get(&self, raw: RawFrame) -> Option<FrameId> {
        let key = (raw.address, raw.detail);
        if let Some(known) = self.own.borrow().get(&key) {
            return Some(known.frame);
        }
        self.inherited.iter().find_map(|(names, until)| {
            names.borrow().get(&key).filter(|known| known.at < *until).map(|known| known.frame)
        })
    }

    pub fn insert(&self, raw: RawFrame, frame: FrameId, at: Nanos) {
        let mut own = self.own.borrow_mut();
        if own.len() >= FRAMES_MAX {
            own.clear();
        }
        own.insert((raw.address, raw.detail), Known { frame, at });
    }

    /// The cache of a child that is forked now.
    pub fn fork(&self, at: Nanos) -> Self {
        let parent = (Rc::clone(&self.own), at);
        let ancestors = self.inherited.iter().take(ANCESTORS_MAX - 1).cloned();
        Self { own: Names::default(), inherited: std::iter::once(parent).chain(ancestors).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_knows_what_its_parent_knew_at_the_fork() {
        let frame = |line| RawFrame::python(0x1000, 7, line);
        let parent = FrameCache::default();
        parent.insert(frame(1), FrameId(1), Nanos(10));
        let child = parent.fork(Nanos(20));
        parent.insert(frame(2), FrameId(2), Nanos(30));
        let grandchild = child.fork(Nanos(40));
        for cache in [&child, &grandchild] {
            assert_eq!(cache.get(frame(1)), Some(FrameId(1)));
            assert_eq!(cache.get(frame(2)), None);
        }
        child.insert(frame(3), FrameId(3), Nanos(50));
        assert_eq!(parent.get(frame(3)), None);
        assert_eq!(grandchild.get(frame(3)), None);
    }
}

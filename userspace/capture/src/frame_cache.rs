//! Caches named frames by what the kernel side saw, and the code objects read for them.

use std::cell::RefCell;
use std::hash::Hash;
use std::rc::Rc;
use std::sync::Arc;

use pyobs_abi::stack::Frame as RawFrame;
use pyobs_model::{FrameId, Nanos};

use crate::cache::Cache;
use crate::cpython::names::CodeObject;

/// Entries cached per process image; the least recently used are evicted.
const FRAMES_MAX: usize = 100_000;
const CODES_MAX: usize = 4096;
/// Ancestors whose names a process can use; names of earlier ones are read again.
const ANCESTORS_MAX: usize = 8;

/// Cached values with the time of insertion.
#[derive(Debug)]
struct Known<K, V>(RefCell<Cache<K, (V, Nanos)>>);

impl<K: Copy + Eq + Hash, V: Clone> Known<K, V> {
    fn new(max: usize) -> Self {
        Self(RefCell::new(Cache::new(max)))
    }

    fn get(&self, key: &K, until: Nanos) -> Option<V> {
        self.0.borrow_mut().get(key).filter(|(_, at)| *at < until).map(|(value, _)| value.clone())
    }

    fn insert(&self, key: K, value: V, at: Nanos) {
        self.0.borrow_mut().insert(key, (value, at));
    }
}

#[derive(Debug)]
struct Names {
    frames: Known<(u64, u64), FrameId>,
    /// By address and check word.
    codes: Known<(u64, u32), Arc<CodeObject>>,
}

impl Default for Names {
    fn default() -> Self {
        Self { frames: Known::new(FRAMES_MAX), codes: Known::new(CODES_MAX) }
    }
}

/// Names of one process image. A forked child has its parent's memory, and so the names that its parent had by then:
/// a child that lives for milliseconds is named without being read.
#[derive(Debug, Default)]
pub struct FrameCache {
    own: Rc<Names>,
    /// The caches of the parent, its parent and so on, each with the time of the fork.
    inherited: Vec<(Rc<Names>, Nanos)>,
}

impl FrameCache {
    pub fn frame(&self, raw: RawFrame) -> Option<FrameId> {
        self.find(|names, until| names.frames.get(&(raw.address, raw.detail), until))
    }

    pub fn insert_frame(&self, raw: RawFrame, frame: FrameId, at: Nanos) {
        self.own.frames.insert((raw.address, raw.detail), frame, at);
    }

    pub fn code(&self, raw: RawFrame) -> Option<Arc<CodeObject>> {
        self.find(|names, until| names.codes.get(&(raw.address, raw.check()), until))
    }

    /// Not kept without a check word, because the next code object at this address could not be
    /// distinguished.
    pub fn insert_code(&self, raw: RawFrame, code: Arc<CodeObject>, at: Nanos) {
        if raw.check() != 0 {
            self.own.codes.insert((raw.address, raw.check()), code, at);
        }
    }

    fn find<T>(&self, get: impl Fn(&Names, Nanos) -> Option<T>) -> Option<T> {
        let own = get(&self.own, Nanos(u64::MAX));
        own.or_else(|| self.inherited.iter().find_map(|(names, until)| get(names, *until)))
    }

    /// The cache of a child forked now.
    pub fn fork(&self, at: Nanos) -> Self {
        let parent = (Rc::clone(&self.own), at);
        let ancestors = self.inherited.iter().take(ANCESTORS_MAX - 1).cloned();
        Self { own: Rc::default(), inherited: std::iter::once(parent).chain(ancestors).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_knows_what_its_parent_knew_at_the_fork() {
        let frame = |line| RawFrame::python(0x1000, 7, line);
        let parent = FrameCache::default();
        parent.insert_frame(frame(1), FrameId(1), Nanos(10));
        let child = parent.fork(Nanos(20));
        parent.insert_frame(frame(2), FrameId(2), Nanos(30));
        let grandchild = child.fork(Nanos(40));
        for cache in [&child, &grandchild] {
            assert_eq!(cache.frame(frame(1)), Some(FrameId(1)));
            assert_eq!(cache.frame(frame(2)), None);
        }
        child.insert_frame(frame(3), FrameId(3), Nanos(50));
        assert_eq!(parent.frame(frame(3)), None);
        assert_eq!(grandchild.frame(frame(3)), None);
    }
}

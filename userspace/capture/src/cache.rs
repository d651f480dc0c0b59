//! Maps of bounded size that evict the entries used longest ago.

use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::HashMap;

/// Entries that caches evicted since [`take_evicted`] was last called.
static EVICTED: AtomicU64 = AtomicU64::new(0);

/// How many entries all caches of this process have evicted since the last call.
pub fn take_evicted() -> u64 {
    EVICTED.swap(0, Ordering::Relaxed)
}

/// Two generations. A full young generation becomes the old one, and what is left of the old one is evicted: an entry
/// survives if it was used since the last change of generations. This costs a second look-up on a miss and no list of uses.
#[derive(Debug)]
pub struct Cache<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    half: usize,
}

impl<K: Copy + Eq + Hash, V> Cache<K, V> {
    /// For at most `max` entries. At least the `max / 2` entries used last are kept.
    pub fn new(max: usize) -> Self {
        Self { young: HashMap::default(), old: HashMap::default(), half: (max / 2).max(1) }
    }

    /// The value under `key`, which counts as used now.
    pub fn get(&mut self, key: &K) -> Option<&V> {
        if !self.young.contains_key(key) {
            let value = self.old.remove(key)?;
            self.insert(*key, value);
        }
        self.young.get(key)
    }

    /// The value under `key`, without counting as a use.
    pub fn peek(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    /// Returns the value that was there.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = self.old.remove(&key);
        if self.young.len() >= self.half && !self.young.contains_key(&key) {
            let evicted = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
            EVICTED.fetch_add(evicted.len() as u64, Ordering::Relaxed);
        }
        self.young.insert(key, value).or(before)
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.young.remove(key).or_else(|| self.old.remove(key))
    }

    pub fn retain(&mut self, is_kept: impl Fn(&K) -> bool) {
        self.young.retain(|key, _| is_kept(key));
        self.old.retain(|key, _| is_kept(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_in_use_stay_and_the_others_are_evicted_and_counted() {
        let mut cache = Cache::new(8);
        for number in 0..100 {
            cache.insert(number, number);
            assert_eq!(cache.get(&0), Some(&0), "after {number}");
            assert!(cache.young.len() + cache.old.len() <= 8);
        }
        assert_eq!(cache.peek(&99), Some(&99));
        assert_eq!(cache.peek(&50), None);
        // Other tests evict as well.
        assert!(take_evicted() >= 92);
    }

    #[test]
    fn an_entry_is_in_one_generation() {
        let mut cache = Cache::new(4);
        for number in [1, 2, 3] {
            cache.insert(number, "first");
        }
        assert_eq!(cache.insert(1, "second"), Some("first"));
        assert_eq!(cache.peek(&1), Some(&"second"));
        assert_eq!((cache.remove(&1), cache.remove(&1)), (Some("second"), None));
    }
}

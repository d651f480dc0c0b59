//! A map that forgets what was not asked for lately.

use std::hash::Hash;

use foldhash::HashMap;

/// Two generations: when the young one is full it becomes the old one, which is dropped.
#[derive(Debug)]
pub struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    max: usize,
}

impl<K: Copy + Eq + Hash, V> Recent<K, V> {
    /// For `max` entries at the most, and half of them at the least.
    pub fn new(max: usize) -> Self {
        Self { young: HashMap::default(), old: HashMap::default(), max: max / 2 }
    }

    pub fn get(&mut self, key: &K) -> Option<&V> {
        if let Some(value) = self.old.remove(key) {
            self.insert(*key, value);
        }
        self.young.get(key)
    }

    pub fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.max {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let mut recent = Recent::new(8);
        for number in 0..100 {
            recent.insert(number, number);
            assert_eq!(recent.get(&0), Some(&0), "after {number}");
            assert!(recent.young.len() + recent.old.len() <= 8);
        }
        assert_eq!(recent.get(&99), Some(&99));
        assert_eq!(recent.get(&50), None);
    }
}

//! Free space in an array that the kernel side reads.

use std::time::{Duration, Instant};

/// How long a returned range is not reused: a walk that began earlier may still read it.
pub const GRACE: Duration = Duration::from_millis(100);

/// Ranges of `0..size`, allocated first fit.
#[derive(Debug)]
pub struct Ranges {
    /// Start and length, in order, never adjacent.
    free: Vec<(u32, u32)>,
    retired: Vec<(u32, u32, Instant)>,
}

impl Ranges {
    pub fn new(start: u32, size: u32) -> Self {
        Self { free: vec![(start, size)], retired: Vec::new() }
    }

    /// The start of `length` free elements; `None` if there is no room at present.
    pub fn take(&mut self, length: u32) -> Option<u32> {
        if length == 0 {
            return Some(0);
        }
        self.settle();
        let index = self.free.iter().position(|(_, free)| *free >= length)?;
        let (start, free) = self.free[index];
        if free == length {
            self.free.remove(index);
        } else {
            self.free[index] = (start + length, free - length);
        }
        Some(start)
    }

    /// Whether `length` elements will fit once all returned ranges are free.
    pub fn will_fit(&self, length: u32) -> bool {
        let mut later = Self { free: self.free.clone(), retired: Vec::new() };
        for (start, length, _) in &self.retired {
            later.insert(*start, *length);
        }
        length == 0 || later.free.iter().any(|(_, free)| *free >= length)
    }

    /// Returns a range that [`Self::take`] allocated.
    pub fn give(&mut self, start: u32, length: u32) {
        if length > 0 {
            self.retired.push((start, length, Instant::now()));
        }
    }

    fn settle(&mut self) {
        let (old, young) = self.retired.drain(..).partition::<Vec<_>, _>(|(_, _, since)| since.elapsed() >= GRACE);
        self.retired = young;
        for (start, length, _) in old {
            self.insert(start, length);
        }
    }

    fn insert(&mut self, start: u32, length: u32) {
        let index = self.free.partition_point(|(other, _)| *other < start);
        self.free.insert(index, (start, length));
        if let Some((next, more)) = self.free.get(index + 1).copied()
            && start + length == next
        {
            self.free[index].1 += more;
            self.free.remove(index + 1);
        }
        if index > 0 && self.free[index - 1].0 + self.free[index - 1].1 == start {
            self.free[index - 1].1 += self.free[index].1;
            self.free.remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_becomes_whole_again() {
        let mut ranges = Ranges::new(10, 100);
        let starts: Vec<u32> = [30, 40, 30].iter().map(|length| ranges.take(*length).unwrap()).collect();
        assert_eq!(starts, [10, 40, 80]);
        assert_eq!(ranges.take(1), None);
        assert_eq!(ranges.take(0), Some(0));
        for (start, length) in [(40, 40), (10, 30), (80, 30)] {
            ranges.insert(start, length);
        }
        assert_eq!(ranges.free, [(10, 100)]);
    }

    #[test]
    fn a_range_rests_before_it_is_used_again() {
        let mut ranges = Ranges::new(0, 8);
        let start = ranges.take(8).unwrap();
        ranges.give(start, 8);
        assert_eq!(ranges.take(8), None);
        ranges.retired[0].2 = Instant::now().checked_sub(GRACE).unwrap();
        assert_eq!(ranges.take(8), Some(0));
    }
}

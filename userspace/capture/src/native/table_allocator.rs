//! Decides which unwind tables have room, and which are evicted for others.

use std::collections::HashMap;

use super::ranges::Ranges;

/// Where each file's table is among the rows.
#[derive(Debug)]
pub struct TableAllocator {
    size: u32,
    rows: Ranges,
    /// By the file's number: start and length.
    held: HashMap<u32, (u32, u32)>,
}

/// Whether a table has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    At(u32),
    /// Once the walks are over that may still read an evicted table.
    Soon,
    Never,
}

impl TableAllocator {
    pub fn new(rows: u32) -> Self {
        Self { size: rows, rows: Ranges::new(0, rows), held: HashMap::new() }
    }

    pub fn has(&self, file: u32) -> bool {
        self.held.contains_key(&file)
    }

    /// Finds room for a file's table. Evicts the least recently `used` tables and calls `taken` for each.
    pub fn place(&mut self, file: u32, length: u32, used: impl Fn(u32) -> u64, mut taken: impl FnMut(u32)) -> Room {
        if length > self.size {
            return Room::Never;
        }
        while !self.rows.will_fit(length) {
            let Some(oldest) = self.held.keys().copied().min_by_key(|file| used(*file)) else { return Room::Never };
            taken(oldest);
            self.take_away(oldest);
        }
        let Some(start) = self.rows.take(length) else { return Room::Soon };
        self.held.insert(file, (start, length));
        Room::At(start)
    }

    /// Frees a file's rows, if it has any.
    pub fn take_away(&mut self, file: u32) {
        if let Some((start, length)) = self.held.remove(&file) {
            self.rows.give(start, length);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::super::ranges::GRACE;
    use super::*;

    #[test]
    fn the_one_that_was_used_longest_ago_makes_room_and_no_other() {
        let mut table_allocator = TableAllocator::new(300);
        let used = |file: u32| [0, 30, 10, 20][file as usize % 4];
        for (file, start) in [(1, 0), (2, 100), (3, 200)] {
            assert_eq!(table_allocator.place(file, 100, used, |_| panic!("there is room")), Room::At(start));
        }
        let mut taken = Vec::new();
        // A walk that began earlier may still read the second table's rows.
        assert_eq!(table_allocator.place(4, 100, used, |file| taken.push(file)), Room::Soon);
        assert_eq!(table_allocator.place(4, 100, used, |file| taken.push(file)), Room::Soon);
        assert_eq!(taken, [2]);
        sleep(GRACE);
        assert_eq!(table_allocator.place(4, 100, used, |_| panic!("there is room")), Room::At(100));
        assert!(table_allocator.has(1) && !table_allocator.has(2) && table_allocator.has(3) && table_allocator.has(4));
        // An evicted table can come back.
        assert_eq!(table_allocator.place(2, 100, |file| u64::from(file == 3), |file| taken.push(file)), Room::Soon);
        assert_eq!(taken.len(), 2);
    }

    #[test]
    fn what_is_larger_than_all_takes_nothing_away() {
        let mut table_allocator = TableAllocator::new(300);
        assert_eq!(table_allocator.place(1, 200, |_| 0, |_| ()), Room::At(0));
        assert_eq!(table_allocator.place(2, 301, |_| 0, |_| panic!("it would not help")), Room::Never);
    }
}

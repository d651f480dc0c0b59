//! What processes map executable, by the numbers under which the kernel side knows them.

use std::cell::RefCell;
use std::rc::Rc;

use foldhash::HashMap;
use pyobs_abi::unwind::{FILE_ANONYMOUS, FILES_MAX};

use crate::files::FileId;
use crate::process_maps::Mapping;

/// What a mapping is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Image {
    File(FileId),
    /// The kernel's own code in user space; the same in every process.
    Vdso,
    /// Memory without a file: code that a JIT made.
    Anonymous,
}

impl Image {
    pub fn of(mapping: &Mapping) -> Self {
        match mapping.file {
            Some(id) => Self::File(id),
            None if &*mapping.name == "[vdso]" => Self::Vdso,
            None => Self::Anonymous,
        }
    }
}

/// Stands for files beyond those that have a number: they never have a table.
const NO_NUMBER: u32 = FILES_MAX - 1;

/// The numbers of images. Those that no process has mapped any more are given to others when there are none left.
#[derive(Debug, Default)]
pub struct Numbers {
    known: HashMap<Image, u32>,
    /// The last that was given out first, and those that came back.
    last: u32,
    free: Vec<u32>,
    /// By number: how many have it.
    holders: Rc<RefCell<HashMap<u32, u32>>>,
}

/// Numbers that stay what they are as long as this is.
#[derive(Debug)]
pub struct Held {
    numbers: Vec<u32>,
    holders: Rc<RefCell<HashMap<u32, u32>>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut holders = self.holders.borrow_mut();
        for number in &self.numbers {
            if let Some(count) = holders.get_mut(number) {
                *count -= 1;
                if *count == 0 {
                    holders.remove(number);
                }
            }
        }
    }
}

impl Numbers {
    pub fn number(&mut self, image: Image) -> u32 {
        if image == Image::Anonymous {
            return FILE_ANONYMOUS;
        }
        if let Some(number) = self.known.get(&image) {
            return *number;
        }
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.is_at_the_end() => return NO_NUMBER,
            None => {
                self.last += 1;
                self.last
            }
        };
        self.known.insert(image, number);
        number
    }

    /// Keeps these numbers from being given to others.
    pub fn hold(&self, mut numbers: Vec<u32>) -> Held {
        numbers.sort_unstable();
        numbers.dedup();
        let mut holders = self.holders.borrow_mut();
        for number in &numbers {
            *holders.entry(*number).or_default() += 1;
        }
        Held { numbers, holders: Rc::clone(&self.holders) }
    }

    /// Whether new images have no number.
    pub fn are_used_up(&self) -> bool {
        self.free.is_empty() && self.is_at_the_end()
    }

    fn is_at_the_end(&self) -> bool {
        self.last + 1 >= NO_NUMBER
    }

    /// Takes back the numbers of images that no process has mapped, except those to `keep`, and says which these were.
    pub fn take_back(&mut self, keep: impl Fn(u32) -> bool) -> Vec<u32> {
        let holders = self.holders.borrow();
        let is_idle = |number: u32| !holders.contains_key(&number) && !keep(number);
        let idle: Vec<u32> = self.known.extract_if(|_, number| is_idle(*number)).map(|(_, number)| number).collect();
        self.free.extend(&idle);
        idle
    }

    pub fn has_number(number: u32) -> bool {
        number != FILE_ANONYMOUS && number != NO_NUMBER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_beyond_the_last_number_have_none() {
        let mut numbers = Numbers::default();
        let image = |inode| Image::File(FileId { device: (0, 0), inode });
        for inode in 0..2 * u64::from(FILES_MAX) {
            numbers.number(image(inode));
        }
        assert_eq!(numbers.number(image(0)), 1);
        assert_eq!(numbers.number(image(u64::from(FILES_MAX))), NO_NUMBER);
        assert!(!Numbers::has_number(NO_NUMBER) && !Numbers::has_number(numbers.number(Image::Anonymous)));
    }

    #[test]
    fn numbers_that_nothing_has_are_given_to_others() {
        let mut numbers = Numbers::default();
        let image = |inode| Image::File(FileId { device: (0, 0), inode });
        let both = [1, 2].map(|inode| numbers.number(image(inode)));
        let held = numbers.hold(both.to_vec());
        let under_way = numbers.number(image(3));
        for inode in 4.. {
            if numbers.are_used_up() {
                break;
            }
            numbers.number(image(inode));
        }
        assert_eq!(numbers.number(image(1 << 40)), NO_NUMBER);
        let idle = numbers.take_back(|number| number == under_way);
        assert_eq!(idle.len() as u32, NO_NUMBER - 1 - 3);
        let new = numbers.number(image(1 << 40));
        assert!(idle.contains(&new));
        assert_eq!([1, 2, 3].map(|inode| numbers.number(image(inode))), [1, 2, 3]);
        drop(held);
        assert_eq!(numbers.take_back(|number| number == under_way).len(), 3);
    }
}

//! What processes map executable, by the numbers under which the kernel side knows them.

use std::collections::HashMap;

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

/// The numbers of images.
#[derive(Debug, Default)]
pub struct Numbers {
    known: HashMap<Image, u32>,
}

impl Numbers {
    pub fn number(&mut self, image: Image) -> u32 {
        if image == Image::Anonymous {
            return FILE_ANONYMOUS;
        }
        let next = self.known.len() as u32 + 1;
        if next >= NO_NUMBER {
            return self.known.get(&image).copied().unwrap_or(NO_NUMBER);
        }
        *self.known.entry(image).or_insert(next)
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
}

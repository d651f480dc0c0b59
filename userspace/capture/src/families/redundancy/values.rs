//! Hashes of values in a watched process, by what they are made of. For operands of calls that take long enough to be read from
//! user space: there are more types here than in the kernel side's hashes (ebpf/programs/src/redundancy/prints.rs).
//!
//! The memory is hostile input: the reads for the operands of one call are bounded.

use pyobs_abi::hash::mix;
use pyobs_abi::redundancy::class;

use super::calls::{class_of, tuple_items};
use super::place::Place;
use crate::cpython::attributes::{Entries, Words, table};
use crate::cpython::version::Version;
use crate::memory::Memory;

/// Reads of memory for the operands of one call.
const READS_MAX: u32 = 500;
/// Containers and instances in others. A DataFrame has its data in an array of a block of a tuple of its manager.
const DEPTH: u32 = 8;
/// Of a larger container this many items are compared. The largest containers are not.
const ITEMS: u64 = 16;
const ITEMS_MAX: u64 = 1 << 31;
/// Larger data is compared in this many pieces, which change with the period.
const WHOLE: u64 = 4096;
const PIECES: u64 = 16;
const PIECE: u64 = 64;
const SIZE_MAX: u64 = 1 << 40;
const DIMENSIONS: usize = 4;
/// `PyArray_Descr.kind` (<https://github.com/numpy/numpy/blob/v2.0.0/numpy/_core/include/numpy/ndarraytypes.h>).
const ELEMENT_KIND: u64 = 24;
/// Offset behind an object's header.
const BODY: u64 = 16;
/// Digits of an `int`.
const DIGITS: u64 = 64;

pub struct Values<'a> {
    pub(super) place: &'a mut Place,
    period: u64,
    reads: u32,
    /// Sums sizes without hashing the data.
    measures: bool,
    /// The size of the data that was hashed, and the number of instances around what is being hashed.
    bytes: u64,
    pub(super) instances: u32,
}

impl Words for Values<'_> {
    fn words<const N: usize>(&mut self, at: u64) -> Option<[u64; N]> {
        let mut bytes = [[0; 8]; N];
        self.read(at, bytes.as_flattened_mut())?;
        Some(bytes.map(u64::from_le_bytes))
    }

    fn minor(&self) -> u8 {
        self.place.interpreter().version.minor
    }
}

impl<'a> Values<'a> {
    /// Hashes of one period are comparable.
    pub fn new(place: &'a mut Place, period: u64) -> Self {
        Self { place, period, reads: 0, measures: false, bytes: 0, instances: 0 }
    }

    /// `None` if the value cannot be told apart from others of its type.
    pub fn print(&mut self, object: u64) -> Option<u64> {
        (self.bytes, self.instances) = (0, 0);
        let print = self.nested(object, DEPTH)?;
        // It may have been freed while it was read.
        self.living(object)?;
        Some(print)
    }

    /// The type of an object that was not freed.
    fn living(&mut self, object: u64) -> Option<u64> {
        let [references, kind] = self.words(object)?;
        (!is_freed(references, self.place.interpreter().version)).then_some(kind)
    }

    /// The size of the data in a value of a type: of numbers and texts, and of arrays. Of an instance only its arrays are data.
    /// `None` if it cannot be known.
    pub fn bytes(&mut self, object: u64, kind: u64) -> Option<u64> {
        let class = class_of(&self.place.type_name(kind)?, self.place.interpreter());
        match class & 0xff {
            // That of a number, which may have been freed.
            class::BYTES => Some(class >> 16 & 0xff),
            _ => {
                self.measures = true;
                let print = self.print(object);
                self.measures = false;
                print.map(|_| self.bytes)
            }
        }
    }

    pub(super) fn nested(&mut self, object: u64, depth: u32) -> Option<u64> {
        let kind = self.living(object)?;
        let name = self.place.type_name(kind)?;
        let interpreter = self.place.interpreter();
        let class = class_of(&name, interpreter);
        let before = self.bytes;
        let print = match (&*name, class & 0xff) {
            ("str", _) => self.text(object)?,
            ("dict", _) => self.dict(object, depth.checked_sub(1)?)?,
            (_, class::ADDRESS) => object,
            (_, class::BYTES) => self.data(object.checked_add(class >> 8 & 0xff)?, class >> 16 & 0xff)?,
            (_, class::INT | class::INT_TAGGED) => self.int(object, class)?,
            (_, class::DATA) => {
                let length = self.word(object.checked_add(BODY)?)?;
                self.data(object.checked_add(class >> 8 & 0xff)?, length)?
            }
            (_, class::LIST) => self.list(object, depth.checked_sub(1)?)?,
            (_, class::ITEMS) => {
                let fixed = class >> 16 & 0xff;
                let count = if fixed > 0 { fixed } else { self.word(object.checked_add(BODY)?)? };
                self.items(object.checked_add(class >> 8 & 0xff)?, count, depth.checked_sub(1)?)?
            }
            (_, class::ARRAY) => self.array(object, depth)?,
            _ => self.instance(object, kind, depth.checked_sub(1)?)?,
        };
        let is_container = matches!(class & 0xff, class::LIST | class::ITEMS | class::ARRAY | class::UNKNOWN);
        if name.ends_with("Index") || self.instances > 0 && !is_container {
            self.bytes = before;
        }
        Some(mix(kind, print))
    }

    pub(super) fn list(&mut self, object: u64, depth: u32) -> Option<u64> {
        let [count, first] = self.words(object.checked_add(BODY)?)?;
        self.items(first, count, depth)
    }

    pub(super) fn tuple(&mut self, object: u64, depth: u32) -> Option<u64> {
        let count = self.word(object.checked_add(BODY)?)?;
        self.items(object.checked_add(self.tuple_items())?, count, depth)
    }

    /// As in [`tuple_items`].
    pub(super) fn tuple_items(&self) -> u64 {
        tuple_items(self.place.interpreter().version)
    }

    fn items(&mut self, first: u64, count: u64, depth: u32) -> Option<u64> {
        self.chosen(count)?.try_fold(count, |sum, index| {
            let item = self.word(first.checked_add(8 * index)?)?;
            Some(mix(sum, self.nested(item, depth)?))
        })
    }

    /// Only a table of its own: that of an object's attributes shares its keys with others.
    pub(super) fn dict(&mut self, object: u64, depth: u32) -> Option<u64> {
        let used = self.word(object.checked_add(BODY)?)?;
        let (Entries { first, count, size, key }, 0) = table(self, object)? else { return None };
        self.chosen(count)?.try_fold(mix(used, count), |sum, index| {
            let entry = first.checked_add(size * index)?.checked_add(key)?;
            let (key, value) = (self.word(entry)?, self.word(entry.checked_add(8)?)?);
            if value == 0 {
                return Some(mix(sum, index)); // it was deleted
            }
            Some(mix(mix(sum, self.nested(key, depth)?), self.nested(value, depth)?))
        })
    }

    /// `PyASCIIObject` and `PyCompactUnicodeObject`.
    fn text(&mut self, object: u64) -> Option<u64> {
        let unicode = self.place.interpreter().layout.unicode.clone();
        let length = self.word(object.checked_add(unicode.length.into())?)?;
        let state = self.word(object.checked_add(unicode.state.into())?)? as u32;
        if state >> unicode.compact_shift & 1 == 0 || length > SIZE_MAX {
            return None;
        }
        let is_ascii = state >> unicode.ascii_shift & 1 == 1;
        let at = if is_ascii { unicode.ascii_data } else { unicode.compact_data };
        let kind = state >> unicode.kind_shift & 7;
        Some(mix(kind.into(), self.data(object.checked_add(at.into())?, length * u64::from(kind))?))
    }

    fn int(&mut self, object: u64, class: u64) -> Option<u64> {
        let size = self.word(object.checked_add(BODY)?)?;
        let digits = if class == class::INT_TAGGED { size >> 3 } else { (size as i64).unsigned_abs() };
        if digits > DIGITS {
            return None;
        }
        Some(mix(size, self.data(object.checked_add(BODY + 8)?, digits * 4)?))
    }

    /// As in the kernel side's `array`, but of an array of objects their values are hashed.
    fn array(&mut self, object: u64, depth: u32) -> Option<u64> {
        let [data, rank, dimensions, strides, _, element] = self.words(object.checked_add(BODY)?)?;
        let rank = rank as u32 as usize;
        if rank > DIMENSIONS {
            return None;
        }
        let (mut sum, mut extent, mut width) = (mix(rank as u64, element), 0, 8);
        for index in 0..rank as u64 {
            let [size] = self.words(dimensions.checked_add(8 * index)?)?;
            let [step] = self.words(strides.checked_add(8 * index)?)?;
            if size > SIZE_MAX || step > SIZE_MAX {
                return None; // a negative stride, or no array
            }
            if size == 0 {
                return Some(mix(sum, index));
            }
            sum = mix(mix(sum, size), step);
            width = if step > 0 { step.min(width) } else { width };
            extent = (size - 1).checked_mul(step).and_then(|more| more.checked_add(extent))?;
        }
        let length = extent.checked_add(width)?;
        let kind = self.word(element.checked_add(ELEMENT_KIND)?)? as u8;
        let print = match kind {
            b'O' => self.items(data, length / 8, depth.checked_sub(1)?)?,
            _ => self.data(data, length)?,
        };
        Some(mix(sum, print))
    }

    /// The indexes of the items that are compared: all of a small container.
    fn chosen(&self, count: u64) -> Option<impl Iterator<Item = u64> + use<>> {
        let period = self.period;
        let at = move |index| if count <= ITEMS { index } else { ((mix(period, index) >> 32) * count) >> 32 };
        (count <= ITEMS_MAX).then(|| (0..count.min(ITEMS)).map(at))
    }

    fn data(&mut self, at: u64, length: u64) -> Option<u64> {
        if length > SIZE_MAX {
            return None;
        }
        self.bytes = self.bytes.saturating_add(length);
        if self.measures {
            return Some(length);
        }
        if length <= WHOLE {
            return self.hash(mix(1, length), at, length);
        }
        let part = length / PIECES;
        (0..PIECES).try_fold(mix(2, length), |sum, index| {
            let start = index * part + mix(self.period, index) % (part - PIECE + 1);
            self.hash(sum, at.checked_add(start)?, PIECE)
        })
    }

    fn hash(&mut self, sum: u64, at: u64, length: u64) -> Option<u64> {
        let mut bytes = [0; WHOLE as usize];
        let bytes = bytes.get_mut(..usize::try_from(length).ok()?)?;
        self.read(at, bytes)?;
        let word = |chunk: &[u8]| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        };
        Some(bytes.chunks(8).fold(sum, |sum, chunk| mix(sum, word(chunk))))
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> Option<()> {
        self.reads += 1;
        if self.reads > READS_MAX {
            return None;
        }
        self.place.memory().read(at, into).ok()
    }
}

/// Whether an object with this count of references was freed: the count is 0, or a pointer of the allocator is in its place. A
/// count has 32 bits, and since 3.14 flags are behind it
/// (<https://github.com/python/cpython/blob/v3.14.0/Include/object.h>).
fn is_freed(references: u64, version: Version) -> bool {
    references as u32 == 0 || version.minor < 14 && references >> 32 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_was_freed_has_no_count_or_a_pointer_in_its_place() {
        let [old, new] = [11, 14].map(|minor| Version::new(3, minor, 0));
        assert!(!is_freed(1, old) && !is_freed(0xffff_ffff, old), "alive, and one that is never freed");
        assert!(is_freed(0, old) && is_freed(0, new));
        assert!(is_freed(0x7f12_3456_7890, old));
        assert!(!is_freed(0x2_c000_0000, new), "flags are behind the count");
    }
}

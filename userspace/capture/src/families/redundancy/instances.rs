//! What instances of classes are made of: their attributes, the items of those that are containers, and the words that C code of
//! pandas keeps in them.

use std::sync::Arc;

use pyobs_abi::hash::mix;

use super::types::{self, Origin, TypeInfo};
use super::values::Values;
use crate::cpython::attributes::{Holds, Words, of_instance};

/// Fields of `PyTypeObject`, at the same offsets from 3.8 to 3.14
/// (<https://github.com/python/cpython/blob/v3.13.0/Include/cpython/object.h>).
const TYPE_WORDS: usize = 37;
const BASIC_SIZE: usize = 4;
const FLAGS: usize = 21;
const WEAK_OFFSET: usize = 26;
const BASE: usize = 32;
const DICT_OFFSET: usize = 36;
const HEADER: u64 = 16;
const LIST_SIZE: u64 = 40;
const DICT_SIZE: u64 = 48;
/// Base classes that are followed.
const BASES_MAX: usize = 16;
/// Attributes of an instance; one with more is not compared.
const ATTRIBUTES_MAX: u64 = 64;
/// Words of an instance; one with more is not compared.
const WORDS_MAX: u64 = 64;

impl Values<'_> {
    /// `None` if an instance has state that only its type's C code knows.
    pub(super) fn instance(&mut self, object: u64, kind: u64, depth: u32) -> Option<u64> {
        let info = self.type_info(kind)?;
        if info.is(types::TYPE) {
            return Some(object);
        }
        let (built_in, items) = if info.is(types::OTHERS) {
            return None;
        } else if info.is(types::LIST) {
            (LIST_SIZE, self.list(object, depth)?)
        } else if info.is(types::TUPLE) {
            (self.tuple_items(), self.tuple(object, depth)?)
        } else if info.is(types::DICT) {
            (DICT_SIZE, self.dict(object, depth)?)
        } else {
            (HEADER, 0)
        };
        self.instances += 1;
        let fields = match info.own_size(built_in)? {
            0 => 0,
            own if own == 8 * info.slots => self.slots(object, built_in, &info, depth)?,
            _ if info.of == Origin::PandasC => self.fields(object, &info, depth)?,
            _ => return None,
        };
        let holds = Holds { flags: info.flags, size: info.size, dict: info.dict };
        let attributes = of_instance(self, object, holds, ATTRIBUTES_MAX)?;
        let print = attributes.into_iter().zip(0..).try_fold(mix(items, fields), |sum, (value, index)| {
            if value == 0 || info.of != Origin::Other && self.is_cache(value) {
                return Some(sum);
            }
            Some(mix(mix(sum, index), self.nested(value, depth)?))
        })?;
        self.instances -= 1;
        Some(print)
    }

    /// What the type at an address, which is known to be one, says about its instances.
    fn type_info(&mut self, kind: u64) -> Option<TypeInfo> {
        if let Some(known) = self.place.infos.get(&kind) {
            return Some(*known);
        }
        let words: [u64; TYPE_WORDS] = self.words(kind)?;
        let [flags, size] = [FLAGS, BASIC_SIZE].map(|index| words[index]);
        // A managed dictionary or list of weak references is in front of the object, and its offset is negative.
        let [weak, dict] = [WEAK_OFFSET, DICT_OFFSET].map(|index| u64::try_from(words[index] as i64).unwrap_or(0));
        let (mut base, mut of, mut slots) = (kind, Origin::Other, 0);
        for _ in 0..BASES_MAX {
            slots += self.slots_of(base)?;
            match self.place.type_name(base).as_deref() {
                Some(name) if name.starts_with("pandas._libs.") => of = Origin::PandasC,
                Some("PandasObject" | "IndexOpsMixin" | "ExtensionDtype") if of == Origin::Other => of = Origin::Pandas,
                _ => {}
            }
            base = self.word(base.checked_add(8 * BASE as u64)?)?;
            if base == 0 {
                break;
            }
        }
        let info = TypeInfo { flags, size, weak, dict, slots, of };
        self.place.infos.insert(kind, info);
        Some(info)
    }

    /// The number of slots that a type adds to those of its base.
    fn slots_of(&mut self, kind: u64) -> Option<u64> {
        let flags = self.word(kind.checked_add(8 * FLAGS as u64)?)?;
        if flags & types::HEAP == 0 {
            return Some(0);
        }
        let names = self.word(kind.checked_add(types::slots_at(self.place.interpreter().version.minor))?)?;
        if names == 0 {
            return Some(0);
        }
        self.word(names.checked_add(HEADER)?).filter(|count| *count <= ATTRIBUTES_MAX)
    }

    /// Hashes the values of `__slots__`, which follow the fields of the built-in base type. An unset slot is null.
    fn slots(&mut self, object: u64, built_in: u64, info: &TypeInfo, depth: u32) -> Option<u64> {
        let offsets = (built_in / 8..info.size / 8).map(|index| 8 * index);
        offsets.filter(|offset| ![info.weak, info.dict].contains(offset)).try_fold(info.slots, |sum, offset| {
            let value = self.word(object.checked_add(offset)?)?;
            Some(mix(sum, if value == 0 { 0 } else { self.nested(value, depth)? }))
        })
    }

    /// Hashes the fields of an object: those that point to objects by the objects' values, all others by their bits.
    fn fields(&mut self, object: u64, info: &TypeInfo, depth: u32) -> Option<u64> {
        let count = info.size / 8;
        if count > WORDS_MAX {
            return None;
        }
        (HEADER / 8..count).map(|index| 8 * index).try_fold(count, |sum, offset| {
            if [info.weak, info.dict].contains(&offset) {
                return Some(sum);
            }
            let word = self.word(object.checked_add(offset)?)?;
            if self.kind_of(word).is_none() {
                return Some(mix(sum, word));
            }
            if self.is_cache(word) { Some(sum) } else { Some(mix(sum, self.nested(word, depth)?)) }
        })
    }

    /// Whether an attribute of a pandas object is not part of its value: caches, `attrs`, flags, references to other users of the
    /// data, and identity tokens.
    fn is_cache(&mut self, value: u64) -> bool {
        let name = self.kind_of(value);
        let caches =
            ["dict", "weakref", "weakref.ReferenceType", "Flags", "pandas._libs.internals.BlockValuesRefs", "object"];
        name.is_some_and(|name| caches.contains(&&*name))
    }

    fn kind_of(&mut self, object: u64) -> Option<Arc<str>> {
        let kind = self.word(object.checked_add(8)?)?;
        self.place.type_name(kind)
    }
}

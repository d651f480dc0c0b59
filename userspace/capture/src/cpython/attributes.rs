//! Dictionaries, and the attributes of instances, in a watched process.
//!
//! - <https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_dict.h>
//! - <https://github.com/python/cpython/blob/v3.12.0/Include/internal/pycore_dict.h>
//! - <https://github.com/python/cpython/blob/v3.10.0/Objects/dict-common.h>

/// `Py_TPFLAGS_…` (<https://github.com/python/cpython/blob/v3.13.0/Include/object.h>).
pub const INLINE_VALUES: u64 = 1 << 2;
pub const MANAGED_DICT: u64 = 1 << 4;

/// The fields of `PyDictObject` and `PyDictKeysObject`, and the kinds of tables from 3.11 on.
const DICT_KEYS: u64 = 32;
const GENERAL: u8 = 0;
const UNICODE: u8 = 1;
const SPLIT: u8 = 2;

/// The memory of a process with an interpreter of this minor version.
pub trait Words {
    fn words<const N: usize>(&mut self, address: u64) -> Option<[u64; N]>;

    fn minor(&self) -> u8;

    fn word(&mut self, address: u64) -> Option<u64> {
        self.words(address).map(|[word]| word)
    }
}

/// The entries of a dictionary: the first one, their number and size, and the offset of the key in one. The value
/// follows the key. Both are null in an entry that was deleted.
pub struct Entries {
    pub first: u64,
    pub count: u64,
    pub size: u64,
    pub key: u64,
}

/// Returns the entries of a dictionary, and the address of its values array if it shares its keys (0 otherwise).
pub fn table(memory: &mut impl Words, dict: u64) -> Option<(Entries, u64)> {
    let [keys, values] = memory.words(dict.checked_add(DICT_KEYS)?)?;
    Some((entries(memory, keys)?, values))
}

fn entries(memory: &mut impl Words, keys: u64) -> Option<Entries> {
    if memory.minor() >= 11 {
        let [_, shape, _, count] = memory.words(keys)?;
        let [_, index_bytes, kind, ..] = shape.to_le_bytes();
        let (size, key) = match kind {
            GENERAL => (24, 8),
            UNICODE | SPLIT => (16, 0),
            _ => return None,
        };
        let first = keys.checked_add(32)?.checked_add(1_u64.checked_shl(index_bytes.into())?)?;
        return Some(Entries { first, count, size, key });
    }
    let [_, slots, _, _, count] = memory.words(keys)?;
    let width = match slots {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => return None,
    };
    let first = keys.checked_add(40 + slots * width)?;
    (count <= slots).then_some(Entries { first, count, size: 24, key: 8 })
}

/// What the type of an instance says about its attributes.
#[derive(Clone, Copy, Debug)]
pub struct Holds {
    pub flags: u64,
    pub size: u64,
    /// `tp_dictoffset`: the offset of the instance's `__dict__`, or 0 if it has none or keeps it before the object.
    pub dict: u64,
}

impl Holds {
    fn is(&self, flags: u64) -> bool {
        self.flags & flags != 0
    }
}

/// Reads pointers to the values of an instance's attributes, in the order in which they were first set. Unset attributes
/// are null. Fails if there are more than `at_most`.
pub fn of_instance(memory: &mut impl Words, object: u64, holds: Holds, at_most: u64) -> Option<Vec<u64>> {
    let minor = memory.minor();
    let dict = if holds.is(MANAGED_DICT) && minor >= 11 {
        if minor >= 13 && holds.is(INLINE_VALUES) {
            let values = object.checked_add(holds.size)?;
            let [_, _, _, is_valid, ..] = memory.word(values)?.to_le_bytes();
            if is_valid == 1 {
                return shared_values(memory, values);
            }
        }
        let [values, dict] = memory.words(object.checked_sub(32)?)?;
        match minor {
            11 if values != 0 => return shared_values(memory, values),
            12 if dict & 1 == 1 => return shared_values(memory, dict.checked_add(1)?),
            _ => dict,
        }
    } else if holds.dict > 0 {
        memory.word(object.checked_add(holds.dict)?)?
    } else {
        0
    };
    if dict == 0 { Some(Vec::new()) } else { values_of(memory, dict, at_most) }
}

/// The values of a dictionary, which may share its keys with others.
fn values_of(memory: &mut impl Words, dict: u64, at_most: u64) -> Option<Vec<u64>> {
    let (entries, shared) = table(memory, dict)?;
    if shared != 0 && memory.minor() >= 11 {
        return shared_values(memory, shared);
    }
    if entries.count > at_most {
        return None;
    }
    let (first, size) =
        if shared != 0 { (shared, 8) } else { (entries.first.checked_add(entries.key + 8)?, entries.size) };
    (0..entries.count).map(|index| memory.word(first.checked_add(size * index)?)).collect()
}

/// `PyDictValues`. Its size follows the values until 3.12, and precedes them since 3.13.
fn shared_values(memory: &mut impl Words, values: u64) -> Option<Vec<u64>> {
    if memory.minor() >= 13 {
        let [capacity, ..] = memory.word(values)?.to_le_bytes();
        let count = u64::from(capacity);
        return (0..count).map(|index| memory.word(values.checked_add(8 * index + 8)?)).collect();
    }
    // Going backwards from the values: the size of this prefix, the number of values, and the index of each.
    const PLACES: u64 = 32;
    let [a, b, c, d] = memory.words(values.checked_sub(PLACES)?)?;
    let places = [a, b, c, d].map(u64::to_le_bytes);
    let mut places = places.as_flattened().iter().rev().skip(1);
    let count = usize::from(*places.next()?);
    places.take(count).map(|place| memory.word(values.checked_add(8 * u64::from(*place))?)).collect()
}

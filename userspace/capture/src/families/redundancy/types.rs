//! What the types of a watched process say about their instances.

/// `Py_TPFLAGS_…` (<https://github.com/python/cpython/blob/v3.13.0/Include/object.h>).
/// `Py_TPFLAGS_HEAPTYPE`: created at run time, by a `class` statement or by C code.
pub const HEAP: u64 = 1 << 9;
pub const LIST: u64 = 1 << 25;
pub const TUPLE: u64 = 1 << 26;
pub const DICT: u64 = 1 << 29;
pub const TYPE: u64 = 1 << 31;
/// Integers, bytes, strings and exceptions, whose subclasses are not compared.
pub const OTHERS: u64 = 1 << 24 | 1 << 27 | 1 << 28 | 1 << 30;

/// What a type says about its instances.
#[derive(Clone, Copy, Debug)]
pub struct TypeInfo {
    pub flags: u64,
    pub size: u64,
    /// Where the list of weak references and the dictionary of attributes are in an instance; 0 if it has none there.
    pub weak: u64,
    pub dict: u64,
    /// The number of slots (`__slots__`) of the type and its bases.
    pub slots: u64,
    pub of: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A class of pandas. Some of its attributes are caches.
    Pandas,
    /// One with fields of pandas' C code.
    PandasC,
    Other,
}

/// The offset of `PyHeapTypeObject.ht_slots`, a tuple or null
/// (<https://github.com/python/cpython/blob/v3.13.0/Include/cpython/object.h>).
pub fn slots_at(minor: u8) -> u64 {
    match minor {
        0..=8 | 10 | 11 => 856,
        9 => 848,
        12.. => 864,
    }
}

impl TypeInfo {
    pub fn is(&self, flags: u64) -> bool {
        self.flags & flags != 0
    }

    /// The size of an instance without its built-in base type, dictionary pointer and weak reference list.
    pub fn own_size(&self, built_in: u64) -> Option<u64> {
        let words = [self.weak, self.dict].iter().filter(|offset| **offset > 0).count() as u64;
        self.size.checked_sub(built_in + 8 * words)
    }
}

//! Where the C library keeps thread-specific data, as described by the library itself.
//!
//! glibc exports descriptors of its inner structures for debuggers
//! (<https://github.com/bminor/glibc/blob/glibc-2.36/nptl_db/structs.def>, read by libthread_db). Each has
//! three words: the size of an element in bits, the number of elements, and the offset. They are in no
//! header, but hold for every version and build, which a table of offsets would not. musl has none; the
//! caller then reports that thread states are found by thread-local alone.

use crate::elf::{Elf, ElfError, Symbol};
use std::collections::HashMap;

/// Offsets are relative to the thread pointer (`fs` on x86-64), which is the address of glibc's `struct
/// pthread`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LibcLayout {
    /// The array of pointers to blocks of thread-specific values: word `key / level2_size` points to the
    /// block, or is null.
    pub specific_offset: u32,
    /// Maximum number of blocks.
    pub level1_size: u32,
    /// Number of keys per block.
    pub level2_size: u32,
    /// In a block: where the elements (`struct pthread_key_data[]`) start, the size of an element, and the
    /// offset of the value in it.
    pub elements_offset: u32,
    pub element_size: u32,
    pub data_offset: u32,
    /// The word that points to the vector of thread-local blocks; the size of that vector's entries (indexed
    /// by module id); and the offset in an entry of the block's address, which is all ones until the block is
    /// allocated.
    pub dtv_offset: u32,
    pub dtv_entry_size: u32,
    pub dtv_pointer_offset: u32,
    /// The kernel's thread id, an int; `None` if the library does not describe it.
    pub tid_offset: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibcError {
    #[error(transparent)]
    Elf(#[from] ElfError),
    #[error("the C library's own description of {0} is missing or makes no sense")]
    Descriptor(&'static str),
}

const MAX_OFFSET: u32 = 1 << 16;

const NAMES: [&str; 8] = [
    "_thread_db_pthread_specific",
    "_thread_db_pthread_key_data_level2_data",
    "_thread_db_pthread_key_data_data",
    "_thread_db_sizeof_pthread_key_data",
    "_thread_db_pthread_dtvp",
    "_thread_db_dtv_dtv",
    "_thread_db_dtv_t_pointer_val",
    "_thread_db_pthread_tid",
];

/// Exported since 2.34. Before, a separate libpthread has them as local symbols, which distributions keep for
/// gdb.
fn descriptors<'data>(elf: &Elf<'data>) -> HashMap<&'data [u8], Symbol> {
    let exported = NAMES.iter().filter_map(|name| Some((name.as_bytes(), elf.exported(name)?)));
    let found: HashMap<&[u8], Symbol> = exported.collect();
    if found.is_empty() && elf.soname().is_some_and(|name| name.starts_with(b"libpthread.so")) {
        return elf.symbols().filter(|(name, _)| name.starts_with(b"_thread_db_")).collect();
    }
    found
}

struct Field {
    bits: u32,
    count: u32,
    offset: u32,
}

/// The layout of the glibc in this file; `None` if the file is not glibc.
pub fn inspect_libc(elf: &[u8]) -> Result<Option<LibcLayout>, LibcError> {
    let elf = Elf::parse(elf)?;
    let descriptors = descriptors(&elf);
    if !descriptors.contains_key(b"_thread_db_pthread_specific".as_slice()) {
        return Ok(None);
    }
    let words = |name: &'static str, count: u64| {
        let symbol = descriptors.get(name.as_bytes()).filter(|symbol| symbol.size >= count * 4)?;
        Some((symbol.address, symbol.address.checked_add(4)?, symbol.address.checked_add(8)?))
    };
    let field = |name: &'static str| {
        let read = || {
            let (bits, count, offset) = words(name, 3)?;
            Some(Field { bits: elf.u32(bits)?, count: elf.u32(count)?, offset: elf.u32(offset)? })
        };
        read().filter(|field| field.offset < MAX_OFFSET).ok_or(LibcError::Descriptor(name))
    };
    let size = |name: &'static str| {
        words(name, 1)
            .and_then(|(value, ..)| elf.u32(value))
            .filter(|size| (8..=4096).contains(size) && size.is_multiple_of(8))
            .ok_or(LibcError::Descriptor(name))
    };

    let specific = field("_thread_db_pthread_specific")?;
    let block = field("_thread_db_pthread_key_data_level2_data")?;
    let data = field("_thread_db_pthread_key_data_data")?;
    let dtvp = field("_thread_db_pthread_dtvp")?;
    let dtv = field("_thread_db_dtv_dtv")?;
    let pointer = field("_thread_db_dtv_t_pointer_val")?;
    let element_size = size("_thread_db_sizeof_pthread_key_data")?;
    // Needed only to see who waits for whom, so everything else works without it.
    let tid = field("_thread_db_pthread_tid").ok();
    let tid = tid.filter(|tid| (tid.bits, tid.count, tid.offset % 4) == (32, 1, 0) && tid.offset != 0);
    // An array described as one field: all of its bits in one element.
    let level1_size = specific.bits.saturating_mul(specific.count) / 64;
    if !specific.bits.is_multiple_of(64) || !(1..=4096).contains(&level1_size) {
        return Err(LibcError::Descriptor("_thread_db_pthread_specific"));
    }
    if block.bits != element_size * 8 || !(1..=4096).contains(&block.count) {
        return Err(LibcError::Descriptor("_thread_db_pthread_key_data_level2_data"));
    }
    if data.bits != 64 || data.offset + 8 > element_size {
        return Err(LibcError::Descriptor("_thread_db_pthread_key_data_data"));
    }
    if dtvp.bits != 64 {
        return Err(LibcError::Descriptor("_thread_db_pthread_dtvp"));
    }
    if !dtv.bits.is_multiple_of(64)
        || !(64..=512).contains(&dtv.bits)
        || pointer.bits != 64
        || pointer.offset + 8 > dtv.bits / 8
    {
        return Err(LibcError::Descriptor("_thread_db_dtv_dtv"));
    }
    Ok(Some(LibcLayout {
        specific_offset: specific.offset,
        level1_size,
        level2_size: block.count,
        elements_offset: block.offset,
        element_size,
        data_offset: data.offset,
        dtv_offset: dtvp.offset,
        dtv_entry_size: dtv.bits / 8,
        dtv_pointer_offset: pointer.offset,
        tid_offset: tid.map(|tid| tid.offset),
    }))
}

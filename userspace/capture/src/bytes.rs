//! Reads values from the kernel side's bytes.

/// Reads `count` consecutive values.
pub fn read_all<T: aya::Pod>(bytes: &[u8], at: usize, count: usize) -> Option<Vec<T>> {
    (0..count).map(|index| read(bytes, at + size_of::<T>() * index)).collect()
}

/// Reads values up to the end.
pub fn rows<T: aya::Pod>(bytes: &[u8]) -> impl Iterator<Item = T> {
    bytes.chunks_exact(size_of::<T>()).filter_map(|bytes| read(bytes, 0))
}

/// Reads the value at an offset, if it is within the bytes.
pub fn read<T: aya::Pod>(bytes: &[u8], at: usize) -> Option<T> {
    let bytes = bytes.get(at..at.checked_add(size_of::<T>())?)?;
    // SAFETY: the slice has the type's size, and every bit pattern is a value of a Pod type.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

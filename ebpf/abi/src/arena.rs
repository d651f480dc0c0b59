//! The family `arena`: memory that CPython's object allocator maps in large pieces and hands out in small ones.

pub mod library;

use crate::record::Header;
use crate::shared;

/// The sizes of arenas: `ARENA_SIZE` up to CPython 3.9, and from 3.10 on.
///
/// - 3.9: <https://github.com/python/cpython/blob/v3.9.0/Objects/obmalloc.c>
/// - 3.12: <https://github.com/python/cpython/blob/v3.12.0/Include/internal/pycore_obmalloc.h>
pub const SIZES: [u64; 2] = [256 << 10, 1 << 20];

/// `ARENA_FREED`: the header's thread is about to unmap a range that has the size of an arena.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    pub header: Header,
    pub address: u64,
    pub bytes: u64,
}

shared!(Freed, 56);

//! The family `arena`: memory that CPython's allocator takes from the kernel, to hand it out in small pieces.

pub mod library;

use crate::record::Header;
use crate::shared;

/// What an arena's mmap(2) asks for: `ARENA_SIZE` up to CPython 3.9 and from 3.10 on (Objects/obmalloc.c,
/// Include/internal/pycore_obmalloc.h).
pub const SIZES: [u64; 2] = [256 << 10, 1 << 20];

/// `ARENA_FREED`: the header's thread is going to give back what may be an arena.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    pub header: Header,
    pub address: u64,
    pub bytes: u64,
}

shared!(Freed, 56);

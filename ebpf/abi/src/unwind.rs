//! Tables that say how to step from a native frame to its caller, made in user space of `.eh_frame` and `.debug_frame`.
//!
//! A file's table is a run of words in one space of rows that all files share: first its page index, then its rows in
//! the order of their addresses. A row is the offset of the first instruction that it is about (in the file, from
//! [`File::origin`] on) in the upper half, and a [`Rule`] in the lower; it holds up to the next row.

use crate::shared;

/// Words of one chunk of the space of rows. The space grows by chunks.
pub const CHUNK_ROWS: u32 = 65_536;
/// Chunks at the most: 64 MiB.
pub const CHUNKS_MAX: u32 = 128;
/// Bytes of code that a word of the page index is about, as a power of two. The word holds the number of the last row
/// that begins at or before the page in its lower half and that of the last row that begins in it in its upper half,
/// both counted from the file's first row.
pub const PAGE_BITS: u32 = 10;

/// How the canonical frame address (CFA), which is the caller's stack pointer, is found.
pub mod cfa {
    /// No code, or code that no table tells about.
    pub const NONE: u32 = 0;
    /// rsp + 8 * offset.
    pub const RSP: u32 = 1;
    /// rbp + 8 * offset.
    pub const RBP: u32 = 2;
    /// A stub of the procedure linkage table: rsp + 8, and 8 more from this low nibble of the pc on.
    pub const PLT: u32 = 3;
    /// The kernel's return from a signal handler: the interrupted registers lie on the stack.
    pub const SIGNAL: u32 = 4;
    /// The outermost frame.
    pub const END: u32 = 5;
    /// A rule that does not fit a row.
    pub const UNSUPPORTED: u32 = 6;
    /// The word at rbp + 8 * offset (signed): a function that realigned its stack.
    pub const DEREF_RBP: u32 = 7;
    /// The word at rsp + 8 * (offset >> 4) (signed), and 8 * (offset & 15) more: OpenSSL's hand-written code.
    pub const DEREF_RSP: u32 = 8;
    /// CPython's trampoline for perf: rsp + 16, and the frame is not shown. It is not in tables, for it lies in memory without a file.
    pub const TRAMPOLINE: u32 = 9;
}

/// Where the caller's rbp is. The return address is always at the CFA - 8.
pub mod rbp {
    /// In rbp still.
    pub const SAME: u32 = 0;
    /// At the CFA - 8 * offset.
    pub const AT_CFA: u32 = 1;
    /// Lost.
    pub const UNDEFINED: u32 = 2;
    /// At rbp + 8 * offset (signed, 10 bits).
    pub const AT_RBP: u32 = 3;
}

/// `cfa kind:4 | rbp kind:2 | rbp offset:10 | cfa offset:16`; offsets in words of 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule(pub u32);

impl Rule {
    pub const fn new(cfa: u32, cfa_offset: u16, rbp: u32, rbp_offset: u16) -> Self {
        Self((cfa << 28) | ((rbp & 3) << 26) | (((rbp_offset & 0x3ff) as u32) << 16) | cfa_offset as u32)
    }

    #[inline(always)]
    pub const fn cfa(self) -> u32 {
        self.0 >> 28
    }

    #[inline(always)]
    pub const fn cfa_offset(self) -> u64 {
        (self.0 as u16 as u64) << 3
    }

    #[inline(always)]
    pub const fn cfa_offset_signed(self) -> i64 {
        (self.0 as u16 as i16 as i64) << 3
    }

    #[inline(always)]
    pub const fn rbp(self) -> u32 {
        (self.0 >> 26) & 3
    }

    #[inline(always)]
    pub const fn rbp_offset(self) -> u64 {
        ((self.0 >> 16) as u64 & 0x3ff) << 3
    }

    #[inline(always)]
    pub const fn rbp_offset_signed(self) -> i64 {
        ((((self.0 >> 16) as u64) << 54) as i64) >> 51
    }
}

/// A row as a word of the table.
#[inline(always)]
pub const fn row(offset: u32, rule: Rule) -> u64 {
    ((offset as u64) << 32) | rule.0 as u64
}

/// The value of the array `FILES`: where the table of a mapped file is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// One of [`state`].
    pub state: u32,
    /// Words of the page index.
    pub pages: u32,
    /// The number of the page index's first word; the rows follow the index.
    pub start: u32,
    pub padding: u32,
    /// The offset in the file that rows' offsets are counted from.
    pub origin: u64,
    /// When the walker last used it, on `CLOCK_MONOTONIC`, nanoseconds. The kernel side writes it.
    pub used: u64,
}

shared!(File, 32);

pub mod state {
    /// No table (yet).
    pub const NONE: u32 = 0;
    pub const TABLE: u32 = 1;
    /// Code without tables: frames are chained by rbp.
    pub const FRAME_POINTERS: u32 = 2;
}

/// Elements of the array `FILES`. The first is for memory without a file: code that a JIT made.
pub const FILES_MAX: u32 = 8192;
pub const FILE_ANONYMOUS: u32 = 0;

/// The value of the array `MAPPINGS`, in which the executable mappings of a process lie side by side in the order of
/// their addresses.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// The address at which the file's first byte would lie.
    pub base: u64,
    /// Index into `FILES`.
    pub file: u32,
    pub padding: u32,
}

shared!(Mapping, 32);

pub const MAPPINGS_MAX: u32 = 131_072;
/// Mappings of one process that are looked at: what a binary search of 12 steps covers.
pub const PROCESS_MAPPINGS_MAX: u32 = 4095;

//! Unwind tables: how to step from a native frame to its caller. User space makes them from `.eh_frame` and
//! `.debug_frame`.
//!
//! All files share one space of rows. The table of a file is a run of words in it: first the page index, then the rows
//! in the order of their addresses. A row has in its upper half the offset of the first instruction that it covers (in
//! the file, from [`File::origin`] on), and a [`Rule`] in its lower half. It holds up to the next row.

use crate::shared;

/// Words of one chunk. The space of rows grows by chunks.
pub const CHUNK_ROWS: u32 = 65_536;
/// Bounds the space of rows: 64 MiB. Beyond that, files have no table, and walks end in them.
pub const CHUNKS_MAX: u32 = 128;
/// Bytes of code that a word of the page index covers, as a power of two. The lower half of the word has the number of
/// the last row that begins at or before the page, the upper half that of the last row that begins in it. Both count
/// from the first row of the file.
pub const PAGE_BITS: u32 = 10;

/// How the canonical frame address (CFA), which is the caller's stack pointer, is found.
pub mod cfa {
    /// No code, or code that no table covers.
    pub const NONE: u32 = 0;
    /// rsp + 8 * offset.
    pub const RSP: u32 = 1;
    /// rbp + 8 * offset.
    pub const RBP: u32 = 2;
    /// A stub of the procedure linkage table: rsp + 8, and 8 more if the low nibble of the pc is at least the offset.
    pub const PLT: u32 = 3;
    /// The return from a signal handler: the interrupted registers lie on the stack.
    pub const SIGNAL: u32 = 4;
    /// The outermost frame.
    pub const END: u32 = 5;
    /// A rule that does not fit a row.
    pub const UNSUPPORTED: u32 = 6;
    /// The word at rbp + 8 * offset (signed): a function that realigned its stack.
    pub const DEREF_RBP: u32 = 7;
    /// The word at rsp + 8 * (offset >> 4) (signed), plus 8 * (offset & 15): OpenSSL's hand-written code.
    pub const DEREF_RSP: u32 = 8;
    /// CPython's trampoline for perf: rsp + 16, and the frame is not shown. Tables do not have it, because it lies in
    /// memory without a file.
    pub const TRAMPOLINE: u32 = 9;
}

/// Where the caller's rbp is. The return address is always at the CFA - 8.
pub mod rbp {
    /// Still in rbp.
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

/// The offset in a `struct ucontext` of the registers from rbp to rip, and the numbers of three of them. When a signal
/// handler has returned, rsp points to a `struct ucontext`.
///
/// - <https://github.com/torvalds/linux/blob/v6.1/arch/x86/include/uapi/asm/ucontext.h>
/// - <https://github.com/torvalds/linux/blob/v6.1/arch/x86/include/uapi/asm/sigcontext.h>
pub const SIGNAL_REGISTERS: u64 = 120;
pub const SIGNAL_BP: usize = 0;
pub const SIGNAL_SP: usize = 5;
pub const SIGNAL_IP: usize = 6;

/// A pushed rbp, or room for it, and the return address.
pub const TRAMPOLINE_FRAME: u64 = 16;

/// Returns the rule for a return address in a trampoline of `python -X perf`, by the 12 bytes of code from four bytes
/// before that address on. A trampoline is one call with the same code around it for each function, and it comes in two
/// forms: that of 3.12, and that of versions that keep frame pointers.
///
/// - 3.12: <https://github.com/python/cpython/blob/v3.12.0/Python/asm_trampoline.S>
#[inline(always)]
pub fn trampoline([call, next, last]: [u32; 3]) -> Option<Rule> {
    /// The last four bytes of `sub $8, %rsp; call *%rcx`, `mov %rsp, %rbp; call *%rcx` and `mov %ecx, %edx; call
    /// *%rax`.
    const CALLS: [u32; 3] = [0xd1ff_08ec, 0xd1ff_e589, 0xd0ff_ca89];
    /// `add $8, %rsp`, before `ret`.
    const ADD: u32 = 0x08c4_8348;
    /// `pop %rbp; ret`.
    const POP_AND_RETURN: u16 = 0xc35d;
    const RETURN: u8 = 0xc3;
    if call == CALLS[0] && next == ADD && last as u8 == RETURN {
        return Some(Rule::new(cfa::TRAMPOLINE, 0, rbp::SAME, 0));
    }
    let keeps_frame_pointers = (call == CALLS[1] || call == CALLS[2]) && next as u16 == POP_AND_RETURN;
    keeps_frame_pointers.then_some(Rule::new(cfa::TRAMPOLINE, 0, rbp::AT_CFA, 2))
}

/// A row as a word of the table.
#[inline(always)]
pub const fn row(offset: u32, rule: Rule) -> u64 {
    ((offset as u64) << 32) | rule.0 as u64
}

/// The value of the array `FILES`: the table of a mapped file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// One of [`state`].
    pub state: u32,
    /// The number of words in the page index.
    pub pages: u32,
    /// The number of the first word of the page index. The rows follow the index.
    pub start: u32,
    pub padding: u32,
    /// The offset in the file that the offsets of rows are relative to.
    pub origin: u64,
    /// When the walker last used it, in nanoseconds of `CLOCK_MONOTONIC`. The kernel side writes it.
    pub used: u64,
}

shared!(File, 32);

pub mod state {
    /// No table, or none yet.
    pub const NONE: u32 = 0;
    pub const TABLE: u32 = 1;
    /// Code without a table, whose frames are chained by rbp.
    pub const FRAME_POINTERS: u32 = 2;
}

/// Bounds the mapped files with a table. The first element is for memory without a file: code that a JIT compiler made.
pub const FILES_MAX: u32 = 8192;
pub const FILE_ANONYMOUS: u32 = 0;

/// The value of the array `MAPPINGS`. The executable mappings of a process are neighbours in it, in the order of their
/// addresses.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// The address at which the first byte of the file would lie.
    pub base: u64,
    /// The index in `FILES`.
    pub file: u32,
    pub padding: u32,
}

shared!(Mapping, 32);

pub const MAPPINGS_MAX: u32 = 131_072;
/// Bounds the mappings of one process, because a binary search has 12 steps. Walks end in mappings beyond that.
pub const PROCESS_MAPPINGS_MAX: u32 = 4095;

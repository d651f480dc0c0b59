//! Libraries with arenas of their own, whose functions and structures a description names.

use crate::record::Header;
use crate::shared;

/// Reads of memory that lead to a value.
pub const READS_MAX: usize = 3;

/// Where a value is: a register, then as many words of memory as `reads`, each `offsets` bytes from what the one before
/// had, and one offset more.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// 0 to 5: an argument of the function; 6: what it returns; 7: the stack pointer.
    pub register: u32,
    pub reads: u32,
    /// Of the last read: 1, 2, 4 or 8.
    pub bytes: u32,
    pub padding: u32,
    pub offsets: [u64; READS_MAX + 1],
}

shared!(Value, 48);

/// The register that has what a function returns.
pub const RESULT: u32 = 6;
/// That which has the address of the return address.
pub const STACK: u32 = 7;

/// Indexes into a site's values.
pub mod value {
    pub const ARENA: usize = 0;
    pub const OBJECT: usize = 1;
    pub const BYTES: usize = 2;
    /// How many own the arena.
    pub const USES: usize = 3;
    /// What the program has of the arena.
    pub const CONTEXT: usize = 4;
    /// Whether nothing more can be made in it.
    pub const POPPED: usize = 5;
    pub const COUNT: usize = 6;
}

/// An element of `ARENA_SITES`: a function's beginning or end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Of [`flags`].
    pub flags: u32,
    /// Bits of the values that there are.
    pub has: u32,
    pub values: [Value; value::COUNT],
}

shared!(Site, 296);

pub const SITES_MAX: u32 = 64;

pub mod flags {
    /// An end whose values need the arguments, which were kept at the beginning.
    pub const ARGUMENTS: u32 = 1;
    pub const STACK: u32 = 2;
    /// Nothing is told where the arena is 0.
    pub const IN_ARENA: u32 = 4;
}

/// The key of `ARENA_CALLS`: a call under way.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The kernel's tgid and pid.
    pub thread: u64,
    /// Where its return address is.
    pub stack: u64,
}

shared!(Call, 16);

/// The value of `ARENA_CALLS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    pub words: [u64; 6],
}

shared!(Arguments, 48);

/// `ARENA_HIT`: the header's thread has come to a site.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hit {
    pub header: Header,
    pub site: u32,
    /// Bits of the values that could be read.
    pub known: u32,
    pub values: [u64; value::COUNT],
}

shared!(Hit, 96);

impl Hit {
    pub fn value(&self, index: usize) -> Option<u64> {
        (self.known & (1 << index) != 0).then(|| self.values.get(index).copied())?
    }
}

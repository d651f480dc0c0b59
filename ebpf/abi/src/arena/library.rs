//! Arenas of native libraries. A description in user space names the functions to probe, and where their values lie.

use crate::record::Header;
use crate::shared;

/// Bounds the pointers that a [`Value`] follows. User space refuses a description with more.
pub const READS_MAX: usize = 3;

/// Where a value is. Starting from a register, each of `reads` reads a word at the next of `offsets` from the last
/// word. The value is the last word plus one more offset.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// 0 to 5: an argument of the function. 6: its result. 7: the stack pointer.
    pub register: u32,
    pub reads: u32,
    /// The size of the last read: 1, 2, 4 or 8. The other reads are of pointers.
    pub bytes: u32,
    pub padding: u32,
    pub offsets: [u64; READS_MAX + 1],
}

shared!(Value, 48);

/// [`Value::register`] for the function's result.
pub const RESULT: u32 = 6;
/// [`Value::register`] for the stack pointer, which points to the return address.
pub const STACK: u32 = 7;

/// Indexes into [`Site::values`].
pub mod value {
    pub const ARENA: usize = 0;
    pub const OBJECT: usize = 1;
    pub const BYTES: usize = 2;
    /// The number of owners of the arena.
    pub const USES: usize = 3;
    /// The library's handle of the arena.
    pub const CONTEXT: usize = 4;
    /// Not 0 if no object can be made in the arena any more.
    pub const POPPED: usize = 5;
    pub const COUNT: usize = 6;
}

/// An element of `ARENA_SITES`: the beginning or the end of a function.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Bits of [`flags`].
    pub flags: u32,
    /// A bit for each value that the site has.
    pub has: u32,
    pub values: [Value; value::COUNT],
}

shared!(Site, 296);

pub const SITES_MAX: u32 = 64;

pub mod flags {
    /// The values need the arguments, which the function's end no longer has. The probe at its beginning kept them.
    pub const ARGUMENTS: u32 = 1;
    pub const STACK: u32 = 2;
    /// Hits without an arena are not sent.
    pub const IN_ARENA: u32 = 4;
}

/// The value of `ARENA_CALLS`, keyed by [`Call`](crate::probe::Call): the arguments of a call that has not returned.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    pub words: [u64; 6],
}

shared!(Arguments, 48);

/// `ARENA_HIT`: the header's thread has reached a site.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hit {
    pub header: Header,
    pub site: u32,
    /// A bit for each value that could be read.
    pub known: u32,
    pub values: [u64; value::COUNT],
}

shared!(Hit, 96);

impl Hit {
    pub fn value(&self, index: usize) -> Option<u64> {
        (self.known & (1 << index) != 0).then(|| self.values.get(index).copied())?
    }
}

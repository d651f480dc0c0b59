//! The family `eval`: calls of Python functions, counted in the kernel.

use crate::shared;

/// The key of `EVAL_CALLS`: a function, by its code object.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Function {
    /// The kernel's tgid.
    pub pid: u32,
    /// The code object's check word.
    pub check: u32,
    /// The code object's address.
    pub code: u64,
}

shared!(Function, 16);

/// The value of `EVAL_CALLS`: what has been seen of a function so far.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// One of [`verdict`].
    pub verdict: u64,
    /// Entries.
    pub count: u64,
    /// Entries that were seen to return.
    pub timed: u64,
    /// Their time, in nanoseconds.
    pub total: u64,
    pub max: u64,
}

shared!(Calls, 40);

/// What user space makes of a function once it has read its name.
pub mod verdict {
    /// It is counted and timed; so are those whose names have not been read yet.
    pub const COUNTED: u64 = 0;
    pub const IGNORED: u64 = 1;
}

/// The key of `EVAL_OPEN`: a call that has not returned.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub tid: u32,
    /// The kernel's tgid.
    pub pid: u32,
    /// The frame's address; where the exit does not know it, the stack pointer at the entry.
    pub address: u64,
}

shared!(Place, 16);

/// The value of `EVAL_OPEN`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    pub started: u64,
    pub code: u64,
    pub check: u32,
    /// The low half of [`state::WINDOW`] at its beginning.
    pub window: u32,
}

shared!(Open, 24);

/// Indexes into the array `EVAL_STATE`.
pub mod state {
    /// How much may be spent, in nanoseconds; 0 while no window is open.
    pub const LIMIT: u32 = 0;
    /// What the hits have cost by the estimates in their cookies.
    pub const SPENT: u32 = 1;
    pub const HITS: u32 = 2;
    /// The number of the present window.
    pub const WINDOW: u32 = 3;
    /// When the limit was reached; 0 before.
    pub const CLOSED: u32 = 4;
    /// Losses: the thread's state, its frame or its code object could not be read; a table was full; an entry whose
    /// return was not seen was followed by another at its place.
    pub const THREAD_UNREADABLE: u32 = 5;
    pub const FRAME_UNREADABLE: u32 = 6;
    pub const CODE_UNREADABLE: u32 = 7;
    pub const TABLE_FULL: u32 = 8;
    pub const RETURN_UNSEEN: u32 = 9;
    pub const COUNT: u32 = 10;
}

/// What a probe's cookie tells its program of the place in the interpreter's code that it is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cookie(pub u64);

/// How a probe's program finds the Python frame.
pub mod source {
    /// The innermost one of the thread's state.
    pub const THREAD: u64 = 0;
    /// The first or second argument of the function that begins here.
    pub const FIRST: u64 = 1;
    pub const SECOND: u64 = 2;
    /// It need not: the stack pointer tells the call.
    pub const NONE: u64 = 3;
}

/// When a hit counts.
pub mod condition {
    pub const ALWAYS: u64 = 0;
    /// The zero flag is set, or is not.
    pub const ZERO: u64 = 1;
    pub const NOT_ZERO: u64 = 2;
    /// The third argument of the function that begins here is not 0.
    pub const THROWING: u64 = 3;
}

impl Cookie {
    /// `stack`: calls are told apart by the stack pointer, which is `distance` bytes below where it was at the entry.
    pub const fn new(source: u64, condition: u64, stack: bool, distance: u32, cost: u32) -> Self {
        let distance = if distance > 0xffff { 0xffff } else { distance as u64 };
        Self((source & 7) | ((condition & 7) << 3) | ((stack as u64) << 6) | (distance << 16) | ((cost as u64) << 32))
    }

    #[inline(always)]
    pub const fn source(self) -> u64 {
        self.0 & 7
    }

    #[inline(always)]
    pub const fn condition(self) -> u64 {
        (self.0 >> 3) & 7
    }

    #[inline(always)]
    pub const fn by_stack(self) -> bool {
        self.0 & (1 << 6) != 0
    }

    #[inline(always)]
    pub const fn distance(self) -> u64 {
        (self.0 >> 16) & 0xffff
    }

    /// What a hit costs, in nanoseconds.
    #[inline(always)]
    pub const fn cost(self) -> u64 {
        self.0 >> 32
    }
}

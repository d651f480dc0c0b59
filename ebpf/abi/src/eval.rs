//! The family `eval`: calls of Python functions, counted and timed in the kernel.

use crate::shared;

/// The key of `EVAL_CALLS`: a Python function, by its code object.
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

/// The value of `EVAL_CALLS`: totals of one function.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// One of [`verdict`].
    pub verdict: u64,
    /// The number of calls.
    pub count: u64,
    /// The number of calls whose return was seen.
    pub timed: u64,
    /// The time of those calls, in nanoseconds.
    pub total: u64,
    pub max: u64,
}

shared!(Calls, 40);

/// What user space decides about a function once it knows its name.
pub mod verdict {
    /// Counted and timed. Functions whose names are not known yet are, too.
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
    /// The address of the frame. If the exit does not know it, the stack pointer at the entry.
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
    /// The low half of [`state::WINDOW`] when the call began. A call that crosses windows is not timed.
    pub window: u32,
}

shared!(Open, 24);

/// Indexes into the array `EVAL_STATE`.
pub mod state {
    /// The budget of the present window in nanoseconds; 0 while no window is open.
    pub const LIMIT: u32 = 0;
    /// What the hits of this window have cost, by the estimates in their cookies.
    pub const SPENT: u32 = 1;
    pub const HITS: u32 = 2;
    /// The number of the present window.
    pub const WINDOW: u32 = 3;
    /// When the budget ran out; 0 before.
    pub const CLOSED: u32 = 4;
    /// Losses. The thread's state, its frame or its code object could not be read; a table was full; the return of a
    /// call was not seen before another call began at the same place.
    pub const THREAD_UNREADABLE: u32 = 5;
    pub const FRAME_UNREADABLE: u32 = 6;
    pub const CODE_UNREADABLE: u32 = 7;
    pub const TABLE_FULL: u32 = 8;
    pub const RETURN_UNSEEN: u32 = 9;
    pub const COUNT: u32 = 10;
}

/// The cookie of a probe: what its program has to know of the place in the interpreter's code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cookie(pub u64);

/// How a program finds the Python frame.
pub mod source {
    /// The innermost frame of the thread state.
    pub const THREAD: u64 = 0;
    /// The first or second argument of the function that begins here.
    pub const FIRST: u64 = 1;
    pub const SECOND: u64 = 2;
    /// It does not: the stack pointer identifies the call.
    pub const NONE: u64 = 3;
}

/// The condition under which a hit counts.
pub mod condition {
    pub const ALWAYS: u64 = 0;
    /// The zero flag of the CPU is set, or not set.
    pub const ZERO: u64 = 1;
    pub const NOT_ZERO: u64 = 2;
    /// The third argument of the function that begins here is not 0.
    pub const THROWING: u64 = 3;
}

impl Cookie {
    /// `stack`: the stack pointer identifies a call. At the exit it is `distance` bytes below where it was at the
    /// entry.
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

//! What the session and the thread that sets watchpoints tell each other.

use std::sync::Arc;

use pyobs_model::Touched;

use super::calls::{Again, Interpreter};
use super::pairs::Found;

/// What the session tells the thread.
pub enum Order {
    /// So many samples are taken in a second of CPU time from now on.
    Rate(f64),
    Process {
        pid: u32,
        interpreter: Box<Interpreter>,
    },
    Ended {
        pid: u32,
    },
}

/// What the thread tells the session.
pub enum Message {
    /// A sample in native code that Python called, and what it was about to access.
    Access {
        tid: u32,
        time: u64,
        touched: Option<Touched>,
        stores: bool,
        element_of: Option<Arc<str>>,
        again: Option<Again>,
    },
    /// Two accesses of one address: the watchpoint, and what they were.
    Pair { pid: u32, tid: u32, watch: u64, touched: Touched, address: u64, bytes: u64, found: Found },
    /// The result of a call whose arguments were those of the last: the watchpoint, the trap, and whether it was the last one's.
    Result { pid: u32, tid: u32, watch: u64, number: u32, callee: Arc<str>, same: bool },
}

//! Messages between the session and the thread that sets watchpoints.

use std::sync::Arc;

use pyobs_model::{CalledBy, Touched};

use super::calls::{Interpreter, Observed};
use super::pairs::Found;
use super::turns::Callee;

/// Sent by the session to the thread.
pub enum Order {
    /// The new sampling rate, per second of CPU time.
    Rate(f64),
    Process {
        pid: u32,
        interpreter: Box<Interpreter>,
    },
    Ended {
        pid: u32,
    },
}

/// Sent by the thread to the session.
pub enum Message {
    /// A sample in native code called from Python, and the memory it was about to access.
    Access {
        tid: u32,
        time: u64,
        touched: Option<Touched>,
        stores: bool,
        element_of: Option<Arc<str>>,
        calls: Vec<Observed>,
    },
    /// Two accesses of one address: the watchpoint, and what was found.
    Pair { pid: u32, tid: u32, watch: u64, touched: Touched, address: u64, bytes: u64, found: Found },
    /// The result of a call with the same arguments as the last: the watchpoint, the trap, and whether the
    /// result was the same too.
    Result { pid: u32, tid: u32, watch: u64, number: u32, callee: Arc<str>, called_by: CalledBy, same: bool },
    /// A number of turns of a loop between the program and a library: the watchpoint, the trap at the first result, and the
    /// time of the turns together in nanoseconds.
    Turns { pid: u32, tid: u32, watch: u64, number: u32, callee: Callee, turns: u32, time: u64, bytes: Option<u64> },
}

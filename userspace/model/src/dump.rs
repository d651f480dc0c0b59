//! What every thread of every Python process does at one moment (`pyobs dump`).

mod blocked;
mod cycles;
mod limited;

use std::sync::Arc;

use serde::Serialize;

use crate::event::Container;
use crate::findings::Finding;
use crate::report::FrameOut;
use crate::{CpuLimit, FrameKind, MemoryLimit, Pid, Tid, WaitReason, package};

pub use crate::event::TaskState;
pub use blocked::blocked_loops;
pub use cycles::deadlocks;
pub use limited::limited_groups;

/// The version of the JSON format.
pub const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Dump {
    pub version: u32,
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// When it was taken: RFC 3339 in UTC.
    pub taken: String,
    pub took_s: f64,
    pub processes: Vec<ProcessDump>,
    pub findings: Vec<Finding>,
    /// What is missing, in whole sentences.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessDump {
    pub pid: Pid,
    pub ppid: Pid,
    pub command: String,
    /// The interpreter's version.
    pub python: Arc<str>,
    /// Its control group, from the root of the hierarchy.
    pub cgroup: Option<String>,
    pub container: Option<Container>,
    /// The CPU limit of its control group, or of one above.
    #[serde(rename = "limit")]
    pub cpu_limit: Option<CpuLimit>,
    /// The memory limit of its control group, or of one above.
    pub memory_limit: Option<MemoryLimit>,
    pub threads: Vec<ThreadDump>,
    /// The asyncio tasks that are not done, if they were asked for.
    pub tasks: Option<Vec<TaskDump>>,
    /// Children that have ended, and whose exit status it has not collected.
    pub zombies: Vec<Zombie>,
}

/// A limit of CPU time, and what it has cost since the control group was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Zombie {
    pub pid: Pid,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadDump {
    pub tid: Tid,
    /// The kernel's name of the thread (`comm`).
    pub name: String,
    /// The name that the program gave it (`threading.Thread.name`).
    pub python_name: Option<String>,
    pub role: Role,
    pub state: State,
    /// The CPU that it runs on, or last ran on.
    pub cpu: Option<u32>,
    /// Of a thread that is asleep: what it waits for, the system call it is in, the kernel function it sleeps in, and for how
    /// long it has slept. `None` for a system call stands for a page fault.
    pub reason: Option<WaitReason>,
    pub call: Option<String>,
    pub kernel_function: Option<String>,
    pub asleep_s: Option<f64>,
    pub holds_gil: bool,
    pub awaits: Option<Awaited>,
    /// Root first.
    pub stack: Vec<DumpFrame>,
    pub stack_state: StackState,
    /// Whether `stack` has all native frames. `None` if they were not asked for, or if the thread runs.
    pub native_stack: Option<NativeState>,
}

impl ThreadDump {
    /// The line to name: of the innermost Python frame outside installed packages, else outside the standard library.
    pub fn line(&self) -> Option<&FrameOut> {
        let frames =
            || self.stack.iter().rev().map(|frame| &frame.frame).filter(|frame| frame.kind == FrameKind::Python);
        let package = |frame: &&FrameOut| frame.file.as_deref().and_then(package::of_file);
        let own = frames().find(|frame| package(frame).is_none());
        let installed = || frames().find(|frame| package(frame).is_some_and(|package| &*package != package::STANDARD));
        own.or_else(installed).or_else(|| frames().next())
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DumpFrame {
    #[serde(flatten)]
    pub frame: FrameOut,
    /// The text of the line, if the file can be read.
    pub source: Option<String>,
}

/// An asyncio task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskDump {
    /// The address of the task object, such as `0x7f00`.
    pub id: String,
    pub name: Option<String>,
    /// The thread that made it, if that is known.
    pub tid: Option<Tid>,
    pub state: TaskState,
    /// Whom it awaits: other tasks by their ids.
    pub awaits: Vec<String>,
    pub awaited_by: Vec<String>,
    /// Its coroutines, each awaited by the one before it. Those of a task that runs are on its thread's stack as well.
    pub stack: Vec<DumpFrame>,
    pub stack_state: StackState,
}

/// Defines an enum whose variants have names in JSON and on screen.
macro_rules! named {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

named! {
    /// What a thread is to its process.
    Role {
        Main = "main",
        /// Another thread with a Python thread state.
        Python = "python",
        /// A thread that Python does not know.
        Native = "native",
    }
}

named! {
    State {
        /// On a CPU, or ready to run.
        Running = "running",
        /// Ready to run, but its control group has used up its CPU limit.
        Throttled = "throttled",
        Asleep = "asleep",
        /// Asleep in the kernel, where no signal wakes it (state D).
        Uninterruptible = "uninterruptible",
        /// By a signal such as SIGSTOP.
        Stopped = "stopped",
        /// By a debugger.
        Traced = "traced",
        Ended = "ended",
    }
}

named! {
    /// How far the stack can be trusted.
    StackState {
        /// The thread did not run while its frames were read, or they were the same before and after.
        Consistent = "consistent",
        /// The thread ran while its frames were read, so they may never have been on its stack together.
        Torn = "torn",
        /// It runs no Python code.
        None = "none",
        Unreadable = "unreadable",
    }
}

named! {
    NativeState {
        Complete = "complete",
        /// The walk ended before the outermost frame, or native and Python frames do not fit together.
        Partial = "partial",
    }
}

/// What a thread waits for, beyond the system call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Awaited {
    pub what: What,
    /// A semaphore's or a file's name, or where a lock lies in memory.
    pub name: Option<String>,
    /// Who has it, as far as can be known: a thread, or a process if `tid` is `None`.
    pub holders: Vec<Holder>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    pub pid: Pid,
    pub tid: Option<Tid>,
}

named! {
    What {
        Gil = "gil",
        /// A `threading.Lock`.
        Lock = "lock",
        /// A `threading.RLock`.
        RLock = "rlock",
        /// A mutex of a native library (`pthread_mutex_t`).
        Mutex = "mutex",
        /// A named semaphore, as `multiprocessing` uses.
        Semaphore = "semaphore",
        FileLock = "file_lock",
        Pipe = "pipe",
        Socket = "socket",
        /// The end of a child process.
        Child = "child",
        /// The end of a thread of Python.
        Thread = "thread",
    }
}

impl What {
    /// What a thread waits for, in a sentence that goes on with "of" and who has it.
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Gil => "the GIL",
            Self::Lock => "the lock",
            Self::RLock => "the RLock",
            Self::Mutex => "a mutex in native code",
            Self::Semaphore => "the semaphore",
            Self::FileLock => "the file lock",
            Self::Pipe => "the pipe",
            Self::Socket => "the socket",
            Self::Child | Self::Thread => "the end",
        }
    }
}

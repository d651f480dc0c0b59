//! What every record in the ring begins with, the kinds of records, and the losses that the kernel side counts.

use crate::shared;

pub const CPU_SAMPLE: u32 = 1;
pub const PROCESS_FORK: u32 = 2;
pub const PROCESS_EXEC: u32 = 3;
pub const PROCESS_EXIT: u32 = 4;
/// A `stack::Sample` of a thread that goes to sleep.
pub const OFFCPU_SLEEP: u32 = 5;
/// A [`crate::offcpu::Wake`].
pub const OFFCPU_WAKE: u32 = 6;
/// A `stack::Sample` with the Python frames of the thread that held the GIL. It follows the `OFFCPU_SLEEP` of the
/// waiting thread and has the same time. The header's tid is the holder's; 0 if unknown.
pub const GIL_HOLDER: u32 = 7;
/// A [`crate::copy::StackCopy`], after its `CPU_SAMPLE`.
pub const STACK_COPY: u32 = 8;
/// A [`crate::shm::Segment`].
pub const SHM_SEGMENT: u32 = 9;
/// A [`crate::shm::Change`].
pub const SHM_CHANGE: u32 = 10;
/// A [`crate::shm::Unlink`].
pub const SHM_UNLINK: u32 = 11;
/// A `stack::Sample` of the thread that made a segment. Its detail has the inode and the device.
pub const SHM_BIRTH: u32 = 12;
/// A [`crate::process::Fork`] of a process that holds segments, and a [`Header`] for its exec and its exit.
pub const SHM_FORK: u32 = 13;
pub const SHM_EXEC: u32 = 14;
pub const SHM_EXIT: u32 = 15;
/// A `stack::Sample` of the thread that mapped what may be an arena. Its detail has the address and the size.
pub const ARENA_BIRTH: u32 = 16;
/// A [`crate::arena::Freed`].
pub const ARENA_FREED: u32 = 17;
/// A `stack::Sample` of the thread that made a MemInfo. Its detail has the address and the size.
pub const NRT_BIRTH: u32 = 18;
/// A [`crate::nrt::Death`].
pub const NRT_DEATH: u32 = 19;
/// A [`crate::arena::library::Hit`].
pub const ARENA_HIT: u32 = 20;
/// A `stack::Sample` of the thread that sent the last `ARENA_HIT`.
pub const ARENA_STACK: u32 = 21;
/// A [`crate::ucx::Done`].
pub const UCX_TRANSFER: u32 = 22;
/// A [`crate::ucx::Woken`].
pub const UCX_WOKEN: u32 = 23;
/// A [`crate::ucx::Callback`].
pub const UCX_CALLBACK: u32 = 24;
/// A `stack::Sample` of the thread that began a transfer. Its detail has the transfer's id.
pub const UCX_STACK: u32 = 25;
/// A [`crate::redundancy::Registers`], in the ring of that family.
pub const REDUNDANCY_REGISTERS: u32 = 26;
/// A [`crate::redundancy::Trap`], in the ring of that family.
pub const REDUNDANCY_TRAP: u32 = 27;
/// A `stack::Sample` of a thread that hit a watchpoint. Its detail has the watchpoint's id and the number of the trap.
pub const REDUNDANCY_STACK: u32 = 28;

/// A [`crate::process::Mapped`].
pub const EXEC_MAPPED: u32 = 29;
/// A [`crate::code::CodeCopy`].
pub const CODE_COPY: u32 = 30;
/// A `stack::Sample` of a page fault. Its weight is the growth in bytes that the fault stands for; its detail has the
/// address of the page, and the anonymous memory of the process in bytes.
pub const HEAP_TOUCHED: u32 = 31;
/// A `stack::Sample` of the thread that mapped a block. Its detail has the address and the size.
pub const HEAP_MAPPED: u32 = 32;
/// A [`crate::heap::Freed`].
pub const HEAP_FREED: u32 = 33;

/// The length of the kernel's `comm`, with its closing NUL (`TASK_COMM_LEN`).
pub const COMM_LEN: usize = 16;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time: u64,
    /// One of this module's kinds.
    pub kind: u32,
    pub cpu: u32,
    /// The kernel's tgid.
    pub pid: u32,
    /// The kernel's pid.
    pub tid: u32,
    /// The name of the thread, padded with NULs.
    pub comm: [u8; COMM_LEN],
}

shared!(Header, 40);

/// Defines an enumeration that lists its own values, so that user space has to give each of them a reason.
macro_rules! losses {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Losses that the kernel side counts, as indexes into the per-CPU array `LOSSES`.
        #[repr(u32)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Loss {
            $($(#[$doc])* $name,)*
        }

        impl Loss {
            /// In the order of their indexes.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
            pub const COUNT: usize = Self::ALL.len();
        }
    };
}

losses! {
    RingFull,
    KernelStack,
    /// The table of processes was full when a process forked.
    ProcessTable,
    /// A field of a task could not be read.
    Task,
    /// A sample was dropped to stay within the budget.
    Shed,
    /// Two sleeping threads share an element of the table.
    Sleeper,
    /// The tables of segments or of their holders were full.
    SegmentTable,
    /// A message had more control blocks than are read.
    Message,
    /// Two threads of a CPU needed the same walk state.
    WalkTaken,
    /// The tables of transfers were full.
    TransferTable,
    /// The ring had no room for an executable mapping.
    Mapping,
    /// A table could not be written, because another CPU held its lock too long.
    TableBusy,
    /// A transfer of UCXX completed whose beginning was not seen.
    TransferHalfSeen,
    /// The tables of growing processes or of their sampled pages were full.
    HeapTable,
}

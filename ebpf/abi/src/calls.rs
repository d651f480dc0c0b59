//! The system calls that the programs handle.

/// The numbers of system calls on x86-64:
/// <https://github.com/torvalds/linux/blob/v6.1/arch/x86/entry/syscalls/syscall_64.tbl>
pub mod number {
    pub const OPEN: u32 = 2;
    pub const CLOSE: u32 = 3;
    pub const MMAP: u32 = 9;
    pub const MPROTECT: u32 = 10;
    pub const MUNMAP: u32 = 11;
    pub const IOCTL: u32 = 16;
    pub const MREMAP: u32 = 25;
    pub const DUP: u32 = 32;
    pub const DUP2: u32 = 33;
    pub const SENDMSG: u32 = 46;
    pub const RECVMSG: u32 = 47;
    pub const FCNTL: u32 = 72;
    pub const FTRUNCATE: u32 = 77;
    pub const CREAT: u32 = 85;
    pub const UNLINK: u32 = 87;
    pub const OPENAT: u32 = 257;
    pub const UNLINKAT: u32 = 263;
    pub const FALLOCATE: u32 = 285;
    pub const DUP3: u32 = 292;
    pub const MEMFD_CREATE: u32 = 319;
    pub const PKEY_MPROTECT: u32 = 329;
    pub const CLOSE_RANGE: u32 = 436;
    pub const OPENAT2: u32 = 437;
    pub const PIDFD_GETFD: u32 = 438;
}

/// The calls that the family `shm` needs at their beginning, by the names of their tracepoints
/// (`syscalls:sys_enter_*`), and those that it needs at their end (`syscalls:sys_exit_*`).
pub const SHM_BEGIN: [&str; 6] = ["close", "close_range", "dup2", "dup3", "munmap", "sendmsg"];
pub const SHM_END: [&str; 18] = [
    "open",
    "creat",
    "openat",
    "openat2",
    "memfd_create",
    "mmap",
    "mremap",
    "dup",
    "dup2",
    "dup3",
    "fcntl",
    "ioctl",
    "ftruncate",
    "fallocate",
    "recvmsg",
    "pidfd_getfd",
    "unlink",
    "unlinkat",
];
/// The same for `arena`.
pub const ARENA_BEGIN: [&str; 1] = ["munmap"];
pub const ARENA_END: [&str; 1] = ["mmap"];
/// The same for `heap`.
pub const HEAP_BEGIN: [&str; 1] = ["munmap"];
pub const HEAP_END: [&str; 2] = ["mmap", "mremap"];
/// The calls that can add executable code to a process. They are always needed.
pub const CODE_END: [&str; 3] = ["mmap", "mprotect", "pkey_mprotect"];

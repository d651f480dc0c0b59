//! System calls that threads sleep in: their names, and what each waits for.
//!
//! Numbers: <https://github.com/torvalds/linux/blob/v6.1/arch/x86/entry/syscalls/syscall_64.tbl>

use pyobs_model::WaitReason;

/// A system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemCall {
    pub name: &'static str,
    pub reason: WaitReason,
}

macro_rules! calls {
    ($($reason:ident: $($number:ident = $name:literal)*;)*) => {
        /// The system call with this number, if threads are known to sleep in it.
        pub fn of(number: i64) -> Option<SystemCall> {
            match number {
                $($(libc::$number => Some(SystemCall { name: $name, reason: WaitReason::$reason }),)*)*
                _ => None,
            }
        }
    };
}

calls! {
    Sleep:
        SYS_nanosleep = "nanosleep"
        SYS_clock_nanosleep = "clock_nanosleep";
    Lock:
        SYS_futex = "futex"
        SYS_semop = "semop"
        SYS_semtimedop = "semtimedop"
        SYS_flock = "flock";
    Poll:
        SYS_poll = "poll"
        SYS_ppoll = "ppoll"
        SYS_select = "select"
        SYS_pselect6 = "pselect6"
        SYS_epoll_wait = "epoll_wait"
        SYS_epoll_pwait = "epoll_pwait"
        SYS_epoll_pwait2 = "epoll_pwait2";
    Other:
        SYS_wait4 = "wait4"
        SYS_waitid = "waitid"
        SYS_pause = "pause"
        SYS_rt_sigsuspend = "rt_sigsuspend"
        SYS_rt_sigtimedwait = "rt_sigtimedwait"
        SYS_sched_yield = "sched_yield"
        SYS_exit = "exit"
        SYS_exit_group = "exit_group";
    Io:
        SYS_read = "read"
        SYS_write = "write"
        SYS_pread64 = "pread64"
        SYS_pwrite64 = "pwrite64"
        SYS_readv = "readv"
        SYS_writev = "writev"
        SYS_preadv = "preadv"
        SYS_pwritev = "pwritev"
        SYS_recvfrom = "recvfrom"
        SYS_recvmsg = "recvmsg"
        SYS_recvmmsg = "recvmmsg"
        SYS_sendto = "sendto"
        SYS_sendmsg = "sendmsg"
        SYS_sendmmsg = "sendmmsg"
        SYS_sendfile = "sendfile"
        SYS_splice = "splice"
        SYS_accept = "accept"
        SYS_accept4 = "accept4"
        SYS_connect = "connect"
        SYS_open = "open"
        SYS_openat = "openat"
        SYS_openat2 = "openat2"
        SYS_close = "close"
        SYS_stat = "stat"
        SYS_lstat = "lstat"
        SYS_newfstatat = "newfstatat"
        SYS_statx = "statx"
        SYS_getdents64 = "getdents64"
        SYS_fsync = "fsync"
        SYS_fdatasync = "fdatasync"
        SYS_ftruncate = "ftruncate"
        SYS_fallocate = "fallocate"
        SYS_rename = "rename"
        SYS_unlink = "unlink"
        SYS_unlinkat = "unlinkat"
        SYS_mkdir = "mkdir"
        SYS_io_getevents = "io_getevents"
        SYS_io_uring_enter = "io_uring_enter"
        SYS_ioctl = "ioctl"
        SYS_fcntl = "fcntl";
}

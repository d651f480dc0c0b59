//! What a thread waits for.

use pyobs_abi::offcpu::detail;
use pyobs_model::WaitReason;

/// Derives the reason from the system call that a thread sleeps in
/// (<https://github.com/torvalds/linux/blob/v6.1/arch/x86/entry/syscalls/syscall_64.tbl>).
pub(super) fn reason(detail: u64) -> WaitReason {
    if detail & detail::GIL != 0 {
        return WaitReason::Gil;
    }
    let no_argument = detail & detail::FIRST_ARGUMENT_ZERO != 0;
    match i64::from(detail as u32) {
        // Up to CPython 3.10, `time.sleep()` calls select() without file descriptors.
        libc::SYS_select | libc::SYS_pselect6 if no_argument => WaitReason::Sleep,
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => WaitReason::Sleep,
        libc::SYS_futex | libc::SYS_semop | libc::SYS_semtimedop | libc::SYS_flock => WaitReason::Lock,
        libc::SYS_poll
        | libc::SYS_ppoll
        | libc::SYS_select
        | libc::SYS_pselect6
        | libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2 => WaitReason::Poll,
        libc::SYS_wait4
        | libc::SYS_waitid
        | libc::SYS_pause
        | libc::SYS_rt_sigsuspend
        | libc::SYS_rt_sigtimedwait
        | libc::SYS_sched_yield
        | libc::SYS_exit
        | libc::SYS_exit_group => WaitReason::Other,
        libc::SYS_read
        | libc::SYS_write
        | libc::SYS_pread64
        | libc::SYS_pwrite64
        | libc::SYS_readv
        | libc::SYS_writev
        | libc::SYS_preadv
        | libc::SYS_pwritev
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_sendmmsg
        | libc::SYS_sendfile
        | libc::SYS_splice
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_connect
        | libc::SYS_open
        | libc::SYS_openat
        | libc::SYS_openat2
        | libc::SYS_close
        | libc::SYS_stat
        | libc::SYS_lstat
        | libc::SYS_newfstatat
        | libc::SYS_statx
        | libc::SYS_getdents64
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_ftruncate
        | libc::SYS_fallocate
        | libc::SYS_rename
        | libc::SYS_unlink
        | libc::SYS_unlinkat
        | libc::SYS_mkdir
        | libc::SYS_io_getevents
        | libc::SYS_io_uring_enter
        | libc::SYS_ioctl
        | libc::SYS_fcntl => WaitReason::Io,
        // A page fault that waits for its page.
        number if number == i64::from(u32::MAX) => WaitReason::Io,
        _ => WaitReason::Other,
    }
}

#[cfg(test)]
mod tests {
    use pyobs_abi::offcpu::NO_CALL;

    use super::*;

    #[test]
    fn reasons() {
        assert_eq!(reason(libc::SYS_select as u64), WaitReason::Poll);
        assert_eq!(reason(libc::SYS_select as u64 | detail::FIRST_ARGUMENT_ZERO), WaitReason::Sleep);
        assert_eq!(reason(libc::SYS_futex as u64 | detail::GIL), WaitReason::Gil);
        assert_eq!(reason(u64::from(NO_CALL)), WaitReason::Io);
        assert_eq!(reason(9_999), WaitReason::Other);
    }
}

//! What a thread waits for.

use pyobs_abi::offcpu::{NO_CALL, detail};
use pyobs_model::WaitReason;

use crate::kernel::calls;

/// Derives the reason from the system call that a thread sleeps in.
pub(super) fn reason(detail: u64) -> WaitReason {
    if detail & detail::GIL != 0 {
        return WaitReason::Gil;
    }
    if detail & detail::THROTTLED != 0 {
        return WaitReason::Throttled;
    }
    of_call(detail as u32, detail & detail::FIRST_ARGUMENT_ZERO != 0)
}

/// The reason of a sleep in the system call with this number, or outside of one.
pub fn of_call(number: u32, first_argument_is_zero: bool) -> WaitReason {
    match number {
        // A page fault that waits for its page.
        NO_CALL => WaitReason::Io,
        // Up to CPython 3.10, `time.sleep()` calls select() without file descriptors.
        number if first_argument_is_zero && SELECT.contains(&i64::from(number)) => WaitReason::Sleep,
        number => calls::of(number.into()).map_or(WaitReason::Other, |call| call.reason),
    }
}

const SELECT: [i64; 2] = [libc::SYS_select, libc::SYS_pselect6];

#[cfg(test)]
mod tests {
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

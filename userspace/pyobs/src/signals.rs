//! Signals as something to ask about, so that a recording is always ended in order, however often Ctrl-C is pressed.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use libc::{SIGHUP, SIGINT, SIGTERM};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C: every process in front of the terminal gets it.
    Interrupt,
    Terminate,
    HangUp,
}

impl Signal {
    fn of(number: libc::c_int) -> Option<Self> {
        match number {
            SIGINT => Some(Self::Interrupt),
            SIGTERM => Some(Self::Terminate),
            SIGHUP => Some(Self::HangUp),
            _ => None,
        }
    }

    pub(crate) fn for_kill(self) -> rustix::process::Signal {
        match self {
            Self::Interrupt => rustix::process::Signal::INT,
            Self::Terminate => rustix::process::Signal::TERM,
            Self::HangUp => rustix::process::Signal::HUP,
        }
    }
}

/// The three signals, held back from the calling thread and those it starts afterwards.
pub(crate) struct Signals {
    fd: std::fs::File,
}

impl Signals {
    /// A signal that was ignored when pyobs started stays ignored: `nohup` and `&` in scripts mean it.
    pub(crate) fn catch() -> io::Result<Self> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the whole set, and cannot fail for an address that is valid.
        let mut set: libc::sigset_t = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if !is_ignored(signal)? {
                // SAFETY: the set is initialised and the number is that of a signal.
                unsafe { libc::sigaddset(&raw mut set, signal) };
            }
        }
        // A file that reaches the limit of `ulimit -f` is then an error like a full disk, and is told.
        // SAFETY: SIG_IGN is a disposition that any signal may have but two, of which this is none.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        // SAFETY: the set is initialised; the old mask is not asked for.
        let result = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if result != 0 {
            return Err(io::Error::from_raw_os_error(result));
        }
        // SAFETY: the set is initialised; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given us this descriptor, so nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd: fd.into() })
    }

    /// The next signal that has come, if any.
    pub(crate) fn take(&mut self) -> Option<Signal> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        self.fd.read_exact(&mut info).ok()?;
        // `ssi_signo` is the first word.
        let number = u32::from_ne_bytes(*info.first_chunk()?);
        Signal::of(number.cast_signed())
    }

    /// Until a signal comes, or `timeout` (below one second) has passed.
    pub(crate) fn wait(&self, timeout: Duration) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() };
        // Whatever goes wrong, the caller asks again.
        let _ = poll(&mut [PollFd::new(self, PollFlags::IN)], Some(&timeout));
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn is_ignored(signal: libc::c_int) -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: no new action is set, and the old one is written to a place of its type.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: sigaction has succeeded, so it has filled the place.
    Ok(unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mask belongs to this test's own thread, so the signals are sent to that.
    #[test]
    fn signals_are_held_and_told_in_order() {
        for signal in [SIGTERM, SIGINT] {
            // SAFETY: SIG_DFL is a disposition that both may have. Whoever runs tests in the background ignores SIGINT.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        let mut signals = Signals::catch().unwrap();
        assert_eq!(signals.take(), None);
        for signal in [SIGTERM, SIGINT, SIGINT] {
            // SAFETY: raise touches no memory of ours, and this thread holds the signal back.
            assert_eq!(unsafe { libc::raise(signal) }, 0);
        }
        signals.wait(Duration::from_millis(500));
        let mut taken = vec![signals.take().unwrap(), signals.take().unwrap()];
        taken.sort_by_key(|signal| *signal == Signal::Terminate);
        assert_eq!(taken, [Signal::Interrupt, Signal::Terminate]);
        assert_eq!(signals.take(), None);
    }
}

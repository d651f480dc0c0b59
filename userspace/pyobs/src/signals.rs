//! Reads signals from a descriptor, so that long-running verbs end in order, however often Ctrl-C is pressed.
//!
//! `record` checks for them between two polls of the kernel's ring. The dashboard's input thread polls their
//! descriptor.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libc::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::exit::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C: the terminal sends it to every process in its foreground group.
    Interrupt,
    Terminate,
    HangUp,
    /// The terminal was resized.
    Resize,
}

impl Signal {
    fn of(number: libc::c_int) -> Option<Self> {
        match number {
            SIGINT => Some(Self::Interrupt),
            SIGTERM => Some(Self::Terminate),
            SIGHUP => Some(Self::HangUp),
            SIGWINCH => Some(Self::Resize),
            _ => None,
        }
    }

    pub(crate) fn for_kill(self) -> rustix::process::Signal {
        match self {
            Self::Interrupt => rustix::process::Signal::INT,
            Self::Terminate => rustix::process::Signal::TERM,
            Self::HangUp => rustix::process::Signal::HUP,
            Self::Resize => rustix::process::Signal::WINCH,
        }
    }
}

/// Signals that are blocked in the calling thread and in threads that it starts later, and read from a descriptor.
pub(crate) struct Signals {
    fd: std::fs::File,
}

impl Signals {
    /// For a verb without a screen: only the signals that request the end.
    pub(crate) fn catch() -> Result<Self, Failure> {
        Self::of(&[SIGINT, SIGTERM, SIGHUP]).map_err(|error| not_caught(&error))
    }

    /// For a dashboard, which also follows the size of the terminal.
    pub(crate) fn catch_with_resize() -> Result<Self, Failure> {
        Self::of(&[SIGINT, SIGTERM, SIGHUP, SIGWINCH]).map_err(|error| not_caught(&error))
    }

    /// A signal that was ignored when pyobs started stays ignored: `nohup`, and `&` in scripts, rely on it.
    fn of(signals: &[libc::c_int]) -> io::Result<Self> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the whole set, and cannot fail for an address that is valid.
        let mut set: libc::sigset_t = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        };
        for signal in signals {
            if !is_ignored(*signal)? {
                // SAFETY: the set is initialised and the number is that of a signal.
                unsafe { libc::sigaddset(&raw mut set, *signal) };
            }
        }
        // A file that reaches the limit of `ulimit -f` then fails like a full disk, and the error is reported.
        // SAFETY: SIGXFSZ may be ignored; only SIGKILL and SIGSTOP may not.
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
        // SAFETY: signalfd returned a new descriptor, which has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd: fd.into() })
    }

    /// The next signal that has arrived, if any.
    pub(crate) fn take(&mut self) -> Option<Signal> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        self.fd.read_exact(&mut info).ok()?;
        // `ssi_signo` is the first word.
        let number = u32::from_ne_bytes(*info.first_chunk()?);
        Signal::of(number.cast_signed())
    }

    /// Waits until a signal arrives or `timeout` (less than one second) has passed.
    pub(crate) fn wait(&self, timeout: Duration) {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        // An error ends the wait early, which is harmless: the caller polls in a loop.
        let _ = poll(&mut [PollFd::new(self, PollFlags::IN)], Some(&timeout));
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl pyobs_tui::Signals for Signals {
    fn next_signal(&mut self) -> Option<pyobs_tui::Signal> {
        Some(match self.take()? {
            Signal::Resize => pyobs_tui::Signal::Resize,
            Signal::Interrupt | Signal::Terminate | Signal::HangUp => pyobs_tui::Signal::Quit,
        })
    }
}

fn not_caught(error: &io::Error) -> Failure {
    Failure::Failed(format!("signals cannot be caught: {error}"))
}

fn is_ignored(signal: libc::c_int) -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: no new action is set, and the old one is written to a place of its type.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: sigaction succeeded, so it has initialised the action.
    Ok(unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mask belongs to this test's own thread, so `raise` sends the signals there.
    #[test]
    fn blocked_signals_are_read_once_each() {
        for signal in [SIGTERM, SIGINT] {
            // Tests that a shell runs in the background start with SIGINT ignored.
            // SAFETY: both signals may have the default disposition.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        let mut signals = Signals::catch_with_resize().unwrap();
        assert_eq!(signals.take(), None);
        for signal in [SIGTERM, SIGINT, SIGINT, SIGWINCH] {
            // SAFETY: raise touches no memory of ours, and this thread blocks the signal.
            assert_eq!(unsafe { libc::raise(signal) }, 0);
        }
        signals.wait(Duration::from_millis(500));
        let mut taken: Vec<Signal> = std::iter::from_fn(|| signals.take()).collect();
        taken.sort_by_key(|signal| *signal as u8);
        assert_eq!(taken, [Signal::Interrupt, Signal::Terminate, Signal::Resize]);
    }
}

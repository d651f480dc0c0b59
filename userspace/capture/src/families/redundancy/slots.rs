//! The watchpoints of a thread: perf events on the processor's debug registers, opened once and then moved to
//! new addresses.
//!
//! A watchpoint that has seen enough switches itself off in the kernel before the thread continues: its event
//! has a limit of one overflow (`PERF_EVENT_IOC_REFRESH`), and a trap whose BPF program returns 0 is not an
//! overflow (`__perf_event_overflow` in <https://github.com/torvalds/linux/blob/v6.1/kernel/events/core.c>). If
//! user space switched it off instead, a thread in a loop would trap at every iteration until then. From
//! Linux 6.17 on, an event that has reached its limit never fires again (18dbcbfabfff stops it, and nothing
//! restarts it), so it is closed and a new one opened.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use perf_event_open::config::{Cpu, Opts, Priv, Proc, SampleOn};
use perf_event_open::count::Counter;
use perf_event_open::event::bp::{Breakpoint, Len, Type};

/// Debug registers per processor.
pub const SLOTS: usize = 4;

/// What to watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aim {
    pub address: u64,
    /// 1, 2, 4 or 8; the address is aligned to it.
    pub length: u64,
    /// Whether reads trap as well.
    pub reads: bool,
}

impl Aim {
    fn event(self) -> io::Result<Breakpoint> {
        let length = match self.length {
            1 => Len::_1,
            2 => Len::_2,
            4 => Len::_4,
            8 => Len::_8,
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        Ok(Breakpoint { ty: if self.reads { Type::Rw(length) } else { Type::W(length) }, addr: self.address })
    }
}

/// A watchpoint of a thread, on or off.
pub struct Slot {
    counter: Counter,
    /// Its limit is set and not yet reached.
    is_limited: bool,
}

impl Slot {
    /// Opens a watchpoint that is off and runs `program` at each trap. Accesses the kernel makes on the
    /// thread's behalf do not trap.
    pub fn open(tid: u32, aim: Aim, program: &File) -> io::Result<Self> {
        let exclude = Priv { kernel: true, hv: true, ..Priv::default() };
        let opts = Opts { exclude, sample_on: SampleOn::Count(1), ..Opts::default() };
        let counter = Counter::new(aim.event()?, (Proc(tid), Cpu::ALL), opts)?;
        counter.attach_bpf(program)?;
        Ok(Self { counter, is_limited: false })
    }

    /// Moves a watchpoint that is off to another address.
    pub fn turn(&self, aim: Aim) -> io::Result<()> {
        self.counter.switch_to(aim.event()?)
    }

    pub fn on(&mut self) -> io::Result<()> {
        // From <linux/perf_event.h>.
        const REFRESH: libc::c_ulong = 0x2402;
        if self.is_limited {
            return self.counter.enable();
        }
        // SAFETY: this ioctl takes a number by value and touches none of our memory.
        if unsafe { libc::ioctl(self.counter.file().as_raw_fd(), REFRESH, 1) } != 0 {
            return Err(io::Error::last_os_error());
        }
        self.is_limited = true;
        Ok(())
    }

    pub fn off(&self) -> io::Result<()> {
        self.counter.disable()
    }
}

/// The kernel's notation for the calling thread.
const THIS_THREAD: u32 = 0;
/// Cost assumed if it cannot be measured because others use all watchpoints: that of the slowest machine
/// measured.
const TRAP_COST_NS: u64 = 13_800;

/// The cost of a trap in nanoseconds, without its program's real work. Fails if the processor or the kernel
/// has no watchpoints at all; those used by others may become free.
pub fn measure(program: &File) -> io::Result<u64> {
    const TRAPS: u32 = 64;
    const ROUNDS: u32 = 5;
    let word = AtomicU64::new(0);
    let slot =
        match Slot::open(THIS_THREAD, Aim { address: word.as_ptr().addr() as u64, length: 8, reads: false }, program) {
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => return Ok(TRAP_COST_NS),
            other => other?,
        };
    slot.counter.enable()?;
    let rounds = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        (0..TRAPS).for_each(|number| word.store(number.into(), Ordering::Relaxed));
        start.elapsed() / TRAPS
    });
    Ok(rounds.min().unwrap_or_default().as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_processor_can_watch() {
        assert!(Aim { address: 0x1000, length: 8, reads: false }.event().is_ok());
        assert!(Aim { address: 0x1000, length: 3, reads: true }.event().is_err());
    }
}

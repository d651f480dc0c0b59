//! When user space looks at what the kernel side has sent.
//!
//! A look costs something however little there is to see, for a busy machine's caches hold nothing of ours: with one busy
//! process at 99 Hz, `record --budget 50` took 28 ms of CPU a second with a hundred looks in it, and 5 with five (the
//! recording's table `costs`). But a code object that the kernel side could not copy can be gone before it is named. So the kernel
//! side calls for a look when a stack has such code, and looks come often while a process is young, whose interpreter is not
//! known yet; half as often after each look that finds none of that.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

/// Between two looks there is always this much time, so that a machine that starts thousands of processes a second does
/// not wake us for each.
const SHORTEST: Duration = Duration::from_millis(4);
/// Poll interval for a command that has just started: it may exit within 50 ms, and its code has no names until the interpreter
/// is recognised.
const NEWBORN: Duration = Duration::from_millis(2);
const SHORT: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(200);
/// Limits how often a program that keeps creating code that cannot be copied can wake us.
const CALL_GAP_MAX: Duration = Duration::from_millis(50);

/// Tells the kernel's records from the other sources.
const RECORDS: u64 = 1;

/// What the last look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum News {
    None,
    /// Code that was not known.
    Code,
    /// A process, a moment ago.
    Process,
    /// A process that was asked for, in its first moments.
    Newborn,
}

pub struct PollSchedule {
    /// Rings only when a source asks for a look, not while there is something in it.
    bell: OwnedFd,
    examined_at: Instant,
    period: Duration,
    /// By any source, and by the kernel's records.
    was_rung: bool,
    was_called: bool,
    /// The last look has left records in the ring.
    has_backlog: bool,
    call_gap: Duration,
}

impl PollSchedule {
    /// How often the kernel side may call at first.
    pub const CALL_GAP: Duration = SHORT;

    /// The sources ring the bell from now on.
    pub fn new(mappings: impl Iterator<Item = impl AsFd>, records: impl AsFd) -> io::Result<Self> {
        let poll_schedule = Self {
            bell: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            examined_at: Instant::now(),
            period: SHORT,
            was_rung: false,
            was_called: false,
            has_backlog: false,
            call_gap: Self::CALL_GAP,
        };
        poll_schedule.add(records, RECORDS)?;
        for source in mappings {
            poll_schedule.listen(source)?;
        }
        Ok(poll_schedule)
    }

    /// Has one more source ring the bell.
    pub fn listen(&self, source: impl AsFd) -> io::Result<()> {
        self.add(source, 0)
    }

    fn add(&self, source: impl AsFd, number: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.bell, source, epoll::EventData::new_u64(number), flags)?)
    }

    /// Waits for the next look: until the bell rings, something is due, or the period is over.
    pub fn wait(&mut self, until: Instant, due: Option<Duration>) -> io::Result<()> {
        // Records that were left do not ring again.
        let period = if std::mem::take(&mut self.has_backlog) { Duration::ZERO } else { self.period };
        let timeout = until.saturating_duration_since(Instant::now()).min(period);
        let timeout = due.map_or(timeout, |due| timeout.min(due));
        (self.was_rung, self.was_called) = self.ring(timeout)?;
        // A pause before each wait would be one more switch a look, and few looks come early.
        let pause = SHORTEST.min(self.period).saturating_sub(self.examined_at.elapsed());
        if !pause.is_zero() {
            std::thread::sleep(pause);
            // What rang meanwhile is seen by this look.
            let (is_rung, is_called) = self.ring(Duration::ZERO)?;
            self.was_rung |= is_rung;
            self.was_called |= is_called;
        }
        self.examined_at = Instant::now();
        Ok(())
    }

    /// Waits for the bell; whether any source rings, and whether the kernel's records do.
    fn ring(&self, timeout: Duration) -> io::Result<(bool, bool)> {
        let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() };
        let mut rung = [MaybeUninit::uninit(); 8];
        match epoll::wait(&self.bell, &mut rung, Some(&timeout)) {
            Ok((rung, _)) => Ok((!rung.is_empty(), rung.iter().any(|event| event.data.u64() == RECORDS))),
            Err(rustix::io::Errno::INTR) => Ok((false, false)),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a source asked for the last look.
    pub fn was_rung(&self) -> bool {
        self.was_rung
    }

    /// Whether the last look has left records in the ring: the next one comes at once.
    pub fn leaves(&mut self, records: bool) {
        self.has_backlog = records;
    }

    /// Takes in what a look has found. Returns how often the kernel side may call, if that changes.
    pub fn found(&mut self, news: News) -> Option<Duration> {
        self.period = match news {
            News::Newborn => NEWBORN,
            News::Process => SHORT,
            News::Code | News::None => (self.period * 2).min(LONGEST),
        };
        let gap = match news {
            News::None if self.was_called => (self.call_gap * 2).min(CALL_GAP_MAX),
            News::None => self.call_gap,
            News::Code | News::Process | News::Newborn => Self::CALL_GAP,
        };
        let has_changed = gap != self.call_gap;
        self.call_gap = gap;
        has_changed.then_some(gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_rare_where_nothing_is_new_and_at_once_where_a_source_rings() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut poll_schedule = PollSchedule::new(std::iter::empty::<OwnedFd>(), &reader).unwrap();
        for (news, period) in
            [(News::None, 20), (News::Code, 40), (News::Newborn, 2), (News::None, 4), (News::Process, 10)]
        {
            poll_schedule.found(news);
            assert_eq!(poll_schedule.period, Duration::from_millis(period), "{news:?}");
        }
        for _ in 0..10 {
            poll_schedule.found(News::None);
        }
        assert_eq!(poll_schedule.period, LONGEST);
        rustix::io::write(&writer, b"news").unwrap();
        let rings = |poll_schedule: &PollSchedule| {
            let mut rung = [MaybeUninit::uninit(); 8];
            let nothing = Timespec { tv_sec: 0, tv_nsec: 0 };
            epoll::wait(&poll_schedule.bell, &mut rung, Some(&nothing)).unwrap().0.len()
        };
        assert_eq!(rings(&poll_schedule), 1);
        assert_eq!(rings(&poll_schedule), 0, "what lies there rings once");
        rustix::io::write(&writer, b"more").unwrap();
        assert_eq!(rings(&poll_schedule), 1);

        rustix::io::write(&writer, b"for nothing").unwrap();
        poll_schedule.wait(Instant::now(), None).unwrap();
        assert!(poll_schedule.was_rung());
        assert_eq!(poll_schedule.found(News::None), Some(SHORT * 2));
        assert_eq!(poll_schedule.found(News::Code), Some(SHORT));

        poll_schedule.leaves(true);
        poll_schedule.wait(Instant::now() + Duration::from_secs(3600), None).unwrap();
        assert!(!poll_schedule.was_rung(), "a backlog is looked at before anything rings");
    }
}

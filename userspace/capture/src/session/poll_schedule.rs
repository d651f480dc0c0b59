//! When user space polls the kernel side's ring buffer.
//!
//! A poll is costly however little it finds, because on a busy machine none of our data is in the caches.
//! With one busy process at 99 Hz, `record --budget 50` took 28 ms of CPU per second with a hundred polls,
//! and 5 ms with five (table `costs` of the recording). But a code object that the kernel side could not copy
//! may be gone before it is named. So the kernel side wakes user space when a stack has such code. Polls are
//! frequent in the first second of a process. After each poll without a new process the interval doubles, up
//! to a maximum.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

/// Minimum time between two polls, so that a machine that starts thousands of processes a second does not
/// wake us for each. Only the polls for a new command are more frequent (`NEWBORN`).
const SHORTEST: Duration = Duration::from_millis(4);
/// Poll interval for a command that has just started. It may exit within 50 ms, and its code cannot be named
/// until its interpreter is recognized.
const NEWBORN: Duration = Duration::from_millis(1);
const SHORT: Duration = Duration::from_millis(10);
/// Maximum time between two polls. A stack with a new function is taken in one poll and written in the next, so a
/// recording that is cut off lacks at most its last second.
const LONGEST: Duration = Duration::from_millis(400);
/// Maximum poll interval while lines of a long table are looked up. Lines that a function runs for the first time
/// within the last interval before its process ends are lost.
const LONG_TABLE: Duration = Duration::from_millis(100);
/// Limits how often a program that keeps creating code that cannot be copied can wake us.
const CALL_GAP_MAX: Duration = Duration::from_millis(50);

/// Marks the kernel's records among the sources.
const RECORDS: u64 = 1;

/// What the last poll found, the most urgent last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum News {
    None,
    /// Code not known before.
    Code,
    /// Lines of a function whose line table is read from the process again for each new line.
    LongTable,
    /// A new process.
    Process,
    /// A process that the user chose, just started.
    Newborn,
}

pub struct PollSchedule {
    /// An epoll descriptor that is edge-triggered: it wakes once per request of a source, not while data is
    /// left.
    bell: OwnedFd,
    examined_at: Instant,
    period: Duration,
    /// Whether any source woke the last wait, and whether the kernel's records did.
    was_rung: bool,
    was_called: bool,
    /// Whether the last poll left records in the ring buffer.
    has_backlog: bool,
    call_gap: Duration,
}

impl PollSchedule {
    /// Minimum gap between wake-ups by the kernel side at the start.
    pub const CALL_GAP: Duration = SHORT;

    /// Adds the first sources.
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

    /// Adds one more source.
    pub fn listen(&self, source: impl AsFd) -> io::Result<()> {
        self.add(source, 0)
    }

    fn add(&self, source: impl AsFd, number: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.bell, source, epoll::EventData::new_u64(number), flags)?)
    }

    /// Waits for the next poll: until a source wakes us, something is due, or the period is over.
    pub fn wait(&mut self, until: Instant, due: Option<Duration>) -> io::Result<()> {
        // Records that were left do not wake us again.
        let period = if std::mem::take(&mut self.has_backlog) { Duration::ZERO } else { self.period };
        let timeout = until.saturating_duration_since(Instant::now()).min(period);
        let timeout = due.map_or(timeout, |due| timeout.min(due));
        (self.was_rung, self.was_called) = self.ring(timeout)?;
        // Pause only after an early wake-up, which is rare; a pause before each wait would cost one more
        // context switch.
        let pause = SHORTEST.min(self.period).saturating_sub(self.examined_at.elapsed());
        if !pause.is_zero() {
            std::thread::sleep(pause);
            // Wake-ups during the pause are answered by this poll.
            let (is_rung, is_called) = self.ring(Duration::ZERO)?;
            self.was_rung |= is_rung;
            self.was_called |= is_called;
        }
        self.examined_at = Instant::now();
        Ok(())
    }

    /// Waits for a wake-up. Returns whether any source, and whether the kernel's records, caused it.
    fn ring(&self, timeout: Duration) -> io::Result<(bool, bool)> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        let mut rung = [MaybeUninit::uninit(); 8];
        match epoll::wait(&self.bell, &mut rung, Some(&timeout)) {
            Ok((rung, _)) => Ok((!rung.is_empty(), rung.iter().any(|event| event.data.u64() == RECORDS))),
            Err(rustix::io::Errno::INTR) => Ok((false, false)),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a source caused the last poll.
    pub fn was_rung(&self) -> bool {
        self.was_rung
    }

    /// Records whether the last poll left records in the ring buffer. If so, the next one follows at once.
    pub fn leaves(&mut self, records: bool) {
        self.has_backlog = records;
    }

    /// Takes in what a poll found. Returns the kernel side's new minimum gap between wake-ups, if it changes.
    pub fn found(&mut self, news: News) -> Option<Duration> {
        self.period = match news {
            News::Newborn => NEWBORN,
            News::Process => SHORT,
            News::LongTable => (self.period * 2).min(LONG_TABLE),
            News::Code | News::None => (self.period * 2).min(LONGEST),
        };
        let gap = match news {
            News::None | News::LongTable if self.was_called => (self.call_gap * 2).min(CALL_GAP_MAX),
            News::None | News::LongTable => self.call_gap,
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
            [(News::None, 20), (News::Code, 40), (News::Newborn, 1), (News::None, 2), (News::Process, 10)]
        {
            poll_schedule.found(news);
            assert_eq!(poll_schedule.period, Duration::from_millis(period), "{news:?}");
        }
        for _ in 0..10 {
            poll_schedule.found(News::None);
        }
        assert_eq!(poll_schedule.period, LONGEST);
        poll_schedule.found(News::LongTable);
        assert_eq!(poll_schedule.period, LONG_TABLE);
        for _ in 0..2 {
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

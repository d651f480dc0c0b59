//! When user space looks at what the kernel side has sent.
//!
//! A look costs some 300 µs however little there is to see, for a busy machine's caches hold nothing of ours. But a code
//! object can be gone before it could be named, within milliseconds while modules are imported. So looks come often
//! while they find code that was not known, and half as often after each that finds none.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

/// Between two looks there is always this much time, so that a machine that starts thousands of processes a second does
/// not wake us for each. This often a command is looked at that was just started: it may be over in 50 ms.
const SHORTEST: Duration = Duration::from_millis(4);
const SHORT: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(200);

/// What the last look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum News {
    None,
    /// Code that was not known, or a process.
    Code,
    /// A process that was asked for, in its first second.
    Newborn,
}

pub struct Rhythm {
    /// Rings only when a source asks for a look, not while there is something in it.
    bell: OwnedFd,
    looked_at: Instant,
    period: Duration,
    was_rung: bool,
}

impl Rhythm {
    /// The sources ring the bell from now on.
    pub fn new(mappings: impl Iterator<Item = impl AsFd>, records: impl AsFd) -> io::Result<Self> {
        let rhythm = Self {
            bell: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            looked_at: Instant::now(),
            period: SHORT,
            was_rung: false,
        };
        rhythm.listen(records)?;
        for source in mappings {
            rhythm.listen(source)?;
        }
        Ok(rhythm)
    }

    /// Has one more source ring the bell.
    pub fn listen(&self, source: impl AsFd) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.bell, source, epoll::EventData::new_u64(0), flags)?)
    }

    /// Waits for the next look: until the bell rings, something is due, or the period is over.
    pub fn wait(&mut self, until: Instant, due: Option<Duration>) -> io::Result<()> {
        let pause = SHORTEST.saturating_sub(self.looked_at.elapsed());
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
        let timeout = until.saturating_duration_since(Instant::now()).min(self.period);
        let timeout = due.map_or(timeout, |due| timeout.min(due));
        let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() };
        let mut rung = [MaybeUninit::uninit(); 8];
        self.was_rung = match epoll::wait(&self.bell, &mut rung, Some(&timeout)) {
            Ok((rung, _)) => !rung.is_empty(),
            Err(rustix::io::Errno::INTR) => false,
            Err(error) => return Err(error.into()),
        };
        self.looked_at = Instant::now();
        Ok(())
    }

    /// Whether a source asked for the last look.
    pub fn was_rung(&self) -> bool {
        self.was_rung
    }

    pub fn found(&mut self, news: News) {
        self.period = match news {
            News::Newborn => SHORTEST,
            News::Code => SHORT,
            News::None => (self.period * 2).min(LONGEST),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_rare_where_nothing_is_new_and_at_once_where_a_source_rings() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut rhythm = Rhythm::new(std::iter::empty::<OwnedFd>(), &reader).unwrap();
        for (news, period) in
            [(News::None, 20), (News::None, 40), (News::Newborn, 4), (News::None, 8), (News::Code, 10)]
        {
            rhythm.found(news);
            assert_eq!(rhythm.period, Duration::from_millis(period), "{news:?}");
        }
        for _ in 0..10 {
            rhythm.found(News::None);
        }
        assert_eq!(rhythm.period, LONGEST);
        rustix::io::write(&writer, b"news").unwrap();
        let rings = |rhythm: &Rhythm| {
            let mut rung = [MaybeUninit::uninit(); 8];
            let nothing = Timespec { tv_sec: 0, tv_nsec: 0 };
            epoll::wait(&rhythm.bell, &mut rung, Some(&nothing)).unwrap().0.len()
        };
        assert_eq!(rings(&rhythm), 1);
        assert_eq!(rings(&rhythm), 0, "what lies there rings once");
        rustix::io::write(&writer, b"more").unwrap();
        assert_eq!(rings(&rhythm), 1);
    }
}

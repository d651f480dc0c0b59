//! Runs a writer in its own thread, so that a slow disk does not block the capture.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pyobs_model::{Event, Nanos, Reason};

use crate::{Error, Writer};

/// How many events may wait for the disk, about 100 MiB. Beyond that, events are dropped and counted.
const QUEUE_MAX: usize = 500_000;
/// How often [`Writer::append`] is called while events wait for a commit. It commits only when it is called.
const APPEND_EVERY: Duration = Duration::from_millis(400);
/// Events are collected for this long, or until there are this many, because each batch wakes the thread and waits for the
/// disk several times. The caller comes by every 400 ms and a batch is committed at once, so a recording that is cut off lacks
/// less than a second.
const SEND_EVERY: Duration = Duration::from_millis(500);
const SEND_AT: usize = 4096;

#[derive(Debug)]
pub struct Background {
    queue: Option<Sender<Vec<Event>>>,
    queued: Arc<AtomicUsize>,
    collected: Vec<Event>,
    sent: Instant,
    thread: Option<JoinHandle<Result<(), Error>>>,
    queue_max: usize,
}

impl Background {
    /// Moves a writer to a new thread, which has the rights of the calling thread.
    pub fn start(writer: Writer) -> io::Result<Self> {
        Self::with_queue(writer, QUEUE_MAX)
    }

    fn with_queue(writer: Writer, queue_max: usize) -> io::Result<Self> {
        let (queue, receiver) = channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let waiting = Arc::clone(&queued);
        let thread =
            thread::Builder::new().name("pyobs-writer".to_owned()).spawn(move || write(writer, &receiver, &waiting))?;
        let (collected, sent) = (Vec::new(), Instant::now());
        Ok(Self { queue: Some(queue), queued, collected, sent, thread: Some(thread), queue_max })
    }

    /// Queues all events, and returns how many were dropped because the disk is too slow. Definitions are never dropped, because
    /// later events refer to them. An error of the writer is returned once; after it, events are ignored.
    pub fn append(&mut self, events: &mut Vec<Event>) -> Result<u64, Error> {
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            self.join()?;
        }
        if self.queue.is_none() {
            events.clear();
            return Ok(0);
        }
        let dropped = if self.queued.load(Ordering::Relaxed) > self.queue_max { thin_out(events) } else { 0 };
        self.queued.fetch_add(events.len(), Ordering::Relaxed);
        self.collected.append(events);
        if self.collected.len() >= SEND_AT || self.sent.elapsed() >= SEND_EVERY {
            self.send();
        }
        Ok(dropped)
    }

    fn send(&mut self) {
        self.sent = Instant::now();
        if let Some(queue) = &self.queue
            && !self.collected.is_empty()
        {
            // The receiver is gone only if the writer has failed. The next call returns its error.
            let _ = queue.send(std::mem::take(&mut self.collected));
        }
    }

    /// Writes the queued events and completes the file.
    pub fn finish(mut self) -> Result<(), Error> {
        self.join()
    }

    fn join(&mut self) -> Result<(), Error> {
        self.send();
        self.queue = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            // The panic hook has reported it.
            Some(Err(_)) | None => Ok(()),
        }
    }
}

/// Runs until the other end of the queue is closed or an error occurs.
fn write(mut writer: Writer, queue: &Receiver<Vec<Event>>, waiting: &AtomicUsize) -> Result<(), Error> {
    loop {
        let received = if writer.is_pending() {
            queue.recv_timeout(APPEND_EVERY)
        } else {
            queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match received {
            Ok(events) => {
                writer.append(&events)?;
                waiting.fetch_sub(events.len(), Ordering::Relaxed);
            }
            Err(RecvTimeoutError::Timeout) => writer.append(&[])?,
            Err(RecvTimeoutError::Disconnected) => return writer.finish(),
        }
    }
}

/// Drops the most frequent kinds of events, to which no other event refers, and adds a loss with their number to
/// `events`. Returns that number.
fn thin_out(events: &mut Vec<Event>) -> u64 {
    let (mut dropped, mut last) = (0, Nanos(0));
    events.retain(|event| match event {
        Event::Sample(_) | Event::Sleep(_) | Event::GilWait(_) | Event::Access(_) | Event::Resident { .. } => {
            dropped += 1;
            last = last.max(event.at().unwrap_or_default());
            false
        }
        _ => true,
    });
    if dropped > 0 {
        events.push(Event::Loss { at: last, reason: Reason::RecorderBehind, count: dropped });
    }
    dropped
}

#[cfg(test)]
mod tests {
    use pyobs_model::{Meta, ProcessRef, Resident};

    use super::*;
    use crate::Reader;

    fn resident(at: u64) -> Event {
        Event::Resident { at: Nanos(at), process: ProcessRef(0), resident: Resident::default() }
    }

    #[test]
    fn what_waits_is_written_before_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pyobs");
        let mut background = Background::start(Writer::create(&path, &Meta::default()).unwrap()).unwrap();
        for at in 1..=1000 {
            let loss = Event::Loss { at: Nanos(at), reason: Reason::RingFull, count: 1 };
            assert_eq!(background.append(&mut vec![loss]).unwrap(), 0);
        }
        background.finish().unwrap();
        let mut written = 0;
        Reader::open(&path).unwrap().replay(|event| written += u64::from(matches!(event, Event::Loss { .. }))).unwrap();
        assert_eq!(written, 1000);
    }

    #[test]
    fn what_is_dropped_is_counted_and_definitions_stay() {
        let end = Event::ProcessEnd { id: ProcessRef(0), at: Nanos(5) };
        let mut events = vec![resident(3), end.clone(), resident(9)];
        assert_eq!(thin_out(&mut events), 2);
        let loss = Event::Loss { at: Nanos(9), reason: Reason::RecorderBehind, count: 2 };
        assert_eq!(events, [end.clone(), loss]);
        let mut events = vec![end.clone()];
        assert_eq!(thin_out(&mut events), 0);
        assert_eq!(events, [end]);
    }
}

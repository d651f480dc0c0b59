//! Merges the tables of a recording in time order. Processes and threads are defined shortly before they begin.
//!
//! Rows are stored in the order in which they were written, which is nearly time order. A first pass over the times alone
//! finds the earliest time after each block of rows. Events up to that time are emitted; later ones are held back. The order is
//! exact, and memory holds one block of each table plus the events that are out of order.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;

use pyobs_model::{Event, Nanos};

use crate::Error;
use crate::table::Table;
use crate::tables::{Reading, Rows, Span};

/// Rows per block.
const BLOCK: usize = 1 << 11;

/// How many events of a table may be held back, about 40 MiB. Beyond that, the earliest is emitted early, so an event that was
/// written after more than this many later ones comes out of order.
const HELD_MAX: usize = 1 << 18;

/// Rows of a table, and the earliest time of any row after them.
struct Block {
    span: Span,
    rest: Nanos,
}

/// Passed instead of time columns for a table whose rows are already in time order.
pub(crate) const IN_ORDER: &[&str] = &["NULL"];

/// Events and their times, in the order of the rows.
#[derive(Default)]
pub(crate) struct Timed(VecDeque<(Nanos, Event)>);

impl Timed {
    pub(crate) fn push(&mut self, event: Event) {
        self.push_at(event.at().unwrap_or_default(), event);
    }

    /// Adds a definition, which has no time of its own; it precedes every event later than `at`.
    pub(crate) fn push_at(&mut self, at: Nanos, event: Event) {
        self.0.push_back((at, event));
    }
}

impl Extend<Event> for Timed {
    fn extend<T: IntoIterator<Item = Event>>(&mut self, events: T) {
        events.into_iter().for_each(|event| self.push(event));
    }
}

type Read<'m> = Box<dyn FnMut(&mut Reading<'_>, Span, &mut Timed) -> Result<(), Error> + 'm>;

/// The state of one table in the merge.
struct Lane<'m> {
    blocks: VecDeque<Block>,
    read: Read<'m>,
    /// Events that nothing can precede, in time order.
    ready: VecDeque<(Nanos, Event)>,
    /// Events that unread ones may still precede, by time and arrival.
    held: BTreeMap<(Nanos, u64), Event>,
    count: u64,
}

impl Lane<'_> {
    /// The time of the next event.
    fn next(&self) -> Option<Nanos> {
        self.ready.front().map(|(at, _)| *at)
    }

    /// Reads until an event is ready, or nothing is left.
    fn fill(&mut self, reading: &mut Reading<'_>) -> Result<(), Error> {
        while self.ready.is_empty() {
            let Some(block) = self.blocks.pop_front() else {
                self.release(BLOCK);
                return Ok(());
            };
            let mut read = Timed(std::mem::take(&mut self.ready));
            (self.read)(reading, block.span, &mut read)?;
            // Events that end after the range are cut to its end.
            let due = block.rest.min(reading.range.to.unwrap_or(block.rest));
            // Held events were written earlier, so they also come first among events of the same time.
            while let Some(entry) = self.held.first_entry().filter(|entry| entry.key().0 <= due) {
                let ((at, _), event) = entry.remove_entry();
                self.ready.push_back((at, event));
            }
            for (at, event) in read.0 {
                if at <= due {
                    self.ready.push_back((at, event));
                } else {
                    self.held.insert((at, self.count), event);
                    self.count += 1;
                }
            }
            self.ready.make_contiguous().sort_by_key(|(at, _)| *at);
            self.release(self.held.len().saturating_sub(HELD_MAX));
        }
        Ok(())
    }

    /// Moves the earliest held events to `ready`.
    fn release(&mut self, count: usize) {
        let earliest = std::iter::from_fn(|| self.held.pop_first()).map(|((at, _), event)| (at, event));
        self.ready.extend(earliest.take(count));
    }
}

/// All tables whose rows have a time. Events of equal times come in the order in which their tables were added.
#[derive(Default)]
pub(crate) struct Merge<'m> {
    lanes: Vec<Lane<'m>>,
}

impl<'m> Merge<'m> {
    /// Adds a table with one event per row, at the time in its column `at_ns`.
    pub(crate) fn events<T: Table + 'm>(
        &mut self,
        reading: &mut Reading<'_>,
        rows: Rows,
        event: impl Fn(T) -> Option<Event> + 'm,
    ) -> Result<(), Error> {
        self.table(reading, rows, &["at_ns"], move |_, row, events| {
            events.push(event(row)?);
            Some(())
        })
    }

    /// Adds a table. A row's events must not be earlier than the earliest of its `times`.
    pub(crate) fn table<T: Table>(
        &mut self,
        reading: &mut Reading<'_>,
        rows: Rows,
        times: &[&str],
        mut decode: impl FnMut(&mut Reading<'_>, T, &mut Timed) -> Option<()> + 'm,
    ) -> Result<(), Error> {
        let Some(query) = reading.query::<T>(rows)? else { return Ok(()) };
        let blocks = blocks::<T>(reading, rows, times)?;
        let read: Read<'m> = Box::new(move |reading, span, events| {
            reading.rows(&query, span, |reading, row| decode(reading, row, events))
        });
        self.lanes.push(Lane { blocks, read, ready: VecDeque::new(), held: BTreeMap::new(), count: 0 });
        Ok(())
    }

    /// Adds a table that is also read elsewhere. Its damage is counted there, not here.
    pub(crate) fn again<T: Table>(
        &mut self,
        reading: &mut Reading<'_>,
        times: &[&str],
        mut decode: impl FnMut(T, &mut Timed) + 'm,
    ) -> Result<(), Error> {
        let before = self.lanes.len();
        self.table(reading, Rows::All, times, move |_, row, events| {
            decode(row, events);
            Some(())
        })?;
        for lane in &mut self.lanes[before..] {
            let mut read = std::mem::replace(&mut lane.read, Box::new(|_, _, _| Ok(())));
            lane.read = Box::new(move |reading, span, events| reading.quietly(|reading| read(reading, span, events)));
        }
        Ok(())
    }

    /// Emits all events in time order, until `each` breaks off.
    pub(crate) fn give(
        mut self,
        reading: &mut Reading<'_>,
        mut each: impl FnMut(Event) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        loop {
            for lane in &mut self.lanes {
                lane.fill(reading)?;
            }
            let (mut first, mut second) = (None, None);
            for turn in self.lanes.iter().zip(0..).filter_map(|(lane, index)| Some((lane.next()?, index))) {
                if first.is_none_or(|first| turn < first) {
                    (first, second) = (Some(turn), first);
                } else if second.is_none_or(|second| turn < second) {
                    second = Some(turn);
                }
            }
            let Some((_, index)) = first else { return Ok(()) };
            let lane = &mut self.lanes[index];
            let is_due = |(at, _): &mut (Nanos, Event)| second.is_none_or(|second| (*at, index) < second);
            while let Some((_, event)) = lane.ready.pop_front_if(is_due) {
                if each(event).is_break() {
                    return Ok(());
                }
            }
        }
    }
}

/// Cuts a table into blocks of rows.
fn blocks<T: Table>(reading: &mut Reading<'_>, rows: Rows, times: &[&str]) -> Result<VecDeque<Block>, Error> {
    let query = reading.query_of(T::TABLE.name, times, rows);
    // The last row of each block, and the earliest time in it.
    let mut parts: Vec<(i64, Nanos)> = Vec::new();
    let mut left = 0;
    reading.quietly(|reading| {
        reading.walk(T::TABLE.name, &query, Span::ALL, |_, id, row| {
            let time = |index| u64::try_from(row.get_ref(index).ok()?.as_i64().ok()?).ok();
            let earliest = Nanos((1..=times.len()).filter_map(time).min().unwrap_or(u64::MAX));
            match parts.last_mut().filter(|_| left > 0) {
                Some(part) => *part = (id, part.1.min(earliest)),
                None => {
                    parts.push((id, earliest));
                    left = BLOCK;
                }
            }
            left -= 1;
        })
    })?;
    // The last block also covers rows that the first pass could not read.
    let mut blocks = VecDeque::new();
    let (mut until, mut rest) = (i64::MAX, Nanos(u64::MAX));
    for (index, (_, earliest)) in parts.iter().enumerate().rev() {
        let after = index.checked_sub(1).and_then(|before| parts.get(before)).map_or(i64::MIN, |(last, _)| *last);
        blocks.push_front(Block { span: Span { after, until }, rest });
        (until, rest) = (after, rest.min(*earliest));
    }
    Ok(blocks)
}

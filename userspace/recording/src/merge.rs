//! Tables side by side, in the order of time.
//!
//! Rows lie in the order in which they were written, which is nearly that of time. A first look at the times alone tells how
//! early the rows after each block may still be; what is no later than that is given, the rest is held back. The order is exact,
//! and what is held is a block of each table and what is out of order.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;

use pyobs_model::{Event, Nanos};

use crate::Error;
use crate::table::Table;
use crate::tables::{Reading, Rows, Span};

/// Rows that are read at once.
const BLOCK: usize = 1 << 11;

/// Events of a table that are held back, 40 MiB of them. Beyond, the first of them is given before its turn: the order is then
/// that of time but for what comes later than so many others.
const HELD_MAX: usize = 1 << 18;

/// Rows of a table, and the earliest time that a row after them has.
struct Block {
    span: Span,
    rest: Nanos,
}

type Read<'m> = Box<dyn FnMut(&mut Reading<'_>, Span, &mut VecDeque<Event>) -> Result<(), Error> + 'm>;

/// A table on its way through time.
struct Lane<'m> {
    blocks: VecDeque<Block>,
    read: Read<'m>,
    /// Events whose turn it is, in the order of time.
    ready: VecDeque<Event>,
    /// Events that others may still be before, by time and number.
    held: BTreeMap<(Nanos, u64), Event>,
    count: u64,
}

impl Lane<'_> {
    /// The time of the next event.
    fn next(&self) -> Option<Nanos> {
        self.ready.front().map(time)
    }

    /// Reads on until an event's turn has come, or nothing is left.
    fn fill(&mut self, reading: &mut Reading<'_>) -> Result<(), Error> {
        while self.ready.is_empty() {
            let Some(block) = self.blocks.pop_front() else {
                self.ready.extend(std::iter::from_fn(|| self.held.pop_first()).map(|(_, event)| event).take(BLOCK));
                return Ok(());
            };
            let mut read = std::mem::take(&mut self.ready);
            (self.read)(reading, block.span, &mut read)?;
            // What ends after the range is cut to its end.
            let due = block.rest.min(reading.range.to.unwrap_or(block.rest));
            // Those that are held came before those that were read now, at the same time too.
            while let Some(entry) = self.held.first_entry().filter(|entry| entry.key().0 <= due) {
                self.ready.push_back(entry.remove());
            }
            for event in read {
                if time(&event) <= due {
                    self.ready.push_back(event);
                } else {
                    self.held.insert((time(&event), self.count), event);
                    self.count += 1;
                }
            }
            self.ready.make_contiguous().sort_by_key(time);
            let over = self.held.len().saturating_sub(HELD_MAX);
            self.ready.extend(std::iter::from_fn(|| self.held.pop_first()).map(|(_, event)| event).take(over));
        }
        Ok(())
    }
}

/// All tables whose rows have a time. Of events at one time, those of the table that was added first come first.
#[derive(Default)]
pub(crate) struct Merge<'m> {
    lanes: Vec<Lane<'m>>,
}

impl<'m> Merge<'m> {
    /// Adds a table whose rows are an event each, in their column `at_ns`.
    pub(crate) fn events<T: Table + 'm>(
        &mut self,
        reading: &mut Reading<'_>,
        rows: Rows,
        event: impl Fn(T) -> Option<Event> + 'm,
    ) -> Result<(), Error> {
        self.table(reading, rows, &["at_ns"], move |_, row, events| {
            events.push_back(event(row)?);
            Some(())
        })
    }

    /// Adds a table. No event is earlier than the first of its row's `times`, unless its row is refused.
    pub(crate) fn table<T: Table>(
        &mut self,
        reading: &mut Reading<'_>,
        rows: Rows,
        times: &[&str],
        mut decode: impl FnMut(&mut Reading<'_>, T, &mut VecDeque<Event>) -> Option<()> + 'm,
    ) -> Result<(), Error> {
        let Some(query) = reading.query::<T>(rows)? else { return Ok(()) };
        let blocks = blocks::<T>(reading, rows, times)?;
        let read: Read<'m> = Box::new(move |reading, span, events| {
            reading.rows(&query, span, |reading, row| decode(reading, row, events))
        });
        self.lanes.push(Lane { blocks, read, ready: VecDeque::new(), held: BTreeMap::new(), count: 0 });
        Ok(())
    }

    /// Adds a table that is read for something else, too, which counts its damage.
    pub(crate) fn again<T: Table>(
        &mut self,
        reading: &mut Reading<'_>,
        times: &[&str],
        mut decode: impl FnMut(T, &mut VecDeque<Event>) + 'm,
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

    /// Gives all events, until `each` breaks off.
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
            let is_due = |event: &mut Event| second.is_none_or(|second| (time(event), index) < second);
            while let Some(event) = lane.ready.pop_front_if(is_due) {
                if each(event).is_break() {
                    return Ok(());
                }
            }
        }
    }
}

fn time(event: &Event) -> Nanos {
    event.at().unwrap_or_default()
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
    // The last block has what could not be looked at, too.
    let mut blocks = VecDeque::new();
    let (mut until, mut rest) = (i64::MAX, Nanos(u64::MAX));
    for (index, (_, earliest)) in parts.iter().enumerate().rev() {
        let after = index.checked_sub(1).and_then(|before| parts.get(before)).map_or(i64::MIN, |(last, _)| *last);
        blocks.push_front(Block { span: Span { after, until }, rest });
        (until, rest) = (after, rest.min(*earliest));
    }
    Ok(blocks)
}

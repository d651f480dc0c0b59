//! Single values of a table by row id.

use super::{Reading, Rows, Span};
use crate::Error;
use crate::table::Table;

/// Neighbours are read together, because rows mostly refer to things that began shortly before.
const BLOCK: usize = 16;
/// How many blocks are cached, about 2 MiB. Another block replaces one of them.
const KEPT: usize = 1 << 13;

/// Values of rows by row id.
pub(crate) struct Lookup<V> {
    query: Option<String>,
    blocks: Vec<Option<(i64, [Option<V>; BLOCK])>>,
}

impl<V: Copy> Lookup<V> {
    pub(crate) fn new<T: Table>(reading: &mut Reading<'_>) -> Result<Self, Error> {
        let query = reading.quietly(|reading| reading.query::<T>(Rows::All))?;
        Ok(Self { query, blocks: vec![None; KEPT] })
    }

    /// The value of a row; `None` if it is missing or invalid.
    pub(crate) fn get<T: Table>(
        &mut self,
        reading: &mut Reading<'_>,
        id: u32,
        value: impl Fn(T) -> (u32, V),
    ) -> Option<V> {
        let query = self.query.as_ref()?;
        let (number, place) = (i64::from(id) / BLOCK as i64, id as usize % BLOCK);
        let slot = self.blocks.get_mut(number as usize % KEPT)?;
        if let Some((_, values)) = slot.as_ref().filter(|(kept, _)| *kept == number) {
            return values[place];
        }
        let mut values = [None; BLOCK];
        let after = number * BLOCK as i64 - 1;
        let span = Span { after, until: after + BLOCK as i64 };
        let read = reading.quietly(|reading| {
            reading.rows(query, span, |_, row: T| {
                let (id, value) = value(row);
                values[id as usize % BLOCK] = Some(value);
                Some(())
            })
        });
        // An error that ends the reading recurs when the table itself is read.
        read.ok()?;
        *slot = Some((number, values));
        values[place]
    }
}

//! What a transfer's buffer lies in.

use std::collections::BTreeMap;

use crate::families::arena::State;
use crate::{Model, ProcessRef, Transfer};

/// Arenas by process and address; of those at one address the first come first.
pub struct Regions<'model>(BTreeMap<(ProcessRef, u64), Vec<&'model State>>);

impl<'model> Regions<'model> {
    pub fn of(model: &'model Model) -> Self {
        let mut arenas: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (_, state) in model.arenas().arenas() {
            arenas.entry((state.arena.process, state.arena.address)).or_default().push(state);
        }
        Self(arenas)
    }

    /// The arena that the buffer lay in when the transfer was asked for.
    pub fn arena_of(&self, transfer: &Transfer) -> Option<&'model State> {
        let (at, process, buffer) = (transfer.begun()?, transfer.process, transfer.buffer);
        let (_, here) = self.0.range((process, 0)..=(process, buffer)).next_back()?;
        let holds = |state: &&&State| {
            buffer - state.arena.address < state.arena.bytes
                && state.begun <= at
                && state.died.is_none_or(|(died, _)| died >= at)
        };
        here.iter().find(holds).copied()
    }
}

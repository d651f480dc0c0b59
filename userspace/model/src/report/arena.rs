//! The report's `arenas`.

use std::cmp::Reverse;
use std::rc::Rc;

use serde::Serialize;

use super::{RegionOut, StackOut, pid, source::Source};
use crate::families::arena::{ArenaState, is_own};
use crate::views::is_selected;
use crate::{ArenaId, Model, Nanos, Pid, RegionId};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArenaOut {
    /// `pid:address:generation`.
    pub id: String,
    pub pid: Pid,
    pub kind: String,
    pub address: String,
    pub bytes: u64,
    /// The number of its slabs and, from its last examination, the slabs in use and the bytes in them.
    pub slabs: u32,
    pub slabs_used: Option<u32>,
    pub used_bytes: Option<u64>,
    pub looked_s: Option<f64>,
    /// `None` if it existed before it was first seen.
    pub born_s: Option<f64>,
    pub died_s: Option<f64>,
    pub cause: Option<&'static str>,
    pub objects_born: u64,
    pub objects_dead: u64,
    pub escaped: u64,
    /// The region that contains a library's arena.
    pub region: Option<RegionOut>,
    /// The birth stack, root first.
    pub stack: StackOut,
    /// The stack at which its objects escaped, root first.
    pub escape_stack: StackOut,
}

/// Arenas that were not freed come first, then the largest, then in the order of first sight.
pub(super) fn arenas<'m>(source: &Rc<Source<'m>>) -> impl Iterator<Item = ArenaOut> + use<'m> {
    let source = Rc::clone(source);
    let (model, limit) = (source.model, source.limit);
    let mut states: Vec<(ArenaId, &'m ArenaState)> =
        model.arenas().arenas().filter(|(_, state)| is_selected(state, &source.selection)).collect();
    states.sort_by_key(|(_, state)| Reverse((state.is_kept(), state.arena.bytes)));
    states.into_iter().take(limit).filter_map(move |(_, state)| arena(&source, state))
}

/// `pid:address:generation`.
pub(super) fn id(model: &Model, state: &ArenaState) -> Option<String> {
    Some(format!("{}:{:#x}:{}", pid(model, state.arena.process)?, state.arena.address, state.generation))
}

fn region(model: &Model, state: &ArenaState) -> Option<RegionOut> {
    let address = state.slab.filter(|_| !is_own(&state.arena))?;
    let around = model.regions_at_time(state.arena.process, address, state.begun);
    around.filter(|region| !matches!(region.id, RegionId::Arena(id) if model.arenas().get(id).is_none_or(|it| !is_own(&it.arena)))).find_map(|region| RegionOut::of(model, region.id))
}

fn arena(source: &Source<'_>, state: &ArenaState) -> Option<ArenaOut> {
    let model = source.model;
    let arena = &state.arena;
    let (pid, address) = (pid(model, arena.process)?, format!("{:#x}", arena.address));
    let filled = state.filled.map(|(_, filled)| filled);
    Some(ArenaOut {
        id: id(model, state)?,
        pid,
        kind: arena.kind.to_string(),
        address,
        bytes: arena.bytes,
        slabs: filled.map_or(state.objects.slabs, |filled| filled.slabs),
        slabs_used: filled.map(|filled| filled.used),
        used_bytes: filled.map(|filled| filled.bytes),
        looked_s: state.filled.map(|(at, _)| at.as_secs_f64()),
        born_s: arena.born.then(|| state.begun.as_secs_f64()),
        died_s: state.died.map(|(at, _)| Nanos::as_secs_f64(at)),
        cause: state.died.map(|(_, cause)| cause.name()),
        objects_born: state.objects.born,
        objects_dead: state.objects.dead,
        region: region(model, state),
        escaped: state.closed.map_or(0, |closed| closed.escaped),
        stack: source.maybe_stack(model.arenas().birth(state)),
        escape_stack: source.maybe_stack(state.closed.and_then(|closed| closed.stack)),
    })
}

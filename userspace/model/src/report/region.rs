//! The report's `region`: the arena or segment that contains something.

use serde::Serialize;

use super::arena;
use crate::{Model, RegionId};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegionOut {
    /// `arena` or `segment`.
    pub kind: &'static str,
    /// The `id` of that arena or segment.
    pub id: String,
}

impl RegionOut {
    /// `None` for what has no `id` in the report: a MemInfo, a semaphore, anything forgotten.
    pub fn of(model: &Model, region: RegionId) -> Option<Self> {
        let id = match region {
            RegionId::Arena(id) => arena::id(model, model.arenas().get(id)?)?,
            RegionId::Segment(id) => model.shm().get(id).filter(|state| !state.is_semaphore())?.id(),
            RegionId::MemInfo(_) => return None,
        };
        Some(Self { kind: region.kind(), id })
    }
}

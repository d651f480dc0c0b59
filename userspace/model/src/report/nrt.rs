//! The report's `meminfos`.

use std::cmp::Reverse;

use serde::Serialize;

use super::{StackOut, pid, source::Source};
use crate::families::nrt::{Site, SiteSum};
use crate::{Pid, Selection};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemInfos {
    pub born: u64,
    pub died: u64,
    /// Live MemInfos, or those alive when their process ended.
    pub live: u64,
    pub sites: Vec<SiteOut>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SiteOut {
    pub pid: Pid,
    pub live: u64,
    /// Bytes of the live ones.
    pub bytes: u64,
    pub born: u64,
    /// References to the live ones that were examined.
    pub references: Option<u64>,
    /// Root first.
    pub stack: StackOut,
}

/// Sorted by the memory they hold, most first.
pub(super) fn meminfos(source: &Source<'_>, selection: &Selection, limit: usize) -> MemInfos {
    let model = source.model;
    let sums = model.nrt().sums().filter(|(site, _)| selection.has_process(site.process));
    let mut sums: Vec<(Site, &SiteSum)> = sums.collect();
    sums.sort_by_key(|(_, sum)| Reverse((sum.bytes, sum.live(), sum.born)));
    let (born, died) = sums.iter().fold((0, 0), |(born, died), (_, sum)| (born + sum.born, died + sum.died));
    let site = |(site, sum): (Site, &SiteSum)| {
        let (pid, stack) = (pid(model, site.process)?, source.stack(site.stack));
        let references = (sum.looked > 0).then_some(sum.references);
        Some(SiteOut { pid, live: sum.live(), bytes: sum.bytes, born: sum.born, references, stack })
    };
    let forgotten = model.nrt().forgotten();
    let (born, died) = (born + forgotten.born, died + forgotten.died);
    MemInfos { born, died, live: born - died, sites: sums.into_iter().take(limit).filter_map(site).collect() }
}

//! The report's `redundancy`.

use std::cmp::Reverse;

use serde::Serialize;

use super::{FrameOut, RegionOut, StackOut, pid, source::Source};
use crate::families::redundancy::{Depth, Line, PairSum};
use crate::views::{self, LineSum, PairNode, RedundancyView, pair_tree};
use crate::{FrameId, Model, Nanos, PairKind, Pid, Selection, Tid};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RedundancyOut {
    /// The source of the addresses.
    pub sampler: &'static str,
    pub rate_hz: u32,
    pub samples: u64,
    /// Samples whose address could not be decoded, or is of no interest.
    pub undecoded: u64,
    pub armed: u64,
    pub traps: u64,
    pub timed_out: u64,
    pub taken: u64,
    pub storms: u64,
    /// Lines that may or may not waste time: the data cannot tell.
    pub undecided: UndecidedOut,
    pub lines: Vec<LineOut>,
    pub calls: Vec<Call>,
    pub pairs: Vec<PairOut>,
    /// The pairs of all threads, as one tree.
    pub tree: Vec<NodeOut>,
    /// Nodes that the limit left out of the tree.
    pub tree_left_out: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UndecidedOut {
    pub lines: usize,
    /// The greatest share of the CPU time of its process that one of them has.
    pub native_share_max: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineOut {
    pub pid: Pid,
    pub frame: FrameOut,
    /// The line of the program that led there most often, and its share.
    pub caller: FrameOut,
    pub caller_share: f64,
    pub native_s: f64,
    /// Share of the CPU time of its process.
    pub native_share: f64,
    pub samples: u64,
    /// `found`, `clear` or `undecided`.
    pub verdict: &'static str,
    /// Whether enough addresses are known to prove anything.
    pub enough_data: bool,
    /// `null` if not.
    pub metadata_share: Option<f64>,
    pub metadata: u64,
    pub array: u64,
    #[serde(rename = "static")]
    pub fixed: u64,
    pub unknown: u64,
    /// Samples inside an instruction that reads or writes a single element of an array.
    pub elements: u64,
    /// The element type and shape of the array that most of them are from.
    pub elements_of: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Call {
    pub pid: Pid,
    /// The calling line.
    pub frame: FrameOut,
    /// As in [`LineOut`].
    pub caller: FrameOut,
    pub caller_share: f64,
    pub callee: String,
    /// The Python code of a package below the line makes the calls.
    pub inner: bool,
    /// Calls whose arguments were compared with the last call seen.
    pub samples: u64,
    /// Whether there are enough of them to prove anything.
    pub enough_data: bool,
    pub same_arguments: u64,
    /// Results that were compared with the last one seen; `null` if there were none.
    pub results: Option<u64>,
    pub same_results: Option<u64>,
    /// The arguments that ever differed, counted from 1; 0 is the callee.
    pub varying: Vec<u32>,
    /// Samples of calls that join arrays, tables or texts, and those where little was appended to a large one.
    pub joins: u64,
    pub copies: u64,
    /// The mean sizes of these: of the large array, and of the others together.
    pub copied_bytes: Option<u64>,
    pub added_bytes: Option<u64>,
    /// Timed turns of a loop of the program that makes the call, from one result to the next, and how long one takes.
    pub turns: u64,
    pub turn_s: Option<f64>,
    /// The mean size of the data in what these calls returned; `null` if it is unknown.
    pub result_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PairOut {
    pub pid: Pid,
    /// The line of the second access; `null` if it has no Python frames.
    pub frame: Option<FrameOut>,
    /// As in [`LineOut`].
    pub caller: Option<FrameOut>,
    pub kind: PairKind,
    pub memory: &'static str,
    /// The type of the object, or the element type and shape of the array.
    pub of: Option<String>,
    pub equal: u64,
    pub compared: u64,
    /// Whether there are enough of them to prove anything.
    pub enough_data: bool,
    pub redundant_bytes: u64,
    pub total_bytes: u64,
    /// Stores whose loads were watched as well, and those of them that nobody read.
    pub looked: u64,
    pub unread: u64,
    pub first: Side,
    pub second: Side,
    /// `null` if it was in none, or its address is unknown.
    pub region: Option<RegionOut>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    pub tid: Tid,
    /// Root first.
    pub stack: StackOut,
}

/// A node in the tree of pairs, which descends the stack of the first access and then that of the second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeOut {
    /// Index of the parent, which precedes this node; `null` for an outermost frame.
    pub parent: Option<usize>,
    pub access: AccessOut,
    pub frame: FrameOut,
    pub equal: u64,
    pub compared: u64,
    pub redundant_bytes: u64,
    pub total_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessOut {
    First,
    Second,
}

pub(super) fn redundancy(source: &Source<'_>, selection: &Selection, limit: usize) -> RedundancyOut {
    let model = source.model;
    let view = views::redundancy(model, selection);
    let (counts, rate_hz) = (model.redundancy().counts(), model.meta().rate_hz);
    let frame = |id: FrameId| model.frame(id).map(FrameOut::from);
    let cost = |sum: &LineSum| sum.accesses.weight as f64 * sum.accesses.metadata_share().unwrap_or(0.0);
    let verdicts = view.verdicts(model);
    let (undecided, native_share_max) = view.undecided(&verdicts);
    let mut lines: Vec<(&Line, &LineSum)> = view.lines.iter().collect();
    lines.sort_by(|one, other| cost(other.1).total_cmp(&cost(one.1)));
    let line = |(place, sum): (&Line, &LineSum)| {
        let ((caller, caller_share), sum) = (view.caller(*place), &sum.accesses);
        Some(LineOut {
            pid: pid(model, place.process)?,
            frame: frame(place.frame)?,
            caller: frame(caller)?,
            caller_share,
            native_s: sum.weight as f64 / f64::from(rate_hz.max(1)),
            native_share: view.share(*place),
            samples: sum.samples,
            verdict: verdicts.get(place).map_or("undecided", |verdict| verdict.name()),
            enough_data: sum.is_enough(),
            metadata_share: sum.metadata_share(),
            metadata: sum.metadata,
            array: sum.array,
            fixed: sum.fixed,
            unknown: sum.unknown,
            elements: sum.elements,
            elements_of: sum.elements_of.first().map(str::to_owned),
        })
    };
    let mut calls: Vec<_> = view.calls.iter().collect();
    calls.sort_by_key(|(_, sum)| Reverse((sum.same, sum.compared)));
    let calls = calls.into_iter().take(limit).filter_map(|(call, sum)| {
        let seen = |count| (sum.results > 0).then_some(count);
        let (caller, caller_share) = view.caller(call.line);
        Some(Call {
            pid: pid(model, call.line.process)?,
            frame: frame(call.line.frame)?,
            caller: frame(caller)?,
            caller_share,
            callee: call.callee.to_string(),
            inner: call.depth == Depth::Below,
            samples: sum.compared,
            enough_data: sum.is_enough(),
            same_arguments: sum.same,
            results: seen(sum.results),
            same_results: seen(sum.same_results),
            varying: sum.varying().collect(),
            joins: sum.joins,
            copies: sum.copies,
            copied_bytes: sum.copied.checked_div(sum.copies),
            added_bytes: sum.added.checked_div(sum.copies),
            turns: sum.turns,
            turn_s: sum.turn().map(Nanos::as_secs_f64),
            result_bytes: sum.result_bytes(),
        })
    });
    let mut pairs: Vec<_> = view.pairs.iter().collect();
    pairs.sort_by_key(|(_, sum)| Reverse((sum.redundant_bytes, sum.compared)));
    let pairs = pairs.into_iter().take(limit).filter_map(|(pair, sum)| {
        let side = |id| Side { tid: pair.tid, stack: source.stack(id) };
        let line = view.line(model, pair.process, pair.second);
        Some(PairOut {
            pid: pid(model, pair.process)?,
            frame: line.and_then(|line| frame(line.frame)),
            caller: line.and_then(|line| frame(view.caller(line).0)),
            kind: pair.kind,
            memory: pair.touched.name(),
            of: pair.touched.detail().map(ToString::to_string),
            equal: sum.equal,
            compared: sum.compared,
            enough_data: sum.is_enough(),
            redundant_bytes: sum.redundant_bytes,
            total_bytes: sum.total_bytes,
            looked: sum.looked,
            unread: sum.unread,
            first: side(pair.first),
            second: side(pair.second),
            region: pair.region.and_then(|id| RegionOut::of(model, id)),
        })
    });
    let (tree, tree_left_out) = tree(model, &view, limit);
    RedundancyOut {
        sampler: counts.sampler.name(),
        rate_hz,
        samples: counts.samples,
        undecoded: counts.undecoded,
        armed: counts.armed,
        traps: counts.traps,
        timed_out: counts.timed_out,
        taken: counts.taken,
        storms: counts.storms,
        undecided: UndecidedOut { lines: undecided, native_share_max },
        lines: lines.into_iter().take(limit).filter_map(line).collect(),
        calls: calls.collect(),
        pairs: pairs.collect(),
        tree,
        tree_left_out,
    }
}

/// The `limit` heaviest nodes, and the number of the others.
fn tree(model: &Model, view: &RedundancyView, limit: usize) -> (Vec<NodeOut>, usize) {
    let node = |node: PairNode| {
        let frame = FrameOut::from(model.frame(node.frame)?);
        let access = if node.is_second { AccessOut::Second } else { AccessOut::First };
        let PairSum { equal, compared, redundant_bytes, total_bytes, .. } = node.sum;
        Some(NodeOut { parent: node.parent, access, frame, equal, compared, redundant_bytes, total_bytes })
    };
    // All frames are known, so no node is dropped.
    let (nodes, left_out) = heaviest(&pair_tree(model, &view.pairs), limit);
    (nodes.into_iter().filter_map(node).collect(), left_out)
}

/// A node is never heavier than its parent, which comes before it, so the parents of the heaviest are among them.
fn heaviest(nodes: &[PairNode], limit: usize) -> (Vec<PairNode>, usize) {
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_by_key(|index| (Reverse((nodes[*index].sum.redundant_bytes, nodes[*index].sum.compared)), *index));
    order.truncate(limit);
    order.sort_unstable();
    let left_out = nodes.len() - order.len();
    let place = |parent: usize| order.binary_search(&parent).ok();
    let kept = order.iter().map(|index| {
        let node = &nodes[*index];
        PairNode { parent: node.parent.and_then(place), ..node.clone() }
    });
    (kept.collect(), left_out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FrameId;

    #[test]
    fn the_heaviest_nodes_of_a_tree_keep_their_parents() {
        let node = |parent, compared| PairNode {
            parent,
            frame: FrameId(0),
            is_second: false,
            sum: PairSum { compared, ..PairSum::default() },
        };
        let tree =
            vec![node(None, 9), node(Some(0), 2), node(Some(1), 2), node(Some(0), 7), node(Some(3), 7), node(None, 1)];
        let (kept, left_out) = heaviest(&tree, 4);
        assert_eq!(left_out, 2);
        let shape: Vec<_> = kept.iter().map(|node| (node.parent, node.sum.compared)).collect();
        assert_eq!(shape, [(None, 9), (Some(0), 2), (Some(0), 7), (Some(2), 7)]);
    }
}

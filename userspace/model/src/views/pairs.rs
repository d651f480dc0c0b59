//! Pairs of accesses as one tree for all threads. It descends the stack of the first access, and then that of the
//! second.

use std::collections::BTreeMap;

use crate::families::redundancy::{PairOf, PairSum};
use crate::{FrameId, Model};

/// Branches with less than one in this many pairs are omitted.
const LEAST: u64 = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairNode {
    /// Index in the tree; a parent precedes its children.
    pub parent: Option<usize>,
    pub frame: FrameId,
    /// It belongs to the stack of the second access.
    pub is_second: bool,
    /// Sum over all pairs that pass through it.
    pub sum: PairSum,
}

#[derive(Default)]
struct Branch {
    sum: PairSum,
    children: BTreeMap<(bool, FrameId), usize>,
}

/// Nodes of the tree, parents first, siblings by redundant bytes, most first.
pub fn pair_tree(model: &Model, pairs: &BTreeMap<PairOf, PairSum>) -> Vec<PairNode> {
    let mut branches = vec![Branch::default()];
    for (pair, sum) in pairs {
        let known = |id| model.stack(id).iter().copied().filter(|frame| model.frame(*frame).is_some());
        let first = known(pair.first).map(|frame| (false, frame));
        let second = known(pair.second).map(|frame| (true, frame));
        let mut at = 0;
        branches[at].sum.add(sum);
        for step in first.chain(second) {
            let new = branches.len();
            at = *branches[at].children.entry(step).or_insert(new);
            if at == new {
                branches.push(Branch::default());
            }
            branches[at].sum.add(sum);
        }
    }
    flatten(&branches)
}

fn flatten(branches: &[Branch]) -> Vec<PairNode> {
    let least = branches[0].sum.compared.div_ceil(LEAST);
    let mut nodes: Vec<PairNode> = Vec::new();
    // Each entry is a branch and the node above it.
    let mut open = vec![(0, None)];
    while let Some((at, parent)) = open.pop() {
        let mut below: Vec<_> = branches[at].children.iter().collect();
        // The last to be pushed is the first to be visited.
        below.sort_by_key(|(_, child)| (branches[**child].sum.redundant_bytes, branches[**child].sum.compared));
        let above = match parent {
            None => None,
            Some((parent, frame, is_second)) => {
                nodes.push(PairNode { parent, frame, is_second, sum: branches[at].sum });
                Some(nodes.len() - 1)
            }
        };
        for ((is_second, frame), child) in below {
            if branches[*child].sum.compared >= least {
                open.push((*child, Some((above, *frame, *is_second))));
            }
        }
    }
    nodes
}

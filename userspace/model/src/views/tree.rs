//! The call tree behind a flame graph.

use foldhash::HashMap;

use super::weight::add;
use super::{Groups, Look};
use crate::{FrameId, Model, ProcessRef, Selection};

/// Index into [`Tree::nodes`]; the root is 0.
pub type NodeId = usize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub parent: Option<NodeId>,
    /// Set only for children of the root: the process that stands for its group ([`Groups`]).
    pub process: Option<ProcessRef>,
    /// `None` for the root and for process nodes.
    pub frame: Option<FrameId>,
    /// Weight of the stacks that end here.
    pub own: u64,
    /// Weight of the stacks that pass through here.
    pub total: u64,
    /// Sorted by weight, most first.
    pub children: Vec<NodeId>,
}

/// The root, then one node per process or group of processes, then frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    pub nodes: Vec<Node>,
}

impl Tree {
    pub const ROOT: NodeId = 0;

    /// The nodes from the root to `node`, inclusive.
    pub fn path(&self, node: NodeId) -> Vec<NodeId> {
        let mut path: Vec<NodeId> = std::iter::successors(Some(node), |id| self.nodes[*id].parent).collect();
        path.reverse();
        path
    }
}

/// Builds the call tree of the selected stacks. The result is deterministic.
pub fn tree(model: &Model, selection: &Selection, look: Look) -> Tree {
    let mut nodes = vec![Node { parent: None, process: None, frame: None, own: 0, total: 0, children: Vec::new() }];
    let mut index: HashMap<(NodeId, Option<ProcessRef>, Option<FrameId>), NodeId> = HashMap::default();
    let groups = Groups::new(model, look.group);
    for (place, sum) in look.weight.sums(model, selection) {
        add(&mut nodes[Tree::ROOT].total, sum);
        let mut at = Tree::ROOT;
        let steps = std::iter::once((Some(groups.of(place.process)), None))
            .chain(look.frames(model, place.stack).map(|frame| (None, Some(frame))));
        for (process, frame) in steps {
            let next = *index.entry((at, process, frame)).or_insert_with(|| {
                nodes.push(Node { parent: Some(at), process, frame, own: 0, total: 0, children: Vec::new() });
                let id = nodes.len() - 1;
                nodes[at].children.push(id);
                id
            });
            add(&mut nodes[next].total, sum);
            at = next;
        }
        add(&mut nodes[at].own, sum);
    }
    let totals: Vec<(u64, Option<ProcessRef>, Option<FrameId>)> =
        nodes.iter().map(|node| (node.total, node.process, node.frame)).collect();
    for node in &mut nodes {
        node.children.sort_unstable_by(|a, b| {
            totals[*b].0.cmp(&totals[*a].0).then((totals[*a].1, totals[*a].2).cmp(&(totals[*b].1, totals[*b].2)))
        });
    }
    Tree { nodes }
}

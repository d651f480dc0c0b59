//! How much of the native code a flame graph shows.

use std::cmp::Reverse;
use std::collections::HashMap;

use pyobs_model::views::{Node, NodeId, Tree};
use pyobs_model::{FrameId, FrameKind, Model, ProcessRef};

/// Which native and kernel frames of stacks that have Python frames are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Natives {
    /// Those below the innermost Python frame: not the interpreter's own between Python frames.
    #[default]
    Leaf,
    None,
    All,
}

impl Natives {
    pub(crate) fn next(self) -> Self {
        match self {
            Self::Leaf => Self::None,
            Self::None => Self::All,
            Self::All => Self::Leaf,
        }
    }
}

/// The same stacks without the native and kernel frames above their innermost Python frame.
pub(super) fn without_glue(model: &Model, tree: &Tree) -> Tree {
    let kind = |id: NodeId| tree.nodes[id].frame.and_then(|frame| model.frame(frame)).map(|frame| frame.kind);
    let mut nodes = vec![node(None, None, None)];
    let mut index: HashMap<(NodeId, Option<ProcessRef>, Option<FrameId>), NodeId> = HashMap::new();
    for (leaf, weight) in tree.nodes.iter().map(|node| node.own).enumerate().filter(|(_, own)| *own > 0) {
        let path = tree.path(leaf);
        let innermost = path.iter().rposition(|id| kind(*id) == Some(FrameKind::Python)).unwrap_or(0);
        let is_glue = |at: usize| at < innermost && !matches!(kind(path[at]), None | Some(FrameKind::Python));
        let mut at = Tree::ROOT;
        add(&mut nodes[at].total, weight);
        for step in (1..path.len()).filter(|step| !is_glue(*step)) {
            let (process, frame) = (tree.nodes[path[step]].process, tree.nodes[path[step]].frame);
            let next = *index.entry((at, process, frame)).or_insert_with(|| {
                nodes.push(node(Some(at), process, frame));
                let id = nodes.len() - 1;
                nodes[at].children.push(id);
                id
            });
            add(&mut nodes[next].total, weight);
            at = next;
        }
        add(&mut nodes[at].own, weight);
    }
    let order: Vec<_> = nodes.iter().map(|node| (Reverse(node.total), node.process, node.frame)).collect();
    for node in &mut nodes {
        node.children.sort_unstable_by_key(|child| order[*child]);
    }
    Tree { nodes }
}

fn node(parent: Option<NodeId>, process: Option<ProcessRef>, frame: Option<FrameId>) -> Node {
    Node { parent, process, frame, own: 0, total: 0, children: Vec::new() }
}

fn add(sum: &mut u64, weight: u64) {
    *sum = sum.saturating_add(weight);
}

#[cfg(test)]
mod tests {
    use pyobs_model::Selection;
    use pyobs_model::views::{Look, Weight, tree};

    use super::*;
    use crate::tests::synthetic;

    /// The names of each stack with its weight.
    fn stacks(model: &Model, tree: &Tree) -> Vec<(String, u64)> {
        let name = |id: &NodeId| tree.nodes[*id].frame.and_then(|frame| model.frame(frame)).map(|it| &*it.function);
        let stack = |id| tree.path(id).iter().filter_map(name).collect::<Vec<_>>().join(" ");
        let with_own = (0..tree.nodes.len()).filter(|id| tree.nodes[*id].own > 0);
        let mut stacks: Vec<_> = with_own.map(|id| (stack(id), tree.nodes[id].own / 1_000_000)).collect();
        stacks.sort();
        stacks
    }

    #[test]
    fn what_is_between_python_frames_goes_and_what_is_below_them_stays() {
        let model = synthetic::fill(synthetic::model_of(&["offcpu"]), &synthetic::waiting());
        let look = Look { weight: Weight::OffCpu, ..Look::default() };
        let whole = tree(&model, &Selection::default(), look);
        let tree = without_glue(&model, &whole);
        let expected = [
            ("<module> __poll __x64_sys_poll", 9500),
            ("Thread.run Queue.get Condition.wait pthread_cond_timedwait futex_wait", 3100),
            ("Thread.run receive __recv __x64_sys_recvfrom", 300),
            ("pthread_cond_timedwait futex_wait", 300),
        ];
        assert_eq!(stacks(&model, &tree), expected.map(|(stack, ms)| (stack.to_owned(), ms)));
        assert_eq!(tree.nodes[Tree::ROOT].total, whole.nodes[Tree::ROOT].total);
        for node in &tree.nodes {
            let of_children: u64 = node.children.iter().map(|child| tree.nodes[*child].total).sum();
            assert_eq!(node.total, node.own + of_children);
            assert!(node.children.is_sorted_by_key(|child| Reverse(tree.nodes[*child].total)));
        }
    }

    #[test]
    fn an_empty_tree_stays_empty() {
        let model = synthetic::model();
        let empty = tree(&model, &Selection::default(), Look::default());
        assert_eq!(without_glue(&model, &empty), empty);
    }
}

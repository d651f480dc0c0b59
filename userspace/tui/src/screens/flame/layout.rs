//! The positions of the flame graph's boxes. Nothing is drawn here.

use pyobs_model::views::{Node, NodeId, Tree};

/// A box on one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlameCell {
    /// `None` for children that are narrower than a cell, put together.
    pub(super) node: Option<NodeId>,
    /// 0 is the zoomed node.
    pub(super) depth: usize,
    pub(super) x: usize,
    pub(super) width: usize,
    pub(super) samples: u64,
}

/// The boxes under `zoom` in lines `0..depths`, line by line and left to right.
///
/// Children are in the order in which they were first seen, not by size: in a live picture, boxes that swap places would be
/// unreadable.
pub(super) fn layout(tree: &Tree, zoom: NodeId, width: usize, depths: usize) -> Vec<FlameCell> {
    let Some(root) = tree.nodes.get(zoom).filter(|root| root.total > 0 && width > 0 && depths > 0) else {
        return Vec::new();
    };
    let column = |samples: u64| (u128::from(samples) * width as u128 / u128::from(root.total)) as usize;
    let mut cells = vec![FlameCell { node: Some(zoom), depth: 0, x: 0, width, samples: root.total }];
    let mut line: Vec<(NodeId, u64)> = vec![(zoom, 0)];
    for depth in 1..depths {
        let mut next = Vec::new();
        for (parent, start) in line {
            let mut offset = start;
            let mut add = |node: Option<NodeId>, samples: u64| {
                let x = column(offset);
                let end = column(offset.saturating_add(samples));
                if end > x {
                    cells.push(FlameCell { node, depth, x, width: end - x, samples });
                    if let Some(node) = node {
                        next.push((node, offset));
                    }
                }
                offset = offset.saturating_add(samples);
            };
            let (wide, rest) = split_children(tree, &tree.nodes[parent], width, root.total);
            for child in wide {
                add(Some(child), tree.nodes[child].total);
            }
            add(None, rest);
        }
        if next.is_empty() {
            break;
        }
        line = next;
    }
    cells
}

/// The children that are at least one cell wide, in the order of first sight, and the samples of the others.
fn split_children(tree: &Tree, parent: &Node, width: usize, whole: u64) -> (Vec<NodeId>, u64) {
    let is_wide = |child: &&NodeId| u128::from(tree.nodes[**child].total) * width as u128 >= u128::from(whole);
    // Children are sorted by size, so narrow ones need not be visited.
    let mut wide: Vec<NodeId> = parent.children.iter().take_while(is_wide).copied().collect();
    let of_wide = wide.iter().fold(0, |sum: u64, child| sum.saturating_add(tree.nodes[*child].total));
    wide.sort_unstable_by_key(|child| (tree.nodes[*child].process, tree.nodes[*child].frame));
    (wide, parent.total.saturating_sub(parent.own).saturating_sub(of_wide))
}

/// The number of lines below `node`.
pub(super) fn height(tree: &Tree, node: NodeId) -> usize {
    let mut lines = 0;
    let mut line = vec![node];
    loop {
        line = line.iter().filter_map(|node| tree.nodes.get(*node)).flat_map(|node| &node.children).copied().collect();
        if line.is_empty() {
            return lines;
        }
        lines += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyobs_model::FrameId;

    fn tree(totals: &[(Option<usize>, u64)]) -> Tree {
        let mut nodes: Vec<Node> = Vec::new();
        for (index, (parent, total)) in totals.iter().enumerate() {
            let frame = Some(FrameId(1000 - index as u32));
            nodes.push(Node { parent: *parent, process: None, frame, own: 0, total: *total, children: Vec::new() });
            if let Some(parent) = parent {
                nodes[*parent].children.push(index);
            }
        }
        for index in 0..nodes.len() {
            let of_children: u64 = nodes[index].children.iter().map(|child| nodes[*child].total).sum();
            nodes[index].own = nodes[index].total - of_children;
        }
        Tree { nodes }
    }

    #[test]
    fn boxes_do_not_overlap_and_stay_within_the_width() {
        let tree = tree(&[(None, 100), (Some(0), 60), (Some(0), 39), (Some(1), 33), (Some(2), 13), (Some(2), 13)]);
        for width in 1..130 {
            let cells = layout(&tree, 0, width, 9);
            for pair in cells.windows(2).filter(|pair| pair[0].depth == pair[1].depth) {
                assert!(pair[0].x + pair[0].width <= pair[1].x, "{width} {cells:?}");
            }
            assert!(cells.iter().all(|cell| cell.width > 0 && cell.x + cell.width <= width));
        }
    }

    #[test]
    fn narrow_children_share_one_box() {
        let tree = tree(&[(None, 1000), (Some(0), 900), (Some(0), 40), (Some(0), 3), (Some(0), 3), (Some(0), 3)]);
        let cells = layout(&tree, 0, 50, 2);
        let rest: Vec<&FlameCell> = cells.iter().filter(|cell| cell.node.is_none()).collect();
        assert_eq!(rest.len(), 0, "nine of a thousand samples fill no cell of fifty");
        let cells = layout(&tree, 0, 200, 2);
        let rest: Vec<&FlameCell> = cells.iter().filter(|cell| cell.node.is_none()).collect();
        assert_eq!(rest.len(), 1);
        assert_eq!(rest[0].samples, 9);
    }

    #[test]
    fn children_are_in_the_order_of_first_sight() {
        let tree = tree(&[(None, 100), (Some(0), 60), (Some(0), 40)]);
        let nodes: Vec<Option<NodeId>> = layout(&tree, 0, 100, 2).iter().map(|cell| cell.node).collect();
        assert_eq!(nodes, [Some(0), Some(2), Some(1)]);
    }

    #[test]
    fn an_empty_tree_or_a_width_of_zero_has_no_boxes() {
        assert!(layout(&tree(&[(None, 0)]), 0, 80, 9).is_empty());
        assert!(layout(&tree(&[(None, 5)]), 0, 0, 9).is_empty());
        assert!(layout(&tree(&[(None, 5)]), 7, 80, 9).is_empty());
    }

    #[test]
    fn height_counts_the_lines_below() {
        assert_eq!(height(&tree(&[(None, 9), (Some(0), 9), (Some(1), 9)]), 0), 2);
        assert_eq!(height(&tree(&[(None, 9)]), 0), 0);
    }
}

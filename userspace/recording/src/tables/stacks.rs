//! Frames, and stacks as paths in a tree: a stack adds rows only for frames that it does not share with earlier stacks.

use std::sync::Arc;

use foldhash::HashMap;
use pyobs_model::{Event, Frame, FrameId, FrameKind, StackId, package};
use rusqlite::{Connection, Result, Statement};

use super::scan::Dense;
use super::{Reading, Rows};
use crate::Error;
use crate::table::{Table, tables};
use crate::value::integers;

/// A node of the tree, numbered from 1.
#[derive(Clone, Copy)]
struct NodeId(u32);

integers! { NodeId, of "nodes": |it| it.0.into(), Self; }

tables! {
    /// One line of one function.
    #[insert(OR IGNORE)]
    FrameRow in "frames" {
        #[key] id: FrameId = "number, from 0",
        kind: FrameKind = "`python`, `native` or `kernel`",
        function: Arc<str> = "qualified name if the interpreter has one",
        module: Option<Arc<str>> = "base name of the mapped file with the code; NULL for Python",
        file: Option<Arc<str>> = "source file",
        line: Option<u32> = "current line, from 1",
        first_line: Option<u32> = "the function's first line",
        #[newer] package: Option<Arc<str>> = "the installed package of its file: the folder or module in `site-packages` or \
            `dist-packages`, `python` for CPython's own; NULL for any other file",
    }

    /// Stacks as a tree of calls: a stack is the path from the root to a node, and shares its beginning with others.
    NodeRow in "nodes" {
        #[key] id: NodeId = "number, from 1",
        parent: Option<NodeId> = "`nodes.id` of the caller; NULL for the root of a stack",
        frame: FrameId = "`frames.id`",
    }

    #[insert(OR IGNORE)]
    StackRow in "stacks" {
        #[key] id: StackId = "number, from 0",
        leaf: Option<NodeId> = "`nodes.id` of the innermost frame; NULL for a stack without frames",
    }

    /// A view: the frames of every stack.
    #[view("WITH RECURSIVE walk (stack, node, height) AS (
            SELECT id, leaf, 0 FROM stacks WHERE leaf IS NOT NULL
            UNION ALL
            SELECT walk.stack, nodes.parent, walk.height + 1
            FROM walk JOIN nodes ON nodes.id = walk.node WHERE nodes.parent IS NOT NULL
        )
        SELECT walk.stack, walk.height, nodes.frame FROM walk JOIN nodes ON nodes.id = walk.node")]
    StackFrames in "stack_frames" {
        stack: StackId = "`stacks.id`",
        height: u32 = "0 for the innermost frame",
        frame: FrameId = "`frames.id`",
    }
}

/// pyobs never writes deeper stacks than this.
const MAX_DEPTH: u32 = 1 << 14;

/// Limits the frames of all stacks together. Otherwise a small file with one long path and many leaves would fill the memory.
const MAX_FRAMES: usize = 1 << 25;

/// The nodes written so far.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    /// (parent, frame) to node; parent 0 is the root.
    known: HashMap<(u32, u32), u32>,
    /// The latest path per beginning of a stack. The next stack with that beginning shares most of it, and following a path is
    /// cheaper than looking up each node.
    paths: [Vec<(FrameId, u32)>; PATHS],
}

const PATHS: usize = 32;
/// How many outermost frames select the path that a stack may share.
const BEGINNING: usize = 8;

impl Nodes {
    fn path(&mut self, frames: &[FrameId]) -> Vec<(FrameId, u32)> {
        std::mem::take(&mut self.paths[place(frames)])
    }

    fn keep(&mut self, frames: &[FrameId], path: Vec<(FrameId, u32)>) {
        self.paths[place(frames)] = path;
    }
}

fn place(frames: &[FrameId]) -> usize {
    let beginning = frames.iter().take(BEGINNING);
    beginning.fold(0, |hash: usize, frame| hash.wrapping_mul(31).wrapping_add(frame.0 as usize)) % PATHS
}

pub(crate) fn frame(connection: &Connection, id: FrameId, frame: &Frame) -> Result<()> {
    let Frame { kind, function, module, file, line, first_line, package } = frame.clone();
    FrameRow { id, kind, function, module, file, line, first_line, package: Some(package) }.insert(connection)
}

/// Inserts a node, and a stack.
pub(crate) const INSERT_NODE: &str = NodeRow::INSERT;
pub(crate) const INSERT: &str = StackRow::INSERT;

pub(crate) fn stack(
    (insert_node, insert): (&mut Statement<'_>, &mut Statement<'_>),
    nodes: &mut Nodes,
    id: StackId,
    frames: &[FrameId],
) -> Result<()> {
    let mut path = nodes.path(frames);
    let shared = path.iter().zip(frames).take_while(|((known, _), frame)| known == *frame).count();
    path.truncate(shared);
    for frame in &frames[shared..] {
        let parent = path.last().map(|(_, node)| *node);
        // Ids start at 1, and u32::MAX nodes would be a file of 50 GB.
        let next = u32::try_from(nodes.known.len()).map_or(u32::MAX, |len| len.saturating_add(1));
        let node = *nodes.known.entry((parent.unwrap_or(0), frame.0)).or_insert(next);
        if node == next {
            let (id, parent) = (NodeId(node), parent.map(NodeId));
            NodeRow { id, parent, frame: *frame }.insert_with(insert_node)?;
        }
        path.push((*frame, node));
    }
    let leaf = path.last().map(|(_, node)| NodeId(*node));
    nodes.keep(frames, path);
    StackRow { id, leaf }.insert_with(insert)
}

/// A row of `nodes`.
#[derive(Clone, Copy)]
struct Node {
    /// 0 for none.
    parent: u32,
    frame: FrameId,
    /// 0 for an invalid node.
    depth: u32,
}

pub(crate) fn read(reading: &mut Reading<'_>, mut each: impl FnMut(Event)) -> Result<(), Error> {
    let mut frames = Dense::default();
    reading.scan(Rows::All, |row: FrameRow| {
        let FrameRow { id, kind, function, module, file, line, first_line, package } = row;
        for missing in frames.missing(id.0)? {
            each(Event::Frame { id: FrameId(missing), frame: unknown() });
        }
        // Older recordings have no packages; the files of Python frames tell theirs.
        let of_file = || file.as_deref().filter(|_| kind == FrameKind::Python).and_then(package::of_file);
        let package = package.unwrap_or_else(of_file);
        each(Event::Frame { id, frame: Frame { kind, function, module, file, line, first_line, package } });
        Some(())
    })?;
    let nodes = read_nodes(reading, frames.len())?;
    read_stacks(reading, &nodes, each)
}

/// Node 0 is the root. A node's parent must precede it, which excludes cycles.
fn read_nodes(reading: &mut Reading<'_>, frames: u32) -> Result<Vec<Node>, Error> {
    let unusable = Node { parent: 0, frame: FrameId(0), depth: 0 };
    let mut ids = Dense::from(1);
    let mut nodes = vec![unusable];
    reading.scan(Rows::All, |row: NodeRow| {
        let parent = row.parent.map_or(0, |parent| parent.0);
        let above = nodes.get(parent as usize).filter(|above| parent == 0 || above.depth > 0)?.depth;
        if row.frame.0 >= frames || above >= MAX_DEPTH {
            return None;
        }
        nodes.extend(ids.missing(row.id.0)?.map(|_| unusable));
        nodes.push(Node { parent, frame: row.frame, depth: above + 1 });
        Some(())
    })?;
    Ok(nodes)
}

fn read_stacks(reading: &mut Reading<'_>, nodes: &[Node], mut each: impl FnMut(Event)) -> Result<(), Error> {
    let mut ids = Dense::default();
    let mut left = MAX_FRAMES;
    let mut lost = 0;
    reading.scan(Rows::All, |row: StackRow| {
        for missing in ids.missing(row.id.0)? {
            each(Event::Stack { id: StackId(missing), frames: Arc::default() });
        }
        let frames = path(nodes, row.leaf.map_or(0, |leaf| leaf.0), &mut left);
        lost += u64::from(frames.is_none());
        each(Event::Stack { id: row.id, frames: frames.unwrap_or_default() });
        Some(())
    })?;
    for _ in 0..lost {
        reading.damage.row("nodes");
    }
    Ok(())
}

/// The frames from the root to `leaf`; `None` if the path is damaged or has more than `left` frames.
fn path(nodes: &[Node], leaf: u32, left: &mut usize) -> Option<Arc<[FrameId]>> {
    let mut node = nodes.get(leaf as usize).filter(|node| leaf == 0 || node.depth > 0)?;
    *left = left.checked_sub(node.depth as usize)?;
    let mut frames = vec![FrameId(0); node.depth as usize];
    for slot in frames.iter_mut().rev() {
        *slot = node.frame;
        node = nodes.get(node.parent as usize)?;
    }
    Some(frames.into())
}

/// A placeholder for a frame whose row is damaged, so that later frames keep their numbers.
fn unknown() -> Frame {
    Frame::new(FrameKind::Native, Arc::from("?"))
}

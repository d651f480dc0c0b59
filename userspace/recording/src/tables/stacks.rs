//! Frames, and stacks as paths in a tree: a stack costs a row for each frame that no earlier stack had there.

use std::sync::Arc;

use foldhash::HashMap;
use pyobs_model::{Event, Frame, FrameId, FrameKind, StackId};
use rusqlite::{Connection, Statement, params};

use super::scan::Dense;
use super::{Damage, Field, Source, bounded};
use crate::Error;

pub(crate) const SCHEMA: &str = "
CREATE TABLE frames (
    id         INTEGER PRIMARY KEY,
    kind       TEXT NOT NULL,
    function   TEXT NOT NULL,
    module     TEXT,
    file       TEXT,
    line       INTEGER,
    first_line INTEGER
);
CREATE TABLE nodes (
    id     INTEGER PRIMARY KEY,
    parent INTEGER REFERENCES nodes,
    frame  INTEGER NOT NULL REFERENCES frames
);
CREATE TABLE stacks (
    id   INTEGER PRIMARY KEY,
    leaf INTEGER REFERENCES nodes
);
CREATE VIEW stack_frames (stack, height, frame) AS
WITH RECURSIVE walk (stack, node, height) AS (
    SELECT id, leaf, 0 FROM stacks WHERE leaf IS NOT NULL
    UNION ALL
    SELECT walk.stack, nodes.parent, walk.height + 1
    FROM walk JOIN nodes ON nodes.id = walk.node WHERE nodes.parent IS NOT NULL
)
SELECT walk.stack, walk.height, nodes.frame FROM walk JOIN nodes ON nodes.id = walk.node;";

/// Deeper stacks than this are not written by any pyobs.
const MAX_DEPTH: u32 = 1 << 14;

/// What all stacks together may hold: a small file of one long path with many ends would fill the memory.
const MAX_FRAMES: usize = 1 << 25;

/// The nodes written so far.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    /// (parent, frame) to node; parent 0 is the root.
    known: HashMap<(u32, u32), u32>,
    /// The path of the last stack that began with certain frames. The next one that does so shares most of it, and following a path
    /// costs less than finding each node.
    paths: [Vec<(FrameId, u32)>; PATHS],
}

const PATHS: usize = 32;
/// The frames that tell which path a stack may share.
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

pub(crate) fn kind_name(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Python => "python",
        FrameKind::Native => "native",
        FrameKind::Kernel => "kernel",
    }
}

fn kind_of(name: &str) -> Option<FrameKind> {
    [FrameKind::Python, FrameKind::Native, FrameKind::Kernel].into_iter().find(|kind| kind_name(*kind) == name)
}

pub(crate) fn frame(connection: &Connection, id: FrameId, frame: &Frame) -> rusqlite::Result<()> {
    let sql = "INSERT OR IGNORE INTO frames (id, kind, function, module, file, line, first_line)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    connection.prepare_cached(sql)?.execute(params![
        id.0,
        kind_name(frame.kind),
        bounded(&frame.function),
        frame.module.as_deref().map(bounded),
        frame.file.as_deref().map(bounded),
        frame.line,
        frame.first_line,
    ])?;
    Ok(())
}

/// Inserts a node, and a stack.
pub(crate) const INSERT_NODE: &str = "INSERT INTO nodes (id, parent, frame) VALUES (?1, ?2, ?3)";
pub(crate) const INSERT: &str = "INSERT OR IGNORE INTO stacks (id, leaf) VALUES (?1, ?2)";

pub(crate) fn stack(
    (insert_node, insert): (&mut Statement<'_>, &mut Statement<'_>),
    nodes: &mut Nodes,
    id: StackId,
    frames: &[FrameId],
) -> rusqlite::Result<()> {
    let mut path = nodes.path(frames);
    let shared = path.iter().zip(frames).take_while(|((known, _), frame)| known == *frame).count();
    path.truncate(shared);
    for frame in &frames[shared..] {
        let parent = path.last().map(|(_, node)| *node);
        // Ids start at 1, and u32::MAX nodes would be a file of 50 GB.
        let next = u32::try_from(nodes.known.len()).map_or(u32::MAX, |len| len.saturating_add(1));
        let node = *nodes.known.entry((parent.unwrap_or(0), frame.0)).or_insert(next);
        if node == next {
            insert_node.execute(params![node, parent, frame.0])?;
        }
        path.push((*frame, node));
    }
    let leaf = path.last().map(|(_, node)| *node);
    nodes.keep(frames, path);
    insert.execute(params![id.0, leaf])?;
    Ok(())
}

/// A row of `nodes`.
#[derive(Clone, Copy)]
struct Node {
    /// 0 for none.
    parent: u32,
    frame: u32,
    /// 0 for a node that cannot be used.
    depth: u32,
}

pub(crate) fn read(source: &Source, damage: &mut Damage, mut each: impl FnMut(Event)) -> Result<(), Error> {
    let mut frames = Dense::default();
    let columns = ["kind", "function", "module", "file", "line", "first_line"];
    source.scan("frames", &columns, "", damage, |id, row| {
        let frame = Frame {
            kind: kind_of(&row.text(1)?)?,
            function: row.text(2)?,
            module: row.maybe_text(3)?,
            file: row.maybe_text(4)?,
            line: row.maybe_small(5)?,
            first_line: row.maybe_small(6)?,
        };
        for missing in frames.missing(id)? {
            each(Event::Frame { id: FrameId(missing), frame: unknown() });
        }
        each(Event::Frame { id: FrameId(u32::try_from(id).ok()?), frame });
        Some(())
    })?;
    let nodes = read_nodes(source, damage, frames.len())?;
    read_stacks(source, damage, &nodes, each)
}

/// Node 0 is the root. A node's parent must be there already, so there is no cycle.
fn read_nodes(source: &Source, damage: &mut Damage, frames: u32) -> Result<Vec<Node>, Error> {
    let unusable = Node { parent: 0, frame: 0, depth: 0 };
    let mut ids = Dense::from(1);
    let mut nodes = vec![unusable];
    source.scan("nodes", &["parent", "frame"], "", damage, |id, row| {
        let parent = row.maybe_small(1)?.unwrap_or(0);
        let frame = row.small(2).filter(|frame| *frame < frames)?;
        let above = nodes.get(parent as usize).filter(|above| parent == 0 || above.depth > 0)?.depth;
        if above >= MAX_DEPTH {
            return None;
        }
        nodes.extend(ids.missing(id)?.map(|_| unusable));
        nodes.push(Node { parent, frame, depth: above + 1 });
        Some(())
    })?;
    Ok(nodes)
}

fn read_stacks(source: &Source, damage: &mut Damage, nodes: &[Node], mut each: impl FnMut(Event)) -> Result<(), Error> {
    let mut ids = Dense::default();
    let mut left = MAX_FRAMES;
    let mut lost = 0;
    source.scan("stacks", &["leaf"], "", damage, |id, row| {
        let leaf = row.maybe_small(1)?.unwrap_or(0);
        for missing in ids.missing(id)? {
            each(Event::Stack { id: StackId(missing), frames: Arc::default() });
        }
        let frames = path(nodes, leaf, &mut left);
        lost += u64::from(frames.is_none());
        each(Event::Stack { id: StackId(u32::try_from(id).ok()?), frames: frames.unwrap_or_default() });
        Some(())
    })?;
    for _ in 0..lost {
        damage.row("nodes");
    }
    Ok(())
}

/// The frames from the root to `leaf`; `None` when the path is damaged or more than `left` frames.
fn path(nodes: &[Node], leaf: u32, left: &mut usize) -> Option<Arc<[FrameId]>> {
    let mut node = nodes.get(leaf as usize).filter(|node| leaf == 0 || node.depth > 0)?;
    *left = left.checked_sub(node.depth as usize)?;
    let mut frames = vec![FrameId(0); node.depth as usize];
    for slot in frames.iter_mut().rev() {
        *slot = FrameId(node.frame);
        node = nodes.get(node.parent as usize)?;
    }
    Some(frames.into())
}

/// Stands for a frame whose row is damaged, so that the next ones keep their numbers.
fn unknown() -> Frame {
    Frame { kind: FrameKind::Native, function: Arc::from("?"), module: None, file: None, line: None, first_line: None }
}

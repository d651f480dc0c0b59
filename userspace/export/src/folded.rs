//! Folded stacks: one line per stack, root first, with its samples, microseconds or bytes.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use pyobs_model::views::Unit;
use pyobs_model::{FrameKind, Model, ProcessState};

use crate::{Error, Options, Weight, names};

pub(crate) fn write(model: &Model, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let stacks = FoldedStacks::new(model, options);
    Ok(stacks.lines(0, |stack, count| writeln!(out, "{stack} {count}"))?)
}

/// The selected stacks as a tree of names. Frames with equal names merge.
pub(crate) struct FoldedStacks {
    /// The weight that a line counts as 1: a sampling period or a microsecond, in nanoseconds, or else 1.
    unit: u64,
    /// The root comes first.
    nodes: Vec<FoldedNode>,
    names: Vec<Name>,
}

struct Name {
    text: String,
    /// `None` for a process.
    kind: Option<FrameKind>,
}

#[derive(Default)]
struct FoldedNode {
    name: usize,
    total: u64,
    children: BTreeMap<usize, usize>,
}

impl FoldedNode {
    fn add(&mut self, weight: u64) {
        self.total = self.total.saturating_add(weight);
    }
}

/// Interns names.
#[derive(Default)]
struct NameTable {
    ids: HashMap<String, usize>,
    names: Vec<Name>,
}

impl NameTable {
    fn id(&mut self, text: String, kind: Option<FrameKind>) -> usize {
        if let Some(id) = self.ids.get(&text) {
            return *id;
        }
        let id = self.names.len();
        self.ids.insert(text.clone(), id);
        self.names.push(Name { text, kind });
        id
    }
}

impl FoldedStacks {
    pub(crate) fn new(model: &Model, options: &Options) -> Self {
        Self::with(model, options, names::process_in_container)
    }

    /// Merges the processes of a program.
    pub(crate) fn of_programs(model: &Model, options: &Options) -> Self {
        Self::with(model, options, |state| names::program(&state.process))
    }

    fn with(model: &Model, options: &Options, name: fn(&ProcessState) -> String) -> Self {
        let mut names = NameTable::default();
        let (mut processes, mut frames) = (HashMap::new(), HashMap::new());
        let mut nodes = vec![FoldedNode::default()];
        let unit = match options.weight {
            // A weight counts as that many samples of equal weight.
            Weight::Cpu => model.meta().period().0.max(1),
            weight if weight.unit() == Unit::Nanoseconds => 1000,
            _ => 1,
        };
        for (key, count) in options.weight.sums(model, &options.selection) {
            let Some(state) = model.process(key.process) else { continue };
            let process = *processes.entry(key.process).or_insert_with(|| names.id(name(state), None));
            let mut at = 0;
            nodes[at].add(count);
            let stack = options.native.frames(model, key.stack).filter_map(|id| {
                let frame = model.frame(id)?;
                Some(
                    *frames.entry(id).or_insert_with(|| names.id(names::frame(frame, options.lines), Some(frame.kind))),
                )
            });
            for name in std::iter::once(process).chain(stack) {
                let next = nodes.len();
                at = *nodes[at].children.entry(name).or_insert(next);
                if at == next {
                    nodes.push(FoldedNode { name, ..FoldedNode::default() });
                }
                nodes[at].add(count);
            }
        }
        Self { unit, nodes, names: names.names }
    }

    /// The total weight, in nanoseconds, samples or bytes.
    pub(crate) fn total(&self) -> u64 {
        self.nodes[0].total
    }

    /// All names, with the kind of their frame.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, Option<FrameKind>)> {
        self.names.iter().map(|name| (name.text.as_str(), name.kind))
    }

    /// Calls `each` with every stack and its samples, microseconds or bytes, sorted by names from the root on. Prunes branches
    /// below `least`, and counts them for their parent.
    pub(crate) fn lines(&self, least: u64, mut each: impl FnMut(&str, u64) -> io::Result<()>) -> io::Result<()> {
        let mut line = String::new();
        // Sums saturate, so a node's children may add up to more than the node.
        let mut left = self.total();
        let (mut sum, mut counted) = (0, 0);
        // Recursion could overflow: recorded stacks may be deeper than this thread's own.
        let mut open = self.children(0, least);
        let mut lengths = vec![0; open.len()];
        while let (Some(at), Some(length)) = (open.pop(), lengths.pop()) {
            line.truncate(length);
            if length > 0 {
                line.push(';');
            }
            let node = &self.nodes[at];
            line.push_str(&self.names[node.name].text);
            let children = self.children(at, least);
            let shown = children.iter().fold(0, |sum: u64, child| sum.saturating_add(self.nodes[*child].total));
            let own = node.total.saturating_sub(shown).min(left);
            left -= own;
            // Lines are rounded up only as long as together they stay within the rounded running total.
            sum += own;
            let count = self.rounded(own).min(self.rounded(sum) - counted);
            counted += count;
            if count > 0 {
                each(&line, count)?;
            }
            lengths.extend(children.iter().map(|_| line.len()));
            open.extend(children);
        }
        Ok(())
    }

    /// A weight in units, to the nearest.
    fn rounded(&self, weight: u64) -> u64 {
        weight / self.unit + u64::from(weight % self.unit >= self.unit.div_ceil(2))
    }

    /// In descending order of names, because the caller pops from the end.
    fn children(&self, at: usize, least: u64) -> Vec<usize> {
        let children = self.nodes[at].children.values().copied();
        let mut children: Vec<usize> = children.filter(|child| self.nodes[*child].total >= least).collect();
        let text = |node: &usize| &self.names[self.nodes[*node].name].text;
        children.sort_unstable_by(|a, b| text(b).cmp(text(a)));
        children
    }
}

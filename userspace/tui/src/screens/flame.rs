//! The call tree as a flame graph with its root on top.

mod boxes;
mod layout;

use pyobs_model::views::{self, Group, Look, Native, NodeId, Tree};
use pyobs_model::{Family, FrameId, Model, ProcessRef};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use self::layout::{height, layout};
use super::names::{group_label, matches};
use super::stacks;
use crate::binding::{Action, BY, GROUP, Keys, MEASURE, bind};
use crate::filter::Filter;
use crate::input::Key;
use crate::jump::Effect;
use crate::screen::{About, Chip, Screen};
use crate::ui::Ui;

const GROUPS: [Group; 5] = [Group::None, Group::Command, Group::Container, Group::User, Group::Task];

static ABOUT: About = About {
    key: '3',
    title: "Flame",
    short_title: "Flame",
    filter: stacks::FILTER,
    keys: &[Keys {
        title: "Flame",
        bindings: &[
            bind(&[Key::Enter], Action::Open, "zoom", "zoom to the selected box"),
            bind(&[Key::Left], Action::Left, "", "the box to the left"),
            bind(&[Key::Right], Action::Right, "", "the box to the right"),
            MEASURE,
            BY,
            GROUP,
            bind(&[Key::Char('f')], Action::Fold, "native", "native (n:), kernel (k:): of libraries, none, or all"),
        ],
    }],
};

type PathStep = (Option<ProcessRef>, Option<FrameId>);

/// The line of the path above the graph, and the lines of the selected box's details below it.
const ABOVE: u16 = 1;
const BELOW: u16 = 2;

pub(crate) struct FlameScreen {
    tree: Tree,
    native: Native,
    /// Each computation renumbers the nodes, so the zoomed and the selected node are kept as paths, too.
    zoom_path: Vec<PathStep>,
    selected_path: Vec<PathStep>,
    zoom: NodeId,
    selected: NodeId,
    /// The first line in sight, below the zoomed node.
    top: usize,
    /// Lines below the zoomed node.
    height: usize,
    /// Whether each node matches the filter; empty without one.
    matching: Vec<bool>,
    matching_samples: u64,
}

impl Default for FlameScreen {
    fn default() -> Self {
        Self {
            tree: Tree { nodes: Vec::new() },
            native: Native::default(),
            zoom_path: Vec::new(),
            selected_path: Vec::new(),
            zoom: Tree::ROOT,
            selected: Tree::ROOT,
            top: 0,
            height: 0,
            matching: Vec::new(),
            matching_samples: 0,
        }
    }
}

impl FlameScreen {
    /// The total of samples with a match anywhere in their stack.
    fn sum_matching(&self) -> u64 {
        let mut samples: u64 = 0;
        let mut open = vec![self.zoom];
        while let Some(node) = open.pop() {
            if self.matching.get(node) == Some(&true) {
                samples = samples.saturating_add(self.tree.nodes[node].total);
            } else if let Some(node) = self.tree.nodes.get(node) {
                open.extend(&node.children);
            }
        }
        samples
    }

    /// The node at the end of `path`, or the last one on it that still exists.
    fn find(&self, path: &[PathStep]) -> NodeId {
        let mut at = Tree::ROOT;
        for step in path {
            let Some(node) = self.tree.nodes.get(at) else { break };
            let child = node.children.iter().find(|child| {
                let child = &self.tree.nodes[**child];
                (child.process, child.frame) == *step
            });
            match child {
                Some(child) => at = *child,
                None => break,
            }
        }
        at
    }

    fn path_to(&self, node: NodeId) -> Vec<PathStep> {
        if self.tree.nodes.is_empty() {
            return Vec::new();
        }
        let path = self.tree.path(node);
        path.iter().skip(1).map(|node| (self.tree.nodes[*node].process, self.tree.nodes[*node].frame)).collect()
    }

    fn select(&mut self, node: NodeId, body: Rect) {
        self.selected = node;
        self.selected_path = self.path_to(node);
        self.keep_in_sight(body);
    }

    fn depth_of_selected(&self) -> usize {
        if self.tree.nodes.is_empty() {
            return 0;
        }
        self.tree.path(self.selected).len().saturating_sub(self.tree.path(self.zoom).len())
    }

    fn keep_in_sight(&mut self, body: Rect) {
        let lines = graph_lines(body);
        let depth = self.depth_of_selected();
        let top = self.top.min((self.height + 1).saturating_sub(lines));
        self.top = top.max((depth + 1).saturating_sub(lines)).min(depth);
    }

    fn zoom_to(&mut self, node: NodeId, body: Rect) {
        self.zoom = node;
        self.zoom_path = self.path_to(node);
        self.top = 0;
        self.height = height(&self.tree, node);
        self.select(self.selected, body);
    }

    fn ascend(&mut self, body: Rect) {
        if let Some(parent) = self.tree.nodes[self.selected].parent.filter(|_| self.selected != self.zoom) {
            self.select(parent, body);
        }
    }

    /// Selects the box `lines` lines below, along the widest boxes.
    fn descend(&mut self, lines: usize, body: Rect) {
        let mut at = self.selected;
        let whole = u128::from(self.tree.nodes[self.zoom].total);
        for _ in 0..lines {
            // Children are sorted by size, and those narrower than a cell are invisible.
            let wide = |child: &&NodeId| u128::from(self.tree.nodes[**child].total) * u128::from(body.width) >= whole;
            match self.tree.nodes[at].children.first().filter(wide) {
                Some(child) => at = *child,
                None => break,
            }
        }
        self.select(at, body);
    }

    fn sideways(&mut self, by: isize, body: Rect) {
        let depth = self.depth_of_selected();
        let cells = layout(&self.tree, self.zoom, usize::from(body.width), depth + 1);
        let nodes: Vec<NodeId> = cells.iter().filter(|cell| cell.depth == depth).filter_map(|cell| cell.node).collect();
        if let Some(at) = nodes.iter().position(|node| *node == self.selected)
            && let Some(node) = at.checked_add_signed(by).and_then(|at| nodes.get(at))
        {
            self.select(*node, body);
        }
    }
}

impl Screen for FlameScreen {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn family(&self, ui: &Ui) -> Option<Family> {
        ui.look.weight.families().first().copied()
    }

    fn compute(&mut self, model: &Model, ui: &mut Ui) {
        let scope = ui.scope(model);
        self.tree = views::tree(model, &scope.selection, Look { native: self.native, ..scope.look });
        self.zoom = self.find(&self.zoom_path);
        self.selected = self.find(&self.selected_path);
        if !self.tree.path(self.selected).contains(&self.zoom) {
            self.selected = self.zoom;
        }
    }

    fn arrange(&mut self, model: &Model, ui: &Ui) {
        self.height = if self.tree.nodes.is_empty() { 0 } else { height(&self.tree, self.zoom) };
        self.matching.clear();
        self.matching_samples = 0;
        if let Some(filter) = ui.filter(stacks::FILTER) {
            self.matching =
                self.tree.nodes.iter().map(|node| node_matches(model, ui.look.group, node, filter)).collect();
            self.matching_samples = self.sum_matching();
        }
        self.keep_in_sight(ui.body());
    }

    fn act(&mut self, action: Action, model: &Model, ui: &Ui) -> Effect {
        let body = ui.body();
        if action == Action::Group {
            return stacks::next_group(ui.look, groups(model));
        }
        if let Some(look) = stacks::look_after(action, model, ui.look).filter(|_| action != Action::Fold) {
            return Effect::Look(look);
        }
        if self.tree.nodes.is_empty() && action != Action::Fold {
            return Effect::Nothing;
        }
        match action {
            Action::Fold => {
                self.native = self.native.next();
                return Effect::View;
            }
            Action::Open => {
                self.zoom_to(self.selected, body);
                return Effect::Rows;
            }
            Action::Up => self.ascend(body),
            Action::First => self.select(self.zoom, body),
            Action::Down => self.descend(1, body),
            Action::PageDown => self.descend(graph_lines(body).max(2) - 1, body),
            Action::Last => self.descend(usize::MAX, body),
            Action::PageUp => {
                for _ in 1..graph_lines(body).max(2) {
                    self.ascend(body);
                }
            }
            Action::Left => self.sideways(-1, body),
            Action::Right => self.sideways(1, body),
            _ => {}
        }
        Effect::Nothing
    }

    fn click(&mut self, part: isize, _column: u16, _model: &Model, ui: &Ui) -> bool {
        let node = part as NodeId;
        let was_selected = self.selected == node;
        if !was_selected {
            self.select(node, ui.body());
        }
        was_selected
    }

    fn hint(&self, action: Action, usual: &'static str, model: &Model, _ui: &Ui) -> &'static str {
        match action {
            Action::Fold => stacks::native(self.native.next()),
            _ => stacks::hint(action, usual, model),
        }
    }

    fn chips(&self, ui: &Ui) -> Vec<Chip> {
        let chips = stacks::chips(ui.look, stacks::native(self.native)).into_iter();
        chips.chain(stacks::group_chip(ui.look, &GROUPS)).collect()
    }

    fn is_empty(&self, _model: &Model, _ui: &Ui) -> bool {
        self.tree.nodes.first().is_none_or(|root| root.total == 0)
    }

    fn empty(&self, ui: &Ui) -> Option<(&'static str, &'static str)> {
        stacks::empty(ui.look.weight)
    }

    fn is_inside(&self) -> bool {
        self.zoom != Tree::ROOT
    }

    fn close(&mut self, ui: &Ui) -> bool {
        let is_zoomed = self.zoom != Tree::ROOT && self.tree.nodes.get(self.zoom).is_some_and(|it| it.parent.is_some());
        if is_zoomed {
            self.zoom_to(Tree::ROOT, ui.body());
        }
        is_zoomed
    }

    fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        self.draw_path(model, ui, area, buf);
        let lines = graph_lines(area);
        let graph = Rect { y: area.y + ABOVE, height: lines as u16, ..area };
        for cell in layout(&self.tree, self.zoom, usize::from(area.width), self.top + lines) {
            if let Some(y) = cell.depth.checked_sub(self.top) {
                self.draw_cell(model, ui, graph, y as u16, cell, buf);
            }
        }
        self.draw_details(model, ui, area, buf);
    }
}

fn node_matches(model: &Model, group: Group, node: &views::Node, filter: &Filter) -> bool {
    match (node.process, node.frame.and_then(|frame| model.frame(frame))) {
        (_, Some(frame)) => matches(frame, filter),
        (Some(process), None) => filter.matches(&group_label(model, group, process)),
        (None, None) => false,
    }
}

/// How stacks can be grouped within the graph, which has a box for each process: by task only if there are tasks.
fn groups(model: &Model) -> &'static [Group] {
    if model.tasks().is_empty() { &stacks::GROUPS } else { &GROUPS }
}

fn graph_lines(body: Rect) -> usize {
    usize::from(body.height.saturating_sub(ABOVE + BELOW))
}

//! The boxes of the flame graph, the path above them and the details below them.

use pyobs_model::views::{By, NodeId, Tree};
use pyobs_model::{FrameKind, Model};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::layout::FlameCell;
use super::{BELOW, FlameScreen, graph_lines};
use crate::hit_areas::Hit;
use crate::paint::{put, put_path};
use crate::screens::names::{self, group_label, place};
use crate::screens::stacks;
use crate::theme::{BoxKind, Emphasis};
use crate::ui::Ui;
use crate::{number, text};

impl FlameScreen {
    /// The path from the root to the selected box, including what the zoom hides.
    pub(super) fn draw_path(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        let names: Vec<String> =
            self.tree.path(self.selected).iter().map(|node| self.step_name(model, ui, *node)).collect();
        let more = (self.height + 1).saturating_sub(self.top + graph_lines(area));
        let below = if more > 0 { format!("↓ {more} deeper ") } else { String::new() };
        let right = text::width(&below, usize::from(area.width));
        let left = Rect { width: area.width.saturating_sub(right as u16 + 1), ..area };
        let path = names.join(" › ");
        put_path(buf, left, 1, 0, &path, ui.theme.dim());
        put(buf, area, area.width.saturating_sub(right as u16), 0, &below, ui.theme.warning());
    }

    pub(super) fn draw_cell(&self, model: &Model, ui: &Ui, graph: Rect, y: u16, cell: FlameCell, buf: &mut Buffer) {
        let node = cell.node.and_then(|id| self.tree.nodes.get(id));
        let box_kind = match node {
            None => BoxKind::Rest,
            Some(node) => match (node.process, node.frame.and_then(|frame| model.frame(frame))) {
                (_, Some(frame)) => BoxKind::Frame(frame.kind),
                (Some(_), None) => BoxKind::Process,
                (None, None) => BoxKind::Root,
            },
        };
        let emphasis = match cell.node {
            Some(id) if id == self.selected => Emphasis::Selected,
            Some(id) if self.matching.get(id) == Some(&false) => Emphasis::Faded,
            None if !self.matching.is_empty() => Emphasis::Faded,
            _ => Emphasis::Plain,
        };
        // By function, so that the shade does not depend on the line.
        let shade = node.and_then(|node| node.frame).map_or(0, |frame| model.function_of(frame).0);
        let style = ui.theme.flame(box_kind, emphasis, shade);
        let label = match cell.node {
            Some(id) => self.label(model, ui, id),
            None => "…".to_owned(),
        };
        let room = Rect { x: graph.x + cell.x as u16, y: graph.y + y, width: cell.width as u16, height: 1 };
        buf.set_style(room.intersection(buf.area), style);
        if let Some(node) = cell.node {
            ui.hit_areas.add(room, Hit::Part(node as isize));
        }
        let edge = if cell.node.is_none() && cell.width == 1 { "…" } else { "▏" };
        put(buf, room, 0, 0, edge, style);
        if cell.width >= 3 {
            put(buf, room, 1, 0, &label, style);
        }
    }

    pub(super) fn draw_details(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        let Some(node) = self.tree.nodes.get(self.selected) else { return };
        let area =
            Rect { y: area.bottom().saturating_sub(BELOW).max(area.y), height: BELOW, ..area }.intersection(area);
        let theme = ui.theme;
        let whole = self.tree.nodes[Tree::ROOT].total;
        let zoomed = self.tree.nodes[self.zoom].total;
        let name = self.name(model, ui, self.selected);
        let half = Rect { width: area.width * 6 / 10, ..area };
        let x = put(buf, half, 1, 0, &name, theme.strong());
        if let Some(frame) = node.frame.and_then(|frame| model.frame(frame)) {
            let kind = if frame.kind == FrameKind::Python { "" } else { "  native" };
            let kind = if frame.kind == FrameKind::Kernel { "  kernel" } else { kind };
            let x = put(buf, area, x, 0, kind, theme.dim());
            put_path(buf, area, x + 2, 0, &place(frame, ui.look.by), theme.dim());
        }
        let share = |samples, whole| number::percent(number::share(samples, whole));
        let mut sums = format!(
            "total {} % ({})   own {} % ({})",
            share(node.total, whole),
            number::amount(ui.look.weight, node.total),
            share(node.own, whole),
            number::amount(ui.look.weight, node.own),
        );
        if self.zoom != Tree::ROOT {
            sums = format!("{sums}   {} % of the zoomed box", share(node.total, zoomed));
        }
        let x = put(buf, area, 1, 1, &sums, theme.text());
        if let Some(filter) = ui.filter(stacks::FILTER) {
            let matching = share(self.matching_samples, zoomed);
            put(buf, area, x + 3, 1, &format!("/{}: {matching} %", filter.text()), theme.warning());
        }
    }

    fn step_name(&self, model: &Model, ui: &Ui, id: NodeId) -> String {
        if id == Tree::ROOT { "all".to_owned() } else { self.name(model, ui, id) }
    }

    /// The name, with the line if the graph keeps lines apart.
    fn label(&self, model: &Model, ui: &Ui, id: NodeId) -> String {
        let frame = self.tree.nodes.get(id).and_then(|node| node.frame).and_then(|frame| model.frame(frame));
        match frame.and_then(|frame| frame.line).filter(|_| ui.look.by == By::Line) {
            Some(line) => format!("{}:{line}", self.name(model, ui, id)),
            None => self.name(model, ui, id),
        }
    }

    fn name(&self, model: &Model, ui: &Ui, id: NodeId) -> String {
        let Some(node) = self.tree.nodes.get(id) else { return String::new() };
        match (node.process, node.frame.and_then(|frame| model.frame(frame))) {
            (_, Some(frame)) => names::name(frame),
            (Some(process), None) => group_label(model, ui.look.group, process),
            (None, None) => format!("all, {}", number::whole(ui.look.weight, node.total)),
        }
    }
}

//! One segment: its properties, its current and past holders, to whom it was passed, and where it was made.

use pyobs_model::families::shm::SegmentState;
use pyobs_model::{Model, Nanos, Pid, RegionId, SegmentId};

use super::life::life;
use crate::jump::Jump;
use crate::number;
use crate::paint::RowPainter;
use crate::screens::names::{process_label, process_of};
use crate::screens::page::{self, PageLine};
use crate::screens::region::segment_label;
use crate::screens::region::{list_stores, list_transfers};
use crate::ui::Ui;

/// The most entries per list. The others are counted.
const PARTS_MAX: usize = 100;
const BAR: usize = 24;

pub(super) struct HolderLine {
    fds: u32,
    mappings: u32,
    life: String,
    words: String,
}

pub(super) type SegmentDetail = page::PageDetail<SegmentId, HolderLine>;

impl SegmentDetail {
    pub(super) fn compute(&mut self, model: &Model) {
        self.page.clear();
        match model.shm().get(self.key) {
            Some(state) => self.fill(model, state),
            None => self.page.words("This segment is no longer kept: it ended too long ago.".to_owned(), None),
        }
    }

    fn fill(&mut self, model: &Model, state: &SegmentState) {
        let segment = &state.segment;
        let who = |pid: Pid| who(model, pid);
        let to = |pid: Pid| process_of(model, pid).map(Jump::process);
        let mut pair = |name, words| self.page.pair(name, words);
        pair("segment", format!("{}  {}  {}", segment_label(state), segment.kind.name(), state.id()));
        pair("size", number::size(segment.bytes));
        if let Some(allocated) = state.allocated {
            pair("in memory", format!("{}, each page counted once", number::size(allocated)));
        }
        pair("verdict", state.verdict().name().to_owned());
        match segment.creator {
            Some(pid) => self.page.link("made", format!("{} by {}", at(state.begun), who(pid)), to(pid)),
            None => pair("seen", format!("{}; its creation was not seen", at(state.begun))),
        }
        let mut pair = |name, words| self.page.pair(name, words);
        if let Some(unlink) = state.unlinked {
            let by = unlink.by.map(|pid| format!(" by {}", who(pid))).unwrap_or_default();
            pair("unlinked", format!("{}{by}", at(unlink.at)));
        }
        match (state.evicted, state.ended) {
            (Some(evicted), _) => pair("released", format!("{}, its memory given back", at(evicted))),
            (None, Some(ended)) => pair("released", at(ended)),
            _ => {}
        }
        if state.in_flight > 0 {
            pair("on its way", number::plural(state.in_flight.into(), "descriptor", "descriptors"));
        }
        let end = state.ended.unwrap_or_else(|| model.now());
        let bar = |from, to| life(from, Some(to), state.begun, end, BAR);
        let now = state.holders.iter().map(|(pid, holder)| {
            (
                *pid,
                HolderLine {
                    fds: holder.fds,
                    mappings: holder.mappings,
                    life: bar(holder.since, end),
                    words: match holder.shown {
                        Some(shown) => format!("{}  {} in memory", who(*pid), number::size(shown.resident)),
                        None => who(*pid),
                    },
                },
            )
        });
        self.page.list("HELD BY", now.map(|(pid, holder)| (PageLine::Custom(holder), to(pid))), PARTS_MAX);
        let past = state.past.iter().map(|past| {
            (
                past.pid,
                HolderLine {
                    fds: past.fds,
                    mappings: past.mappings,
                    life: bar(past.from, past.to),
                    words: who(past.pid),
                },
            )
        });
        let past = past.map(|(pid, holder)| (PageLine::Custom(holder), to(pid)));
        self.page.list("WAS HELD BY, WITH THE MOST AT A TIME", past, PARTS_MAX);
        let passed = state.passed.iter().map(|pass| {
            let from = pass.from.map_or_else(|| "an unknown process".to_owned(), who);
            (PageLine::Words(format!("{}  {from} → {}", at(pass.at), who(pass.to))), to(pass.to))
        });
        self.page.list("PASSED ON", passed, PARTS_MAX);
        list_transfers(&mut self.page, model, |_, region| region.id == RegionId::Segment(self.key));
        list_stores(&mut self.page, model, |id| id == RegionId::Segment(self.key));
        if let Some(stack) = state.stack {
            let process = segment.creator.and_then(|pid| process_of(model, pid));
            self.page.stack("MADE IN, INNERMOST FRAME FIRST", model, process, stack);
        }
    }
}

impl page::CustomLine for HolderLine {
    fn draw(&self, row: &mut RowPainter<'_>, width: u16, _model: &Model, ui: &Ui) {
        let theme = ui.theme;
        row.right(8, &format!("{} fds", self.fds), theme.text());
        row.right(8, &format!("{} maps", self.mappings), theme.text());
        row.left(if width < 76 { 0 } else { BAR }, &self.life, theme.total());
        row.rest(&self.words, theme.text());
    }
}

fn at(at: Nanos) -> String {
    format!("at {:.3} s", at.as_secs_f64())
}

fn who(model: &Model, pid: Pid) -> String {
    process_of(model, pid).map_or_else(|| pid.to_string(), |id| process_label(model, Some(id)))
}

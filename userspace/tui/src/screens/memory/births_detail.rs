//! The arenas or MemInfos that were born at one line. Shows how full each arena is and when it lived, and the birth stack.

use std::collections::HashSet;

use pyobs_model::families::arena::ArenaState;
use pyobs_model::views::{BirthRow, birthplace, region_birth};
use pyobs_model::{Model, Nanos, RegionId};

use super::births::{BirthSite, born_at, share};
use super::life::life;
use crate::jump::Jump;
use crate::number;
use crate::paint::RowPainter;
use crate::screens::names::process_label;
use crate::screens::page::{self, PageLine};
use crate::screens::region::{list_stores, list_transfers};
use crate::ui::Ui;

/// The most arenas that are listed. The others are counted.
const ARENAS_MAX: usize = 200;
const BAR: usize = 24;

pub(super) struct ArenaLine {
    address: String,
    used: Option<f64>,
    life: String,
    words: String,
}

pub(super) type BirthDetail = page::PageDetail<BirthSite, ArenaLine>;

impl BirthDetail {
    pub(super) fn compute(&mut self, model: &Model, rows: &[BirthRow], now: Nanos) {
        self.page.clear();
        match rows.iter().find(|row| BirthSite::of(row) == self.key) {
            Some(row) => self.fill(model, row, now),
            None => self.page.words("These are no longer kept.".to_owned(), None),
        }
    }

    fn fill(&mut self, model: &Model, row: &BirthRow, now: Nanos) {
        let process = Some(row.process);
        self.page.link("process", process_label(model, process), Some(Jump::process(row.process)));
        self.page.pair("kind", row.kind.to_string());
        self.page.link("born at", born_at(model, row), row.frame.map(|frame| Jump::frame(process, frame)));
        let mut pair = |name, words| self.page.pair(name, words);
        let (live, born) = (number::grouped(row.live), number::grouped(row.born));
        pair("live", format!("{live}, {}; {born} born", number::size(row.bytes)));
        if let Some(used) = row.fullness() {
            let (used, bytes) = (share(used), number::size(row.used_bytes));
            pair("used", format!("{used} % of the pools ({} of {}), {bytes} in them", row.used, row.slabs));
        }
        let mut states: Vec<&ArenaState> = row.ids.iter().filter_map(|id| model.arenas().get(*id)).collect();
        states.sort_by_key(|state| (!state.is_kept(), state.begun));
        let first = states.iter().map(|state| state.begun).min().unwrap_or_default();
        let arenas = states.iter().map(|state| (PageLine::Custom(arena(state, first, now)), None));
        self.page.list("ARENAS, THOSE THAT LIVE FIRST", arenas, ARENAS_MAX);
        let ids: HashSet<RegionId> = row.ids.iter().copied().map(RegionId::Arena).collect();
        list_transfers(&mut self.page, model, |transfer, region| match region.id {
            RegionId::MemInfo(_) if row.ids.is_empty() => {
                let birth = birthplace(model, region_birth(model, region));
                transfer.process == row.process && birth == row.frame
            }
            id => ids.contains(&id),
        });
        list_stores(&mut self.page, model, |id| ids.contains(&id));
        let escape = states.iter().find_map(|state| state.closed?.stack);
        if let Some(stack) = escape {
            self.page.stack("OBJECTS ESCAPED IN, INNERMOST FRAME FIRST", model, process, stack);
        }
        if let Some(stack) = row.stack {
            self.page.stack("ONE OF THEM WAS BORN IN, INNERMOST FRAME FIRST", model, process, stack);
        }
    }
}

impl page::CustomLine for ArenaLine {
    fn draw(&self, row: &mut RowPainter<'_>, width: u16, _model: &Model, ui: &Ui) {
        let theme = ui.theme;
        row.right(16, &self.address, theme.text());
        row.right(6, &self.used.map_or_else(|| "–".to_owned(), share), theme.text());
        row.bar(if width < 76 { 0 } else { 10 }, self.used.unwrap_or(0.0), theme.total());
        row.left(if width < 76 { 0 } else { BAR }, &self.life, theme.total());
        row.rest(&self.words, theme.dim());
    }
}

fn arena(state: &ArenaState, first: Nanos, now: Nanos) -> ArenaLine {
    let filled = state.filled.map(|(_, filled)| filled);
    let used = filled.filter(|it| it.slabs > 0).map(|it| f64::from(it.used) / f64::from(it.slabs));
    let size = number::size(state.arena.bytes);
    let begun = state.begun.as_secs_f64();
    let verb = if state.arena.born { "born" } else { "seen" };
    let objects = match state.objects {
        it if it.born == 0 => String::new(),
        it => format!(", {} of {} objects left", number::grouped(it.born - it.dead), number::grouped(it.born)),
    };
    let closed = match state.closed {
        Some(closed) if closed.popped => format!(", {} escaped", number::grouped(closed.escaped)),
        Some(closed) => format!(", {} escaped, never given back", number::grouped(closed.escaped)),
        None => String::new(),
    };
    let end = state.died.map(|(died, _)| format!(", ended at {:.3} s", died.as_secs_f64())).unwrap_or_default();
    ArenaLine {
        address: format!("{:#x}", state.arena.address),
        used,
        life: life(state.begun, state.died.map(|(died, _)| died), first, now, BAR),
        words: format!("{size}, {verb} at {begun:.3} s{end}{objects}{closed}"),
    }
}

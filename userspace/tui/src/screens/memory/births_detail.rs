//! The arenas or MemInfos that one line gave birth to: each arena with how full it is and when it lived, and where they were born.

use pyobs_model::families::arena::State;
use pyobs_model::views::{BirthRow, By};
use pyobs_model::{FrameId, Model, Nanos};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::births::{Site, born_at, share};
use super::segments::life;
use crate::binding::Action;
use crate::draw::{Row, put_more};
use crate::list::scroll;
use crate::number;
use crate::screens::frames::{draw_frame, process_label};
use crate::ui::Ui;

/// The others are only counted.
const ARENAS_MAX: usize = 200;
const BAR: usize = 24;

enum Entry {
    Blank,
    Heading(&'static str),
    Pair(&'static str, String),
    Arena { address: String, used: Option<f64>, life: String, words: String },
    Words(String),
    Frame(FrameId),
    More(usize),
}

pub(super) struct Detail {
    site: Site,
    entries: Vec<Entry>,
    top: usize,
}

impl Detail {
    pub(super) fn new(site: Site) -> Self {
        Self { site, entries: Vec::new(), top: 0 }
    }

    pub(super) fn compute(&mut self, model: &Model, rows: &[BirthRow], now: Nanos) {
        self.entries.clear();
        match rows.iter().find(|row| Site::of(row) == self.site) {
            Some(row) => self.fill(model, row, now),
            None => self.entries.push(Entry::Words("None of these is left.".to_owned())),
        }
    }

    fn fill(&mut self, model: &Model, row: &BirthRow, now: Nanos) {
        let mut pair = |name, words| self.entries.push(Entry::Pair(name, words));
        pair("process", process_label(model, Some(row.process)));
        pair("kind", row.kind.to_string());
        pair("born at", born_at(model, row));
        let (live, born) = (number::count(row.live), number::count(row.born));
        pair("live", format!("{live}, {}; {born} born", number::bytes(row.bytes)));
        if let Some(used) = row.fullness() {
            let (used, bytes) = (share(used), number::bytes(row.used_bytes));
            pair("used", format!("{used} % of the pools ({} of {}), {bytes} in them", row.used, row.slabs));
        }
        let mut states: Vec<&State> = row.ids.iter().filter_map(|id| model.arenas().get(*id)).collect();
        states.sort_by_key(|state| (!state.is_kept(), state.begun));
        let first = states.iter().map(|state| state.begun).min().unwrap_or_default();
        let arenas: Vec<Entry> = states.iter().map(|state| arena(state, first, now)).collect();
        let more = arenas.len().saturating_sub(ARENAS_MAX);
        if !arenas.is_empty() {
            self.entries.extend([Entry::Blank, Entry::Heading("ARENAS, THOSE THAT LIVE FIRST")]);
        }
        self.entries.extend(arenas.into_iter().take(ARENAS_MAX));
        self.entries.extend((more > 0).then_some(Entry::More(more)));
        let escape = states.iter().find_map(|state| state.closed?.stack);
        if let Some(stack) = escape {
            self.entries.extend([Entry::Blank, Entry::Heading("OBJECTS ESCAPED IN, INNERMOST FRAME FIRST")]);
            self.entries.extend(model.stack(stack).iter().rev().map(|frame| Entry::Frame(*frame)));
        }
        if let Some(stack) = row.stack {
            self.entries.extend([Entry::Blank, Entry::Heading("ONE OF THEM WAS BORN IN, INNERMOST FRAME FIRST")]);
            self.entries.extend(model.stack(stack).iter().rev().map(|frame| Entry::Frame(*frame)));
        }
    }

    pub(super) fn arrange(&mut self, height: usize) {
        self.top = self.top.min(self.entries.len().saturating_sub(height));
    }

    pub(super) fn act(&mut self, action: Action, height: usize) {
        self.top = scroll(self.top, action, self.entries.len(), height);
    }

    pub(super) fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        let theme = ui.theme;
        let height = usize::from(area.height);
        for (entry, y) in self.entries.iter().skip(self.top).take(height).zip(area.y..) {
            let mut row = Row::new(buf, Rect { y, height: 1, ..area });
            match entry {
                Entry::Blank => {}
                Entry::Heading(heading) => row.rest(&format!(" {heading}"), theme.heading()),
                Entry::Pair(name, words) => {
                    row.left(11, &format!(" {name}"), theme.dim());
                    row.rest(words, theme.text());
                }
                Entry::Arena { address, used, life, words } => {
                    row.right(16, address, theme.text());
                    row.right(6, &used.map_or_else(|| "–".to_owned(), share), theme.text());
                    row.bar(if area.width < 76 { 0 } else { 10 }, used.unwrap_or(0.0), theme.total());
                    row.left(if area.width < 76 { 0 } else { BAR }, life, theme.total());
                    row.rest(words, theme.dim());
                }
                Entry::Words(words) => row.rest(&format!(" {words}"), theme.text()),
                Entry::Frame(id) => {
                    if let Some(frame) = model.frame(*id) {
                        row.skip(1);
                        draw_frame(&mut row, usize::from(area.width) * 45 / 100, frame, By::Line, theme);
                    }
                }
                Entry::More(count) => {
                    let others = number::plural(*count as u64, "other", "others");
                    row.rest(&format!("   and {others}"), theme.dim());
                }
            }
        }
        put_more(buf, area, self.entries.len().saturating_sub(self.top + height), theme);
    }
}

fn arena(state: &State, first: Nanos, now: Nanos) -> Entry {
    let filled = state.filled.map(|(_, filled)| filled);
    let used = filled.filter(|it| it.slabs > 0).map(|it| f64::from(it.used) / f64::from(it.slabs));
    let size = number::bytes(state.arena.bytes);
    let begun = state.begun.as_secs_f64();
    let verb = if state.arena.born { "born" } else { "seen" };
    let objects = match state.objects {
        it if it.born == 0 => String::new(),
        it => format!(", {} of {} objects left", number::count(it.born - it.dead), number::count(it.born)),
    };
    let closed = match state.closed {
        Some(closed) if closed.popped => format!(", {} escaped", number::count(closed.escaped)),
        Some(closed) => format!(", {} escaped, never given back", number::count(closed.escaped)),
        None => String::new(),
    };
    let end = state.died.map(|(died, _)| format!(", ended at {:.3} s", died.as_secs_f64())).unwrap_or_default();
    Entry::Arena {
        address: format!("{:#x}", state.arena.address),
        used,
        life: life(state.begun, state.died.map(|(died, _)| died), first, now, BAR),
        words: format!("{size}, {verb} at {begun:.3} s{end}{objects}{closed}"),
    }
}

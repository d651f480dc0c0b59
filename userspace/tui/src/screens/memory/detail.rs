//! One segment: what it is, who holds and held it, whom it was passed to, where it was made.

use pyobs_model::families::shm::State;
use pyobs_model::views::By;
use pyobs_model::{FrameId, Model, Nanos, Pid, SegmentId};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::segments::{label, life};
use crate::binding::Action;
use crate::draw::{Row, put_more};
use crate::list::scroll;
use crate::number;
use crate::screens::frames::{draw_frame, process_label};
use crate::ui::Ui;

/// Of each kind; the others are only counted.
const PARTS_MAX: usize = 100;
const BAR: usize = 24;

enum Entry {
    Blank,
    Heading(&'static str),
    Pair(&'static str, String),
    Holder { fds: u32, mappings: u32, life: String, words: String },
    Words(String),
    Frame(FrameId),
    More(usize),
}

pub(super) struct Detail {
    id: SegmentId,
    entries: Vec<Entry>,
    top: usize,
}

impl Detail {
    pub(super) fn new(id: SegmentId) -> Self {
        Self { id, entries: Vec::new(), top: 0 }
    }

    pub(super) fn compute(&mut self, model: &Model) {
        self.entries.clear();
        match model.shm().get(self.id) {
            Some(state) => self.fill(model, state),
            None => self.entries.push(Entry::Words("This segment ended too long ago.".to_owned())),
        }
    }

    fn fill(&mut self, model: &Model, state: &State) {
        let segment = &state.segment;
        let who = |pid: Pid| who(model, pid);
        let mut pair = |name, words| self.entries.push(Entry::Pair(name, words));
        pair("segment", format!("{}  {}  {}", label(state), segment.kind.name(), state.id()));
        pair("size", number::bytes(segment.bytes));
        if let Some(allocated) = state.allocated {
            pair("in memory", format!("{}, each page counted once", number::bytes(allocated)));
        }
        pair("verdict", state.verdict().name().to_owned());
        match segment.creator {
            Some(pid) => pair("made", format!("{} by {}", at(state.begun), who(pid))),
            None => pair("seen", format!("{}; it was not seen to be made", at(state.begun))),
        }
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
        let now = state.holders.iter().map(|(pid, holder)| Entry::Holder {
            fds: holder.fds,
            mappings: holder.mappings,
            life: bar(holder.since, end),
            words: match holder.shown {
                Some(shown) => format!("{}  {} in memory", who(*pid), number::bytes(shown.resident)),
                None => who(*pid),
            },
        });
        self.list("HELD BY", now.collect());
        let past = state.past.iter().map(|past| Entry::Holder {
            fds: past.fds,
            mappings: past.mappings,
            life: bar(past.from, past.to),
            words: who(past.pid),
        });
        self.list("WAS HELD BY, WITH THE MOST AT A TIME", past.collect());
        let passed = state.passed.iter().map(|pass| {
            let from = pass.from.map_or_else(|| "an unknown process".to_owned(), who);
            Entry::Words(format!("{}  {from} → {}", at(pass.at), who(pass.to)))
        });
        self.list("PASSED ON", passed.collect());
        let frames = state.stack.map_or(&[][..], |stack| model.stack(stack));
        self.list("MADE IN, INNERMOST FRAME FIRST", frames.iter().rev().map(|frame| Entry::Frame(*frame)).collect());
    }

    fn list(&mut self, heading: &'static str, parts: Vec<Entry>) {
        if parts.is_empty() {
            return;
        }
        let more = parts.len().saturating_sub(PARTS_MAX);
        self.entries.extend([Entry::Blank, Entry::Heading(heading)]);
        self.entries.extend(parts.into_iter().take(PARTS_MAX));
        self.entries.extend((more > 0).then_some(Entry::More(more)));
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
                Entry::Holder { fds, mappings, life, words } => {
                    row.right(8, &format!("{fds} fds"), theme.text());
                    row.right(8, &format!("{mappings} maps"), theme.text());
                    row.left(if area.width < 76 { 0 } else { BAR }, life, theme.total());
                    row.rest(words, theme.text());
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

fn at(at: Nanos) -> String {
    format!("at {:.3} s", at.as_secs_f64())
}

fn who(model: &Model, pid: Pid) -> String {
    let process = model.processes().filter(|(_, state)| state.process.pid == pid).last();
    process.map_or_else(|| pid.to_string(), |(id, _)| process_label(model, Some(id)))
}

//! One transfer: its stages as a bar, what it was, who had to do with it, where it was asked for.

use pyobs_model::families::ucx::State;
use pyobs_model::views::{By, Regions, Stage, birthplace};
use pyobs_model::{FrameId, Model, Nanos, TransferId};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::binding::Action;
use crate::draw::{Row, put_more};
use crate::list::scroll;
use crate::number;
use crate::screens::frames::{draw_frame, place, process_label};
use crate::ui::Ui;

/// Parts of a transfer of several buffers; the others are only counted.
const PARTS_MAX: usize = 100;

enum Entry {
    Blank,
    Heading(&'static str),
    Pair(&'static str, String),
    /// A stage: how long it took, and of the whole where it begins and how long it is.
    Stage(Stage, Nanos, f64, f64),
    Frame(FrameId),
    More(usize),
}

pub(super) struct Detail {
    id: TransferId,
    entries: Vec<Entry>,
    top: usize,
}

impl Detail {
    pub(super) fn new(id: TransferId) -> Self {
        Self { id, entries: Vec::new(), top: 0 }
    }

    pub(super) fn compute(&mut self, model: &Model) {
        self.entries.clear();
        match model.ucx().get(self.id) {
            Some(state) => self.fill(model, state),
            None => self.entries.push(Entry::Pair("transfer", "it ended too long ago".to_owned())),
        }
    }

    fn fill(&mut self, model: &Model, state: &State) {
        let transfer = &state.transfer;
        let mut pair = |name, words: String| self.entries.push(Entry::Pair(name, words));
        pair("transfer", format!("{} {}  {:#x}", transfer.library.name(), transfer.operation.name(), self.id.0));
        pair("process", process_label(model, Some(transfer.process)));
        pair("size", number::bytes(transfer.bytes));
        pair("buffer", format!("{:#x}", transfer.buffer));
        if let Some(arena) = Regions::of(model).arena_of(transfer) {
            pair("lies in", format!("an arena of {} at {:#x}", arena.arena.kind, arena.arena.address));
            if let Some(frame) = birthplace(model, arena.stack).and_then(|frame| model.frame(frame)) {
                pair("born at", place(frame, By::Line));
            }
        }
        if let Some(tag) = transfer.tag {
            pair("tag", format!("{tag:#x}"));
        }
        if let Some(protocol) = transfer.protocol {
            pair("protocol", protocol.name().to_owned());
        }
        pair("through", format!("{:#x}", transfer.through));
        let ends = match (transfer.completed, transfer.status) {
            (None, _) => "pending".to_owned(),
            (Some(_), None) => "over; its status was not seen".to_owned(),
            (Some(_), Some(0)) => "success".to_owned(),
            (Some(_), Some(status)) => format!("error {status}"),
        };
        let at_once = if transfer.immediate { ", at once" } else { "" };
        pair("status", format!("{ends}{at_once}"));
        let by = |tid: Option<pyobs_model::Tid>| tid.map_or_else(String::new, |tid| format!(" by thread {tid}"));
        let mut moment = |name, at: Option<Nanos>, tid| {
            if let Some(at) = at {
                pair(name, format!("at {:.6} s{}", at.as_secs_f64(), by(tid)));
            }
        };
        moment("registered", transfer.registered, Some(transfer.tid));
        moment("submitted", transfer.submitted, transfer.submitter);
        moment("completed", transfer.completed, transfer.completer);
        moment("notified", state.woken.map(|woken| woken.notified), transfer.completer);
        moment("woken", state.woken.map(|woken| woken.woken), state.woken.map(|woken| woken.tid));
        self.stages(state);
        self.parts(model);
        let frames = model.ucx().stack(state).map_or(&[][..], |stack| model.stack(stack));
        if !frames.is_empty() {
            self.entries.extend([Entry::Blank, Entry::Heading("ASKED FOR IN, INNERMOST FRAME FIRST")]);
            self.entries.extend(frames.iter().rev().map(|frame| Entry::Frame(*frame)));
        }
    }

    fn stages(&mut self, state: &State) {
        let (Some(begun), Some(ended)) = (state.transfer.begun(), state.ended()) else { return };
        let whole = ended.saturating_sub(begun).as_secs_f64().max(1e-9);
        let stages = Stage::ALL.into_iter().filter_map(|stage| Some((stage, stage.of(state)?)));
        self.entries.extend([Entry::Blank, Entry::Heading("STAGES")]);
        self.entries.extend(stages.map(|(stage, (from, to))| {
            let length = to.saturating_sub(from);
            let skip = from.saturating_sub(begun).as_secs_f64() / whole;
            Entry::Stage(stage, length, skip.min(1.0), (length.as_secs_f64() / whole).min(1.0))
        }));
    }

    fn parts(&mut self, model: &Model) {
        let parts = model.ucx().transfers().filter(|(_, state)| state.transfer.parent == Some(self.id));
        let parts: Vec<Entry> = parts
            .map(|(_, state)| {
                let transfer = &state.transfer;
                let took = Stage::Pending.of(state).map_or_else(String::new, |(from, to)| {
                    format!("  pending for {}", number::time(to.saturating_sub(from)))
                });
                Entry::Pair(transfer.operation.name(), format!("{}{took}", number::bytes(transfer.bytes)))
            })
            .collect();
        if parts.is_empty() {
            return;
        }
        let more = parts.len().saturating_sub(PARTS_MAX);
        self.entries.extend([Entry::Blank, Entry::Heading("PARTS")]);
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
                    row.left(13, &format!(" {name}"), theme.dim());
                    row.rest(words, theme.text());
                }
                Entry::Stage(stage, length, skip, share) => {
                    row.left(13, &format!(" {}", stage.name()), theme.dim());
                    row.right(10, &number::time(*length), theme.text());
                    let width = usize::from(area.width).saturating_sub(30).min(60);
                    let (before, own) = (skip * width as f64, (share * width as f64).max(1.0));
                    let bar = " ".repeat((before as usize).min(width)) + &"█".repeat((own as usize).min(width));
                    row.rest(&bar.chars().take(width).collect::<String>(), theme.total());
                }
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

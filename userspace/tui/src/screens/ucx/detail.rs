//! One transfer: its properties, the threads that handled it, its stages as bars, and the stack that asked for it.

use pyobs_model::families::ucx::TransferState;
use pyobs_model::findings::Target;
use pyobs_model::views::{By, Stage, birthplace, buffer_region, region_birth};
use pyobs_model::{Model, Nanos, Region, RegionId, TransferId};

use crate::jump::Jump;
use crate::number;
use crate::paint::RowPainter;
use crate::screens::names::{place, process_label};
use crate::screens::page::{self, PageLine};
use crate::screens::region::{list_stores, region_name, region_target};
use crate::ui::Ui;

/// The most parts that are listed of a transfer of several buffers. The others are counted.
const PARTS_MAX: usize = 100;

/// A stage, its duration, and its start and length as shares of the whole transfer.
pub(super) struct StageLine(Stage, Nanos, f64, f64);

pub(super) type TransferDetail = page::PageDetail<TransferId, StageLine>;

impl TransferDetail {
    pub(super) fn compute(&mut self, model: &Model) {
        self.page.clear();
        match model.ucx().get(self.key) {
            Some(state) => self.fill(model, state),
            None => self.page.pair("transfer", "no longer kept: it ended too long ago".to_owned()),
        }
    }

    fn fill(&mut self, model: &Model, state: &TransferState) {
        let transfer = &state.transfer;
        let mut pair = |name, words: String| self.page.pair(name, words);
        pair("transfer", format!("{} {}  {:#x}", transfer.library.name(), transfer.operation.name(), self.key.0));
        let process = Some(transfer.process);
        self.page.link("process", process_label(model, process), Some(Jump::process(transfer.process)));
        if let Some(parent) = transfer.parent {
            let jump = Jump::detail(process, Target::Transfers(Some(parent)), "transfer");
            self.page.link("part of", format!("transfer {:#x}", parent.0), Some(jump));
        }
        let mut pair = |name, words: String| self.page.pair(name, words);
        pair("size", number::size(transfer.bytes));
        pair("buffer", format!("{:#x}", transfer.buffer));
        let region = buffer_region(model, transfer);
        let birth = region.and_then(|region| birthplace(model, region_birth(model, region)));
        let owner = region.map(|region| Jump::detail(process, region_target(model, region), "buffer"));
        self.page.link("lies in", region_words(model, region), owner);
        if let Some((id, frame)) = birth.and_then(|id| Some((id, model.frame(id)?))) {
            self.page.link("born at", place(frame, By::Line), Some(Jump::frame(process, id)));
        }
        let mut pair = |name, words: String| self.page.pair(name, words);
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
        let mut moment = |name, at: Option<Nanos>, tid: Option<pyobs_model::Tid>| {
            if let Some(at) = at {
                let jump = tid.map(|tid| Jump::thread(transfer.process, tid));
                self.page.link(name, format!("at {:.6} s{}", at.as_secs_f64(), by(tid)), jump);
            }
        };
        moment("registered", transfer.registered, Some(transfer.tid));
        moment("submitted", transfer.submitted, transfer.submitter);
        moment("completed", transfer.completed, transfer.completer);
        moment("notified", state.woken.map(|woken| woken.notified), transfer.completer);
        moment("woken", state.woken.map(|woken| woken.woken), state.woken.map(|woken| woken.tid));
        self.stages(state);
        self.parts(model);
        let begun = transfer.begun().unwrap_or_default();
        let around = model.regions_at_time(transfer.process, transfer.buffer, begun).map(|region| region.id);
        let around: Vec<RegionId> = around.collect();
        list_stores(&mut self.page, model, |id| around.contains(&id));
        if let Some(stack) = model.ucx().stack(state) {
            self.page.stack("ASKED FOR IN, INNERMOST FRAME FIRST", model, process, stack);
        }
    }

    fn stages(&mut self, state: &TransferState) {
        let (Some(begun), Some(ended)) = (state.transfer.begun(), state.ended()) else { return };
        let whole = ended.saturating_sub(begun).as_secs_f64().max(1e-9);
        self.page.heading("STAGES");
        for stage in Stage::ALL {
            let Some((from, to)) = stage.of(state) else { continue };
            let length = to.saturating_sub(from);
            let skip = from.saturating_sub(begun).as_secs_f64() / whole;
            self.page.custom(StageLine(stage, length, skip.min(1.0), (length.as_secs_f64() / whole).min(1.0)), None);
        }
    }

    fn parts(&mut self, model: &Model) {
        let parts = model.ucx().transfers().filter(|(_, state)| state.transfer.parent == Some(self.key));
        let parts: Vec<(PageLine<StageLine>, Option<Jump>)> = parts
            .map(|(id, state)| {
                let transfer = &state.transfer;
                let took = Stage::Pending.of(state).map_or_else(String::new, |(from, to)| {
                    format!("  pending for {}", number::time(to.saturating_sub(from)))
                });
                let jump = Jump::detail(Some(transfer.process), Target::Transfers(Some(id)), "transfer");
                (
                    PageLine::Pair(transfer.operation.name(), format!("{}{took}", number::size(transfer.bytes))),
                    Some(jump),
                )
            })
            .collect();
        self.page.list("PARTS", parts.into_iter(), PARTS_MAX);
    }
}

impl page::CustomLine for StageLine {
    fn draw(&self, row: &mut RowPainter<'_>, width: u16, _model: &Model, ui: &Ui) {
        let theme = ui.theme;
        let StageLine(stage, length, skip, share) = self;
        row.left(11, &format!(" {}", stage.name()), theme.dim());
        row.right(10, &number::time(*length), theme.text());
        let width = usize::from(width).saturating_sub(30).min(60);
        let (before, own) = (skip * width as f64, (share * width as f64).max(1.0));
        let bar = " ".repeat((before as usize).min(width)) + &"█".repeat((own as usize).min(width));
        row.rest(&bar.chars().take(width).collect::<String>(), theme.total());
    }
}

fn region_words(model: &Model, region: Option<&Region>) -> String {
    let Some(region) = region else { return "plain memory".to_owned() };
    format!("{} at {:#x}, {}", region_name(model, region.id), region.address, number::size(region.bytes))
}

//! What one line uses: how much, since when, in which blocks, and the stacks that lead to it.

use pyobs_model::views::HeapLine;
use pyobs_model::{Model, Nanos};

use super::heap::{HeapSite, used_at};
use crate::jump::Jump;
use crate::number;
use crate::paint::RowPainter;
use crate::screens::names::process_label;
use crate::screens::page::{self, PageLine};
use crate::ui::Ui;

/// The most blocks and stacks that are listed.
const BLOCKS_MAX: usize = 200;
const STACKS_MAX: usize = 3;

pub(super) struct BlockLine {
    address: String,
    words: String,
}

pub(super) type HeapDetail = page::PageDetail<HeapSite, BlockLine>;

impl HeapDetail {
    pub(super) fn compute(&mut self, model: &Model, rows: &[HeapLine], now: Nanos) {
        self.page.clear();
        match rows.iter().find(|row| HeapSite::of(row) == self.key) {
            Some(row) => self.fill(model, row, now),
            None => self.page.words("This line holds nothing any more.".to_owned(), None),
        }
    }

    fn fill(&mut self, model: &Model, row: &HeapLine, now: Nanos) {
        let process = Some(row.process);
        self.page.link("process", process_label(model, process), Some(Jump::process(row.process)));
        self.page.pair("kind", format!("{}: {}", row.used_for.name(), row.used_for.about()));
        if !row.is_sampled() {
            return self.page.pair("size", number::size(row.bytes));
        }
        self.page.link("line", used_at(model, row), row.frame.map(|frame| Jump::frame(process, frame)));
        let (size, touched) = (number::size(row.bytes), number::size(row.touched));
        self.page.pair("size", format!("{size}; {touched} touched in all"));
        let age = number::time(now.saturating_sub(row.since));
        self.page.pair("since", format!("{:.3} s, {age} ago", row.since.as_secs_f64()));
        let heap = model.heap().get(row.process);
        let blocks = row.stacks.iter().flat_map(|(stack, _)| heap.into_iter().flat_map(|heap| heap.blocks_of(*stack)));
        let mut blocks: Vec<_> = blocks.collect();
        blocks.sort_by_key(|(_, _, touched)| std::cmp::Reverse(*touched));
        if !blocks.is_empty() {
            let blocks = blocks.into_iter().map(|(range, at, touched)| {
                let (size, touched) = (number::size(range.end - range.start), number::size(touched));
                let age = number::time(now.saturating_sub(at));
                let words = format!("{size}, {touched} touched, mapped {age} ago");
                (PageLine::Custom(BlockLine { address: format!("{:#x}", range.start), words }), None)
            });
            self.page.list("BLOCKS, LARGEST FIRST", blocks, BLOCKS_MAX);
        }
        for (stack, bytes) in row.stacks.iter().take(STACKS_MAX) {
            self.page.heading(format!("{}, INNERMOST FRAME FIRST", number::size(*bytes)));
            self.page.frames(model, process, *stack);
        }
        self.page.more(row.stacks.len().saturating_sub(STACKS_MAX));
    }
}

impl page::CustomLine for BlockLine {
    fn draw(&self, row: &mut RowPainter<'_>, _width: u16, _model: &Model, ui: &Ui) {
        row.right(16, &self.address, ui.theme.text());
        row.rest(&self.words, ui.theme.dim());
    }
}

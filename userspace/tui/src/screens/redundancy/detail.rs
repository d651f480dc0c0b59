//! One line: its findings, what it accesses, its calls, and pairs of accesses with both stacks side by side.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use pyobs_model::families::redundancy::{Accesses, CallSum, DISPATCH, Line, PairOf, PairSum, Verdict, least_trials};
use pyobs_model::findings::{self, Evidence, Finding};
use pyobs_model::views::{By, RedundancyView};
use pyobs_model::{FrameId, Model, RegionId, Tid};

use crate::jump::Jump;
use crate::number;
use crate::paint::RowPainter;
use crate::screens::finding::advice;
use crate::screens::names::{name, place, process_label};
use crate::screens::page;
use crate::screens::region::{owner_target, region_name};
use crate::text;
use crate::ui::Ui;

/// The most pairs and calls that are listed.
const PAIRS_MAX: usize = 20;
const CALLS_MAX: usize = 20;
/// The most regions that are listed per pair.
const REGIONS_MAX: usize = 3;
/// The greatest width of a wrapped sentence, and the width of the label before it.
const WRAPPED: usize = 76;
const LABEL: usize = 10;

/// The most bytes of a line's source.
const SOURCE_MAX: usize = 4096;

/// A frame of each of two stacks, side by side.
pub(super) struct FramePairLine(Option<FrameId>, Option<FrameId>);

pub(super) type RedundancyDetail = page::PageDetail<Line, FramePairLine>;

impl RedundancyDetail {
    pub(super) fn compute(
        &mut self,
        model: &Model,
        view: &RedundancyView,
        source: Option<&str>,
        known: &[Finding],
        width: usize,
    ) {
        let line = self.key;
        let detail = self;
        detail.page.clear();
        let process = Some(line.process);
        let frame = |label: &str, id| {
            let place = model.frame(id).map_or_else(|| "–".to_owned(), |frame| place(frame, By::Line));
            (format!("{label:<LABEL$}{place}"), Some(Jump::frame(process, id)))
        };
        let (words, jump) = frame("line", line.frame);
        detail.page.words(words, jump);
        let (caller, share) = view.caller(line);
        if caller != line.frame {
            let (words, jump) = frame("from", caller);
            detail.page.words(format!("{words}, {} % of it", number::percent(100.0 * share)), jump);
        }
        if let Some(source) = source {
            detail.words(format!("source    {}", text::head(source, SOURCE_MAX)));
        }
        let process_words = format!("process   {}", process_label(model, process));
        detail.page.words(process_words, Some(Jump::process(line.process)));
        if let Some(sum) = view.lines.get(&line) {
            detail.accesses(&sum.accesses);
        }
        match view.verdicts(model).get(&line) {
            Some(Verdict::Clear) => detail.words("verdict   clear: dispatch or repeated work would have been found"),
            Some(Verdict::Undecided) => {
                detail.words("verdict   undecided: too little data, or too close to a threshold");
            }
            Some(Verdict::Found) | None => {}
        }
        let at = findings::place(model, Some(line.frame));
        let is_here = |finding: &&Finding| {
            let place = finding.evidence.get("line");
            finding.process == Some(line.process) && matches!(place, Some(Evidence::Text(place)) if *place == at)
        };
        let width = width.saturating_sub(2).min(WRAPPED);
        for finding in known.iter().filter(is_here) {
            detail.page.heading(finding.id.to_uppercase());
            text::wrap(&finding.detail, width).into_iter().for_each(|line| detail.words(line));
            for (label, line) in advice(finding, width.saturating_sub(LABEL)) {
                detail.words(format!("{label:<LABEL$}{line}"));
            }
        }
        detail.calls(view, line);
        detail.pairs(model, view, line);
    }

    fn words(&mut self, words: impl Into<String>) {
        self.page.words(words.into(), None);
    }

    fn accesses(&mut self, sum: &Accesses) {
        let count = number::grouped;
        self.words(format!("samples   {}, of {} the address is known", count(sum.samples), count(sum.known())));
        self.words(format!(
            "accessed  {} objects, {} arrays, {} static, {} unknown",
            count(sum.metadata),
            count(sum.array),
            count(sum.fixed),
            count(sum.unknown)
        ));
        if sum.known() > 0 && !sum.is_enough() {
            let least = least_trials(DISPATCH);
            self.words(format!("          too little data: a verdict needs at least {least} known addresses"));
        }
        for (label, names) in [("these", &sum.names), ("elements", &sum.elements_of)] {
            let names: Vec<String> =
                names.commonest(5).into_iter().map(|(name, of)| format!("{name} {}", count(of))).collect();
            if !names.is_empty() {
                self.words(format!("{label:<LABEL$}{}", names.join(", ")));
            }
        }
    }

    /// Lists calls, those repeated most often first.
    fn calls(&mut self, view: &RedundancyView, line: Line) {
        let mut calls: Vec<_> = view.calls.iter().filter(|(call, _)| call.line == line).collect();
        calls.sort_by_key(|(_, sum)| Reverse((sum.same, sum.compared)));
        if !calls.is_empty() {
            self.page.heading("CALLS: SAME ARGUMENTS, SAME RESULTS AS THE LAST TIME");
        }
        for (call, sum) in calls.into_iter().take(CALLS_MAX) {
            let CallSum { compared, same, results, same_results, .. } = *sum;
            let returned = if results == 0 { "not seen".to_owned() } else { format!("{same_results}/{results}") };
            let varying: Vec<String> = sum.varying().map(|argument| argument.to_string()).collect();
            let varying =
                if varying.is_empty() { String::new() } else { format!(", argument {} varies", varying.join(", ")) };
            if let Some(turn) = sum.turn() {
                self.words(format!("{} in a loop, each turn of which takes {}", call.callee, number::time(turn)));
                continue;
            }
            let few = if sum.is_enough() { "" } else { "; not enough data" };
            self.words(format!("{same}/{compared}  {returned}  {}{varying}{few}", call.callee));
        }
    }

    /// Lists pairs of all threads together, those equal most often first.
    fn pairs(&mut self, model: &Model, view: &RedundancyView, line: Line) {
        let is_here = |pair: &PairOf| view.line(model, pair.process, pair.second) == Some(line);
        let mut sums: BTreeMap<PairOf, (PairSum, BTreeMap<RegionId, PairSum>)> = BTreeMap::new();
        for (pair, sum) in view.pairs.iter().filter(|(pair, _)| is_here(pair)) {
            let (all, regions) = sums.entry(PairOf { tid: Tid(0), region: None, ..pair.clone() }).or_default();
            all.add(sum);
            if let Some(region) = pair.region {
                regions.entry(region).or_default().add(sum);
            }
        }
        let mut pairs: Vec<_> = sums.iter().collect();
        pairs.sort_by_key(|(_, (sum, _))| Reverse((sum.equal, sum.compared)));
        for (pair, (sum, regions)) in pairs.into_iter().take(PAIRS_MAX) {
            let of = pair.touched.detail().map(|detail| format!(" {detail}")).unwrap_or_default();
            let (kind, memory) = (pair.kind.name().to_uppercase(), pair.touched.name().to_uppercase());
            let unread = match sum.looked {
                0 => String::new(),
                looked => format!(", {} OF {looked} NEVER READ", sum.unread),
            };
            let few = if sum.is_enough() { "" } else { " (NOT ENOUGH DATA)" };
            let PairSum { equal, compared, .. } = *sum;
            self.page
                .heading(format!("{kind}S OF {memory}{of}: {equal} OF {compared} EQUAL{unread}{few}. FIRST, THEN:"));
            let (first, second) = (model.stack(pair.first), model.stack(pair.second));
            let (mut first, mut second) = (first.iter().rev(), second.iter().rev());
            loop {
                match (first.next().copied(), second.next().copied()) {
                    (None, None) => break,
                    // The link leads to the frame of the second stack, which is the line's own.
                    (one, other) => {
                        let jump = other.or(one).map(|frame| Jump::frame(Some(line.process), frame));
                        self.page.custom(FramePairLine(one, other), jump);
                    }
                }
            }
            let mut regions: Vec<_> = regions.iter().collect();
            regions.sort_by_key(|(_, sum)| Reverse((sum.equal, sum.compared)));
            for (region, sum) in regions.into_iter().take(REGIONS_MAX) {
                let words = format!("{}: {} of {} equal", region_name(model, *region), sum.equal, sum.compared);
                let jump = Jump::detail(Some(line.process), owner_target(model, *region), "region");
                self.page.link("lies in", words, Some(jump));
            }
        }
    }
}

impl page::CustomLine for FramePairLine {
    fn draw(&self, row: &mut RowPainter<'_>, width: u16, model: &Model, ui: &Ui) {
        let half = usize::from(width / 2).saturating_sub(2);
        let FramePairLine(one, other) = self;
        for id in [one, other] {
            let frame = id.and_then(|id| model.frame(id));
            let (function, place) = frame.map_or_else(Default::default, |it| (name(it), place(it, By::Line)));
            let style = frame.map_or(ui.theme.text(), |frame| ui.theme.kind(frame.kind));
            let of_function = half * 55 / 100;
            row.left(of_function, &format!(" {function}"), style);
            row.left_path(half.saturating_sub(of_function), &place, ui.theme.dim());
        }
    }
}

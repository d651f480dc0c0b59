//! One frame: its callers, its callees, and the hot lines of its function.

use std::cmp::Reverse;
use std::collections::HashMap;

use pyobs_model::views::{By, Look};
use pyobs_model::{FrameId, FrameKind, Model, ProcessRef};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::FrameWidths;
use crate::binding::Action;
use crate::hit_areas::Hit;
use crate::list::{Cursor, Step, step};
use crate::number;
use crate::paint::{RowPainter, put, put_path};
use crate::scope::{Reach, Scope};
use crate::screens::names::{draw_frame, name, place, process_label};
use crate::source::Sources;
use crate::ui::Ui;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameEntry {
    Heading(&'static str),
    Link {
        frame: FrameId,
        samples: u64,
        whole: u64,
        by: By,
    },
    /// The end of a stack: no frame calls the target, or it calls none.
    End {
        what: &'static str,
        samples: u64,
        whole: u64,
    },
}

/// The number of entries whose source is read. The width from which source is shown.
const SOURCES_MAX: usize = 100;
const SOURCE_NEEDS: u16 = 120;

/// Lines above the entries.
const INTRODUCTION: usize = 3;

pub(super) struct FrameDetail {
    process: Option<ProcessRef>,
    frame: FrameId,
    own: u64,
    total: u64,
    samples: u64,
    /// A process that ran the frame. Source is read from its files.
    runner: Option<ProcessRef>,
    entries: Vec<FrameEntry>,
    cursor: Cursor<FrameEntry>,
}

impl FrameDetail {
    pub(super) fn new(process: Option<ProcessRef>, frame: FrameId) -> Self {
        Self {
            process,
            frame,
            own: 0,
            total: 0,
            samples: 0,
            runner: process,
            entries: Vec::new(),
            cursor: Cursor::default(),
        }
    }

    pub(super) fn compute(&mut self, model: &Model, scope: &Scope) {
        let look = scope.look;
        // After a switch from lines to functions, the frame is that of the function.
        let target = if look.by == By::Function { model.function_of(self.frame) } else { self.frame };
        let function = model.function_of(self.frame);
        let by_line = Look { by: By::Line, ..look };
        let mut callers: HashMap<Option<FrameId>, u64> = HashMap::new();
        let mut callees: HashMap<Option<FrameId>, u64> = HashMap::new();
        let mut lines: HashMap<FrameId, u64> = HashMap::new();
        let mut of_function = 0;
        let mut seen = Vec::new();
        (self.own, self.total, self.samples) = (0, 0, 0);
        let sums = look.weight.sums(model, &scope.selection);
        for (key, sum) in sums.iter().filter(|(key, _)| self.process.is_none_or(|process| process == key.process)) {
            add(&mut self.samples, *sum);
            let frames: Vec<FrameId> = look.frames(model, key.stack).collect();
            let places: Vec<usize> = (0..frames.len()).filter(|at| frames[*at] == target).collect();
            if !places.is_empty() {
                self.runner = self.runner.or(Some(key.process));
                add(&mut self.total, *sum);
                if frames.last() == Some(&target) {
                    add(&mut self.own, *sum);
                }
                let before = places.iter().map(|at| at.checked_sub(1).map(|at| frames[at]));
                count_once(&mut callers, before, *sum, &mut seen);
                let after = places.iter().map(|at| frames.get(at + 1).copied());
                count_once(&mut callees, after, *sum, &mut seen);
            }
            let stack = by_line.frames(model, key.stack);
            let mut seen_lines: Vec<FrameId> = stack.filter(|frame| model.function_of(*frame) == function).collect();
            seen_lines.sort_unstable();
            seen_lines.dedup();
            add(&mut of_function, if seen_lines.is_empty() { 0 } else { *sum });
            for line in seen_lines {
                add(lines.entry(line).or_default(), *sum);
            }
        }
        self.frame = target;
        self.entries.clear();
        self.list("CALLED BY", callers, self.total, look.by, "(nothing: it is the outermost)");
        self.list("CALLS", callees, self.total, look.by, "(nothing: its own)");
        if lines.len() > 1 {
            let lines = lines.into_iter().map(|(line, samples)| (Some(line), samples)).collect();
            self.list("LINES OF THE FUNCTION", lines, of_function, By::Line, "");
        }
    }

    /// Reads the source of the lines that the entries name.
    pub(super) fn read_sources(&self, model: &Model, sources: &Sources) {
        let Some(runner) = self.runner else { return };
        sources.read(model, runner, self.frame);
        for entry in self.entries.iter().take(SOURCES_MAX) {
            if let FrameEntry::Link { frame, by: By::Line, .. } = entry {
                sources.read(model, runner, *frame);
            }
        }
    }

    fn list(
        &mut self,
        heading: &'static str,
        counts: HashMap<Option<FrameId>, u64>,
        whole: u64,
        by: By,
        end: &'static str,
    ) {
        if counts.is_empty() {
            return;
        }
        self.entries.push(FrameEntry::Heading(heading));
        let mut counts: Vec<(Option<FrameId>, u64)> = counts.into_iter().collect();
        counts.sort_unstable_by_key(|(frame, samples)| (Reverse(*samples), *frame));
        self.entries.extend(counts.into_iter().map(|(frame, samples)| match frame {
            Some(frame) => FrameEntry::Link { frame, samples, whole, by },
            None => FrameEntry::End { what: end, samples, whole },
        }));
    }

    pub(super) fn arrange(&mut self, height: usize) {
        self.cursor.follow(self.entries.len(), self.entries.iter().copied(), rows_in(height));
        self.leave_heading(Step::Down, height);
    }

    fn leave_heading(&mut self, way: Step, height: usize) {
        let is_heading =
            |detail: &Self| matches!(detail.entries.get(detail.cursor.index()), Some(FrameEntry::Heading(_)));
        if is_heading(self) {
            self.cursor.step(way, self.entries.len(), rows_in(height));
        }
        if is_heading(self) {
            self.cursor.step(Step::Down, self.entries.len(), rows_in(height));
        }
        self.cursor.hold(self.entries.get(self.cursor.index()).copied());
    }

    /// The number of entries before `index` that are not headings.
    fn links_before(&self, index: usize) -> usize {
        self.entries.iter().take(index).filter(|entry| !matches!(entry, FrameEntry::Heading(_))).count()
    }

    /// Handles an action. Returns the detail that it opens.
    pub(super) fn act(&mut self, action: Action, height: usize) -> Option<Self> {
        if let Some(step) = step(action) {
            self.cursor.step(step, self.entries.len(), rows_in(height));
            let upwards = matches!(step, Step::Up | Step::PageUp);
            self.leave_heading(if upwards { Step::Up } else { Step::Down }, height);
            return None;
        }
        match (action, self.entries.get(self.cursor.index())) {
            (Action::Open, Some(FrameEntry::Link { frame, .. })) if *frame != self.frame => {
                Some(Self::new(self.process, *frame))
            }
            _ => None,
        }
    }

    pub(super) fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        let Some(frame) = model.frame(self.frame) else { return };
        let (theme, weight) = (ui.theme, ui.look.weight);
        let kind = match frame.kind {
            FrameKind::Python => "Python",
            FrameKind::Native => "native",
            FrameKind::Kernel => "kernel",
        };
        let x = put(buf, area, 1, 0, &name(frame), theme.strong());
        put(buf, area, x + 2, 0, kind, theme.dim());
        let source =
            |frame| self.runner.and_then(|runner| ui.sources.cached(runner, frame)).map(|line| line.trim().to_owned());
        let half = Rect { width: area.width / 2, ..area };
        match source(self.frame) {
            Some(source) => {
                let x = put_path(buf, half, 1, 1, &place(frame, ui.look.by), theme.dim());
                put(buf, area, x + 2, 1, &source, theme.text());
            }
            None => _ = put_path(buf, area, 1, 1, &place(frame, ui.look.by), theme.dim()),
        }
        let share = |samples| number::percent(number::share(samples, self.samples));
        let mut sums = format!(
            "own {} % ({})   total {} % ({})   of {} {}",
            share(self.own),
            number::amount(weight, self.own),
            share(self.total),
            number::amount(weight, self.total),
            number::whole(weight, self.samples),
            ui.when(Reach::Window),
        );
        if self.process.is_some() {
            sums = format!("{sums} of {}", process_label(model, self.process));
        }
        put(buf, area, 1, 2, &sums, theme.text());

        let widths = FrameWidths::of(area.width, false);
        let visible = self.cursor.visible(self.entries.len(), usize::from(area.height).saturating_sub(INTRODUCTION));
        let first = visible.start;
        for (entry, index) in self.entries[visible].iter().zip(first..) {
            let line_area = Rect { y: area.y + (INTRODUCTION + index - first) as u16, height: 1, ..area };
            if !matches!(entry, FrameEntry::Heading(_)) {
                ui.hit_areas.add(line_area, Hit::row(self.links_before(index), self.links_before(self.cursor.index())));
            }
            let mut row = RowPainter::new(buf, line_area);
            row.select(index == self.cursor.index(), theme);
            let mut shares = |samples, whole| {
                let share = number::share(samples, whole);
                row.right(7, &number::percent(share), theme.text());
                row.bar(widths.bar, share / 100.0, theme.total());
                row.right(8, &number::short_amount(weight, samples), theme.dim());
            };
            match entry {
                FrameEntry::Heading(heading) => row.rest(&format!(" {heading}"), theme.heading()),
                FrameEntry::Link { frame, samples, whole, by } => {
                    shares(*samples, *whole);
                    let Some(named) = model.frame(*frame) else { continue };
                    let room = usize::from(area.width).saturating_sub(17 + widths.bar);
                    match source(*frame).filter(|_| area.width >= SOURCE_NEEDS && *by == By::Line) {
                        Some(source) => {
                            row.left(room * 25 / 100, &name(named), theme.kind(named.kind));
                            row.left_path(room * 30 / 100, &place(named, *by), theme.dim());
                            row.rest(&source, theme.text());
                        }
                        None => draw_frame(&mut row, room * 45 / 100, named, *by, theme),
                    }
                }
                FrameEntry::End { what, samples, whole } => {
                    shares(*samples, *whole);
                    row.rest(what, theme.dim());
                }
            }
        }
    }
}

/// Saturates, because a recording may hold any numbers.
fn add(sum: &mut u64, weight: u64) {
    *sum = sum.saturating_add(weight);
}

fn rows_in(height: usize) -> usize {
    height.saturating_sub(INTRODUCTION)
}

/// Counts each neighbour once, although recursion makes one appear several times in a stack.
fn count_once(
    counts: &mut HashMap<Option<FrameId>, u64>,
    neighbours: impl Iterator<Item = Option<FrameId>>,
    sum: u64,
    seen: &mut Vec<Option<FrameId>>,
) {
    seen.clear();
    seen.extend(neighbours);
    seen.sort_unstable();
    seen.dedup();
    for neighbour in seen.iter() {
        add(counts.entry(*neighbour).or_default(), sum);
    }
}

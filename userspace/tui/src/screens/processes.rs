//! Processes and their threads, the busiest first.

use std::cmp::Reverse;
use std::collections::HashSet;

use pyobs_model::families::cpu::Sum;
use pyobs_model::views::{self, ProcessRow};
use pyobs_model::{Model, Nanos, ProcessRef, ProcessState, Selection, Tid};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::Outcome;
use super::finding::severity;
use super::thread::thread_name;
use crate::binding::Action;
use crate::draw::{Heading, Order, Row, put};
use crate::filter::Filter;
use crate::hit_areas::Hit;
use crate::list::{Cursor, step, turned};
use crate::ui::{Picked, Ui};
use crate::{number, text};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sort {
    #[default]
    Samples,
    Pid,
    Threads,
    Command,
}

const SORTS: [Sort; 4] = [Sort::Samples, Sort::Pid, Sort::Threads, Sort::Command];

#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    row: usize,
    picked: Picked,
    cpu: Sum,
}

#[derive(Default)]
pub(crate) struct ProcessesScreen {
    sort: Sort,
    open: HashSet<ProcessRef>,
    rows: Vec<ProcessRow>,
    seconds: f64,
    /// When the time ends that is looked at.
    end: Nanos,
    shown: Vec<Line>,
    cursor: Cursor<Picked>,
}

impl ProcessesScreen {
    /// `selection` has all processes: the screen on which one picks shows all there is to pick from.
    pub(crate) fn compute(&mut self, model: &Model, selection: &Selection, seconds: f64) {
        self.rows = views::processes(model, selection);
        self.seconds = seconds;
        self.end = selection.end().min(model.now());
    }

    pub(crate) fn arrange(&mut self, model: &Model, filter: Option<&Filter>, height: usize) {
        let mut order: Vec<(usize, &ProcessRow, &ProcessState)> = self
            .rows
            .iter()
            .enumerate()
            .filter_map(|(index, row)| Some((index, row, model.process(row.process)?)))
            .filter(|(_, row, state)| state.is_alive(self.end) || row.cpu.samples > 0)
            .filter(|(_, _, state)| {
                let process = &state.process;
                filter.is_none_or(|f| f.matches(&process.command) || f.matches(&process.pid.to_string()))
            })
            .collect();
        match self.sort {
            Sort::Samples => order.sort_by_key(|(_, row, state)| (Reverse(row.cpu.time), state.process.pid)),
            Sort::Pid => order.sort_by_key(|(_, _, state)| state.process.pid),
            Sort::Threads => order.sort_by_key(|(_, _, state)| (Reverse(state.threads.len()), state.process.pid)),
            Sort::Command => order.sort_by(|(_, _, a), (_, _, b)| {
                let key = |state: &ProcessState| text::head(text::command(&state.process.command), 256).to_lowercase();
                key(a).cmp(&key(b)).then(a.process.pid.cmp(&b.process.pid))
            }),
        }
        let mut shown = Vec::with_capacity(order.len());
        for (index, row, state) in order {
            shown.push(Line { row: index, picked: Picked { process: row.process, tid: None }, cpu: row.cpu });
            if self.open.contains(&row.process) {
                let mut threads: Vec<(Tid, Sum)> =
                    state.threads.keys().map(|tid| (*tid, row.threads.get(tid).copied().unwrap_or_default())).collect();
                threads.sort_by_key(|(tid, cpu)| (Reverse(cpu.time), *tid));
                shown.extend(threads.into_iter().map(|(tid, cpu)| Line {
                    row: index,
                    picked: Picked { process: row.process, tid: Some(tid) },
                    cpu,
                }));
            }
        }
        self.shown = shown;
        self.cursor.follow(self.shown.len(), self.shown.iter().map(|line| line.picked), height);
        self.hold();
    }

    fn hold(&mut self) {
        self.cursor.hold(self.selected());
    }

    fn selected(&self) -> Option<Picked> {
        self.shown.get(self.cursor.index()).map(|line| line.picked)
    }

    pub(crate) fn act(&mut self, action: Action, height: usize) -> Outcome {
        if let Some(step) = step(action) {
            self.cursor.step(step, self.shown.len(), height);
            self.hold();
            return Outcome::Nothing;
        }
        match (action, self.selected()) {
            (Action::Open, Some(picked)) => return Outcome::Pick(picked),
            (Action::Threads, Some(picked)) => {
                if !self.open.remove(&picked.process) {
                    self.open.insert(picked.process);
                }
            }
            (Action::Expand, Some(picked)) => {
                self.open.insert(picked.process);
            }
            (Action::Collapse, Some(picked)) => {
                self.open.remove(&picked.process);
                // The thread that was selected is gone; its process takes its place.
                let parent = Picked { process: picked.process, tid: None };
                while self.cursor.index() > 0 && self.selected() != Some(parent) {
                    self.cursor.step(crate::list::Step::Up, self.shown.len(), height);
                }
                self.hold();
            }
            (Action::SortNext | Action::SortPrevious, _) => self.sort = turned(&SORTS, self.sort, action),
            _ => return Outcome::Nothing,
        }
        Outcome::Rows
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    pub(crate) fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        let widths = Widths::of(area.width);
        let theme = ui.theme;
        let headline = headline(ui);
        if let Some(entry) = ui.board.get(0) {
            for (line, y) in headline.iter().zip(0..) {
                put(buf, area, 1, y, line, severity(theme, entry.finding.severity));
            }
        }
        let above = (headline.len() as u16).min(area.height);
        let area = Rect { y: area.y + above, height: area.height - above, ..area };
        let mut head = Heading::new(buf, area, theme);
        let sorted = |sort, order| (self.sort == sort).then_some(order);
        head.skip(2);
        head.right(PID_WIDTH, "PID", sorted(Sort::Pid, Order::Rising));
        head.left(widths.python, "PYTHON", None);
        head.right(7, "CPU %", sorted(Sort::Samples, Order::Falling));
        head.skip(widths.bar);
        head.right(widths.samples, "SAMPLES", None);
        head.right(4, "THR", sorted(Sort::Threads, Order::Falling));
        head.left(usize::MAX, "COMMAND", sorted(Sort::Command, Order::Rising));

        let visible = self.cursor.visible(self.shown.len(), usize::from(area.height).saturating_sub(1));
        let first = visible.start;
        for (line, index) in self.shown[visible].iter().zip(first..) {
            let Some(state) = model.process(line.picked.process) else { continue };
            let line_area = Rect { y: area.y + 1 + (index - first) as u16, height: 1, ..area };
            ui.hit_areas.add(line_area, Hit::row(index, self.cursor.index()));
            let mut row = Row::new(buf, line_area);
            row.select(index == self.cursor.index(), theme);
            let quiet = state.ended.is_some() || line.cpu.samples == 0;
            let style = if quiet { theme.dim() } else { theme.text() };
            let is_picked = ui.picked == Some(line.picked);
            let fold = match line.picked.tid {
                _ if is_picked => "●",
                Some(_) => "",
                None if self.open.contains(&line.picked.process) => "▾",
                None => "▸",
            };
            row.left(2, &format!(" {fold}"), if is_picked { theme.good() } else { theme.dim() });
            let cpu = self.cpu_percent(line.cpu);
            match line.picked.tid {
                None => {
                    row.right(PID_WIDTH, &state.process.pid.to_string(), style);
                    row.left(widths.python, state.process.python.as_deref().unwrap_or("–"), theme.dim());
                }
                Some(tid) => {
                    row.left(PID_WIDTH, &format!("└{:>1$}", tid.0, PID_WIDTH - 1), theme.dim());
                    row.left(widths.python, "", style);
                }
            }
            row.right(7, &number::percent(cpu), style);
            row.bar(widths.bar, cpu / 100.0, theme.own());
            row.right(widths.samples, &number::count(line.cpu.samples), style);
            match line.picked.tid {
                None => {
                    row.right(4, &state.threads.len().to_string(), theme.dim());
                    let ended = if state.ended.is_some() { "ended: " } else { "" };
                    row.rest(&format!("{ended}{}", head_of_command(state)), style);
                }
                Some(tid) => {
                    row.right(4, "", style);
                    row.rest(&format!("  {}", thread_name(model, line.picked.process, tid)), style);
                }
            }
        }
    }

    /// In percent of one core.
    fn cpu_percent(&self, cpu: Sum) -> f64 {
        if self.seconds > 0.0 { cpu.time.as_secs_f64() / self.seconds * 100.0 } else { 0.0 }
    }
}

fn head_of_command(state: &ProcessState) -> &str {
    text::head(text::command(&state.process.command), 4096)
}

/// The most serious finding, in one sentence, above the table; nothing when there is none.
pub(crate) fn headline(ui: &Ui) -> Vec<String> {
    const LINES: usize = 2;
    const NEEDS: u16 = 9;
    let Some(entry) = ui.board.get(0).filter(|_| ui.body().height >= NEEDS) else { return Vec::new() };
    let more = match ui.board.entries().len() - 1 {
        0 => String::new(),
        more => format!(" ({more} more on Overview)"),
    };
    let mut lines = text::wrap(&format!("! {}{more}", entry.finding.summary), usize::from(ui.size.0).saturating_sub(2));
    lines.truncate(LINES);
    lines
}

/// Seven digits are the most that a kernel gives out, and a thread has its branch before them.
const PID_WIDTH: usize = 8;

struct Widths {
    python: usize,
    bar: usize,
    samples: usize,
}

impl Widths {
    fn of(width: u16) -> Self {
        match width {
            0..70 => Self { python: 7, bar: 0, samples: 0 },
            70..110 => Self { python: 9, bar: 8, samples: 8 },
            110..180 => Self { python: 10, bar: 16, samples: 10 },
            _ => Self { python: 12, bar: 30, samples: 12 },
        }
    }
}

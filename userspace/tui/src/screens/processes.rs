//! Processes and their threads, the busiest first.

mod line;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use pyobs_model::families::cpu::CpuSum;
use pyobs_model::views::{self, Groups};
use pyobs_model::{Model, Nanos, ProcessRef, ProcessState};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use self::line::{ProcessKey, ProcessLine, container, memory, threads, user};
use super::finding::severity;
use super::names::{group_label, thread_name};
use super::stacks;
use crate::binding::{Action, GROUP, Keys, SORT_NEXT, SORT_PREVIOUS, bind};
use crate::filter::Filter;
use crate::input::Key;
use crate::jump::Effect;
use crate::paint::{HeadingPainter, RowPainter, put};
use crate::scope::Picked;
use crate::screen::{About, Chip, Screen};
use crate::table::{AnyList, List, NoDetail, Sorted, Table};
use crate::ui::Ui;
use crate::{number, text};

static ABOUT: About = About {
    key: '1',
    title: "Processes",
    short_title: "Procs",
    filter: Some("processes"),
    keys: &[Keys {
        title: "Processes",
        bindings: &[
            bind(&[Key::Enter], Action::Open, "select", "show only this process, or thread, on the other screens"),
            bind(
                &[Key::Char('t')],
                Action::Threads,
                "threads",
                "show or hide the threads, or the processes of a group",
            ),
            bind(&[Key::Right], Action::Expand, "", "show the threads, or the processes of a group"),
            bind(&[Key::Left], Action::Collapse, "", "hide the threads, or the processes of a group"),
            bind(&[Key::Char('c')], Action::Tree, "tree", "show or hide which process is whose child"),
            GROUP,
            SORT_NEXT,
            SORT_PREVIOUS,
        ],
    }],
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ProcessSort {
    #[default]
    Samples,
    Pid,
    Threads,
    Memory,
    User,
    Container,
    Command,
}

#[derive(Default)]
struct ProcessTable {
    /// The processes whose threads are shown, and the groups whose processes are.
    open: HashSet<(ProcessRef, bool)>,
    is_tree: bool,
    /// By process: its parent, if that is a row too.
    parents: HashMap<ProcessRef, ProcessRef>,
    seconds: f64,
    /// The end of the time range that the rows cover.
    end: Nanos,
    /// How many CPUs all programs of the machine keep busy, and those of the rows.
    machine: Option<(f64, f64)>,
}

impl Table for ProcessTable {
    type Row = ProcessLine;
    type Key = ProcessKey;
    type Sort = ProcessSort;
    type Detail = NoDetail;

    const SORTS: &'static [ProcessSort] = &[
        ProcessSort::Samples,
        ProcessSort::Pid,
        ProcessSort::Threads,
        ProcessSort::Memory,
        ProcessSort::User,
        ProcessSort::Container,
        ProcessSort::Command,
    ];

    /// All processes, whatever the user picked before, each followed by its threads.
    fn compute(&mut self, model: &Model, ui: &Ui, _: Option<&mut NoDetail>) -> Option<Vec<ProcessLine>> {
        let scope = ui.scope(model);
        let all_processes = scope.all_processes();
        (self.seconds, self.end) = (scope.seconds, all_processes.end().min(model.now()));
        let rows = views::processes(model, &all_processes);
        let watched: f64 = rows.iter().map(|row| self.cpu_percent(row.cpu) / 100.0).sum();
        self.machine = model.load().busy(&all_processes).map(|machine| (machine.max(watched), watched));
        self.parents = line::parents(model, &rows);
        if ui.look.group.merges_processes() {
            return Some(line::grouped(model, ui.look.group, &rows, self.end));
        }
        let rows = rows.into_iter().flat_map(|row| {
            let threads = model.process(row.process).into_iter().flat_map(|state| state.threads.keys());
            let line = |tid, cpu| ProcessLine { picked: Picked { process: row.process, tid }, cpu, group: None };
            let of_threads = threads.map(|tid| line(Some(*tid), row.threads.get(tid).copied().unwrap_or_default()));
            std::iter::once(line(None, row.cpu)).chain(of_threads).collect::<Vec<_>>()
        });
        Some(rows.collect())
    }

    fn key(row: &ProcessLine) -> ProcessKey {
        (row.picked, row.group.is_some())
    }

    fn matches(&self, row: &ProcessLine, filter: &Filter, model: &Model) -> bool {
        model.process(row.picked.process).is_some_and(|state| {
            filter.matches(&state.process.command)
                || filter.matches(&state.process.pid.to_string())
                || filter.matches(&user(state))
                || container(state).is_some_and(|container| filter.matches(container))
        })
    }

    fn sort(&self, shown: &mut [usize], rows: &[ProcessLine], sort: ProcessSort, model: &Model) {
        let state = |index: &usize| model.process(rows[*index].picked.process);
        let pid = |index: &usize| state(index).map(|state| state.process.pid);
        match sort {
            ProcessSort::Samples => shown.sort_by_key(|it| (Reverse(rows[*it].cpu.time), pid(it))),
            ProcessSort::Pid => shown.sort_by_key(pid),
            ProcessSort::Threads => shown.sort_by_key(|it| (Reverse(threads(&rows[*it], model)), pid(it))),
            ProcessSort::Memory => {
                shown.sort_by_key(|it| (Reverse(memory(&rows[*it], model)), pid(it)));
            }
            ProcessSort::User => shown.sort_by_cached_key(|it| (state(it).map(user), pid(it))),
            ProcessSort::Container => shown.sort_by_cached_key(|it| {
                let container = state(it).and_then(container);
                (container.is_none(), container.map(str::to_owned), pid(it))
            }),
            ProcessSort::Command => shown.sort_by_cached_key(|it| {
                let command = state(it).map(|it| text::head(text::command(&it.process.command), 256).to_lowercase());
                (command, pid(it))
            }),
        }
    }

    fn shown(&self, rows: &[ProcessLine], filter: Option<&Filter>, sort: ProcessSort, model: &Model) -> Vec<usize> {
        let has_groups = rows.first().is_some_and(|row| row.group.is_some());
        let is_shown = |index: &usize| {
            let row = &rows[*index];
            let state = model.process(row.picked.process);
            let is_known = state.is_some_and(|state| state.is_alive(self.end) || row.cpu.samples > 0);
            let is_first = row.group.is_some() || !has_groups && row.picked.tid.is_none() && is_known;
            is_first && filter.is_none_or(|filter| self.matches(row, filter, model))
        };
        let mut processes: Vec<usize> = (0..rows.len()).filter(is_shown).collect();
        self.sort(&mut processes, rows, sort, model);
        if self.is_tree && !has_groups {
            processes = line::as_tree(&processes, rows, &self.parents);
        }
        let with_those_below = processes.into_iter().flat_map(|index| {
            let (process, is_group) = (rows[index].picked.process, rows[index].group.is_some());
            let is_below = |at: &usize| match is_group {
                true => rows[*at].group.is_none(),
                false => rows[*at].picked.process == process,
            };
            let after = (index + 1..rows.len()).take_while(is_below);
            let mut below: Vec<usize> = after.filter(|_| self.open.contains(&(process, is_group))).collect();
            below.sort_by_key(|at| (Reverse(rows[*at].cpu.time), rows[*at].picked.tid));
            std::iter::once(index).chain(below)
        });
        with_those_below.collect()
    }

    fn place(&self, area: Rect, ui: &Ui) -> Rect {
        let above = (headline(ui).len() as u16).min(area.height);
        // The last line is for the other programs.
        let below = u16::from(self.machine.is_some()).min(area.height - above);
        Rect { y: area.y + above, height: area.height - above - below, ..area }
    }

    fn draw_heading(&self, head: &mut HeadingPainter<'_>, width: u16, sorted: Sorted<ProcessSort>, _ui: &Ui) {
        let widths = ProcessWidths::of(width);
        head.skip(2);
        head.right(PID_WIDTH, "PID", sorted.ascending(ProcessSort::Pid));
        head.left(widths.python, "PYTHON", None);
        head.right(7, "CPU %", sorted.descending(ProcessSort::Samples));
        head.skip(widths.bar);
        head.right(widths.samples, "SAMPLES", None);
        head.right(4, "THR", sorted.descending(ProcessSort::Threads));
        head.right(widths.memory, "RSS", sorted.descending(ProcessSort::Memory));
        head.left(widths.user, "USER", sorted.ascending(ProcessSort::User));
        head.left(widths.container, "CONTAINER", sorted.ascending(ProcessSort::Container));
        head.left(usize::MAX, "COMMAND", sorted.ascending(ProcessSort::Command));
    }

    fn draw_row(
        &self,
        row: &mut RowPainter<'_>,
        line: &ProcessLine,
        width: u16,
        _: ProcessSort,
        model: &Model,
        ui: &Ui,
    ) {
        let Some(state) = model.process(line.picked.process) else { return };
        let (widths, theme) = (ProcessWidths::of(width), ui.theme);
        let quiet = state.ended.is_some() || line.cpu.samples == 0;
        let style = if quiet { theme.dim() } else { theme.text() };
        let is_picked = ui.picked == Some(line.picked) && line.group.is_none();
        let fold = match line.picked.tid {
            _ if is_picked => "●",
            Some(_) => "",
            None if self.open.contains(&(line.picked.process, line.group.is_some())) => "▾",
            None if line.group.is_none() && ui.look.group.merges_processes() => "",
            None => "▸",
        };
        row.left(2, &format!(" {fold}"), if is_picked { theme.good() } else { theme.dim() });
        let cpu = self.cpu_percent(line.cpu);
        match line.picked.tid {
            None if line.group.is_some() => {
                let processes = line.group.map_or(0, |group| group.processes);
                row.right(PID_WIDTH, &format!("{processes}×"), style);
                row.left(widths.python, "", style);
            }
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
        row.right(widths.samples, &number::grouped(line.cpu.samples), style);
        match line.picked.tid {
            None => {
                row.right(4, &threads(line, model).to_string(), theme.dim());
                let resident = memory(line, model).map_or_else(|| "–".to_owned(), number::size);
                row.right(widths.memory, &resident, theme.dim());
                if line.group.is_some() {
                    row.left(widths.user, "", style);
                    row.left(widths.container, "", style);
                    return row.rest(&group_label(model, ui.look.group, line.picked.process), style);
                }
                row.left(widths.user, text::head(&user(state), 64), theme.dim());
                row.left(widths.container, text::head(container(state).unwrap_or("–"), 256), theme.dim());
                let ended = if state.ended.is_some() { "ended: " } else { "" };
                // Without a column of its own, the container comes first.
                let container = container(state).filter(|_| widths.container == 0).map(|it| format!("[{it}] "));
                let has_branch = self.is_tree && !ui.look.group.merges_processes();
                let branch = if has_branch { line::branch(line.picked.process, &self.parents) } else { String::new() };
                let (container, command) = (container.unwrap_or_default(), head_of_command(state));
                row.rest(&format!("{branch}{ended}{container}{command}"), style);
            }
            Some(tid) => {
                row.right(4, "", style);
                row.skip(widths.memory);
                row.skip(widths.user);
                row.skip(widths.container);
                row.rest(&format!("  {}", thread_name(model, line.picked.process, tid)), style);
            }
        }
    }

    fn draw_around(&self, area: Rect, last: Rect, model: &Model, ui: &Ui, buf: &mut Buffer) {
        if let Some((machine, watched)) = self.machine {
            let line = Rect { y: last.y + 1, height: 1, ..last }.intersection(area);
            self.draw_others(line, machine - watched, f64::from(model.meta().cpus) - machine, ui, buf);
        }
        if let Some(entry) = ui.board.get(0) {
            for (line, y) in headline(ui).iter().zip(0..) {
                put(buf, area, 1, y, line, severity(ui.theme, entry.finding.severity));
            }
        }
    }
}

impl ProcessTable {
    /// The CPU time of all other programs, so that the sum is that of the machine.
    fn draw_others(&self, line: Rect, others: f64, idle: f64, ui: &Ui, buf: &mut Buffer) {
        let (widths, theme) = (ProcessWidths::of(line.width), ui.theme);
        let mut row = RowPainter::new(buf, line);
        row.skip(2);
        row.skip(PID_WIDTH);
        row.skip(widths.python);
        row.right(7, &number::percent(others * 100.0), theme.dim());
        row.bar(widths.bar, others, theme.own());
        row.skip(widths.samples);
        row.skip(4);
        row.skip(widths.memory);
        row.skip(widths.user);
        row.skip(widths.container);
        row.rest(&format!("others (idle {})", number::percent(idle.max(0.0) * 100.0)), theme.dim());
    }

    /// CPU time in percent of one core.
    fn cpu_percent(&self, cpu: CpuSum) -> f64 {
        if self.seconds > 0.0 { cpu.time.as_secs_f64() / self.seconds * 100.0 } else { 0.0 }
    }
}

#[derive(Default)]
pub(super) struct ProcessesScreen {
    list: List<ProcessTable>,
}

impl Screen for ProcessesScreen {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn list(&self) -> Option<&dyn AnyList> {
        Some(&self.list)
    }

    fn list_mut(&mut self) -> Option<&mut dyn AnyList> {
        Some(&mut self.list)
    }

    fn compute(&mut self, model: &Model, ui: &mut Ui) {
        self.list.compute(model, ui);
        ui.update_findings(model);
    }

    fn act(&mut self, action: Action, model: &Model, ui: &Ui) -> Effect {
        let selected = self.list.selected().copied();
        if action == Action::Tree {
            self.list.table.is_tree ^= true;
            return Effect::Rows;
        }
        let open = &mut self.list.table.open;
        if action == Action::Group {
            return stacks::next_group(ui.look, &stacks::GROUPS);
        }
        let has_groups = ui.look.group.merges_processes();
        match (action, selected) {
            (Action::Open, Some((picked, false))) => return Effect::Pick(picked),
            // The process of a group has no rows below it.
            (Action::Threads | Action::Expand, Some((_, is_group))) if has_groups && !is_group => {}
            (Action::Open | Action::Threads, Some((Picked { process, .. }, is_group))) => {
                if !open.remove(&(process, is_group)) {
                    open.insert((process, is_group));
                }
            }
            (Action::Expand, Some((Picked { process, .. }, is_group))) => _ = open.insert((process, is_group)),
            (Action::Collapse, Some((Picked { process, .. }, _))) if has_groups => {
                let first = Groups::new(model, ui.look.group).of(process);
                open.remove(&(first, true));
                self.list.select_now(ui, |row| *row == (Picked { process: first, tid: None }, true));
            }
            (Action::Collapse, Some((Picked { process, .. }, _))) => {
                open.remove(&(process, false));
                // The selected thread may have been hidden, so select its process.
                self.list.select_now(ui, |row| *row == (Picked { process, tid: None }, false));
            }
            _ => return self.list.act(action, ui),
        }
        Effect::Rows
    }

    fn has_rows(&self) -> bool {
        true
    }

    fn hint(&self, action: Action, usual: &'static str, _model: &Model, ui: &Ui) -> &'static str {
        let is_group = self.list.selected().is_some_and(|(_, is_group)| *is_group);
        match action {
            Action::Open if is_group => "processes",
            Action::Threads | Action::Tree if ui.look.group.merges_processes() => "",
            _ => usual,
        }
    }

    fn chips(&self, ui: &Ui) -> Vec<Chip> {
        let tree = self.list.table.is_tree && !ui.look.group.merges_processes();
        stacks::group_chip(ui.look, &stacks::GROUPS).into_iter().chain(tree.then_some(Chip(3, "tree"))).collect()
    }
}

fn head_of_command(state: &ProcessState) -> &str {
    text::head(text::command(&state.process.command), 4096)
}

/// The lines above the table: the most serious finding. Empty without findings.
fn headline(ui: &Ui) -> Vec<String> {
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

/// A pid has at most seven digits, and a tid has a branch before it.
const PID_WIDTH: usize = 8;

struct ProcessWidths {
    python: usize,
    bar: usize,
    samples: usize,
    memory: usize,
    user: usize,
    container: usize,
}

impl ProcessWidths {
    fn of(width: u16) -> Self {
        match width {
            0..70 => Self { python: 7, bar: 0, samples: 0, memory: 0, user: 0, container: 0 },
            70..110 => Self { python: 7, bar: 6, samples: 8, memory: 8, user: 0, container: 0 },
            110..150 => Self { python: 8, bar: 16, samples: 8, memory: 8, user: 0, container: 0 },
            150..180 => Self { python: 8, bar: 16, samples: 10, memory: 8, user: 10, container: 14 },
            _ => Self { python: 12, bar: 30, samples: 12, memory: 9, user: 14, container: 20 },
        }
    }
}

//! One task: what it does, whom it awaits, and the lines where it spends time.

use pyobs_model::findings::Target;
use pyobs_model::views::{self, By, TaskLine};
use pyobs_model::{Model, Nanos, TaskId};

use crate::jump::Jump;
use crate::number;
use crate::paint::RowPainter;
use crate::scope::Scope;
use crate::screens::names::{draw_frame, name, place, process_label};
use crate::screens::page::{self, CustomLine, PageLine};
use crate::ui::Ui;

/// The most lines, and the most tasks that wait for it. The others are counted.
const PARTS_MAX: usize = 20;

pub(super) type TaskDetail = page::PageDetail<TaskId, TaskLineRow>;

/// A line's part of a task's time.
pub(super) struct TaskLineRow {
    line: TaskLine,
    whole: Nanos,
}

impl TaskDetail {
    pub(super) fn compute(&mut self, model: &Model, scope: &Scope) {
        self.page.clear();
        let Some(task) = model.tasks().get(self.key) else { return };
        let process = Some(task.process);
        self.page.pair("task", model.task_label(self.key).unwrap_or_default());
        if let Some(frame) = model.frame(task.coroutine) {
            let words = format!("{}  {}", name(frame), place(frame, By::Function));
            self.page.link("coroutine", words, Some(Jump::frame(process, task.coroutine)));
        }
        self.page.link("process", process_label(model, process), Some(Jump::process(task.process)));
        let to_task = |other: TaskId| Jump::detail(process, Target::Task(other), "task");
        let status = model.tasks().status(self.key);
        let state = match status {
            Some(status) => {
                let since = number::time(model.now().saturating_sub(status.since));
                format!("{} for {since}", status.state.name())
            }
            None if task.name.is_none() => "not known: it stands for several tasks".to_owned(),
            None => "ended".to_owned(),
        };
        self.page.pair("state", state);
        if let Some(other) = status.and_then(|status| status.awaits) {
            self.page.link("awaits", model.task_label(other).unwrap_or_default(), Some(to_task(other)));
        }
        let lines = views::task_lines(model, &scope.selection, self.key);
        let whole = lines.iter().fold(Nanos(0), |sum, line| sum.saturating_add(spent(line)));
        let rows: Vec<_> = lines
            .into_iter()
            .map(|line| {
                let jump = line.frame.map(|frame| Jump::frame(process, frame));
                (PageLine::Custom(TaskLineRow { line, whole }), jump)
            })
            .collect();
        self.page.list("WHERE IT COMPUTES, AND WHERE IT BLOCKS THE LOOP", rows.into_iter(), PARTS_MAX);
        if let Some(status) = status {
            self.page.stack("AWAITS IN, INNERMOST FRAME FIRST", model, process, status.stack);
        }
        let waiters = model.tasks().alive().map(|(id, _)| id);
        let is_waiter = |id: &TaskId| model.tasks().status(*id).is_some_and(|status| status.awaits == Some(self.key));
        let mut waiters: Vec<TaskId> = waiters.filter(is_waiter).collect();
        waiters.sort_unstable();
        let waiters: Vec<_> = waiters
            .into_iter()
            .map(|id| (PageLine::Words(model.task_label(id).unwrap_or_default()), Some(to_task(id))))
            .collect();
        self.page.list("AWAITED BY", waiters.into_iter(), PARTS_MAX);
    }
}

fn spent(line: &TaskLine) -> Nanos {
    line.cpu.time.saturating_add(line.blocked.total)
}

impl CustomLine for TaskLineRow {
    fn draw(&self, row: &mut RowPainter<'_>, width: u16, model: &Model, ui: &Ui) {
        let theme = ui.theme;
        let share = number::share(spent(&self.line).0, self.whole.0);
        let time = |time: Nanos| if time == Nanos(0) { "–".to_owned() } else { number::time(time) };
        row.right(7, &number::percent(share), theme.text());
        row.right(12, &format!("{} CPU", time(self.line.cpu.time)), theme.dim());
        row.right(16, &format!("{} blocked", time(self.line.blocked.total)), theme.dim());
        match self.line.frame.and_then(|frame| model.frame(frame)) {
            Some(frame) => draw_frame(row, usize::from(width) * 35 / 100, frame, By::Line, theme),
            None => row.rest("no Python frame", theme.dim()),
        }
    }
}

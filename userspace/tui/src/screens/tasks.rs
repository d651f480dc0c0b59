//! Tasks of event loops: what each computes, where it blocks its loop, and what it waits for.

mod detail;

use std::cmp::Reverse;

use pyobs_model::findings::Target;
use pyobs_model::views::{self, By, TaskRow};
use pyobs_model::{Family, Model, Nanos, TaskId};

use self::detail::TaskDetail;
use crate::binding::{Action, FOLLOW, Keys, SORT_NEXT, SORT_PREVIOUS, bind};
use crate::filter::Filter;
use crate::input::Key;
use crate::jump::{Destination, Jump};
use crate::paint::{HeadingPainter, RowPainter};
use crate::screen::{About, Screen};
use crate::screens::names::draw_frame;
use crate::table::{AnyList, List, Sorted, Table};
use crate::ui::Ui;
use crate::{number, text};

static ABOUT: About = About {
    key: 'a',
    title: "Tasks",
    short_title: "Tasks",
    filter: Some("tasks"),
    keys: &[
        Keys {
            title: "Tasks",
            bindings: &[
                bind(&[Key::Enter], Action::Open, "detail", "what the task awaits, and the lines where it spends time"),
                SORT_NEXT,
                SORT_PREVIOUS,
            ],
        },
        Keys { title: "A task", bindings: &[FOLLOW] },
    ],
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TaskSort {
    #[default]
    Time,
    Cpu,
    Blocked,
    Longest,
    Since,
    Name,
}

#[derive(Default)]
struct TaskTable {
    /// The length of the time range that the rows cover.
    seconds: f64,
    now: Nanos,
}

impl Table for TaskTable {
    type Row = TaskRow;
    type Key = TaskId;
    type Sort = TaskSort;
    type Detail = TaskDetail;

    const SORTS: &'static [TaskSort] =
        &[TaskSort::Time, TaskSort::Cpu, TaskSort::Blocked, TaskSort::Longest, TaskSort::Since, TaskSort::Name];

    fn compute(&mut self, model: &Model, ui: &Ui, detail: Option<&mut TaskDetail>) -> Option<Vec<TaskRow>> {
        let scope = ui.scope(model);
        if let Some(detail) = detail {
            detail.compute(model, &scope);
            return None;
        }
        (self.seconds, self.now) = (scope.seconds, model.now());
        Some(views::tasks(model, &scope.selection))
    }

    fn key(row: &TaskRow) -> TaskId {
        row.task
    }

    fn matches(&self, row: &TaskRow, filter: &Filter, model: &Model) -> bool {
        model.task_label(row.task).is_some_and(|label| filter.matches(&label))
    }

    fn sort(&self, shown: &mut [usize], rows: &[TaskRow], sort: TaskSort, model: &Model) {
        match sort {
            TaskSort::Time => {}
            TaskSort::Cpu => shown.sort_by_key(|it| Reverse(rows[*it].cpu.time)),
            TaskSort::Blocked => shown.sort_by_key(|it| Reverse(rows[*it].blocked.total)),
            TaskSort::Longest => shown.sort_by_key(|it| Reverse(rows[*it].blocked.max)),
            TaskSort::Since => shown.sort_by_key(|it| rows[*it].status.map_or(Nanos(u64::MAX), |status| status.since)),
            TaskSort::Name => shown.sort_by_cached_key(|it| model.task_label(rows[*it].task)),
        }
    }

    fn draw_heading(&self, head: &mut HeadingPainter<'_>, width: u16, sorted: Sorted<TaskSort>, _ui: &Ui) {
        let widths = TaskWidths::of(width);
        head.right(7, "CPU %", sorted.descending(TaskSort::Cpu));
        head.skip(widths.bar);
        head.right(8, "BLOCKED", sorted.descending(TaskSort::Blocked));
        head.right(8, "LONGEST", sorted.descending(TaskSort::Longest));
        head.left(9, "STATE", None);
        head.right(widths.since, "FOR", sorted.descending(TaskSort::Since));
        head.left(widths.task, "TASK", sorted.ascending(TaskSort::Name));
        head.left(usize::MAX, "AWAITS", None);
    }

    fn draw_row(&self, row: &mut RowPainter<'_>, line: &TaskRow, width: u16, _: TaskSort, model: &Model, ui: &Ui) {
        let (widths, theme) = (TaskWidths::of(width), ui.theme);
        let is_idle = line.cpu.samples == 0 && line.blocked.count == 0;
        let style = if is_idle { theme.dim() } else { theme.text() };
        let share = if self.seconds > 0.0 { line.cpu.time.as_secs_f64() / self.seconds } else { 0.0 };
        let spent = |time: Nanos| if time == Nanos(0) { "–".to_owned() } else { number::time(time) };
        row.right(7, &number::percent(share * 100.0), style);
        row.bar(widths.bar, share, theme.own());
        row.right(8, &spent(line.blocked.total), if line.blocked.count > 0 { theme.strong() } else { theme.dim() });
        row.right(8, &spent(line.blocked.max), theme.dim());
        row.left(9, line.status.map_or("ended", |status| status.state.name()), theme.dim());
        let since = line.status.map(|status| number::time(self.now.saturating_sub(status.since)));
        row.right(widths.since, &since.unwrap_or_default(), theme.dim());
        row.left(widths.task, text::head(&model.task_label(line.task).unwrap_or_default(), 4096), style);
        let Some(status) = line.status else { return };
        if let Some(other) = status.awaits.and_then(|other| model.task_label(other)) {
            row.rest(text::head(&other, 4096), theme.dim());
        } else if let Some(frame) = views::own_line(model, status.stack).and_then(|frame| model.frame(frame)) {
            draw_frame(row, widths.function, frame, By::Line, theme);
        }
    }
}

struct TaskWidths {
    bar: usize,
    since: usize,
    task: usize,
    /// Of the function that awaits.
    function: usize,
}

impl TaskWidths {
    fn of(width: u16) -> Self {
        match width {
            0..90 => Self { bar: 0, since: 0, task: 24, function: 16 },
            90..130 => Self { bar: 0, since: 8, task: 28, function: 20 },
            _ => Self { bar: 12, since: 8, task: 40, function: 24 },
        }
    }
}

#[derive(Default)]
pub(super) struct TasksScreen {
    list: List<TaskTable>,
}

impl Screen for TasksScreen {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn family(&self, _ui: &Ui) -> Option<Family> {
        Some(Family::Tasks)
    }

    fn list(&self) -> Option<&dyn AnyList> {
        Some(&self.list)
    }

    fn list_mut(&mut self) -> Option<&mut dyn AnyList> {
        Some(&mut self.list)
    }

    fn empty(&self, _ui: &Ui) -> Option<(&'static str, &'static str)> {
        Some(("tasks", "No event loop has run a coroutine."))
    }

    fn shows(&self, destination: Destination) -> bool {
        matches!(destination.target(), Some(Target::Task(_)))
    }

    fn jump(&mut self, jump: Jump) {
        self.list.close();
        if let Some(Target::Task(task)) = jump.destination.target() {
            self.list.seek(move |key| *key == task, jump.is_into_detail());
        }
    }
}

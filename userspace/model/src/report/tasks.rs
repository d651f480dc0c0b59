//! The report's `tasks`.

use std::rc::Rc;

use serde::Serialize;

use super::source::Source;
use super::{FrameOut, Spent, StackOut, pid};
use crate::views;
use crate::{Pid, TaskKind, TaskState};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskOut {
    pub pid: Pid,
    pub kind: TaskKind,
    /// `None` for all other tasks of the same coroutine together.
    pub name: Option<String>,
    /// The function of its outermost coroutine, at its first line.
    pub coroutine: FrameOut,
    pub samples: u64,
    pub cpu_s: f64,
    /// Sleeps that blocked its event loop.
    pub blocked: Spent,
    /// What it did when it was last listed; `None` if it had ended, or was never listed.
    pub status: Option<TaskStatusOut>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskStatusOut {
    pub state: TaskState,
    pub since_s: f64,
    /// The name of the task that it awaits.
    pub awaits: Option<String>,
    /// Its coroutines, each awaited by the one before it.
    pub stack: StackOut,
}

/// The busiest first.
pub(super) fn tasks<'m>(source: &Rc<Source<'m>>) -> impl Iterator<Item = TaskOut> + use<'m> {
    let source = Rc::clone(source);
    let (model, limit) = (source.model, source.limit);
    let rows = views::tasks(model, &source.selection);
    let row = move |row: views::TaskRow| {
        let task = model.tasks().get(row.task)?;
        Some(TaskOut {
            pid: pid(model, task.process)?,
            kind: task.kind,
            name: task.name.as_deref().map(str::to_owned),
            coroutine: FrameOut::from(model.frame(task.coroutine)?),
            samples: row.cpu.samples,
            cpu_s: row.cpu.time.as_secs_f64(),
            blocked: row.blocked.into(),
            status: row.status.map(|status| TaskStatusOut {
                state: status.state,
                since_s: status.since.as_secs_f64(),
                awaits: status.awaits.and_then(|other| model.task_label(other)),
                stack: source.stack(status.stack),
            }),
        })
    };
    rows.into_iter().take(limit).filter_map(row)
}

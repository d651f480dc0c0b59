//! The family `tasks`: tasks of event loops, and which stacks are theirs.

use std::sync::Arc;

use pyobs_model::{Event, FrameId, Nanos, ProcessRef, StackId, Task, TaskId, TaskKind, TaskState, TaskStatus};
use rusqlite::{Connection, Result};

use super::scan::Dense;
use super::{Reading, Rows};
use crate::Error;
use crate::merge::Merge;
use crate::table::{Table, tables};

tables! {
    /// Family `tasks`: the tasks of event loops that ran or blocked their loop.
    #[insert(OR IGNORE)]
    TaskRow in "tasks" {
        #[key] id: TaskId = "number, from 0",
        process: ProcessRef = "`processes.id`",
        kind: TaskKind = "`asyncio`, `greenlet`, or `coroutine` for one that something else runs, such as trio",
        name: Option<Arc<str>> = "the task's name, such as `Task-7`; NULL for all other tasks of the same coroutine together",
        coroutine: FrameId = "`frames.id`: the function of its outermost coroutine, at its first line",
    }

    /// Family `tasks`: the task that ran, or slept and so blocked its event loop, where a stack was taken.
    #[insert(OR IGNORE)]
    StackTaskRow in "stack_tasks" {
        #[key] stack: StackId = "`stacks.id`",
        task: TaskId = "`tasks.id`",
    }

    /// Family `tasks`: what tasks did when those of their process were listed, which happens about once a second. A row is
    /// written if it differs from the task's previous one.
    StatusRow in "task_states" {
        at as "at_ns": Nanos = "when",
        task: TaskId = "`tasks.id`",
        state: Option<TaskState> = "`running`, `scheduled` (the loop runs it in its next turn), `waiting` or `created` (it has not begun to run); NULL if it has ended",
        awaits: Option<TaskId> = "`tasks.id` of the task that it awaits",
        stack: StackId = "`stacks.id`: its coroutines, each awaited by the one before it",
    }
}

pub(crate) fn task(connection: &Connection, id: TaskId, task: &Task) -> Result<()> {
    let Task { process, kind, name, coroutine } = task.clone();
    TaskRow { id, process, kind, name, coroutine }.insert(connection)
}

pub(crate) fn of_stack(connection: &Connection, stack: StackId, task: TaskId) -> Result<()> {
    StackTaskRow { stack, task }.insert(connection)
}

pub(crate) fn status(connection: &Connection, status: &TaskStatus) -> Result<()> {
    let TaskStatus { at, task, state, awaits, stack } = *status;
    StatusRow { at, task, state, awaits, stack }.insert(connection)
}

pub(crate) fn read(reading: &mut Reading<'_>, merge: &mut Merge<'_>) -> std::result::Result<(), Error> {
    merge.events(reading, Rows::Until, |row| {
        let StatusRow { at, task, state, awaits, stack } = row;
        Some(Event::TaskStatus(TaskStatus { at, task, state, awaits, stack }))
    })
}

/// Emits the definitions, which follow those of stacks.
pub(crate) fn define(reading: &mut Reading<'_>, mut each: impl FnMut(Event)) -> std::result::Result<(), Error> {
    let mut ids = Dense::default();
    reading.scan(Rows::All, |row: TaskRow| {
        let TaskRow { id, process, kind, name, coroutine } = row;
        let task = Task { process, kind, name, coroutine };
        for missing in ids.missing(id.0)? {
            each(Event::Task { id: TaskId(missing), task: Task { name: None, ..task.clone() } });
        }
        each(Event::Task { id, task });
        Some(())
    })?;
    reading.scan(Rows::All, |row: StackTaskRow| {
        each(Event::StackTask { stack: row.stack, task: row.task });
        Some(())
    })
}

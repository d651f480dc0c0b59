//! The family `tasks`: the tasks of event loops, and which stacks are theirs.

use std::collections::HashMap;
use std::sync::Arc;

use crate::{Frame, History, Model, Nanos, ProcessRef, StackId, Task, TaskId, TaskState, TaskStatus};

#[derive(Debug)]
pub struct Tasks {
    all: Vec<Task>,
    /// What stands for each of them in views of stacks.
    frames: Vec<Frame>,
    of_stacks: HashMap<StackId, TaskId>,
    /// Of tasks that have been listed and have not ended.
    statuses: HashMap<TaskId, Status>,
}

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub state: TaskState,
    pub awaits: Option<TaskId>,
    pub stack: StackId,
    /// When it was first seen in this state, at this place.
    pub since: Nanos,
}

impl Tasks {
    pub fn new(_history: History) -> Self {
        Self { all: Vec::new(), frames: Vec::new(), of_stacks: HashMap::new(), statuses: HashMap::new() }
    }

    /// Definitions have no time.
    pub fn expire(&mut self, _now: Nanos) {}

    pub(crate) fn define(&mut self, id: TaskId, task: &Task, coroutine: &Frame) {
        if id.0 as usize == self.all.len() {
            self.all.push(task.clone());
            let function = Arc::from(label(task, coroutine));
            self.frames.push(Frame { function, line: coroutine.first_line, ..coroutine.clone() });
        }
    }

    /// What stands for a task in views of stacks: its coroutine's function, under the task's name.
    pub fn frame(&self, id: TaskId) -> Option<&Frame> {
        self.frames.get(id.0 as usize)
    }

    pub(crate) fn add(&mut self, stack: StackId, task: TaskId) {
        if self.get(task).is_some() {
            self.of_stacks.insert(stack, task);
        }
    }

    pub fn get(&self, id: TaskId) -> Option<&Task> {
        self.all.get(id.0 as usize)
    }

    /// The task that runs where a stack was taken.
    pub fn of(&self, stack: StackId) -> Option<TaskId> {
        self.of_stacks.get(&stack).copied()
    }

    pub(crate) fn set(&mut self, status: &TaskStatus) {
        let TaskStatus { at, task, state, awaits, stack } = *status;
        match state {
            Some(state) if self.get(task).is_some() => {
                self.statuses.insert(task, Status { state, awaits, stack, since: at });
            }
            _ => _ = self.statuses.remove(&task),
        }
    }

    /// Forgets what the tasks of a process do.
    pub(crate) fn end(&mut self, process: ProcessRef) {
        let all = &self.all;
        self.statuses.retain(|id, _| all.get(id.0 as usize).is_some_and(|task| task.process != process));
    }

    /// What a task did when it was last listed; `None` if it has ended or was never listed.
    pub fn status(&self, task: TaskId) -> Option<&Status> {
        self.statuses.get(&task)
    }

    /// The tasks that have been listed and have not ended.
    pub fn alive(&self) -> impl Iterator<Item = (TaskId, &Task)> + '_ {
        self.statuses.keys().filter_map(|id| Some((*id, self.get(*id)?)))
    }

    /// How many tasks of a process have been listed and have not ended.
    pub fn alive_in(&self, process: ProcessRef) -> usize {
        self.alive().filter(|(_, task)| task.process == process).count()
    }

    /// All tasks, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (TaskId, &Task)> + '_ {
        self.all.iter().zip(0..).map(|(task, id)| (TaskId(id), task))
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl Model {
    /// For example `handler (Task-7)`, or `handler` for all other tasks of that coroutine together.
    pub fn task_label(&self, id: TaskId) -> Option<String> {
        self.tasks().frame(id).map(|frame| frame.function.to_string())
    }
}

fn label(task: &Task, coroutine: &Frame) -> String {
    let function = &coroutine.function;
    task.name.as_ref().map_or_else(|| function.to_string(), |name| format!("{function} ({name})"))
}

//! The tree of asyncio's tasks: below each, the tasks that it awaits.

use std::collections::{HashMap, HashSet};

use pyobs_model::dump::{ProcessDump, StackState, TaskDump, TaskState};
use pyobs_model::number::{grouped, plural};

use super::{NAME, Text};
use crate::escape;

/// Tasks that a process is shown with, and how deep the tree goes.
const TASKS_MAX: usize = 10_000;
const DEPTH_MAX: usize = 20;
/// Names listed of tasks that are alike.
const NAMES_MAX: usize = 5;

/// Tasks that are alike: the same coroutines at the same lines, awaiting nothing that differs.
type Alike<'a> = Vec<&'a TaskDump>;

struct Tree<'a> {
    by_id: HashMap<&'a str, &'a TaskDump>,
    seen: HashSet<&'a str>,
}

impl Text<'_> {
    pub(super) fn tasks(&mut self, process: &ProcessDump) {
        let Some(tasks) = process.tasks.as_ref().filter(|tasks| !tasks.is_empty()) else { return };
        let running = tasks.iter().filter(|task| task.state == TaskState::Running).count();
        let count = plural(tasks.len() as u64, "task", "tasks");
        self.line(&format!("  asyncio has {count}, {} running:", grouped(running as u64)));
        let by_id = tasks.iter().map(|task| (task.id.as_str(), task)).collect();
        let mut tree = Tree { by_id, seen: HashSet::new() };
        let roots: Vec<&TaskDump> = tasks.iter().filter(|task| task.awaited_by.is_empty()).collect();
        self.level(&roots, 1, &mut tree);
        // What is left is awaited by what it awaits.
        for task in tasks {
            if !tree.seen.contains(task.id.as_str()) {
                self.line("    Tasks that await each other in a circle:");
                self.level(&[task], 2, &mut tree);
            }
        }
    }

    fn level<'a>(&mut self, tasks: &[&'a TaskDump], depth: usize, tree: &mut Tree<'a>) {
        let indent = "  ".repeat(depth + 1);
        let new: Vec<&TaskDump> = tasks.iter().copied().filter(|task| tree.seen.insert(&task.id)).collect();
        for alike in grouped_by_stack(&new) {
            if tree.seen.len() > TASKS_MAX {
                return self.line(&format!("{indent}and more"));
            }
            self.line(&format!("{indent}{}", heading(&alike)));
            let [first, ..] = &alike[..] else { continue };
            first.stack.iter().for_each(|frame| self.frame_at(&format!("{indent}  "), frame));
            let awaited: Vec<&TaskDump> =
                first.awaits.iter().filter_map(|id| tree.by_id.get(id.as_str()).copied()).collect();
            let again: Vec<&str> =
                awaited.iter().filter(|task| tree.seen.contains(task.id.as_str())).map(|task| name(task)).collect();
            if !again.is_empty() {
                let again: Vec<_> = again.into_iter().map(|name| escape::line(name, NAME)).collect();
                self.line(&format!("{indent}  awaits {}, shown elsewhere", again.join(", ")));
            }
            if depth < DEPTH_MAX {
                self.level(&awaited, depth + 1, tree);
            }
        }
    }
}

/// In the order of the first of each group. Tasks that await others stand alone.
fn grouped_by_stack<'a>(tasks: &[&'a TaskDump]) -> Vec<Alike<'a>> {
    let mut groups: Vec<Alike<'a>> = Vec::new();
    for task in tasks {
        let is_alike = |group: &&mut Alike<'a>| {
            let first = group[0];
            task.awaits.is_empty()
                && first.awaits.is_empty()
                && first.state == task.state
                && first.stack_state == task.stack_state
                && first.stack == task.stack
        };
        match groups.iter_mut().find(is_alike) {
            Some(group) => group.push(task),
            None => groups.push(vec![task]),
        }
    }
    groups
}

/// `Task-7, waiting`, `20 tasks, waiting: a, b, …`
fn heading(alike: &[&TaskDump]) -> String {
    let state = alike.first().map_or("", |task| match (task.stack_state, task.state) {
        (StackState::Torn, _) => "torn: it ran while its frames were read",
        (_, TaskState::Created) => "not begun",
        (_, state) => state.name(),
    });
    let mut names: Vec<_> = alike.iter().take(NAMES_MAX).map(|task| escape::line(name(task), NAME)).collect();
    if let [only] = &names[..] {
        return format!("{only}, {state}");
    }
    if alike.len() > NAMES_MAX {
        names.push("…".into());
    }
    format!("{} tasks, {state}: {}", grouped(alike.len() as u64), names.join(", "))
}

fn name(task: &TaskDump) -> &str {
    task.name.as_deref().unwrap_or(&task.id)
}

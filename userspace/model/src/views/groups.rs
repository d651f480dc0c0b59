//! Groups of processes: by what they run, where, and as whom.

use std::collections::HashMap;

use foldhash::HashMap as FastMap;

use super::Group;
use crate::{Model, ProcessRef, ProcessState, Tid};

/// Which group each process is in. The first process of a group stands for it.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    group: Group,
    of: FastMap<ProcessRef, ProcessRef>,
}

impl Groups {
    pub fn new(model: &Model, group: Group) -> Self {
        let mut of = FastMap::default();
        if group.merges_processes() {
            let mut first: HashMap<String, ProcessRef> = HashMap::new();
            for (process, state) in model.processes() {
                let first = *first.entry(label(state, group)).or_insert(process);
                of.insert(process, first);
            }
        }
        Self { group, of }
    }

    /// The process that stands for the group of this one: itself if each is a group.
    pub fn of(&self, process: ProcessRef) -> ProcessRef {
        self.of.get(&process).copied().unwrap_or(process)
    }

    /// The group of a thread. Unless each thread is a row, all threads of a group have the tid 0.
    pub fn thread(&self, process: ProcessRef, tid: Tid) -> (ProcessRef, Tid) {
        if self.group.splits_processes() { (self.of(process), Tid(0)) } else { (process, tid) }
    }

    /// As [`of`](Self::of), but `None` while processes are neither split nor grouped.
    pub fn split(&self, process: ProcessRef) -> Option<ProcessRef> {
        self.group.splits_processes().then(|| self.of(process))
    }
}

impl Group {
    /// Whether rows of different processes, or groups of them, are separate.
    pub fn splits_processes(self) -> bool {
        !matches!(self, Self::None | Self::Task)
    }

    /// Whether several processes share a row.
    pub fn merges_processes(self) -> bool {
        matches!(self, Self::Command | Self::Container | Self::User)
    }

    /// The next of these groupings after this one, which may be none of them.
    #[must_use]
    pub fn next_of(self, all: &[Self]) -> Self {
        let at = all.iter().position(|group| *group == self).unwrap_or(0);
        all.get((at + 1) % all.len().max(1)).copied().unwrap_or_default()
    }
}

/// The name of the group that a process is in.
pub fn group_name(model: &Model, group: Group, process: ProcessRef) -> Option<String> {
    model.process(process).map(|state| label(state, group))
}

fn label(state: &ProcessState, group: Group) -> String {
    let placement = &state.placement;
    match group {
        Group::Container => {
            placement.container.as_ref().map_or_else(|| "no container".to_owned(), |it| it.short_name().to_owned())
        }
        Group::User => match (&placement.user, placement.uid) {
            (Some(user), _) => user.to_string(),
            (None, Some(uid)) => uid.to_string(),
            (None, None) => "unknown user".to_owned(),
        },
        _ => program(&state.process.command),
    }
}

/// The program that a command line runs, such as `python3.12 server.py`, `python -m gunicorn`, or `nginx`.
fn program(command: &str) -> String {
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let mut words = command.split(' ');
    let first = base(words.next().unwrap_or_default());
    if !first.starts_with("python") {
        return first;
    }
    while let Some(word) = words.next() {
        match word {
            "-m" => return words.next().map_or(first.clone(), |module| format!("{first} -m {module}")),
            "-c" => return format!("{first} -c"),
            // These take a value.
            "-W" | "-X" => _ = words.next(),
            option if option.starts_with('-') => {}
            script => return format!("{first} {}", base(script)),
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_what_the_interpreter_runs() {
        for (command, expected) in [
            ("/usr/bin/python3.12 -X dev -u /srv/app/main.py --port 1", "python3.12 main.py"),
            ("python -m gunicorn app:app", "python -m gunicorn"),
            ("python3 -c from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)", "python3 -c"),
            ("python3", "python3"),
            ("/usr/local/bin/uwsgi --ini /etc/app.ini", "uwsgi"),
            ("", ""),
        ] {
            assert_eq!(program(command), expected, "{command}");
        }
    }

    #[test]
    fn the_next_grouping_skips_those_that_a_view_lacks() {
        let all = [Group::None, Group::Command, Group::User];
        assert_eq!(Group::None.next_of(&all), Group::Command);
        assert_eq!(Group::User.next_of(&all), Group::None);
        assert_eq!(Group::Task.next_of(&all), Group::Command);
        assert_eq!(Group::Task.next_of(&[]), Group::None);
    }
}

//! The containers of processes, with their names and limits.

use foldhash::HashMap;
use pyobs_model::{Container, CpuLimit, MemoryLimit};

use crate::containers::Group;
use crate::{limits, placements};

/// Names in a message.
const NAMES_MAX: usize = 20;

/// Where a process is placed.
#[derive(Clone, Debug, Default)]
pub struct Placed {
    pub group: Option<String>,
    pub container: Option<Container>,
    pub cpu: Option<CpuLimit>,
    pub memory: Option<MemoryLimit>,
}

impl Placed {
    /// Whether one of these is its container's name, its pod's, or the beginning of its id.
    pub fn is_in(&self, wanted: &[String]) -> bool {
        let container = self.container.as_ref();
        container.is_some_and(|container| wanted.iter().any(|wanted| placements::is_called(container, wanted)))
    }
}

/// What was found out, by control group.
#[derive(Default)]
pub struct Containers {
    by_group: HashMap<String, Placed>,
}

impl Containers {
    pub fn of(&mut self, pid: u32) -> Placed {
        let Some(group) = Group::of(pid) else { return Placed::default() };
        self.by_group.entry(group.path.clone()).or_insert_with(|| placed(&group)).clone()
    }

    /// The names of all containers, for a message.
    pub fn names(&self) -> String {
        let containers = self.by_group.values().filter_map(|placed| placed.container.as_ref());
        let mut names: Vec<&str> = containers.map(Container::short_name).collect();
        names.sort_unstable();
        names.dedup();
        names.truncate(NAMES_MAX);
        if names.is_empty() {
            return "no process of this machine is in a container".to_owned();
        }
        format!("these have processes: {}", names.join(", "))
    }
}

fn placed(group: &Group) -> Placed {
    let container = placements::container(group);
    let (cpu, memory) = limits::of(group);
    Placed { group: Some(group.path.clone()), container, cpu, memory }
}

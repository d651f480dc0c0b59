//! The containers of processes, with their names and limits.

use std::path::Path;

use foldhash::HashMap;
use pyobs_model::dump::{ContainerDump, CpuLimit};

use crate::containers::{Container, Group};

/// Digits of an id that a user has to type.
const ID_LEAST: usize = 4;
/// Names in a message.
const NAMES_MAX: usize = 20;

/// Where a process is placed.
#[derive(Clone, Debug, Default)]
pub struct Placed {
    pub group: Option<String>,
    pub container: Option<ContainerDump>,
    pub limit: Option<CpuLimit>,
}

impl Placed {
    /// Whether one of these is its container's name, its pod's, or the beginning of its id.
    pub fn is_in(&self, wanted: &[String]) -> bool {
        let Some(container) = &self.container else { return false };
        wanted.iter().any(|wanted| {
            let names = [&container.name, &container.pod, &container.pod_uid];
            names.into_iter().flatten().any(|name| name == wanted)
                || wanted.len() >= ID_LEAST && container.id.starts_with(wanted.as_str())
        })
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
        let mut names: Vec<&str> = containers.map(ContainerDump::short_name).collect();
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
    let container = group.container().map(|container| {
        let names = container.names(Path::new("/"));
        let Container { engine, id, pod } = container;
        ContainerDump {
            engine: engine.map(str::to_owned),
            id,
            name: names.name,
            image: names.image,
            pod_uid: pod,
            pod: names.pod_name,
            namespace: names.namespace,
        }
    });
    Placed { group: Some(group.path.clone()), container, limit: group.limit() }
}

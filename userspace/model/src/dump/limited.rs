//! Control groups whose limits hold their processes up.

use std::collections::BTreeMap;

use super::{Dump, ProcessDump};
use crate::findings::{Finding, near_limit, throttled};
use crate::views;

/// `container/throttled` and `container/memory`, for each control group once.
pub fn limited_groups(dump: &Dump) -> Vec<Finding> {
    let mut groups: BTreeMap<&str, &ProcessDump> = BTreeMap::new();
    for process in &dump.processes {
        if let Some(group) = &process.cgroup {
            groups.entry(group).or_insert(process);
        }
    }
    groups.into_iter().flat_map(|(group, process)| of_group(group, process)).collect()
}

fn of_group(group: &str, process: &ProcessDump) -> Vec<Finding> {
    let whose = views::label_of_cgroup(group, process.container.as_ref());
    let throttled = process.cpu_limit.and_then(|cpu| throttled(&whose, cpu, "since the group was made"));
    let memory = process.memory_limit.and_then(|memory| near_limit(&whose, memory));
    let found = throttled.into_iter().chain(memory);
    found.map(|finding| Finding { pid: Some(process.pid), ..finding }).collect()
}

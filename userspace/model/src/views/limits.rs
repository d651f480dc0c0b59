//! Control groups with limits, and what they used of them.

use std::sync::Arc;

use crate::families::limits::Used;
use crate::{Container, Model, Nanos, ProcessRef, Selection, WaitReason};

#[derive(Clone, Debug)]
pub struct LimitRow<'m> {
    /// From the root of the hierarchy.
    pub cgroup: &'m Arc<str>,
    /// The container whose group it is.
    pub container: Option<Arc<Container>>,
    /// The selected processes in the group, and in groups below it.
    pub processes: Vec<ProcessRef>,
    pub used: Used,
}

impl LimitRow<'_> {
    /// Such as `container web` or `control group /batch`.
    pub fn label(&self) -> String {
        label_of_cgroup(self.cgroup, self.container.as_deref())
    }

    /// How long selected threads of the group were kept waiting, each by itself.
    pub fn waited(&self, model: &Model, selection: &Selection) -> Nanos {
        let threads = model.offcpu().threads(selection).into_iter();
        let throttled = threads
            .filter(|((process, _, reason), _)| *reason == WaitReason::Throttled && self.processes.contains(process));
        throttled.fold(Nanos(0), |sum, (_, times)| sum.saturating_add(times.total))
    }
}

/// The groups with limits that selected processes are in, in the order of their paths.
pub fn limits<'m>(model: &'m Model, selection: &Selection) -> Vec<LimitRow<'m>> {
    let rows = model.limits().used(selection).map(|(cgroup, used)| {
        let is_below = |group: &str| is_in(group, cgroup);
        let inside: Vec<_> = model
            .processes()
            .filter(|(id, state)| selection.has_process(*id) && state.placement.cgroup.as_deref().is_some_and(is_below))
            .collect();
        let containers = inside.iter().filter_map(|(_, state)| state.placement.container.as_ref());
        let container = containers.into_iter().find(|container| cgroup.contains(&container.id)).cloned();
        LimitRow { cgroup, container, processes: inside.iter().map(|(id, _)| *id).collect(), used }
    });
    rows.filter(|row| !row.processes.is_empty()).collect()
}

/// Such as `container web` or `control group /batch`.
pub(crate) fn label_of_cgroup(cgroup: &str, container: Option<&Container>) -> String {
    match container {
        Some(container) => format!("container {}", container.short_name()),
        None => format!("control group {cgroup}"),
    }
}

/// Whether a control group is `outer`, or below it.
fn is_in(group: &str, outer: &str) -> bool {
    let rest = group.strip_prefix(outer.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::is_in;

    #[test]
    fn a_group_is_in_itself_and_in_those_above() {
        for (group, outer, expected) in
            [("/a/b", "/a", true), ("/a", "/a", true), ("/ab", "/a", false), ("/a", "/", true), ("/a", "/a/b", false)]
        {
            assert_eq!(is_in(group, outer), expected, "{group} in {outer}");
        }
    }
}

//! Control groups whose CPU limit takes their CPU away.

use std::collections::BTreeMap;

use super::{CpuLimit, Dump, ProcessDump};
use crate::Nanos;
use crate::findings::{Cost, Evidence, Finding, Severity};
use crate::number::{grouped, time};

/// Below these the limit hardly matters.
const LEAST_PERIODS: u64 = 10;
const LEAST_SHARE: f64 = 0.05;

/// A finding for each control group that waited for its next period often.
pub fn throttled_groups(dump: &Dump) -> Vec<Finding> {
    let mut groups: BTreeMap<&str, (&ProcessDump, CpuLimit)> = BTreeMap::new();
    for process in &dump.processes {
        if let (Some(group), Some(limit)) = (&process.cgroup, process.limit) {
            groups.entry(group).or_insert((process, limit));
        }
    }
    let is_throttled =
        |limit: &CpuLimit| limit.throttled_periods >= LEAST_PERIODS && limit.throttled_share() >= LEAST_SHARE;
    let groups = groups.into_iter().filter(|(_, (_, limit))| is_throttled(limit));
    groups.map(|(group, (process, limit))| finding(group, process, limit)).collect()
}

fn finding(group: &str, process: &ProcessDump, limit: CpuLimit) -> Finding {
    let whose = match &process.container {
        Some(container) => format!("container {}", container.short_name()),
        None => format!("control group {group}"),
    };
    let (cpus, percent) = (limit.cpus, 100.0 * limit.throttled_share());
    Finding {
        id: "container/throttled",
        severity: Severity::Warning,
        summary: format!("{whose} is limited to {cpus:.1} CPUs and was throttled in {percent:.0} % of its periods"),
        detail: format!(
            "{whose} may use {cpus:.1} CPUs. In {} of {} periods it used them up and had to wait, for {} in all since it was \
             made.",
            grouped(limit.throttled_periods),
            grouped(limit.periods),
            time(Nanos::from_secs_f64(limit.throttled_s)),
        ),
        advice: "Raise the limit, or start fewer threads and processes than it has CPUs.".to_owned(),
        process: None,
        pid: Some(process.pid),
        evidence: BTreeMap::from([
            ("cpus", Evidence::Number(cpus)),
            ("throttled_share", Evidence::Number(limit.throttled_share())),
        ]),
        cost: Cost::default(),
        target: None,
    }
}

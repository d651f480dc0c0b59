//! Control groups whose limits hold their processes up.

use std::collections::BTreeMap;

use super::{Cost, Evidence, Finding, Severity, commonest, place, seconds};
use crate::number::{grouped, plural, size, time};
use crate::views::{self, By, Group, LimitRow};
use crate::{CpuLimit, MemoryLimit, Model, ProcessRef, Selection, WaitReason};

/// Below these numbers of throttled periods, and this share of all periods, a CPU limit hardly matters.
const PERIODS: u64 = 10;
const SHARE: f64 = 0.05;
/// From this share on, the finding is serious.
const SERIOUS: f64 = 0.5;
/// Memory is near its limit from this share on.
const NEAR: f64 = 0.9;

/// `container/throttled` and `container/memory`.
pub(super) fn find(model: &Model, selection: &Selection) -> Vec<Finding> {
    views::limits(model, selection).iter().flat_map(|row| of_group(model, selection, row)).collect()
}

fn of_group(model: &Model, selection: &Selection, row: &LimitRow<'_>) -> Vec<Finding> {
    let whose = row.label();
    let mut throttled = row.used.cpu.and_then(|cpu| throttled(&whose, cpu, "in the time shown"));
    if let Some(finding) = &mut throttled {
        let waited = row.waited(model, selection);
        let line = throttled_line(model, selection, &row.processes);
        if let Some(line) = line.filter(|_| waited.0 > 0) {
            finding.detail += &format!(" Its threads waited for {} in all, mostly at {line}.", time(waited));
            finding.evidence.insert("line", Evidence::Text(line));
        }
        finding.evidence.insert("waited_s", Evidence::Number(seconds(waited)));
    }
    let memory = row.used.memory.and_then(|memory| near_limit(&whose, memory));
    let mut found: Vec<Finding> = throttled.into_iter().chain(memory).collect();
    // A finding about several processes belongs to none of them.
    if let [process] = row.processes[..] {
        for finding in &mut found {
            finding.process = Some(process);
            finding.pid = model.process(process).map(|state| state.process.pid);
        }
    }
    found
}

/// The line at which threads of these processes were throttled for the longest time.
fn throttled_line(model: &Model, selection: &Selection, processes: &[ProcessRef]) -> Option<String> {
    let rows = views::sleeps(model, selection, By::Line, Group::None).into_iter();
    let theirs = rows.filter(|row| row.reason == WaitReason::Throttled && processes.contains(&row.process));
    let line = commonest(theirs.map(|row| (row.frame, row.times.total)))?;
    Some(place(model, Some(line)))
}

/// A finding if a group used up its CPU time often. `over` is the time that the counts are of.
pub(crate) fn throttled(whose: &str, cpu: CpuLimit, over: &str) -> Option<Finding> {
    let share = cpu.throttled_share();
    if cpu.throttled_periods < PERIODS || share < SHARE {
        return None;
    }
    let (cpus, percent) = (cpu.cpus(), 100.0 * share);
    Some(Finding {
        severity: if share >= SERIOUS { Severity::Serious } else { Severity::Warning },
        detail: format!(
            "It may use {cpus:.1} CPUs. In {} of {} periods of {} it used up its CPU time and had to wait for the next \
             one, for {} {over}.",
            grouped(cpu.throttled_periods),
            grouped(cpu.periods),
            time(cpu.period),
            time(cpu.throttled),
        ),
        evidence: BTreeMap::from([
            ("cpus", Evidence::Number(cpus)),
            ("throttled_share", Evidence::Number(share)),
            ("throttled_s", Evidence::Number(seconds(cpu.throttled))),
        ]),
        cost: Cost::time(share),
        ..finding(
            "container/throttled",
            format!("{whose} is limited to {cpus:.1} CPUs and was throttled in {percent:.0} % of its periods"),
            "Raise the limit, or start fewer threads and processes than it has CPUs.",
        )
    })
}

/// A finding if a group's memory is almost used up, or if the kernel killed one of its processes for it.
pub(crate) fn near_limit(whose: &str, memory: MemoryLimit) -> Option<Finding> {
    let MemoryLimit { limit_bytes, used_bytes, killed } = memory;
    let share = used_bytes as f64 / limit_bytes.max(1) as f64;
    if share < NEAR && killed == 0 {
        return None;
    }
    let (used, limit, percent) = (size(used_bytes), size(limit_bytes), 100.0 * share);
    let kills = plural(killed, "process", "processes");
    let summary = if killed > 0 {
        format!("the kernel killed {kills} in {whose}, because its {limit} of memory were used up")
    } else {
        format!("{whose} uses {used} of the {limit} of memory that it may use ({percent:.0} %)")
    };
    let killing = if killed > 0 { format!(" The kernel killed {kills} for it.") } else { String::new() };
    Some(Finding {
        severity: if killed > 0 { Severity::Serious } else { Severity::Warning },
        detail: format!(
            "It may use {limit} of memory and used up to {used}, not counting pages of files that the kernel can drop at \
             once. When the limit is reached, the kernel kills a process of the group.{killing}"
        ),
        evidence: BTreeMap::from([
            ("limit_bytes", Evidence::Count(limit_bytes)),
            ("used_bytes", Evidence::Count(used_bytes)),
            ("killed", Evidence::Count(killed)),
        ]),
        ..finding(
            "container/memory",
            summary,
            "Raise the limit, or hold less memory: the screen Memory shows who holds it.",
        )
    })
}

fn finding(id: &'static str, summary: String, advice: &str) -> Finding {
    Finding {
        id,
        severity: Severity::Warning,
        summary,
        detail: String::new(),
        advice: advice.to_owned(),
        process: None,
        pid: None,
        evidence: BTreeMap::new(),
        cost: Cost::default(),
        target: None,
    }
}

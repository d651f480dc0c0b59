//! Limits of control groups: what the kernel allows a group, and how much of it the group has used.
//!
//! <https://docs.kernel.org/admin-guide/cgroup-v2.html> describes the files of version 2,
//! <https://docs.kernel.org/scheduler/sched-bwc.html> and
//! <https://docs.kernel.org/admin-guide/cgroup-v1/memory.html> those of version 1.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use foldhash::HashMap;
use pyobs_model::{CpuLimit, Event, Limits, MemoryLimit, Nanos};

use crate::containers::Group;

/// Where control groups are mounted.
const ROOT: &str = "/sys/fs/cgroup";
/// In it, the folders of two controllers of version 1.
const CPU: &str = "cpu";
const MEMORY: &str = "memory";
/// A larger memory limit means no limit: version 1 reports the largest number of pages then.
const UNLIMITED: u64 = 1 << 60;
/// Interval between two reads of a group with a limit, and of one without.
const EVERY: Nanos = Nanos(2_000_000_000);
const EVERY_UNLIMITED: Nanos = Nanos(20_000_000_000);
/// Groups read per interval; the others follow in turn.
const READS_MAX: usize = 32;

/// A group of a version, with its files.
struct Files<'a> {
    root: &'a Path,
    path: &'a str,
    is_old: bool,
}

impl<'a> Files<'a> {
    fn of(path: &'a str, is_old: bool) -> Self {
        Self { root: Path::new(ROOT), path, is_old }
    }

    fn read(&self, controller: &str, file: &str) -> Option<String> {
        let root = if self.is_old { self.root.join(controller) } else { self.root.to_owned() };
        fs::read_to_string(root.join(self.path.trim_start_matches('/')).join(file)).ok()
    }

    fn cpu(&self) -> Option<CpuLimit> {
        let read = |file: &str| self.read(CPU, file);
        let micros = |text: &str| Some(Nanos(text.trim().parse::<u64>().ok()?.saturating_mul(1000)));
        let (quota, period) = if self.is_old {
            // -1 stands for no limit.
            (micros(&read("cpu.cfs_quota_us")?)?, micros(&read("cpu.cfs_period_us")?)?)
        } else {
            let text = read("cpu.max")?;
            let (quota, period) = text.trim().split_once(' ')?;
            (micros(quota)?, micros(period)?)
        };
        let stat = read("cpu.stat")?;
        let throttled = match field(&stat, "throttled_usec") {
            Some(micros) => micros.saturating_mul(1000),
            None => field(&stat, "throttled_time")?,
        };
        Some(CpuLimit {
            quota,
            period,
            periods: field(&stat, "nr_periods")?,
            throttled_periods: field(&stat, "nr_throttled")?,
            throttled: Nanos(throttled),
        })
    }

    fn memory(&self) -> Option<MemoryLimit> {
        let (limit, used, inactive, kills) = if self.is_old {
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "memory.oom_control")
        } else {
            ("memory.max", "memory.current", "inactive_file", "memory.events")
        };
        let read = |file: &str| self.read(MEMORY, file);
        let number = |file: &str| read(file)?.trim().parse::<u64>().ok();
        let limit_bytes = number(limit).filter(|limit| *limit < UNLIMITED)?;
        let inactive = read("memory.stat").and_then(|stat| field(&stat, inactive)).unwrap_or(0);
        Some(MemoryLimit {
            limit_bytes,
            used_bytes: number(used)?.saturating_sub(inactive),
            killed: read(kills).and_then(|events| field(&events, "oom_kill")).unwrap_or(0),
        })
    }
}

/// The number after a name in a file of lines with a name and a number each.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.trim().parse().ok())
}

/// A group and those above it, from the innermost.
fn with_those_above(path: &str) -> impl Iterator<Item = &str> {
    Path::new(path).ancestors().filter_map(Path::to_str)
}

/// The limits that hold for a group: for CPU and memory each, its own, or that of the group next above that has one.
pub fn of(group: &Group) -> (Option<CpuLimit>, Option<MemoryLimit>) {
    let files = || with_those_above(&group.path).map(|path| Files::of(path, group.is_old));
    (files().find_map(|files| files.cpu()), files().find_map(|files| files.memory()))
}

/// What is known about a group.
#[derive(Default)]
struct Known {
    due: Nanos,
    last: Option<(Option<CpuLimit>, Option<MemoryLimit>)>,
}

/// Reads the limits of watched processes' groups in turns.
pub struct GroupLimits {
    is_old: bool,
    known: HashMap<Arc<str>, Known>,
    due: Nanos,
}

impl Default for GroupLimits {
    fn default() -> Self {
        let is_old = Group::of(std::process::id()).is_some_and(|group| group.is_old);
        Self { is_old, known: HashMap::default(), due: Nanos(0) }
    }
}

impl GroupLimits {
    /// Emits the limits of these groups and of those above that have changed, if it is time or the end.
    pub fn poll<'a>(
        &mut self,
        now: Nanos,
        at_the_end: bool,
        groups: impl Iterator<Item = &'a str>,
        events: &mut Vec<Event>,
    ) {
        if now < self.due && !at_the_end {
            return;
        }
        self.due = Nanos(now.0.saturating_add(EVERY.0));
        let watched: BTreeSet<&str> = groups.collect();
        let wanted: BTreeSet<&str> = watched.into_iter().flat_map(with_those_above).collect();
        self.known.retain(|path, _| wanted.contains(&**path));
        for path in wanted {
            if !self.known.contains_key(path) {
                self.known.insert(Arc::from(path), Known::default());
            }
        }
        let is_due = |known: &Known| known.due <= now || at_the_end && known.last.is_some();
        let mut due: Vec<_> = self.known.iter_mut().filter(|(_, known)| is_due(known)).collect();
        due.sort_by_key(|(_, known)| known.due);
        for (path, known) in due.into_iter().take(READS_MAX) {
            let files = Files::of(path, self.is_old);
            let (cpu, memory) = (files.cpu(), files.memory());
            let is_limited = cpu.is_some() || memory.is_some();
            known.due = Nanos(now.0.saturating_add(if is_limited { EVERY.0 } else { EVERY_UNLIMITED.0 }));
            let last = is_limited.then_some((cpu, memory));
            if is_limited && last != known.last {
                events.push(Event::Limits(Limits { at: now, cgroup: Arc::clone(path), cpu, memory }));
            }
            known.last = last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_follows_its_whole_name() {
        let text = "oom 3\noom_kill 7\noom_group_kill 9\nbad x\n";
        assert_eq!(["oom_kill", "oom", "bad", "none"].map(|name| field(text, name)), [Some(7), Some(3), None, None]);
    }

    /// The files have what the kernel's documentation shows.
    #[test]
    fn both_versions_say_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let write = |files: &[(&str, &str)]| {
            for (file, text) in files {
                let file = folder.path().join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
        };
        write(&[
            ("web/cpu.max", "20000 100000\n"),
            ("web/cpu.stat", "usage_usec 9\nnr_periods 30\nnr_throttled 7\nthrottled_usec 560000\nnr_bursts 0\n"),
            ("web/memory.max", "268435456\n"),
            ("web/memory.current", "100000000\n"),
            ("web/memory.stat", "anon 1\ninactive_file 20000000\nactive_file 3\n"),
            ("web/memory.events", "low 0\nhigh 0\nmax 4\noom 3\noom_kill 2\noom_group_kill 0\n"),
            ("free/cpu.max", "max 100000\n"),
            ("free/cpu.stat", "usage_usec 9\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"),
            ("free/memory.max", "max\n"),
            ("cpu/web/cpu.cfs_quota_us", "20000\n"),
            ("cpu/web/cpu.cfs_period_us", "100000\n"),
            ("cpu/web/cpu.stat", "nr_periods 30\nnr_throttled 7\nthrottled_time 560000000\n"),
            ("memory/web/memory.limit_in_bytes", "268435456\n"),
            ("memory/web/memory.usage_in_bytes", "100000000\n"),
            ("memory/web/memory.stat", "inactive_file 1\ntotal_inactive_file 20000000\n"),
            ("memory/web/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
            ("cpu/free/cpu.cfs_quota_us", "-1\n"),
            ("cpu/free/cpu.cfs_period_us", "100000\n"),
            ("memory/free/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        let cpu = CpuLimit {
            quota: Nanos(20_000_000),
            period: Nanos(100_000_000),
            periods: 30,
            throttled_periods: 7,
            throttled: Nanos(560_000_000),
        };
        let memory = MemoryLimit { limit_bytes: 268_435_456, used_bytes: 80_000_000, killed: 2 };
        for is_old in [false, true] {
            let files = |path| Files { root: folder.path(), path, is_old };
            assert_eq!((files("/web").cpu(), files("/web").memory()), (Some(cpu), Some(memory)), "{is_old}");
            assert_eq!((files("/free").cpu(), files("/free").memory()), (None, None), "{is_old}");
            assert_eq!(files("/none").cpu(), None);
        }
    }

    #[test]
    fn groups_above_end_at_the_root() {
        assert_eq!(with_those_above("/a/b").collect::<Vec<_>>(), ["/a/b", "/a", "/"]);
    }
}

//! Control groups that tests make by hand, named as container engines name them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where control groups of version 2 are mounted, and those of two controllers of version 1.
const NEW: &str = "/sys/fs/cgroup";
const OLD: &str = "/sys/fs/cgroup/cpu";
const OLD_MEMORY: &str = "/sys/fs/cgroup/memory";

/// The folder in which control groups with a CPU limit can be made.
pub fn root() -> Result<PathBuf, String> {
    let controllers = fs::read_to_string(format!("{NEW}/cgroup.controllers")).unwrap_or_default();
    let root = if controllers.split_whitespace().any(|controller| controller == "cpu") { NEW } else { OLD };
    let can_write = fs::metadata(format!("{root}/cgroup.procs")).is_ok_and(|file| !file.permissions().readonly());
    if can_write { Ok(root.into()) } else { Err("no control group with a CPU limit can be made here".to_owned()) }
}

/// A control group, made as an engine makes it and removed at the end. Version 1 has one for each controller.
pub struct ControlGroup(Vec<PathBuf>);

impl ControlGroup {
    /// With 20 ms of CPU time in each 100 ms.
    pub fn limited(name: &str) -> Self {
        let root = root().unwrap();
        let group = Self::make(&[&root], name);
        if root == Path::new(NEW) {
            fs::write(root.join("cgroup.subtree_control"), "+cpu").unwrap();
            group.write("cpu.max", "20000 100000");
        } else {
            group.write("cpu.cfs_period_us", "100000");
            group.write("cpu.cfs_quota_us", "20000");
        }
        group
    }

    /// With this much memory.
    pub fn with_memory(name: &str, bytes: u64) -> Self {
        let root = root().unwrap();
        let is_new = root == Path::new(NEW);
        let roots: &[&Path] = if is_new { &[&root] } else { &[Path::new(OLD_MEMORY), &root] };
        let group = Self::make(roots, name);
        if is_new {
            fs::write(root.join("cgroup.subtree_control"), "+memory").unwrap();
            // Without this, a group with swap uses that first.
            let _ = fs::write(group.0[0].join("memory.swap.max"), "0");
        }
        group.write(if is_new { "memory.max" } else { "memory.limit_in_bytes" }, &bytes.to_string());
        group
    }

    fn make(roots: &[&Path], name: &str) -> Self {
        let group = Self(roots.iter().map(|root| root.join(name)).collect());
        group.0.iter().for_each(|folder| fs::create_dir(folder).unwrap());
        group
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0[0].join(file), text).unwrap();
    }

    /// A group below it.
    pub fn below(&self, name: &str) -> Self {
        let roots: Vec<&Path> = self.0.iter().map(PathBuf::as_path).collect();
        Self::make(&roots, name)
    }

    /// The files that take the pids of its processes.
    pub fn processes(&self) -> Vec<PathBuf> {
        self.0.iter().map(|folder| folder.join("cgroup.procs")).collect()
    }

    pub fn add(&self, pid: u32) {
        self.processes().iter().for_each(|file| fs::write(file, pid.to_string()).unwrap());
    }

    /// `nr_throttled` and `nr_periods`.
    pub fn throttled(&self) -> [u64; 2] {
        [self.number("cpu.stat", "nr_throttled"), self.number("cpu.stat", "nr_periods")]
    }

    /// How long its threads were throttled, in seconds and summed over CPUs.
    pub fn throttled_s(&self) -> f64 {
        let stat = fs::read_to_string(self.0[0].join("cpu.stat")).unwrap();
        if stat.contains("throttled_usec") {
            self.number("cpu.stat", "throttled_usec") as f64 / 1e6
        } else {
            self.number("cpu.stat", "throttled_time") as f64 / 1e9
        }
    }

    fn number(&self, file: &str, name: &str) -> u64 {
        let text = fs::read_to_string(self.0[0].join(file)).unwrap();
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap()
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // A process leaves its group a moment after it was killed.
        for folder in &self.0 {
            while fs::remove_dir(folder).is_err() && folder.exists() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

//! Control groups that tests make by hand, named as container engines name them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where control groups of version 2 are mounted, and those of the CPU controller of version 1.
const NEW: &str = "/sys/fs/cgroup";
const OLD: &str = "/sys/fs/cgroup/cpu";

/// The folder in which control groups with a CPU limit can be made.
pub fn root() -> Result<PathBuf, String> {
    let controllers = fs::read_to_string(format!("{NEW}/cgroup.controllers")).unwrap_or_default();
    let root = if controllers.split_whitespace().any(|controller| controller == "cpu") { NEW } else { OLD };
    let can_write = fs::metadata(format!("{root}/cgroup.procs")).is_ok_and(|file| !file.permissions().readonly());
    if can_write { Ok(root.into()) } else { Err("no control group with a CPU limit can be made here".to_owned()) }
}

/// A control group, made as an engine makes it and removed at the end.
pub struct ControlGroup(PathBuf);

impl ControlGroup {
    /// With 20 ms of CPU time in each 100 ms.
    pub fn limited(name: &str) -> Self {
        let root = root().unwrap();
        let is_new = root == Path::new(NEW);
        let group = Self(root.join(name));
        fs::create_dir(&group.0).unwrap();
        if is_new {
            fs::write(root.join("cgroup.subtree_control"), "+cpu").unwrap();
            fs::write(group.0.join("cpu.max"), "20000 100000").unwrap();
        } else {
            fs::write(group.0.join("cpu.cfs_period_us"), "100000").unwrap();
            fs::write(group.0.join("cpu.cfs_quota_us"), "20000").unwrap();
        }
        group
    }

    /// A group below it.
    pub fn below(&self, name: &str) -> Self {
        let group = Self(self.0.join(name));
        fs::create_dir(&group.0).unwrap();
        group
    }

    /// The file that takes the pids of its processes.
    pub fn processes(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }

    pub fn add(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// `nr_throttled` and `nr_periods`.
    pub fn throttled(&self) -> [u64; 2] {
        let stat = fs::read_to_string(self.0.join("cpu.stat")).unwrap();
        let field = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap();
        [field("nr_throttled"), field("nr_periods")]
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // A process leaves its group a moment after it was killed.
        while fs::remove_dir(&self.0).is_err() && self.0.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

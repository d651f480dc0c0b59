//! Containers and their limits.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pyobs_tests::{Python, Workload, command, json, pyobs};

use super::{dump_with, start};

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
struct Group(PathBuf);

impl Group {
    /// With 20 ms of CPU time in each 100 ms.
    fn new(name: &str) -> Self {
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

    fn add(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// `nr_throttled` and `nr_periods`.
    fn throttled(&self) -> [u64; 2] {
        let stat = fs::read_to_string(self.0.join("cpu.stat")).unwrap();
        let field = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap();
        [field("nr_throttled"), field("nr_periods")]
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process leaves its group a moment after it was killed.
        while fs::remove_dir(&self.0).is_err() && self.0.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

pub fn container(python: &Python) {
    let id = format!("{:064x}", std::process::id());
    let group = Group::new(&format!("docker-{id}.scope"));
    let (program, facts) = start(python, &["burn"]);
    group.add(program.pid());
    while group.throttled()[0] < 20 {
        std::thread::sleep(Duration::from_millis(50));
    }
    let before = group.throttled();
    let dump = dump_with(program.pid(), &["--container", &id[..63]]);
    let [process] = json::list(&dump, "/processes") else { panic!("{dump:#}") };
    assert_eq!(process["pid"], facts["pid"]);
    assert_eq!(json::text(process, "/container/id"), id);
    assert_eq!(json::text(process, "/container/engine"), "docker");
    assert_eq!(json::number(process, "/limit/cpus"), 0.2);
    let said = ["/limit/throttled_periods", "/limit/periods"].map(|field| json::count(process, field));
    let after = group.throttled();
    assert!((0..2).all(|index| (before[index]..=after[index]).contains(&said[index])), "{before:?} {said:?} {after:?}");
    let [finding] = json::list(&dump, "/findings") else { panic!("{dump:#}") };
    assert_eq!(json::text(finding, "/id"), "container/throttled");
    assert!(json::text(finding, "/summary").contains(" is limited to 0.2 CPUs "), "{finding:#}");
    let mut other = command(pyobs());
    other.args(["dump", "--container", "no-such-name"]);
    let ended = Workload::start(other).wait();
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("no Python process runs in a container called no-such-name"), "{}", ended.stderr);
    drop(program);
}

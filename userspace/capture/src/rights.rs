//! The privileges that pyobs needs, and which of them the user has, for the start of a capture and for
//! `doctor`.

use std::fs;

use rustix::thread::{CapabilitySet, capabilities};

/// A privilege, including the older capability that covers it.
struct Right {
    name: &'static str,
    any: CapabilitySet,
    /// What does not work without it.
    without: &'static str,
}

/// Privileges without which pyobs cannot watch anything.
fn needed_rights() -> [Right; 3] {
    let bpf = Right {
        name: "CAP_BPF",
        any: CapabilitySet::BPF.union(CapabilitySet::SYS_ADMIN),
        without: "no BPF program can be loaded",
    };
    let sampling = if paranoia() > PARANOIA_MAX {
        Right {
            name: "CAP_SYS_ADMIN",
            any: CapabilitySet::SYS_ADMIN,
            without: "no CPU can be sampled while kernel.perf_event_paranoid is above 2",
        }
    } else {
        Right {
            name: "CAP_PERFMON",
            any: CapabilitySet::PERFMON.union(CapabilitySet::SYS_ADMIN),
            without: "no CPU can be sampled",
        }
    };
    let reading = Right {
        name: "CAP_SYS_PTRACE",
        any: CapabilitySet::SYS_PTRACE,
        without: "the memory of other processes cannot be read",
    };
    [bpf, sampling, reading]
}

/// The highest level of upstream Linux. Debian and Ubuntu add higher ones and use them by default; there the
/// kernel refuses every perf event without CAP_SYS_ADMIN (tried on Debian's 6.18; `perf_event_open` in
/// kernel/events/core.c).
const PARANOIA_MAX: i32 = 2;

/// `kernel.perf_event_paranoid`; the strictest level if it cannot be read.
fn paranoia() -> i32 {
    let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    level.and_then(|level| level.trim().parse().ok()).unwrap_or(i32::MAX)
}

/// The capability needed to open a perf event, from Linux 5.8 on.
pub fn for_perf_events() -> CapabilitySet {
    if paranoia() > PARANOIA_MAX { CapabilitySet::SYS_ADMIN } else { CapabilitySet::PERFMON }
}

/// Privileges without which pyobs sees less. The text says what does not work if the user may not probe functions.
fn helpful_rights(without_probes: &'static str) -> [Right; 3] {
    let folders = Right {
        name: "CAP_DAC_READ_SEARCH",
        any: CapabilitySet::DAC_READ_SEARCH.union(CapabilitySet::DAC_OVERRIDE),
        without: "programs in folders that are closed to this user have no names",
    };
    let files = Right {
        name: "CAP_CHECKPOINT_RESTORE",
        any: CapabilitySet::CHECKPOINT_RESTORE.union(CapabilitySet::SYS_ADMIN),
        without: "files that were deleted or replaced have no names",
    };
    let probes = Right { name: "CAP_SYS_ADMIN", any: CapabilitySet::SYS_ADMIN, without: without_probes };
    [folders, files, probes]
}

/// Names of missing privileges, with the consequence of each.
pub type Lacking = Vec<(&'static str, &'static str)>;

fn lacking(rights: &[Right]) -> Lacking {
    let effective = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    rights.iter().filter(|right| !effective.intersects(right.any)).map(|right| (right.name, right.without)).collect()
}

/// The missing privileges that pyobs requires.
pub fn lacking_needed() -> Lacking {
    lacking(&needed_rights())
}

/// The missing privileges that pyobs can do without.
pub fn lacking_helpful(without_probes: &'static str) -> Lacking {
    lacking(&helpful_rights(without_probes))
}

/// Whether functions of other programs can be probed: the kernel requires CAP_SYS_ADMIN, and CAP_PERFMON is
/// not enough (`perf_uprobe_event_init` in
/// <https://github.com/torvalds/linux/blob/v6.1/kernel/events/core.c>).
pub fn may_probe() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Whether the memory of other users' processes can be read.
pub fn may_read_memory() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE))
}

pub fn needed() -> impl Iterator<Item = &'static str> {
    needed_rights().into_iter().map(|right| right.name)
}

/// Starts a container in which pyobs has all rights.
pub const CONTAINER: &str = "docker run --pid=host --privileged";

/// What to do about missing privileges. Root lacks some only in a container.
pub fn todo() -> String {
    if rustix::process::geteuid().is_root() {
        return format!("start the container with `{CONTAINER}`");
    }
    format!("run pyobs as root with sudo, or give it these rights once: {}", setcap())
}

/// Says who lacks which privileges.
pub fn lack(lacking: &Lacking) -> String {
    let who = if rustix::process::geteuid().is_root() { "root, as in a container," } else { "this user" };
    let named: Vec<_> = lacking.iter().map(|(name, without)| format!("{name} ({without})")).collect();
    format!("{who} lacks {}", named.join(", "))
}

/// A command that lets ordinary users run this program, with as few capabilities as possible.
fn setcap() -> String {
    let sampling = if paranoia() > PARANOIA_MAX { "cap_sys_admin" } else { "cap_perfmon" };
    let program = fs::read_link("/proc/self/exe").map_or("pyobs".to_owned(), |path| path.display().to_string());
    format!(
        "sudo setcap cap_bpf,{sampling},cap_sys_ptrace,cap_dac_read_search,cap_checkpoint_restore+ep '{}'",
        program.replace('\'', r"'\''")
    )
}

/// A kind of namespace that a container may have of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    Pid,
    User,
}

impl Namespace {
    fn link(self) -> &'static str {
        match self {
            Self::Pid => "/proc/self/ns/pid",
            Self::User => "/proc/self/ns/user",
        }
    }

    /// The inode of the machine's initial one
    /// (<https://github.com/torvalds/linux/blob/v6.1/include/linux/proc_ns.h>).
    fn first(self) -> u64 {
        match self {
            Self::Pid => 0xEFFF_FFFC,
            Self::User => 0xEFFF_FFFD,
        }
    }

    /// Whether this process is in the initial namespace; an error if /proc does not show it.
    pub fn is_first(self) -> std::io::Result<bool> {
        let link = fs::read_link(self.link())?;
        Ok(inode(&link.to_string_lossy()) == Some(self.first()))
    }

    /// Like [`Self::is_first`]; true if /proc does not show it.
    pub fn may_be_first(self) -> bool {
        self.is_first().unwrap_or(true)
    }
}

/// The number in `pid:[4026531836]`.
fn inode(link: &str) -> Option<u64> {
    link.split_once('[')?.1.strip_suffix(']')?.parse().ok()
}

/// Whether lockdown forbids BPF programs to read memory, even for root.
pub fn is_locked_down() -> bool {
    lockdown().as_deref() == Some("confidentiality")
}

/// The kernel's lockdown mode; `None` if it has none, or securityfs is not mounted.
pub fn lockdown() -> Option<String> {
    let modes = fs::read_to_string("/sys/kernel/security/lockdown").ok()?;
    chosen(&modes).map(str::to_owned)
}

/// The bracketed word of `none [integrity] confidentiality`.
fn chosen(modes: &str) -> Option<&str> {
    modes.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_link_holds_its_inode() {
        assert_eq!(inode("pid:[4026531836]"), Some(Namespace::Pid.first()));
        assert_eq!(inode("pid"), None);
    }

    #[test]
    fn the_lockdown_mode_is_the_bracketed_one() {
        assert_eq!(chosen("none [integrity] confidentiality\n"), Some("integrity"));
        assert_eq!(chosen("none"), None);
    }
}

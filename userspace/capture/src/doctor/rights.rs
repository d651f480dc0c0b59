//! What the user may do.

use std::fs;
use std::io;

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use super::{ALL, Area, Check, Status, kernel};

const ROOT: &str = "run it as root: `sudo pyobs doctor`";

/// What pyobs must be able to do to start, each with the older capability that includes it.
const NEEDED: &[(&str, CapabilitySet)] = &[
    ("CAP_BPF", CapabilitySet::BPF.union(CapabilitySet::SYS_ADMIN)),
    ("CAP_PERFMON", CapabilitySet::PERFMON.union(CapabilitySet::SYS_ADMIN)),
    ("CAP_SYS_PTRACE", CapabilitySet::SYS_PTRACE),
    ("CAP_DAC_READ_SEARCH", CapabilitySet::DAC_READ_SEARCH.union(CapabilitySet::DAC_OVERRIDE)),
    ("CAP_CHECKPOINT_RESTORE", CapabilitySet::CHECKPOINT_RESTORE.union(CapabilitySet::SYS_ADMIN)),
];

/// The inodes of the first namespaces: PROC_PID_INIT_INO and PROC_USER_INIT_INO of the kernel.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
const FIRST_USER_NAMESPACE: u64 = 0xEFFF_FFFD;

fn lacking() -> io::Result<Vec<&'static str>> {
    let effective = capabilities(None)?.effective;
    Ok(NEEDED.iter().filter(|(_, any)| !effective.intersects(*any)).map(|(name, _)| *name).collect())
}

/// Whether a refusal can have another cause than that the user lacks rights.
pub(super) fn is_privileged() -> bool {
    lacking().is_ok_and(|lacking| lacking.is_empty())
}

pub(super) fn examine(checks: &mut Vec<Check>) {
    let mut area = Area::new("rights", checks);
    match lacking() {
        Ok(lacking) if lacking.is_empty() => {
            let names: Vec<_> = NEEDED.iter().map(|(name, _)| *name).collect();
            let who = if rustix::process::geteuid().is_root() { "root" } else { "not root" };
            area.works("capabilities", ALL, format!("{who}, with all that is needed: {}", names.join(", ")));
        }
        Ok(lacking) => {
            area.lacks("capabilities", ALL, Status::Missing, format!("this user lacks {}", lacking.join(", ")), ROOT);
        }
        Err(error) => area.lacks("capabilities", ALL, Status::Missing, format!("capget: {error}"), ROOT),
    }

    namespace(
        &mut area,
        "process namespace",
        "/proc/self/ns/pid",
        FIRST_PID_NAMESPACE,
        "the kernel's process ids are not those seen here",
        "run pyobs on the host, or in a container started with `--pid=host`",
    );
    namespace(
        &mut area,
        "user namespace",
        "/proc/self/ns/user",
        FIRST_USER_NAMESPACE,
        "being root here is not being root of the machine",
        "run pyobs on the host, not in a rootless container",
    );
    locked_memory(&mut area);
    open_files(&mut area);
}

fn namespace(area: &mut Area<'_>, name: &'static str, link: &str, first: u64, why: &str, todo: &str) {
    let target = fs::read_link(link).map(|target| target.to_string_lossy().into_owned());
    match target.as_deref().map(inode) {
        Ok(Some(own)) if own == first => area.works(name, ALL, "the machine's first one"),
        Ok(_) => area.lacks(name, ALL, Status::Missing, format!("a container's: {why}"), todo),
        Err(error) => area.lacks(name, ALL, Status::Degraded, format!("{link}: {error}"), "mount /proc"),
    }
}

/// The number in `pid:[4026531836]`.
fn inode(link: &str) -> Option<u64> {
    link.split_once('[')?.1.strip_suffix(']')?.parse().ok()
}

/// Since 5.11 BPF memory is charged to the control group, and the limit means nothing.
fn locked_memory(area: &mut Area<'_>) {
    let limit = getrlimit(Resource::Memlock).current;
    let size = limit.map_or("unlimited".to_owned(), |bytes| format!("{} KiB", bytes / 1024));
    let can_raise = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_RESOURCE));
    if kernel::version() >= (5, 11) {
        area.works("locked memory", ALL, format!("{size}; this kernel does not count BPF memory against it"));
    } else if limit.is_none() || can_raise {
        area.works("locked memory", ALL, size);
    } else {
        area.lacks(
            "locked memory",
            ALL,
            Status::Degraded,
            format!("{size}, and BPF maps count against it"),
            "`ulimit -l unlimited`, or run it as root",
        );
    }
}

fn open_files(area: &mut Area<'_>) {
    const ENOUGH: u64 = 4096;
    match getrlimit(Resource::Nofile).maximum {
        Some(maximum) if maximum < ENOUGH => area.lacks(
            "open files",
            ALL,
            Status::Degraded,
            format!("at most {maximum}: every probe takes one on every place"),
            "`ulimit -Hn 65536` as root",
        ),
        Some(maximum) => area.works("open files", ALL, format!("at most {maximum}")),
        None => area.works("open files", ALL, "unlimited"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_link_holds_its_inode() {
        assert_eq!(inode("pid:[4026531836]"), Some(FIRST_PID_NAMESPACE));
        assert_eq!(inode("pid"), None);
    }
}

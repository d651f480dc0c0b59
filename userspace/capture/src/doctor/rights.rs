//! What the user may do.

use std::sync::LazyLock;

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use super::{ALL, Area, Check, Status};
use crate::kernel::release;
use crate::registry;
use crate::rights::{self, Namespace};

/// What does not work if the user may not probe functions.
static WITHOUT_PROBES: LazyLock<String> = LazyLock::new(|| {
    let families: Vec<&str> = registry::with_probes().iter().map(|family| family.name()).collect();
    format!("no probe can be put on functions: these families are off: {}", families.join(", "))
});

/// Whether a refusal can have other causes than the user's lack of privileges.
pub(super) fn is_privileged() -> bool {
    rights::lacking_needed().is_empty() && Namespace::User.may_be_first()
}

pub(super) fn examine(checks: &mut Vec<Check>) {
    let mut area = Area::new("rights", checks);
    namespace(
        &mut area,
        "user namespace",
        Namespace::User,
        "being root here is not being root of the machine",
        "run pyobs on the host, not in a rootless container",
    );
    namespace(
        &mut area,
        "process namespace",
        Namespace::Pid,
        "the kernel's process ids are not those seen here",
        &format!("run pyobs on the host, or start the container with `{}`", rights::CONTAINER),
    );
    if Namespace::User.may_be_first() {
        capability_checks(&mut area);
    }
    locked_memory(&mut area);
    open_files(&mut area);
}

fn capability_checks(area: &mut Area<'_>) {
    let lacking = rights::lacking_needed();
    if lacking.is_empty() {
        let names: Vec<_> = rights::needed().collect();
        let who = if rustix::process::geteuid().is_root() { "root" } else { "not root" };
        area.works("capabilities", ALL, format!("{who}, with all that is needed: {}", names.join(", ")));
    } else {
        area.lacks("capabilities", ALL, Status::Missing, rights::lack(&lacking), rights::todo());
        return;
    }
    let lacking = rights::lacking_helpful(&WITHOUT_PROBES);
    if lacking.is_empty() {
        area.works("further capabilities", ALL, "nothing is hidden from this user");
    } else {
        // `setcap` gives only what is needed.
        let todo = if rustix::process::geteuid().is_root() { rights::todo() } else { "run it as root".to_owned() };
        area.lacks("further capabilities", ALL, Status::Degraded, rights::lack(&lacking), todo);
    }
}

fn namespace(area: &mut Area<'_>, name: &'static str, kind: Namespace, why: &str, todo: &str) {
    match kind.is_first() {
        Ok(true) => area.works(name, ALL, "the machine's first one"),
        Ok(false) => area.lacks(name, ALL, Status::Missing, format!("a container's: {why}"), todo),
        Err(error) => area.lacks(name, ALL, Status::Degraded, format!("cannot be read: {error}"), "mount /proc"),
    }
}

/// Since 5.11 BPF memory is charged to the control group, and this limit does not apply.
fn locked_memory(area: &mut Area<'_>) {
    let limit = getrlimit(Resource::Memlock).current;
    let size = limit.map_or("unlimited".to_owned(), |bytes| format!("{} KiB", bytes / 1024));
    let can_raise = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_RESOURCE));
    if release::version() >= (5, 11) {
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
            format!("at most {maximum}: a probe needs one for each place that it is on"),
            "`ulimit -Hn 65536` as root",
        ),
        Some(maximum) => area.works("open files", ALL, format!("at most {maximum}")),
        None => area.works("open files", ALL, "unlimited"),
    }
}

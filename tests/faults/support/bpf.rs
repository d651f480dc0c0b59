//! Lists the kernel's BPF programs, maps and links, whoever made them.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

/// `enum bpf_cmd` (include/uapi/linux/bpf.h).
const PROG_GET_NEXT_ID: libc::c_int = 11;
const MAP_GET_NEXT_ID: libc::c_int = 12;
const LINK_GET_NEXT_ID: libc::c_int = 31;

/// The kernel frees unreferenced objects in the background, after a grace period.
const GRACE: Duration = Duration::from_secs(30);

/// The ids of existing objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    pub programs: BTreeSet<u32>,
    pub maps: BTreeSet<u32>,
    pub links: BTreeSet<u32>,
}

impl Objects {
    /// The objects of the whole machine.
    pub fn all() -> Self {
        Self { programs: list(PROG_GET_NEXT_ID), maps: list(MAP_GET_NEXT_ID), links: list(LINK_GET_NEXT_ID) }
    }

    /// The objects that a process's descriptors keep alive.
    pub fn of(pid: u32) -> Self {
        let mut objects = Self::default();
        for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten() {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
                let set = match name {
                    "prog_id" => &mut objects.programs,
                    "map_id" => &mut objects.maps,
                    "link_id" => &mut objects.links,
                    _ => continue,
                };
                set.extend(value.trim().parse::<u32>());
            }
        }
        objects
    }

    /// The objects that any process keeps alive.
    fn held() -> Self {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.map(Self::of).fold(Self::default(), |all, of| Self {
            programs: &all.programs | &of.programs,
            maps: &all.maps | &of.maps,
            links: &all.links | &of.links,
        })
    }

    pub fn is_empty(&self) -> bool {
        self.programs.is_empty() && self.maps.is_empty() && self.links.is_empty()
    }

    fn and(&self, other: &Self) -> Self {
        Self {
            programs: &self.programs & &other.programs,
            maps: &self.maps & &other.maps,
            links: &self.links & &other.links,
        }
    }

    fn without(&self, other: &Self) -> Self {
        Self {
            programs: &self.programs - &other.programs,
            maps: &self.maps - &other.maps,
            links: &self.links - &other.links,
        }
    }
}

/// Asserts that pyobs left nothing: none of its objects (`its`) exists any more, and beyond `before` there is none
/// without a living holder. Other programs may use BPF on this machine meanwhile.
#[track_caller]
pub fn assert_nothing_is_left(before: &Objects, its: &Objects) {
    assert!(!its.programs.is_empty(), "pyobs had no BPF programs, so this proves nothing: {its:?}");
    assert!(!its.maps.is_empty(), "pyobs had no BPF maps, so this proves nothing: {its:?}");
    wait_for_none("objects of pyobs remain:", || its.and(&Objects::all()));
    assert_nothing_is_new(before);
}

/// Asserts that a pyobs that could not start left nothing: beyond `before` there is no object without a holder.
#[track_caller]
pub fn assert_nothing_is_new(before: &Objects) {
    wait_for_none("objects without a holder:", || Objects::all().without(before).without(&Objects::held()));
}

#[track_caller]
fn wait_for_none(what: &str, objects: impl Fn() -> Objects) {
    let since = Instant::now();
    loop {
        let left = objects();
        if left.is_empty() {
            return;
        }
        assert!(since.elapsed() < GRACE, "{what} {left:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn list(command: libc::c_int) -> BTreeSet<u32> {
    let mut ids = BTreeSet::new();
    let mut last = 0;
    while let Some(next) = next(command, last) {
        ids.insert(next);
        last = next;
    }
    ids
}

/// The first id after `id`. The fields of `union bpf_attr` are start_id, next_id and open_flags.
fn next(command: libc::c_int, id: u32) -> Option<u32> {
    let mut attributes = [id, 0, 0];
    // SAFETY: the kernel reads and writes the attributes within the given size, and they outlive the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_mut_ptr(), size_of_val(&attributes)) };
    if result == 0 {
        return Some(attributes[1]);
    }
    let error = std::io::Error::last_os_error();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "the kernel does not list its BPF objects: {error}");
    None
}

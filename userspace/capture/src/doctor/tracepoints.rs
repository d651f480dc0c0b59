//! The kernel's tracepoints, and the older ways to add probes anywhere.

use std::ffi::CStr;
use std::fs;

use pyobs_model::Family;

use super::{ALL, Area, Check, Families, Status, plain, sys};
use crate::kernel::tracefs::Calls;
use crate::registry::of_system_calls;

fn points() -> [(&'static str, &'static CStr, Families); 7] {
    [
        ("process starts", c"sched_process_fork", ALL),
        ("program starts", c"sched_process_exec", ALL),
        ("process ends", c"sched_process_exit", ALL),
        ("system call entries", c"sys_enter", of_system_calls()),
        ("system call exits", c"sys_exit", of_system_calls()),
        ("page faults", c"page_fault_user", &[Family::Heap]),
        ("page evictions", c"mm_filemap_delete_from_page_cache", &[Family::Shm]),
    ]
}

pub(super) fn examine(checks: &mut Vec<Check>) {
    let mut area = Area::new("tracing", checks);
    let program = sys::load_program(sys::PROG_RAW_TRACEPOINT, None);
    let tried = |point| match &program {
        Ok(program) => sys::attach_raw(Some(point), program),
        Err(error) => Err(std::io::Error::new(error.kind(), error.to_string())),
    };
    let works = |point: &CStr| format!("attached to {} and taken off again", point.to_string_lossy());
    for (name, point, families) in points() {
        let todo = "run a kernel built with CONFIG_BPF_EVENTS=y and CONFIG_TRACEPOINTS=y";
        area.tried(name, families, tried(point), &works(point), todo);
    }
    for (name, point) in [("chosen addresses", c"vm_unmapped_area"), ("changed mappings", c"ma_write")] {
        let todo = "run a kernel from 6.1 on: without, programs run at system calls all the time";
        area.preferred(name, of_system_calls(), tried(point), &works(point), todo);
    }
    drop(program);
    single_calls(&mut area);
    tracefs(&mut area);
    kprobes(&mut area);
}

fn single_calls(area: &mut Area<'_>) {
    area.preferred(
        "single system calls",
        of_system_calls(),
        Calls::open().and_then(|calls| calls.try_out()),
        "an event was opened at sys_enter_munmap and closed",
        "run a kernel built with CONFIG_FTRACE_SYSCALLS=y: without, programs run at every system call",
    );
}

fn tracefs(area: &mut Area<'_>) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    match mount_point(&mounts, "tracefs") {
        Some(place) => area.works("tracefs", &[], format!("mounted on {place}; pyobs does not need it mounted")),
        None => area.lacks("tracefs", &[], Status::Missing, "not mounted", "nothing: pyobs does not need it mounted"),
    }
}

fn mount_point<'a>(mounts: &'a str, kind: &str) -> Option<&'a str> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let place = words.nth(1)?;
        (words.next() == Some(kind)).then_some(place)
    })
}

fn kprobes(area: &mut Area<'_>) {
    const NAME: &str = "kprobes";
    const FAMILIES: &[Family] = &[];
    const TODO: &str = "nothing: tracepoints take their place";
    let Some(kind) = probe_type("kprobe") else {
        area.lacks(NAME, FAMILIES, Status::Missing, "the kernel was built without (CONFIG_KPROBE_EVENTS)", TODO);
        return;
    };
    let mut attributes = sys::event(kind, 0);
    attributes.__bindgen_anon_3.config1 = c"vfs_read".as_ptr().addr() as u64;
    match sys::open_event(&attributes, -1, 0) {
        Ok(_) => area.works(NAME, FAMILIES, "one was opened on vfs_read and closed"),
        Err(error) => {
            area.lacks(NAME, FAMILIES, Status::Missing, format!("on vfs_read: {}", plain(&error)), TODO);
        }
    }
}

/// The event type of `kprobe` or `uprobe`, which the kernel numbers at boot.
pub(super) fn probe_type(device: &str) -> Option<u32> {
    let text = fs::read_to_string(format!("/sys/bus/event_source/devices/{device}/type")).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_its_kind_not_by_its_name() {
        let mounts = "proc /proc proc rw 0 0\ntracefs /a ext4 rw 0 0\nnone /sys/kernel/tracing tracefs rw 0 0\n";
        assert_eq!(mount_point(mounts, "tracefs"), Some("/sys/kernel/tracing"));
        assert_eq!(mount_point("", "tracefs"), None);
    }
}

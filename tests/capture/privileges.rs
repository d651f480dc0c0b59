//! Tests which rights are left, by the kernel's account, after pyobs has given up the others.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::thread;

use pyobs_capture::doctor::{kernel_version, sys};
use pyobs_capture::memory::{Memory, ProcessMemory};
use pyobs_capture::privileges::{Keep, drop_after_attach};
use pyobs_tests::{Case, Workload, case, command, needs};

pub fn cases() -> Vec<Case> {
    let body = || {
        let mut other = command("sh");
        // The shell does not exec, because the mapping at its first address is read below.
        other.args(["-c", "echo ready; kill -STOP $$"]).uid(65534).gid(65534);
        let mut stranger = Workload::start(other);
        stranger.wait_for("ready");
        let pid = stranger.pid();
        // Capabilities belong to threads, and cannot be regained, so this needs a thread of its own.
        thread::spawn(move || drop_them(pid)).join().unwrap();
    };
    vec![case("privileges/dropped_rights_are_gone_and_kept_ones_work", body).needs(needs::root())]
}

fn drop_them(pid: u32) {
    let clock = sys::event(sys::EVENT_SOFTWARE, sys::SOFTWARE_CPU_CLOCK);
    sys::create_map(sys::MAP_ARRAY, 0).unwrap();
    sys::open_event(&clock, -1, 0).unwrap();

    let dropped = drop_after_attach(kernel_version(), Keep::Reading).unwrap();
    let denied = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES));
    sys::create_map(sys::MAP_ARRAY, 0).unwrap();
    assert!(denied(&sys::open_event(&clock, -1, 0).unwrap_err()));

    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let range = maps.split(' ').next().unwrap();
    let start = u64::from_str_radix(range.split('-').next().unwrap(), 16).unwrap();
    let mut magic = [0; 4];
    ProcessMemory::new(pid).read(start, &mut magic).unwrap();
    assert_eq!(&magic, b"\x7fELF");
    let mapped = fs::File::open(format!("/proc/{pid}/map_files/{range}"));
    assert!(mapped.unwrap().metadata().unwrap().is_file());
    fs::metadata(format!("/proc/{pid}/root/etc")).unwrap();

    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
    let set = |name: &str| u64::from_str_radix(field(name), 16).unwrap();
    // CAP_SYS_ADMIN of include/uapi/linux/capability.h.
    assert_eq!(set("CapEff:") & (1 << 21), 0);
    assert_eq!([set("CapEff:"), set("CapPrm:")], [dropped.kept.bits(); 2]);
    assert_eq!([set("CapInh:"), set("CapAmb:"), set("CapBnd:")], [0; 3]);
    assert_eq!(field("NoNewPrivs:"), "1");
}

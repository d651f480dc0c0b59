//! Tests what a running pyobs could do to the machine, and what it does to the processes that it watches.

use std::fs;
use std::time::Duration;

use pyobs_tests::{Case, Folder, Record, Workload, case, command, json, needs, workload};

use crate::python;
use crate::verb::{pyobs, run};

/// Numbers from include/uapi/linux/capability.h; userspace/capture/src/privileges.rs says what pyobs needs them for.
const DAC_OVERRIDE: u64 = 1 << 1;
const DAC_READ_SEARCH: u64 = 1 << 2;
const SYS_PTRACE: u64 = 1 << 19;
const SYS_ADMIN: u64 = 1 << 21;
const PERFMON: u64 = 1 << 38;
const BPF: u64 = 1 << 39;
const CHECKPOINT_RESTORE: u64 = 1 << 40;

pub fn cases() -> Vec<Case> {
    let cases = vec![
        case("security/rights_are_given_up_after_attaching", || {
            let running = Record::new().start();
            std::thread::sleep(Duration::from_secs(1));
            let mut allowed = SYS_PTRACE | DAC_READ_SEARCH | BPF;
            allowed |= if kernel() < (5, 9) { SYS_ADMIN } else { CHECKPOINT_RESTORE };
            for status in statuses(running.pid()) {
                let allowed = if attaches(&status) { BPF | PERFMON } else { allowed };
                for set in ["CapEff", "CapPrm"] {
                    let held = u64::from_str_radix(field(&status, set), 16).unwrap();
                    assert_eq!(held & !allowed, 0, "{set} holds more than {allowed:x}: {held:x}");
                }
                for set in ["CapInh", "CapBnd", "CapAmb"] {
                    assert_eq!(u64::from_str_radix(field(&status, set), 16).unwrap(), 0, "{set}");
                }
                assert_eq!(field(&status, "NoNewPrivs"), "1");
            }
            assert!(running.stop().status.success());
        }),
        case("security/a_folder_of_another_user_keeps_only_one_more_right", || {
            let folder = Folder::new();
            std::os::unix::fs::chown(&*folder, Some(65534), Some(65534)).unwrap();
            let mut record = pyobs(["record", "-o"]);
            record.arg(folder.join("a.pyobs"));
            let mut record = Workload::start(record);
            while !folder.join("a.pyobs").exists() && record.is_alive() {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_secs(1));
            for status in statuses(record.pid()) {
                let held = u64::from_str_radix(field(&status, "CapEff"), 16).unwrap();
                let all = SYS_PTRACE | DAC_READ_SEARCH | CHECKPOINT_RESTORE | BPF | DAC_OVERRIDE;
                let allowed = if attaches(&status) { BPF | PERFMON } else { all };
                assert!(kernel() < (5, 19) || held & !allowed == 0, "{held:x}");
            }
            record.signal(libc::SIGINT);
            assert!(record.wait().status.success());
        }),
        case("security/the_command_has_the_users_rights", || {
            let cat = || {
                let mut cat = command("cat");
                cat.arg("/proc/self/status");
                cat
            };
            let own = Workload::start(cat()).wait().stdout;
            let recording = Record::new().command(cat()).run();
            for set in ["CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb", "NoNewPrivs", "SigBlk", "SigIgn"] {
                assert_eq!(field(&recording.stdout, set), field(&own, set), "{set}");
            }
        }),
        case("security/no_files_but_the_recording_are_opened", || {
            let running = Record::new().start();
            std::thread::sleep(Duration::from_secs(2));
            let open = descriptors(running.pid()).into_iter().filter(|target| target.starts_with('/'));
            let known =
                |path: &String| ["/proc", "/dev/null", "/usr/lib/debug/"].iter().any(|known| path.starts_with(known));
            // pyobs reads mapped programs and libraries, and their debug files, for names.
            let is_elf = |path: &String| fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"));
            let is_strange = |path: &String| !known(path) && !path.contains("/recording.pyobs") && !is_elf(path);
            let strange: Vec<_> = open.filter(is_strange).collect();
            assert!(strange.is_empty(), "{strange:?}");
            running.stop();
        }),
        case("security/only_the_recording_is_left", || {
            // Runs in a mount namespace of its own, where only `mount` leaves anything, in /run/mount.
            const SCRIPT: &str = "\
                mount --bind \"$1\" /mnt
                for empty in /tmp /var/tmp /dev/shm /run \"$HOME\"; do mount -t tmpfs none \"$empty\"; done
                cd /tmp
                /mnt/pyobs record --duration 2 -o /mnt/a.pyobs
                (/mnt/pyobs record -o /mnt/killed.pyobs & sleep 2; kill -9 $!; wait) 2>/dev/null || :
                for recording in a killed; do /mnt/pyobs report /mnt/$recording.pyobs >/mnt/report; done
                find /tmp /var/tmp /dev/shm /run \"$HOME\" -mindepth 1 ! -path /run/mount >/mnt/left";
            let folder = Folder::new();
            fs::copy(pyobs_tests::pyobs(), folder.join("pyobs")).unwrap();
            let mut shell = command("unshare");
            shell.args(["--mount", "--propagation", "private", "sh", "-ec", SCRIPT, "sh"]).arg(&*folder);
            let outcome = run(shell);
            outcome.succeeds();
            assert_eq!(fs::read_to_string(folder.join("left")).unwrap(), "");
        })
        .needs(needs::program("unshare")),
        case("security/there_are_no_sockets", || {
            let running = Record::new().start();
            for _ in 0..20 {
                let sockets: Vec<_> =
                    descriptors(running.pid()).into_iter().filter(|fd| fd.starts_with("socket:")).collect();
                assert!(sockets.is_empty(), "{sockets:?}");
                std::thread::sleep(Duration::from_millis(50));
            }
            running.stop();
        }),
        case("security/the_watched_process_is_never_stopped_traced_or_signalled", || {
            let folder = Folder::new();
            let until = folder.join("until");
            fs::write(&until, "").unwrap();
            let mut watched = python().unwrap().script(workload("fault_signals.py"));
            watched.arg(&until);
            let mut watched = Workload::start(watched);
            watched.wait_for("ready");
            let running = Record::new().rate(999).pid(watched.pid()).start();
            let mut reads = 0;
            for _ in 0..600 {
                for status in statuses(watched.pid()) {
                    reads += 1;
                    assert_eq!(field(&status, "TracerPid"), "0");
                    assert!(!field(&status, "State").starts_with(['T', 't']), "{status}");
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let recording = running.stop();
            assert!(recording.status.success());
            fs::remove_file(&until).unwrap();
            let printed = json::parse(&watched.line());
            assert_eq!(printed["signals"].as_object().unwrap().len(), 0, "{printed:#}");
            assert!(reads > 600, "only {reads} reads");
            assert!(json::count(&recording.report, "/stacks/complete") > 100);
        }),
        case("security/the_recording_is_readable_and_not_executable", || {
            use std::os::unix::fs::PermissionsExt;
            let recording = Record::new().seconds(0.5).run();
            let mode = fs::metadata(&recording.file).unwrap().permissions().mode() & 0o7777;
            assert_eq!(mode & !0o644, 0, "{mode:o}");
        }),
    ];
    cases.into_iter().map(|case| case.needs(needs::root()).needs(python())).collect()
}

/// Whether this is the thread that attaches programs once memory is shared, and does nothing else.
fn attaches(status: &str) -> bool {
    field(status, "Name") == "pyobs-attach"
}

/// The status of every thread.
fn statuses(pid: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    // A thread may end meanwhile.
    threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok()).collect()
}

#[track_caller]
fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {name} in {status}")).trim()
}

fn descriptors(pid: u32) -> Vec<String> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    links.filter_map(|link| Some(fs::read_link(link.path()).ok()?.to_string_lossy().into_owned())).collect()
}

fn kernel() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut parts = release.split(['.', '-']).map(|part| part.trim().parse().unwrap_or(0));
    (parts.next().unwrap(), parts.next().unwrap())
}

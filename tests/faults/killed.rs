//! Tests `kill -9` of a recording pyobs: nothing may stay in the system, and the recording may lack at most its last
//! second.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use pyobs_tests::{Case, Folder, Record, Running, Workload, case, command, json, needs, workload};
use rusqlite::Connection;

use crate::bpf::{self, Objects};
use crate::python;
use crate::verb::{pyobs, run};

/// How many seconds may be missing at the end.
const LOST: f64 = 1.0;

pub fn cases() -> Vec<Case> {
    let cases = vec![
        case("killed/nothing_stays_attached", || {
            let before = System::now();
            let running = Record::new().start();
            std::thread::sleep(Duration::from_secs(1));
            let its = Objects::of(running.pid());
            assert!(!its.links.is_empty(), "pyobs has no links: {its:?}");
            kill(running);
            bpf::assert_nothing_is_left(&before.objects, &its);
            before.is_unchanged();
        }),
        case("killed/nothing_stays_attached_although_the_command_runs_on", || {
            let before = System::now();
            let running = Record::new().command(python().unwrap().script(workload("fault_spin.py"))).start();
            std::thread::sleep(Duration::from_secs(1));
            let its = Objects::of(running.pid());
            let command = child_of(running.pid());
            let inherited = Objects::of(command);
            assert!(inherited.is_empty(), "the command inherited descriptors of pyobs: {inherited:?}");
            let _group = kill(running);
            bpf::assert_nothing_is_left(&before.objects, &its);
            assert!(fs::exists(format!("/proc/{command}/exe")).unwrap(), "the command was ended with pyobs");
        }),
        case("killed/an_ordinary_end_leaves_nothing_either", || {
            let before = System::now();
            let running = Record::new().start();
            let its = Objects::of(running.pid());
            let recording = running.stop();
            assert!(recording.status.success(), "{recording:?}");
            bpf::assert_nothing_is_left(&before.objects, &its);
            before.is_unchanged();
            let beside: Vec<_> = fs::read_dir(recording.file.parent().unwrap()).unwrap().flatten().collect();
            assert_eq!(beside.len(), 1, "{beside:?}");
        }),
        case("killed/an_ordinary_end_leaves_no_probe_in_programs", || {
            let mut spin = Workload::start(python().unwrap().script(workload("fault_spin.py")));
            spin.wait_for("ready");
            let before = probes_left_behind();
            for _ in 0..3 {
                let record = Record::new().pid(spin.pid()).argument("--probe").argument("eval");
                let recording = record.seconds(0.5).start().wait();
                assert!(recording.status.success(), "{recording:?}");
            }
            assert_eq!(probes_left_behind(), before);
        })
        .needs(needs::program("dmesg")),
        case("killed/the_recording_lacks_at_most_the_last_second", || {
            let folder = Folder::new();
            let log = folder.join("slots.txt");
            let mut slots = python().unwrap().script(workload("fault_slots.py"));
            slots.arg(&log);
            let mut slots = Workload::start(slots);
            slots.wait_for("ready");
            for seconds in [1.5, 3.1, 4.3] {
                let running = Record::new().rate(999).pid(slots.pid()).start();
                let file = running.file().to_owned();
                let begun = monotonic() + 0.5;
                std::thread::sleep(Duration::from_secs_f64(seconds));
                let killed_at = monotonic();
                let _folder = kill(running);
                let seen = slots_in(&file);
                let expected = logged(&log, begun, killed_at - LOST);
                let missing: Vec<_> = expected.difference(&seen).collect();
                assert!(missing.is_empty(), "{missing:?} of {expected:?} are missing after {seconds} s: {seen:?}");
                assert!(seconds < 3.0 || expected.len() >= 3, "too few slots to tell: {expected:?}");
            }
        }),
        case("killed/the_recording_can_be_replaced", || {
            let running = Record::new().start();
            let file = running.file().to_owned();
            std::thread::sleep(Duration::from_secs(1));
            let _folder = kill(running);
            let mut record = pyobs(["record", "--duration", "1", "-o"]);
            record.arg(&file);
            run(record).succeeds();
            let whole: String = open(&file).query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(whole, "ok");
            run(pyobs(["report".as_ref(), file.as_os_str()])).succeeds();
        }),
    ];
    cases.into_iter().map(|case| case.needs(needs::root()).needs(python())).collect()
}

/// How often the kernel has reported that it could not remove a probe from a program (kernel/events/uprobes.c,
/// uprobe_unregister).
fn probes_left_behind() -> usize {
    let mut dmesg = command("dmesg");
    let text = dmesg.output().unwrap().stdout;
    String::from_utf8_lossy(&text).matches("leaking uprobe").count()
}

/// Everything that pyobs could have changed and not restored.
struct System {
    objects: Objects,
    pinned: Vec<String>,
    mounts: Vec<String>,
    statistics: String,
}

impl System {
    fn now() -> Self {
        let pinned = fs::read_dir("/sys/fs/bpf").into_iter().flatten().flatten();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        // Other tests may mount unrelated things.
        let of_ours = |line: &&str| [" - bpf ", " - tracefs ", " - debugfs "].iter().any(|kind| line.contains(kind));
        Self {
            objects: Objects::all(),
            pinned: pinned.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect(),
            mounts: mounts.lines().filter(of_ours).map(str::to_owned).collect(),
            statistics: fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled").unwrap_or_default(),
        }
    }

    #[track_caller]
    fn is_unchanged(&self) {
        let now = Self::now();
        assert_eq!(self.pinned, now.pinned, "pinned objects changed");
        assert_eq!(self.mounts, now.mounts, "mounts changed");
        assert_eq!(self.statistics, now.statistics, "kernel.bpf_stats_enabled changed");
    }
}

/// Kills it with SIGKILL, which no handler can catch. The result keeps the folder with the recording.
#[track_caller]
fn kill(running: Running) -> Running {
    running.signal(libc::SIGKILL);
    let state = format!("/proc/{}/stat", running.pid());
    while fs::read_to_string(&state).is_ok_and(|stat| !stat.contains(") Z ")) {
        std::thread::sleep(Duration::from_millis(2));
    }
    running
}

fn child_of(pid: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.trim().parse().unwrap_or_else(|_| panic!("expected one child of {pid}: {children:?}"))
}

/// `CLOCK_MONOTONIC`, as Python's `time.monotonic()`.
fn monotonic() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the address is that of a local variable, which outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// The slots that lie between two times, as the program logged them.
fn logged(log: &std::path::Path, from: f64, to: f64) -> BTreeSet<String> {
    let text = fs::read_to_string(log).unwrap();
    let slots = text.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (name, begin, end): (&str, f64, f64) =
            (words.next()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        (begin >= from && end <= to).then(|| name.to_owned())
    });
    slots.collect()
}

/// The slots that `pyobs report` finds in the recording.
#[track_caller]
fn slots_in(file: &std::path::Path) -> BTreeSet<String> {
    let outcome = run(pyobs(["report".as_ref(), "--json".as_ref(), file.as_os_str()]));
    let report = json::parse(outcome.succeeds().text());
    let functions = json::list(&report, "/frames").iter().filter_map(|row| row["frame"]["function"].as_str());
    functions.filter(|function| function.starts_with("slot_")).map(str::to_owned).collect()
}

fn open(file: &std::path::Path) -> Connection {
    Connection::open(file).unwrap()
}

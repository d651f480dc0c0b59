//! Tests programs that are hard to watch, and other tools that use the same registers. The program must compute the
//! same and survive.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::thread;
use std::time::Duration;

use pyobs_tests::{Case, Folder, Record, Recording, Workload, case, json, needs, shared_library, workload};

use super::{known, record, run};

pub fn cases() -> Vec<Case> {
    let lives = |name: &str, mode: &'static str, all: Result<(), String>| {
        known(name, move || is_watched(&run(&Folder::new(), &[mode, "0", "1.5"]))).needs(all)
    };
    vec![
        lives("threads_that_die_while_watched", "dying", Ok(())),
        lives("memory_that_is_mapped_again", "remap", Ok(())),
        lives("children_that_are_forked", "forks", needs::all()),
        lives("a_process_that_becomes_another_program", "execs", needs::all()),
        known("a_storm_is_throttled", storm),
        known("a_finished_watchpoint_traps_no_more", over),
        known("all_registers_taken_by_another_tool", || taken(4)),
        known("two_registers_taken_by_another_tool", || taken(2)).needs(needs::all()),
        known("attached_and_detached_a_hundred_times", || cycles(100)).needs(needs::all()),
        known("sixty_four_threads", || is_watched(&run(&Folder::new(), &["stores", "50", "10", "64"])))
            .needs(needs::all()),
        known("code_without_an_access_is_counted", undecoded),
        known("an_explicit_budget_binds_watchpoints", budget).needs(needs::all()),
        case("recordings_keep_the_whole_report", replayed).needs(needs::root()).needs(needs::python("3.12")),
    ]
}

fn is_watched(recording: &Recording) {
    let seen = &recording.report["redundancy"];
    let (armed, traps) = (json::count(seen, "/armed"), json::count(seen, "/traps"));
    assert!(armed > 0 && traps <= 64 * armed, "{armed} watchpoints, {traps} traps");
}

/// A loop without memory accesses gives no address.
fn undecoded() {
    let seen = run(&Folder::new(), &["compute", "0", "2"]).report["redundancy"].take();
    let (samples, undecoded) = (json::count(&seen, "/samples"), json::count(&seen, "/undecoded"));
    assert!(samples > 100 && undecoded * 10 >= samples * 9, "{undecoded} of {samples} samples");
}

/// A storm costs more than this budget allows, so fewer watchpoints are set, and the report says so.
fn budget() {
    let folder = Folder::new();
    let library = shared_library(&workload("redundancy.c"), &folder);
    let mut python = needs::python("3.12").unwrap().command();
    python.arg(workload("redundancy.py")).arg(library).args(["storm", "0", "30"]);
    let recording = record().argument("--budget").argument("0.25").command(python).run();
    let shed = json::list(&recording.report, "/shed");
    assert!(shed.iter().any(|measure| measure["family"] == "redundancy"), "{shed:?}");
    let seconds = json::number(&recording.report, "/recording/duration_s");
    let traps = json::count(&recording.report, "/redundancy/traps");
    // The excess shows after a second.
    assert!((traps as f64) < 0.9 * 800.0 * seconds, "{traps} traps in {seconds} s");
}

/// A loop that always accesses one address traps as often as it is allowed to.
fn storm() {
    let recording = run(&Folder::new(), &["storm", "0", "2"]);
    let seen = &recording.report["redundancy"];
    let (traps, seconds) = (json::count(seen, "/traps"), json::number(&recording.report, "/recording/duration_s"));
    // Eight hundred a second, a burst of a hundred, and what the watchpoints still set may add.
    let most = 800.0 * seconds + 100.0 + 4.0 * 64.0;
    assert!(traps > 0 && (traps as f64) < most, "{traps} traps in {seconds} s");
}

/// A watchpoint that has seen enough does not trap again, not even until user space removes it. Once the program is
/// stopped, every trap has been reported.
fn over() {
    let folder = Folder::new();
    let library = shared_library(&workload("redundancy.c"), &folder);
    let mut python = needs::python("3.12").unwrap().command();
    python.arg(workload("redundancy.py")).arg(library).args(["storm", "0", "3600"]);
    let program = Workload::start(python);
    program.signal(libc::SIGSTOP);
    let running = record().pid(program.pid()).start();
    // pyobs measures the cost of a trap by causing some of its own.
    let own = running.runs("redundancy_trap");
    program.signal(libc::SIGCONT);
    thread::sleep(Duration::from_secs(3));
    program.signal(libc::SIGSTOP);
    thread::sleep(Duration::from_secs(1));
    let runs = running.runs("redundancy_trap") - own;
    let seen = running.stop().report["redundancy"].take();
    program.signal(libc::SIGCONT);
    let (traps, armed) = (json::count(&seen, "/traps"), json::count(&seen, "/armed"));
    assert!(runs > 50 && runs == traps, "{runs} by the kernel's count, {traps} reported, of {armed} watchpoints");
}

fn taken(count: usize) {
    let folder = Folder::new();
    let library = shared_library(&workload("redundancy.c"), &folder);
    let mut python = needs::python("3.12").unwrap().command();
    python.arg(workload("redundancy.py")).arg(library).args(["stores", "50", "3600"]);
    let program = Workload::start(python);
    // The program does not use the watched address.
    let others: io::Result<Vec<OwnedFd>> = (0..count).map(|_| watch(program.pid())).collect();
    let others = others.unwrap();
    let recording = record().pid(program.pid()).seconds(1.0).run();
    drop(others);
    program.signal(libc::SIGTERM);
    let seen = &recording.report["redundancy"];
    // With two free registers, both are rarely in use when another is wanted.
    assert!(count < 4 || json::count(seen, "/taken") > 0, "{seen:#}");
    assert_eq!(json::count(seen, "/armed") > 0, count < 4, "{seen:#}");
    assert_eq!(program.wait().stdout.split_whitespace().nth(1), Some("0"));
}

fn cycles(count: usize) {
    let folder = Folder::new();
    let library = shared_library(&workload("redundancy.c"), &folder);
    let mut python = needs::python("3.12").unwrap().command();
    python.arg(workload("redundancy.py")).arg(library).args(["loads", "50", "3600", "3"]);
    let mut program = Workload::start(python);
    let mut armed = 0;
    // Two recordings at a time share the registers.
    for _ in 0..count / 2 {
        let watch =
            || Record::new().rate(500).argument("--probe").argument("redundancy").pid(program.pid()).seconds(0.3);
        let both = [watch().start(), watch().start()];
        armed += both.map(|one| json::count(&one.wait().report["redundancy"], "/armed")).iter().sum::<u64>();
        assert!(program.is_alive());
    }
    assert!(armed > 0);
    program.signal(libc::SIGTERM);
    let ended = program.wait();
    assert!(ended.status.success(), "{}", ended.stderr);
    assert_eq!(ended.stdout.split_whitespace().nth(1), Some("0"));
}

fn replayed() {
    let mut python = needs::python("3.12").unwrap().command();
    python.args(["-c", "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: sorted(range(1000))"]);
    let recording = Record::new().argument("--probe").argument("redundancy").command(python).run();
    assert!(recording.report["redundancy"].is_object());
    assert_eq!(recording.report["redundancy"]["sampler"], "decoded");
}

/// Sets a watchpoint of the test's own on a thread. `Attributes` has the fields of `struct perf_event_attr`
/// (linux/perf_event.h) that it needs.
fn watch(tid: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        kind: u32,
        size: u32,
        config: u64,
        period: u64,
        sample_type: u64,
        read_format: u64,
        flags: u64,
        wakeup: u32,
        bp_type: u32,
        bp_addr: u64,
        bp_len: u64,
        rest: [u64; 7],
    }
    const BREAKPOINT: u32 = 5;
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    const WRITES: u32 = 2;
    let attributes = Attributes {
        kind: BREAKPOINT,
        size: size_of::<Attributes>() as u32,
        config: 0,
        period: 1,
        sample_type: 0,
        read_format: 0,
        flags: EXCLUDE_KERNEL,
        wakeup: 0,
        bp_type: WRITES,
        bp_addr: 0x1000,
        bp_len: 8,
        rest: [0; 7],
    };
    // SAFETY: the attributes have the size that they state, and outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attributes, tid, -1, -1, 0) };
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

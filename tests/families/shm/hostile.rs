//! Tests programs that share memory in ways that are hard to follow.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use pyobs_capture::session::{Options, Session};
use pyobs_model::{Event, Family, Reason, SegmentChange};
use pyobs_tests::{Case, Folder, Python, Recording, Workload, case, json, needs, workload};
use serde_json::Value;

use super::{Names, all_holders, nothing_is_lost, path, record, segments};

/// How many processes hold one segment, by default and with `--all`.
const HOLDERS: usize = 300;
const MANY_HOLDERS: usize = 4096;

type Body = fn(&Python);

pub fn cases() -> Vec<Case> {
    let python = needs::python("3.12");
    let of = |name: &str, body: Body| {
        let own = python.clone();
        case(name, move || body(&own.clone().unwrap())).needs(needs::root()).needs(python.clone())
    };
    vec![
        of("hundreds_of_processes_hold_one_segment", |python| holders(python, HOLDERS)),
        of("thousands_of_processes_hold_one_segment", |python| holders(python, MANY_HOLDERS)).needs(needs::all()),
        of("a_reused_inode_is_another_segment", reused),
        of("processes_killed_between_two_calls_leave_residue", killed),
        of("unprintable_names_are_escaped", names),
        of("a_descriptor_taken_from_a_process_counts_as_passed", taken),
        of("unseen_changes_are_repaired_and_counted", unseen),
        of("unseen_changes_are_repaired_without_iterators_too", unseen_by_iterators),
        of("only_files_with_contents_are_segments", others),
        of("shared_pages_are_counted_once", account),
        of("a_burst_of_mappings_loses_nothing", burst),
    ]
}

/// A watched program that has reported what it did.
struct Stage {
    program: Workload,
    recording: pyobs_tests::Running,
    printed: Value,
}

impl Stage {
    fn set(python: &Python, arguments: &[&str]) -> Self {
        let mut command = python.script(workload("holders.py"));
        command.args(arguments);
        let mut program = Workload::start(command);
        program.wait_for("ready");
        let recording = record().pid(program.pid()).start();
        program.signal(libc::SIGUSR1);
        let printed = json::parse(&program.line());
        Self { program, recording, printed }
    }

    /// Ends the recording while the program still holds everything.
    fn stop(self) -> (Value, Recording) {
        let recording = self.recording.stop();
        self.program.signal_group(libc::SIGKILL);
        (self.printed, recording)
    }
}

#[track_caller]
fn found<'a>(report: &'a Value, printed: &Value) -> &'a Value {
    let is_it = |row: &&Value| row["ino"] == printed["ino"] && row["dev"] == printed["dev"];
    segments(report).iter().find(is_it).unwrap_or_else(|| panic!("{printed} is not in {:#}", report["segments"]))
}

fn holders(python: &Python, count: usize) {
    let (printed, recording) = Stage::set(python, &["many", &count.to_string()]).stop();
    nothing_is_lost(&recording.report);
    let segment = found(&recording.report, &printed["segment"]);
    let pids: BTreeSet<u64> = json::list(&printed, "/pids").iter().filter_map(Value::as_u64).collect();
    let holders = json::list(segment, "/holders");
    let seen: BTreeSet<u64> = holders.iter().map(|row| json::count(row, "/pid")).collect();
    assert_eq!(pids.len(), count + 1);
    assert_eq!(seen.len(), pids.len(), "{} missing", pids.difference(&seen).count());
    assert_eq!(seen, pids);
    for row in holders {
        let ranges = json::list(row, "/ranges").len();
        assert_eq!((json::count(row, "/fds"), json::count(row, "/mappings"), ranges), (2, 1, 1), "{row:#}");
    }
}

fn reused(python: &Python) {
    let folder = Folder::new();
    let place = folder.join(".");
    let (printed, recording) = Stage::set(python, &["reuse", "200", place.to_str().unwrap()]).stop();
    nothing_is_lost(&recording.report);
    let mut made: BTreeMap<u64, usize> = BTreeMap::new();
    for inode in json::list(&printed, "/inodes").iter().filter_map(Value::as_u64) {
        *made.entry(inode).or_default() += 1;
    }
    let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
    let mut ids = BTreeSet::new();
    for row in segments(&recording.report).iter().filter(|row| made.contains_key(&json::count(row, "/ino"))) {
        *seen.entry(json::count(row, "/ino")).or_default() += 1;
        assert!(ids.insert(json::text(row, "/id")), "{row:#}");
        assert_eq!(row["verdict"], "released", "{row:#}");
    }
    assert_eq!(seen, made);
}

fn killed(python: &Python) {
    let (printed, recording) = Stage::set(python, &["die", "60"]).stop();
    let made = json::list(&printed, "/made");
    let _names = Names(made.iter().map(|row| json::text(row, "/name").to_owned()).collect());
    nothing_is_lost(&recording.report);
    for row in made {
        let name = json::text(row, "/name");
        let segment = super::segment(&recording.report, name);
        assert!(path(name).exists());
        assert_eq!((&segment["verdict"], &segment["creator_pid"]), (&"residue".into(), &row["pid"]), "{segment:#}");
        assert!(json::list(segment, "/holders").is_empty(), "{segment:#}");
    }
}

fn names(python: &Python) {
    let (printed, recording) = Stage::set(python, &["names"]).stop();
    nothing_is_lost(&recording.report);
    for row in json::list(&printed, "/made") {
        let segment = found(&recording.report, row);
        assert!(json::text(segment, "/name").starts_with("pyobs_test_"), "{segment:#}");
    }
    let output = pyobs_tests::command(pyobs_tests::pyobs()).arg("report").arg(&recording.file).output().unwrap();
    let letter = String::from_utf8(output.stdout).unwrap();
    let is_harmless = |letter: char| letter == '\n' || !letter.is_control() && letter != '\u{202e}';
    assert!(letter.contains("pyobs_test_") && letter.chars().all(is_harmless), "{letter:?}");
}

fn taken(python: &Python) {
    let (printed, recording) = Stage::set(python, &["taken"]).stop();
    nothing_is_lost(&recording.report);
    let segment = found(&recording.report, &printed["segment"]);
    let (from, to) = (json::count(&printed, "/from"), json::count(&printed, "/to"));
    assert_eq!(all_holders(segment), [from.min(to), from.max(to)], "{segment:#}");
    let passed = json::list(segment, "/passed");
    assert_eq!(
        (passed.len(), &passed[0]["from_pid"], &passed[0]["to_pid"]),
        (1, &from.into(), &to.into()),
        "{segment:#}"
    );
}

fn unseen(python: &Python) {
    let stage = Stage::set(python, &["unseen"]);
    // Repair takes two snapshots, ten seconds and then half a second later.
    std::thread::sleep(Duration::from_secs(13));
    let (printed, recording) = stage.stop();
    let segment = found(&recording.report, &printed["segment"]);
    let holds = json::list(segment, "/holders").iter().find(|row| row["pid"] == printed["to"]);
    assert_eq!(holds.map(|row| json::count(row, "/fds")), Some(1), "{segment:#}");
    let loss = &recording.report["loss"];
    let repaired = loss["segment_descriptor_missed"].as_u64().or(loss["segment_holder_missed"].as_u64());
    assert_eq!(repaired, Some(1), "{loss}");
    // `pyobs doctor` tries the iterators itself.
    let doctor = pyobs_tests::command(pyobs_tests::pyobs()).args(["doctor", "--json"]).output().unwrap();
    let doctor = json::parse(&String::from_utf8(doctor.stdout).unwrap());
    let checks = json::list(&doctor, "/checks").iter();
    let iterators: Vec<&Value> =
        checks.filter(|check| check["name"].as_str().is_some_and(|name| name.starts_with("iterator over"))).collect();
    assert_eq!(iterators.len(), 2, "{doctor:#}");
    assert!(iterators.iter().all(|check| check["families"] == serde_json::json!(["shm"])), "{iterators:#?}");
    let way = if iterators.iter().all(|check| check["status"] == "works") { "iterators" } else { "proc" };
    assert_eq!(recording.report["recording"]["segment_repair"], way);
}

/// Perf events, folders and pipes are no segments, although they are mapped shared or lie in the folder of shared memory.
fn others(python: &Python) {
    let stage = Stage::set(python, &["others"]);
    // Reconciliation sees them too, after ten seconds.
    std::thread::sleep(Duration::from_secs(12));
    let (printed, recording) = stage.stop();
    nothing_is_lost(&recording.report);
    let pids = [json::count(&printed, "/pid"), json::count(&printed, "/to")];
    let held: Vec<&Value> = segments(&recording.report)
        .iter()
        .filter(|segment| all_holders(segment).iter().any(|holder| pids.contains(holder)))
        .collect();
    let segment = found(&recording.report, &printed["segment"]);
    assert!(held == [segment], "{held:#?}");
    assert_eq!((&segment["kind"], json::count(segment, "/bytes")), (&"anonymous".into(), 3 * 4096), "{segment:#}");
    assert_eq!(all_holders(segment), [pids[0].min(pids[1]), pids[0].max(pids[1])], "{segment:#}");
}

/// Simulates a kernel without iterators: pyobs reads a few processes in `/proc` at a time.
fn unseen_by_iterators(python: &Python) {
    let mut command = python.script(workload("holders.py"));
    command.arg("unseen");
    let mut program = Workload::start(command);
    program.wait_for("ready");
    let options = Options { iterators: false, ..pyobs_tests::options(program.pid(), &[Family::Shm], 99) };
    let mut session = Session::start(&options).unwrap();
    assert_eq!(session.meta().segment_repair, "proc");
    let mut events = Vec::new();
    // What the first snapshot finds is not a repair.
    for _ in 0..20 {
        session.poll(Duration::from_millis(100), &mut events).unwrap();
    }
    program.signal(libc::SIGUSR1);
    let printed = json::parse(&program.line());
    // The child inherits the descriptor, closes it, and gets another in a way that no record shows.
    let is_seen = |events: &[Event]| {
        let fds = |event: &Event| match event {
            Event::Segment { change: SegmentChange::Holds { pid, fds, .. }, .. } if printed["to"] == pid.0 => {
                Some(*fds)
            }
            _ => None,
        };
        events.iter().filter_map(fds).collect::<Vec<_>>().ends_with(&[0, 1])
    };
    let since = Instant::now();
    while !is_seen(&events) {
        assert!(since.elapsed() < Duration::from_secs(60), "{events:?}");
        session.poll(Duration::from_millis(100), &mut events).unwrap();
    }
    let is_repair = |event: &&Event| {
        matches!(event, Event::Loss { reason: Reason::SegmentHolderMissed | Reason::SegmentDescriptorMissed, .. })
    };
    assert_eq!(events.iter().filter(is_repair).count(), 1, "{events:?}");
    session.finish(&mut events);
    program.signal_group(libc::SIGKILL);
}

/// The kernel's own account of one process.
fn rollup(pid: u64) -> (u64, u64) {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    (kib("Rss:") << 10, kib("Pss_Shmem:") << 10)
}

fn account(python: &Python) {
    let stage = Stage::set(python, &["account"]);
    let pids: Vec<u64> = json::list(&stage.printed, "/pids").iter().filter_map(Value::as_u64).collect();
    let truth: BTreeMap<u64, (u64, u64)> = pids.iter().map(|pid| (*pid, rollup(*pid))).collect();
    let (printed, recording) = stage.stop();
    let bytes = json::count(&printed, "/bytes");
    let near = |one: u64, other: u64| one.abs_diff(other) <= 256 << 10;
    let segment = found(&recording.report, &printed["segment"]);
    assert_eq!(json::count(segment, "/resident_bytes"), bytes, "{segment:#}");
    let (mut shares, mut parts, mut once, mut private) = (0, 0, 0, 0);
    for (pid, (rss, shared)) in &truth {
        let process = json::list(&recording.report, "/processes").iter().find(|row| row["pid"] == *pid).unwrap();
        let memory = &process["memory"];
        assert!(near(json::count(memory, "/rss_bytes"), *rss), "{pid}: {rss} in /proc, {memory:#}");
        assert!(near(json::count(memory, "/share_bytes"), *shared), "{pid}: {shared} in /proc, {memory:#}");
        shares += json::count(memory, "/share_bytes");
        once += json::count(memory, "/counted_once_bytes");
        private += json::count(memory, "/rss_bytes") - json::count(memory, "/segments_bytes");
        let holder = json::list(segment, "/holders").iter().find(|row| row["pid"] == *pid).unwrap();
        parts += json::count(holder, "/resident_bytes");
    }
    assert!(near(shares, bytes) && near(once, private + bytes), "{shares} and {once}");
    assert!(parts > 2 * bytes, "{parts}: the sum of resident sizes counts it more than twice");
}

fn burst(python: &Python) {
    let (printed, recording) = Stage::set(python, &["pairs", "100000"]).stop();
    nothing_is_lost(&recording.report);
    let segment = found(&recording.report, &printed["segment"]);
    assert_eq!(json::count(segment, "/holders/0/mappings"), 0, "{segment:#}");
}

//! Tests unusual behaviour of libraries and programs, with a libucp of the tests' own (workloads/ucp.c) that has one
//! request at one address, and a program (workloads/ucp_user.c) that knows what it has sent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use pyobs_tests::{
    Case, Folder, Record, Recording, case, command, executable, json, needs, shared_library_named, workload,
};
use serde_json::Value;

use super::{in_the_middle, printed, record};

pub(super) fn cases() -> Vec<Case> {
    let of = |name: &str, body: fn()| case(name, body).needs(needs::root()).needs(needs::program("cc"));
    vec![
        of("a_library_may_be_unloaded_and_loaded_again", come_and_go),
        of("a_request_address_may_be_reused_at_once", reused),
        of("a_fork_has_none_of_its_parents_transfers", forked),
        of("transfers_under_way_at_the_attach_are_half_seen", attached),
        of("sends_that_are_refused_or_fail_have_their_statuses", fails),
        of("received_bytes_count_and_not_the_buffer_size", received),
        of("a_transfer_open_at_the_end_is_a_finding", unfinished),
        of("a_library_with_moved_fields_is_refused_with_a_reason", moved),
        of("calls_of_progress_are_counted_briefly", progress),
        of("another_interface_is_refused_with_a_reason", another),
    ]
}

pub(super) struct Built {
    folder: Folder,
    library: PathBuf,
}

impl Built {
    pub(super) fn new(options: &[&str]) -> Self {
        let folder = Folder::new();
        let library = shared_library_named(&workload("ucp.c"), &folder.join("libucp.so.0"), options);
        Self { folder, library }
    }

    pub(super) fn program(&self, mode: &str) -> Command {
        let mut program = command(executable(&workload("ucp_user.c"), &self.folder));
        program.arg(&self.library).arg(mode);
        program
    }

    pub(super) fn run(&self, mode: &str) -> Recording {
        self.run_by(record("ucx"), mode)
    }

    pub(super) fn run_by(&self, record: Record, mode: &str) -> Recording {
        record.command(self.program(mode)).run()
    }
}

/// The program gives each transfer an endpoint of its own: this plus the transfer's number.
const ENDPOINT: u64 = 0xe0000;
/// The program's worker, for everything that it receives.
const WORKER: u64 = 0xf0000;

/// Transfers by their tags, which count from 0. Each has 1000 bytes plus its number.
pub(super) fn by_tag(recording: &Recording, pid: Option<u64>) -> BTreeMap<u64, &Value> {
    let own = json::list(&recording.report, "/transfers").iter();
    let own = own.filter(|it| pid.is_none_or(|pid| json::count(it, "/pid") == pid));
    let mut found = BTreeMap::new();
    for transfer in own {
        let tag = u64::from_str_radix(json::text(transfer, "/tag").trim_start_matches("0x"), 16).unwrap();
        assert_eq!(json::count(transfer, "/bytes"), 1000 + tag, "{transfer:#}");
        assert_eq!(transfer["endpoint"], format!("{:#x}", ENDPOINT + tag), "{transfer:#}");
        assert!(transfer["status"] == 0 || transfer["status"].is_null(), "{transfer:#}");
        assert!(found.insert(tag, transfer).is_none(), "{transfer:#}");
    }
    found
}

fn lost(recording: &Recording, reason: &str) -> u64 {
    recording.report["loss"][reason].as_u64().unwrap_or(0)
}

/// Asserts that exactly these transfers ended, one after the other.
fn all_over(found: &BTreeMap<u64, &Value>, tags: impl Iterator<Item = u64>) {
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), tags.collect::<Vec<_>>());
    let mut before = 0.0;
    for transfer in found.values() {
        let (begun, ended) = (json::number(transfer, "/submitted_s"), json::number(transfer, "/completed_s"));
        assert!(before <= begun && begun <= ended, "{before} {transfer:#}");
        before = ended;
    }
}

fn come_and_go() {
    let recording = Built::new(&[]).run("midway");
    assert_eq!(printed(&recording, "called"), 200, "{}{}", recording.stdout, recording.stderr);
    all_over(&by_tag(&recording, None), 0..200);
    assert_eq!(recording.report["loss"], serde_json::json!({}));
}

fn reused() {
    const SENDS: u64 = 1000;
    let recording = Built::new(&[]).run("reuse");
    assert_eq!(printed(&recording, "called"), SENDS, "{}{}", recording.stdout, recording.stderr);
    let found = by_tag(&recording, None);
    all_over(&found, 0..SENDS);
    let ids: BTreeSet<&str> = found.values().map(|transfer| json::text(transfer, "/id")).collect();
    assert_eq!(ids.len() as u64, SENDS);
    let counts = json::list(&recording.report, "/transfer_counts");
    assert_eq!(counts.iter().map(|count| json::count(count, "/bytes")).sum::<u64>(), printed(&recording, "sent"));
    assert_eq!(recording.report["loss"], serde_json::json!({}));
}

fn forked() {
    let recording = Built::new(&[]).run("fork");
    assert_eq!(printed(&recording, "called"), 11, "{}{}", recording.stdout, recording.stderr);
    let all = json::list(&recording.report, "/transfers");
    let pids: BTreeSet<u64> = all.iter().map(|transfer| json::count(transfer, "/pid")).collect();
    let [parent, child] = *pids.into_iter().collect::<Vec<_>>() else { panic!("{all:#?}") };
    let child_is_first = by_tag(&recording, Some(parent)).contains_key(&20);
    let (parent, child) = if child_is_first { (child, parent) } else { (parent, child) };
    all_over(&by_tag(&recording, Some(parent)), 0..11);
    all_over(&by_tag(&recording, Some(child)), 20..25);
    // The child completes in its own memory what its parent began.
    assert_eq!(lost(&recording, "transfer_half_seen"), 1);
}

fn attached() {
    let built = Built::new(&[]);
    let (recording, ended) = in_the_middle(built.program("attached"));
    assert!(ended.stdout.contains("called 51"), "{ended:?}");
    all_over(&by_tag(&recording, None), 1..52);
    assert_eq!(lost(&recording, "transfer_half_seen"), 1);
}

/// Of five sends, the fourth fails at once with UCS_ERR_INVALID_PARAM, and the last in its callback with
/// UCS_ERR_CONNECTION_RESET.
fn fails() {
    let recording = Built::new(&[]).run("fails");
    assert_eq!(printed(&recording, "called"), 3, "{}{}", recording.stdout, recording.stderr);
    let transfers = json::list(&recording.report, "/transfers");
    let [fine @ .., refused, failed] = transfers else { panic!("{:#}", recording.report) };
    for (transfer, tag, status, is_immediate) in [(refused, "0x3", -5, true), (failed, "0x4", -25, false)] {
        let own = (json::text(transfer, "/tag"), transfer["status"].as_i64(), &transfer["immediate"]);
        assert_eq!(own, (tag, Some(status), &is_immediate.into()), "{transfer:#}");
    }
    // The first sends end before their callback has a probe.
    assert!(fine.len() == 3 && fine.iter().all(|it| it["status"] == 0 || it["status"].is_null()), "{fine:#?}");
    let [count] = json::list(&recording.report, "/transfer_counts") else { panic!("{:#}", recording.report) };
    assert_eq!((json::count(count, "/count"), json::count(count, "/failed")), (5, 2), "{count:#}");
}

/// The first receive ends before its callback has a probe.
fn received() {
    let recording = Built::new(&[]).run("receives");
    assert_eq!(printed(&recording, "called"), 101, "{}{}", recording.stdout, recording.stderr);
    let [_, later @ ..] = json::list(&recording.report, "/transfers") else { panic!("{:#}", recording.report) };
    let came = later.iter().zip(1..).map(|(transfer, number)| {
        assert_eq!((&transfer["operation"], &transfer["status"]), (&"tag_recv".into(), &0.into()), "{transfer:#}");
        let own = ["/tag", "/endpoint"].map(|key| json::text(transfer, key));
        assert_eq!(own, [number, WORKER].map(|it| format!("{it:#x}")), "{transfer:#}");
        json::count(transfer, "/bytes")
    });
    let came: Vec<u64> = came.collect();
    assert_eq!(came, (1..101).map(|number| (1000 + number) / 2).collect::<Vec<u64>>());
    assert_eq!(came.iter().sum::<u64>(), printed(&recording, "received"));
}

fn unfinished() {
    let recording = Built::new(&[]).run("unfinished");
    assert_eq!(printed(&recording, "called"), 0, "{}{}", recording.stdout, recording.stderr);
    let [only] = json::list(&recording.report, "/transfers") else { panic!("{:#}", recording.report) };
    assert_eq!((json::text(only, "/tag"), &only["completed_s"]), ("0x0", &Value::Null), "{only:#}");
    let found = json::list(&recording.report, "/findings").iter();
    assert!(found.map(|it| json::text(it, "/id")).eq(["ucx/unfinished"]), "{:#}", recording.report["findings"]);
}

fn refused(options: &[&str]) -> String {
    let recording = Built::new(options).run("reuse");
    assert_eq!(recording.report["transfers"], serde_json::json!([]));
    let why = recording.stderr.lines().find(|line| line.contains("transfers of ")).map(str::to_owned);
    why.unwrap_or_else(|| panic!("{}", recording.stderr))
}

fn moved() {
    let why = refused(&["-DMOVED"]);
    assert!(why.contains("libucp.so.0 are not seen"), "{why}");
    assert!(why.contains("datatype at 32 of ucp_request_param_t"), "{why}");
}

fn another() {
    let why = refused(&["-DMAJOR=2"]);
    assert!(why.contains("it is UCX 2.7, and only the interface of UCX 1 is known"), "{why}");
}

/// The program counts its calls throughout, a few hundred a second, and how many of them found a breakpoint in place.
fn progress() {
    let recording = Built::new(&[]).run("idle");
    let (trapped, calls) = (printed(&recording, "trapped"), printed(&recording, "of"));
    assert!(trapped > 0 && trapped * 20 < calls, "{trapped} of {calls}");
    let own = printed(&recording, "rate") as f64;
    let workers = json::list(&recording.report, "/workers");
    let rates: Vec<f64> = workers.iter().filter_map(|worker| worker["progress_per_s"].as_f64()).collect();
    let [rate] = rates[..] else { panic!("{workers:#?}") };
    assert!(rate > own / 4.0 && rate < own * 4.0, "{rate} of {own}");
}

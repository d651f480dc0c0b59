//! Tests an interpreter whose memory holds garbage instead of frames: each such sample must have a reason, and other
//! samples must not be affected.

use std::collections::BTreeMap;

use pyobs_tests::{Case, Record, Recording, Workload, case, json, needs, workload};
use rusqlite::Connection;

use crate::verb::{is_calm, pyobs, run};

const VERSIONS: [&str; 8] = ["3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13"];

/// The outcomes of a thread's samples: `complete`, `truncated`, or a reason.
pub type Outcomes = BTreeMap<String, u64>;

pub fn cases() -> Vec<Case> {
    VERSIONS
        .into_iter()
        .map(|version| {
            case(format!("garbage/in_frames_of_{version}_is_counted_by_reason_and_harms_no_other"), move || {
                examine(version);
            })
            .needs(needs::root())
            .needs(needs::python(version).and_then(|python| needs::few(&python)))
            .needs(libcrypt())
        })
        .collect()
}

#[track_caller]
fn examine(version: &str) {
    let python = needs::python(version).unwrap();
    let mut damaged = Workload::start(python.script(workload("fault_garbage.py")));
    let mut threads = BTreeMap::new();
    loop {
        let line = damaged.line();
        let Some((kind, tid)) = line.split_once(' ') else { break };
        threads.insert(kind.to_owned(), tid.parse::<u32>().unwrap());
    }
    let mut sound = Workload::start(python.script(workload("fault_spin.py")));
    sound.wait_for("ready");

    let recording = Record::new().rate(999).pid(damaged.pid()).pid(sound.pid()).seconds(3.0).run();
    assert!(recording.status.success(), "{recording:?}");
    is_calm(&recording.stderr);
    assert!(damaged.is_alive(), "watching ended the damaged process");

    let outcomes = outcomes(&recording);
    let of = |tid: u32| outcomes.get(&tid).cloned().unwrap_or_default();
    for (kind, tid) in &threads {
        let of = of(*tid);
        let (all, complete): (u64, u64) = (of.values().sum(), of.get("complete").copied().unwrap_or(0));
        assert!(all > 20, "{kind}: only {all} samples: {of:?}");
        if kind == "healthy" {
            assert!(complete * 100 >= all * 99, "samples of the healthy thread: {of:?}");
        } else if !kind.starts_with("code_") {
            assert_eq!(complete, 0, "{kind}: garbage was taken for frames: {of:?}");
            assert!(!of.contains_key("no_python"), "{kind}: the damage was taken for a native thread: {of:?}");
        } else {
            // The walk succeeds; only the name cannot be read.
            assert!(
                complete < all || is_counted(&recording),
                "{kind}: no reason was reported: {of:?} {:#}",
                recording.report
            );
        }
    }
    let sound = of(sound.pid());
    let (all, complete): (u64, u64) = (sound.values().sum(), sound.get("complete").copied().unwrap_or(0));
    assert!(all > 20 && complete * 100 >= all * 99, "the other process was affected: {sound:?}");
    sums_match(&recording, &outcomes);
    names_are_real(&recording);
}

/// The library in which the damaged threads spin.
fn libcrypt() -> Result<(), String> {
    for name in [c"libcrypt.so.1", c"libcrypt.so.2"] {
        // SAFETY: the name is a C string, and the library's initializers have no effect on this program.
        if !unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY) }.is_null() {
            return Ok(());
        }
    }
    Err("there is no libcrypt here".to_owned())
}

/// The outcomes by thread, read from the recording itself (docs/recording.md).
#[track_caller]
pub fn outcomes(recording: &Recording) -> BTreeMap<u32, Outcomes> {
    let database = Connection::open(&recording.file).unwrap();
    // A stack that only lacks native frames has all its Python frames.
    let sql = "SELECT tid, CASE name WHEN 'cut' THEN 'complete' ELSE coalesce(reason, name) END, count(*)
        FROM samples JOIN outcomes ON outcome = id GROUP BY 1, 2";
    let mut statement = database.prepare(sql).unwrap();
    let mut all: BTreeMap<u32, Outcomes> = BTreeMap::new();
    let mut rows = statement.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let count: i64 = row.get(2).unwrap();
        all.entry(row.get(0).unwrap()).or_default().insert(row.get(1).unwrap(), count.unsigned_abs());
    }
    all
}

fn is_counted(recording: &Recording) -> bool {
    let has_code = |map: &serde_json::Value| {
        map.as_object().is_some_and(|map| map.keys().any(|key| key.starts_with("code_") || key.starts_with("name_")))
    };
    has_code(&recording.report["loss"]) || has_code(&recording.report["stacks"]["failed"])
}

/// Asserts that the report's sums match the samples.
#[track_caller]
fn sums_match(recording: &Recording, outcomes: &BTreeMap<u32, Outcomes>) {
    let sum = |name: &str| outcomes.values().filter_map(|of| of.get(name)).sum::<u64>();
    assert_eq!(json::count(&recording.report, "/stacks/complete"), sum("complete"));
    assert_eq!(json::count(&recording.report, "/stacks/truncated"), sum("truncated"));
    let failed = recording.report["stacks"]["failed"].as_object().unwrap();
    assert!(!failed.is_empty(), "nothing failed: {:#}", recording.report["stacks"]);
    for (reason, count) in failed {
        assert_eq!(count.as_u64(), Some(sum(reason)), "{reason}");
    }
    let words = run(pyobs(["report".as_ref(), recording.file.as_os_str()]));
    for reason in failed.keys() {
        assert!(words.succeeds().text().contains(reason.as_str()), "the words do not mention {reason}: {words:?}");
    }
}

/// Asserts that every Python frame is one of the two programs.
#[track_caller]
fn names_are_real(recording: &Recording) {
    for row in json::list(&recording.report, "/frames") {
        let frame = &row["frame"];
        if frame["kind"] != "python" || frame["file"].is_null() {
            continue;
        }
        let file = json::text(frame, "/file");
        let known =
            ["fault_garbage.py", "fault_spin.py", "threading.py", "<frozen"].iter().any(|name| file.contains(name));
        assert!(known, "an invented frame: {frame:#}");
    }
}

//! Tests the family `nrt` against Numba's own statistics, which are off by default.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use pyobs_tests::{Case, Folder, Record, Workload, case, command, json, needs, shared_library_named, workload};
use serde_json::Value;

fn main() -> ExitCode {
    let of = |name: &str, body: fn()| case(name, body).needs(needs::root()).needs(interpreter());
    let mut cases: Vec<Case> = vec![
        of("births_and_deaths_match_numbas_statistics", || counted(true)),
        of("statistics_may_be_off", || counted(false)),
        of("a_leak_is_one_meminfo_at_its_line", leak),
        of("reference_counts_match_numbas", references),
    ];
    cases.push(case("the_family_is_off_unless_asked_for", off_by_default).needs(needs::root()));
    let full = case("what_the_full_ring_has_no_room_for_is_counted", overflow).needs(needs::root());
    cases.push(full.needs(needs::program("cc")).needs(needs::python("3.12")));
    pyobs_tests::run(cases)
}

fn interpreter() -> Result<PathBuf, String> {
    needs::executable_with("numba", "PYOBS_NUMBA")
}

fn program(phase: &str, statistics: bool) -> Command {
    let mut python = command(interpreter().unwrap());
    python.args(["-B", "-u"]).arg(workload("numba_nrt.py")).arg(phase);
    python.env("NUMBA_NRT_STATS", if statistics { "1" } else { "0" });
    python
}

fn record() -> Record {
    Record::new().argument("--probe").argument("nrt")
}

/// The numbers after a word that the program printed: allocations, frees, MemInfos made, MemInfos freed.
fn printed(stdout: &str, word: &str) -> Vec<u64> {
    let line = stdout.lines().find(|line| line.starts_with(word)).unwrap_or_else(|| panic!("{word}: {stdout}"));
    let list = line.split_once('[').unwrap().1.split_once(']').unwrap().0;
    list.split(',').map(|number| number.trim().parse().unwrap()).collect()
}

fn sum(meminfos: &Value, key: &str) -> u64 {
    json::list(meminfos, "/sites").iter().map(|site| json::count(site, key)).sum()
}

/// The program compiles and runs its functions, prints what Numba counts, and runs them again.
fn counted(statistics: bool) {
    let recording = record().command(program("all", statistics)).run();
    let meminfos = &recording.report["meminfos"];
    let (born, died) = (json::count(meminfos, "/born"), json::count(meminfos, "/died"));
    assert_eq!((born - died, sum(meminfos, "/live")), (json::count(meminfos, "/live"), born - died));
    assert_eq!(sum(meminfos, "/born"), born);
    let output = if statistics {
        recording.stdout.clone()
    } else {
        // Another run does the same, so its statistics hold for the recorded one as well.
        String::from_utf8(program("all", true).output().unwrap().stdout).unwrap()
    };
    let (before, after) = (printed(&output, "pid"), printed(&output, "after del"));
    assert_eq!((before[2] + after[2], before[3] + after[3]), (born, died), "{output}");
    let leaked = json::list(&recording.report, "/findings").iter().any(|finding| finding["id"] == "nrt/leaked");
    assert!(!leaked, "{:#}", recording.report["findings"]);
}

fn leak() {
    let recording = record().command(program("leak", false)).run();
    let meminfos = &recording.report["meminfos"];
    assert_eq!(json::count(meminfos, "/live"), 1, "{meminfos:#}");
    let left: Vec<&Value> = json::list(meminfos, "/sites").iter().filter(|site| site["live"] != 0).collect();
    let [site] = left[..] else { panic!("{left:#?}") };
    assert_eq!((json::count(site, "/live"), json::count(site, "/bytes")), (1, 40_000), "{site:#}");
    let script = std::fs::read_to_string(workload("numba_nrt.py")).unwrap();
    let line = 1 + script.lines().position(|line| line.contains("k2 = make(5000)")).unwrap() as u64;
    let python = json::list(site, "/stack").iter().rev().find(|frame| frame["kind"] == "python").unwrap();
    assert_eq!((&python["function"], &python["line"]), (&"<module>".into(), &line.into()), "{site:#}");
    let findings = json::list(&recording.report, "/findings");
    let found: Vec<&Value> = findings.iter().filter(|finding| finding["id"] == "nrt/leaked").collect();
    let [finding] = found[..] else { panic!("{found:#?}") };
    assert_eq!(json::count(finding, "/evidence/bytes"), 40_000, "{finding:#}");
}

/// Numba reports how many references an array's memory has. One array has three more, and waits for a snapshot.
const REFERENCES: &str = "
import os
import time
import numpy as np
from numba import njit

@njit
def make(n):
    return np.ones(n)

make(1)
time.sleep(1)
one = make(1000)
other = make(2000)
views = [other.base.acquire() for _ in range(3)]
print(one.base.refcount, other.base.refcount, one.ctypes.data, other.ctypes.data, flush=True)
time.sleep(2.5)
os._exit(0)
";

fn references() {
    let mut python = command(interpreter().unwrap());
    python.args(["-B", "-u", "-c", REFERENCES]);
    let recording = record().command(python).run();
    let printed: Vec<u64> = recording.stdout.split_whitespace().map(|count| count.parse().unwrap()).collect();
    let sites = json::list(&recording.report["meminfos"], "/sites");
    let seen = |bytes: u64| {
        let site = sites.iter().find(|site| json::count(site, "/bytes") == bytes);
        json::count(site.unwrap_or_else(|| panic!("{sites:#?}")), "/references")
    };
    assert_eq!([seen(8000), seen(16_000)], printed[..2], "{sites:#?}");
    // NumPy reports where the data lies.
    let query =
        "SELECT address FROM meminfo_data JOIN meminfos ON id = meminfo WHERE bytes IN (8000, 16000) ORDER BY bytes";
    let code = "import sqlite3, sys; print(*(row[0] for row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2])))";
    let mut sqlite = command(interpreter().unwrap());
    let output = sqlite.args(["-c", code]).arg(&recording.file).arg(query).output().unwrap();
    let places = String::from_utf8(output.stdout).unwrap();
    let places: Vec<u64> = places.split_whitespace().map(|place| place.parse().unwrap()).collect();
    assert_eq!(places, printed[2..]);
}

const LEAKS: &str = "
import ctypes, signal, sys
library = ctypes.CDLL(sys.argv[1])
library.NRT_MemInfo_alloc.restype = ctypes.c_void_p
library.NRT_MemInfo_alloc.argtypes = [ctypes.c_size_t]
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
print('ready', flush=True)
while not signal.sigtimedwait({signal.SIGUSR1}, 0.01):
    library.NRT_MemInfo_alloc(1) # until the probe is there
for size in range(int(sys.argv[2])):
    library.NRT_MemInfo_alloc(size + 1)
print('done', flush=True)
signal.sigwait({signal.SIGUSR1})
";
/// More than the ring has room for: each comes with its stack.
const LEAKED: u64 = 30_000;

/// While pyobs is stopped, nobody empties the ring.
fn overflow() {
    let folder = Folder::new();
    let library = shared_library_named(&workload("nrt.c"), &folder.join("_nrt_python.so"), &["-O1"]);
    let mut program = needs::python("3.12").unwrap().inline(LEAKS);
    program.arg(library).arg(LEAKED.to_string());
    let mut program = Workload::start(program);
    program.wait_for("ready");
    let recording = record().pid(program.pid()).start();
    let since = Instant::now();
    while recording.runs("nrt_birth") == 0 {
        assert!(since.elapsed() < Duration::from_secs(20), "no allocation was seen");
        std::thread::sleep(Duration::from_millis(10));
    }
    recording.signal(libc::SIGSTOP);
    program.signal(libc::SIGUSR1);
    program.wait_for("done");
    recording.signal(libc::SIGCONT);
    program.signal(libc::SIGUSR1);
    let recording = recording.wait();
    let sites = json::list(&recording.report, "/meminfos/sites").iter();
    let seen = sites.filter(|site| is_at(site, "size + 1")).map(|site| json::count(site, "/born")).sum::<u64>();
    let lost = json::count(&recording.report, "/loss/ring_full");
    assert!(seen > 0 && lost > 0, "{seen} seen, {lost} lost");
    assert_eq!(seen + lost, LEAKED, "{seen} seen, {lost} lost");
}

/// Whether the MemInfos of a site were created at the line of [`LEAKS`] with this text.
fn is_at(site: &Value, text: &str) -> bool {
    let line = 1 + LEAKS.lines().position(|line| line.contains(text)).unwrap() as u64;
    json::list(site, "/stack").iter().any(|frame| frame["kind"] == "python" && frame["line"] == line)
}

fn off_by_default() {
    let mut nothing = command("true");
    nothing.env("LANG", "C");
    let recording = Record::new().command(nothing).run();
    assert!(recording.report["meminfos"].is_null());
    assert!(recording.report["arenas"].is_array());
}

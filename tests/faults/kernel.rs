//! Tests kernels that lack one feature: pyobs must do without it and say so, or refuse in one sentence. `doctor` must
//! report exactly that feature as missing, and why.

use std::collections::BTreeMap;

use pyobs_capture::kernel::btf::Btf;
use pyobs_model::Family;
use pyobs_tests::{Case, Folder, Record, Recording, Workload, case, json, needs, refusing, rule, workload};
use serde_json::Value;

use crate::bpf::{self, Objects};
use crate::python;
use crate::verb::{Outcome, is_calm, pyobs, run};

/// Numbers of helpers (include/uapi/linux/bpf.h).
const GET_STACK: u32 = 67;
const GET_ATTACH_COOKIE: u32 = 174;
const TASK_PT_REGS: u32 = 175;
const FIND_VMA: u32 = 180;
const LOOP: u32 = 181;
/// Other numbers of that file and of include/uapi/linux/perf_event.h.
const RING_BUFFER: u32 = 27;
const MAPPABLE: u32 = 1 << 10;
const TYPED_TRACEPOINT: u32 = 23;
const ENABLE_STATS: u32 = 32;
const TRACEPOINT: u32 = 2;
const BREAKPOINT: u32 = 5;
const CYCLES: &str = "0.0";
const CPU_CLOCK: &str = "1.0";
const DUMMY: &str = "1.9";

/// The `doctor` line for all maps and programs together.
const OBJECT: &str = "object";
/// The families that are on by default.
const DEFAULT: [&str; 7] = ["cpu", "offcpu", "gil", "arena", "heap", "shm", "tasks"];

struct Lack {
    name: &'static str,
    rules: String,
    /// `doctor` lines that change: their name, the new status, and a part of the reason.
    lines: &'static [(&'static str, &'static str, &'static str)],
    /// What `record` does with each of these probes.
    records: Vec<(Option<&'static str>, Ends)>,
}

enum Ends {
    /// Exits with 3 and a sentence that contains this.
    Refused(&'static str),
    /// Succeeds, with a notice that contains this, if any, and a report for which this holds.
    Succeeds(Option<&'static str>, fn(&Value)),
}

pub fn cases() -> Vec<Case> {
    let prepared = |case: Case| case.needs(needs::root()).needs(needs::program("cc")).needs(python());
    let lacks = helpers().into_iter().chain(programs()).chain(events());
    let cases = lacks.map(|lack| prepared(case(format!("kernel/without_{}", lack.name), move || check(&lack))));
    let more = [
        prepared(case("kernel/the_report_names_the_clock", clock)),
        prepared(case("kernel/without_bpf_find_vma_shared_memory_has_its_line", unnamed_memory)),
    ];
    cases.chain(more).collect()
}

fn no_more(_: &Value) {}

const REFUSES: &str = "the kernel refuses the BPF program";

/// Lines of `doctor` about the programs of these families.
macro_rules! refused {
    ($($line:expr,)* ; $($status:literal $family:literal),*) => { &[$($line,)* $(($family, $status, REFUSES)),*] };
}

fn helpers() -> [Lack; 6] {
    let unknown = |helper| rule("helper", helper, libc::EINVAL);
    [
        Lack {
            name: "bpf_loop",
            rules: unknown(LOOP),
            lines: &[("bpf_loop", "degraded", "does not know the helper")],
            records: vec![
                (None, Ends::Succeeds(None, are_on)),
                (Some("cpu,redundancy"), Ends::Succeeds(None, is_watched)),
            ],
        },
        Lack {
            name: "bpf_find_vma",
            rules: unknown(FIND_VMA),
            lines: &[("mapping at an address", "degraded", "does not know the helper")],
            records: vec![(None, Ends::Succeeds(None, are_on))],
        },
        Lack {
            name: "the_features_of_5_17",
            rules: [unknown(FIND_VMA), unknown(LOOP)].concat(),
            lines: &[
                ("mapping at an address", "degraded", "does not know the helper"),
                ("bpf_loop", "degraded", "does not know the helper"),
            ],
            records: vec![(None, Ends::Succeeds(None, are_on))],
        },
        Lack {
            name: "registers_of_user_code",
            rules: unknown(TASK_PT_REGS),
            lines: refused!(
                ("user registers", "missing", "does not know the helper"),;
                "missing" "cpu", "missing" "offcpu", "missing" "gil", "missing" "arena", "missing" "heap",
                "missing" "shm",
                "missing" "redundancy"
            ),
            records: vec![(None, Ends::Refused("refuses the BPF program cpu_sample"))],
        },
        Lack {
            name: "stacks_of_the_kernel",
            rules: unknown(GET_STACK),
            lines: refused!(
                ("kernel stacks", "missing", "does not know the helper"),;
                "missing" "cpu", "missing" "offcpu", "missing" "gil", "missing" "redundancy"
            ),
            records: vec![(None, Ends::Refused("refuses the BPF program cpu_sample"))],
        },
        Lack {
            name: "cookies",
            rules: unknown(GET_ATTACH_COOKIE),
            lines: refused!(
                ("probe cookies", "missing", "does not know the helper"),;
                "missing" "eval", "degraded" "arena", "missing" "ucx"
            ),
            records: vec![
                (None, Ends::Succeeds(None, no_more)),
                (
                    Some("+eval"),
                    Ends::Succeeds(Some("eval is off: the kernel refuses the BPF program eval_call"), no_calls),
                ),
                (Some("eval"), Ends::Refused("refuses the BPF program eval_call")),
            ],
        },
    ]
}

fn programs() -> [Lack; 8] {
    let number = |of: fn(&Btf, &str) -> Option<u32>, name| {
        let number = Btf::of_running_kernel().ok().and_then(|btf| of(&btf, name));
        rule("btf", number.unwrap_or(0), libc::EINVAL)
    };
    let iterator = |name| number(Btf::function, name);
    let typed = |name| number(Btf::typedef, name);
    let compares_with_proc = || vec![(None, Ends::Succeeds(None, proc_takes_its_place))];
    [
        Lack {
            name: "ring_buffers",
            rules: rule("map", RING_BUFFER, libc::EINVAL),
            lines: &[
                ("ring buffer", "missing", "Invalid argument"),
                (OBJECT, "missing", "does not take pyobs's BPF object"),
            ],
            records: vec![(None, Ends::Refused("does not take pyobs's BPF object"))],
        },
        Lack {
            name: "mappable_arrays",
            rules: rule("map_flags", MAPPABLE, libc::EINVAL),
            lines: &[
                ("mappable array", "missing", "Invalid argument"),
                (OBJECT, "missing", "does not take pyobs's BPF object"),
            ],
            records: vec![(None, Ends::Refused("does not take pyobs's BPF object"))],
        },
        Lack {
            name: "the_iterator_over_mappings",
            rules: iterator("bpf_iter_task_vma"),
            lines: refused!(("iterator over mappings", "degraded", "Invalid argument"),; "degraded" "shm"),
            records: compares_with_proc(),
        },
        Lack {
            name: "the_iterator_over_files",
            rules: iterator("bpf_iter_task_file"),
            lines: refused!(("iterator over open files", "degraded", "Invalid argument"),; "degraded" "shm"),
            records: compares_with_proc(),
        },
        Lack {
            name: "typed_tracepoints",
            rules: rule("attach", TYPED_TRACEPOINT, libc::EINVAL),
            lines: refused!(
                ("typed tracepoints", "degraded", "Invalid argument"),
                ("thread switches", "missing", "Invalid argument"),
                ("thread wake-ups", "missing", "Invalid argument"),;
                "missing" "offcpu", "missing" "gil", "degraded" "arena", "degraded" "heap", "degraded" "shm"
            ),
            records: vec![
                (
                    None,
                    Ends::Succeeds(
                        Some("offcpu, gil are off: the kernel refuses the BPF program offcpu_waking"),
                        no_waits,
                    ),
                ),
                (Some("cpu,shm,arena"), Ends::Succeeds(None, are_on)),
                (Some("offcpu"), Ends::Refused("refuses the BPF program offcpu_waking")),
            ],
        },
        Lack {
            name: "thread_switches",
            rules: typed("btf_trace_sched_switch"),
            lines: refused!(
                ("thread switches", "missing", "Invalid argument"),; "missing" "offcpu", "missing" "gil"
            ),
            records: vec![
                (
                    None,
                    Ends::Succeeds(
                        Some("offcpu, gil are off: the kernel refuses the BPF program offcpu_switch"),
                        no_waits,
                    ),
                ),
                (Some("cpu"), Ends::Succeeds(None, no_more)),
            ],
        },
        Lack {
            name: "page_evictions",
            rules: rule("tracepoint", "mm_filemap_delete_from_page_cache", libc::ENOENT),
            lines: &[("page evictions", "missing", "No such file or directory")],
            records: vec![(None, Ends::Succeeds(Some("shm is off: the kernel refuses"), segments_are_off))],
        },
        Lack {
            name: "run_time_statistics",
            rules: rule("bpf", ENABLE_STATS, libc::EINVAL),
            lines: &[("run-time statistics", "degraded", "Invalid argument")],
            records: vec![(None, Ends::Succeeds(None, |report| assert_eq!(json::number(report, "/cost/bpf_s"), 0.0)))],
        },
    ]
}

fn events() -> [Lack; 5] {
    [
        Lack {
            name: "tracepoints_of_single_calls",
            rules: rule("event", TRACEPOINT, libc::ENOENT),
            lines: &[("single system calls", "degraded", "No such file or directory")],
            records: vec![(None, Ends::Succeeds(None, are_on))],
        },
        Lack {
            name: "uprobes",
            rules: rule("file", "/sys/bus/event_source/devices/uprobe/type", libc::ENOENT),
            lines: &[("uprobes", "missing", "CONFIG_UPROBE_EVENTS"), ("uretprobes", "missing", "CONFIG_UPROBE_EVENTS")],
            records: vec![
                (None, Ends::Succeeds(None, no_more)),
                (Some("+eval,+nrt,+ucx"), Ends::Succeeds(Some("eval, nrt, ucx are off: "), no_calls)),
                (Some("nrt"), Ends::Refused("no probe can be put on a program")),
            ],
        },
        Lack {
            name: "hardware_breakpoints",
            rules: rule("event", BREAKPOINT, libc::ENODEV),
            lines: &[
                ("write breakpoints", "missing", "No such device"),
                ("program on a breakpoint", "missing", "No such device"),
            ],
            records: vec![
                (None, Ends::Succeeds(None, no_more)),
                (
                    Some("+redundancy"),
                    Ends::Succeeds(Some("redundancy is off: the kernel gives no hardware breakpoint"), is_unwatched),
                ),
                (Some("redundancy"), Ends::Refused("no hardware breakpoint")),
            ],
        },
        Lack {
            name: "any_clock",
            rules: rule("event", CPU_CLOCK, libc::ENOENT),
            lines: &[
                ("cpu-clock", "missing", "No such file or directory"),
                ("program on a sample", "missing", "No such file or directory"),
            ],
            records: vec![(None, Ends::Refused("refuses to sample the CPUs"))],
        },
        Lack {
            name: "notices_of_mappings",
            rules: rule("event", DUMMY, libc::ENOENT),
            lines: &[("notices of mappings", "degraded", "No such file or directory")],
            records: vec![
                (None, Ends::Succeeds(None, no_more)),
                (Some("cpu"), Ends::Refused("refuses notices of new mappings")),
            ],
        },
    ]
}

fn are_on(report: &Value) {
    assert!(report["segments"].is_array() && report["arenas"].is_array(), "{:#}", report["recording"]);
}

fn segments_are_off(report: &Value) {
    assert!(report["segments"].is_null(), "{:#}", report["segments"]);
}

fn no_waits(report: &Value) {
    assert!(report["offcpu"].is_null() && report["gil"].is_null(), "{:#}", report["recording"]);
    let refused: Vec<_> = json::list(report, "/refused").iter().map(|row| json::text(row, "/family")).collect();
    assert_eq!(refused, ["offcpu", "gil"]);
}

fn no_calls(report: &Value) {
    assert!(report["calls"].is_null(), "{:#}", report["calls"]);
}

fn is_watched(report: &Value) {
    assert!(report["redundancy"].is_object(), "{:#}", report["recording"]);
}

fn is_unwatched(report: &Value) {
    assert!(report["redundancy"].is_null(), "{:#}", report["redundancy"]);
}

fn proc_takes_its_place(report: &Value) {
    assert_eq!(json::text(report, "/recording/segment_repair"), "proc");
    assert!(report["segments"].is_array(), "{:#}", report["segments"]);
}

fn check(lack: &Lack) {
    let before = Objects::all();
    doctor_says(lack);
    let mut spin = Workload::start(python().unwrap().script(workload("fault_spin.py")));
    spin.wait_for("ready");
    for (probes, ends) in &lack.records {
        match ends {
            Ends::Refused(sentence) => refuses(lack, *probes, sentence),
            Ends::Succeeds(notice, is_true) => is_true(&goes_well(lack, *probes, spin.pid(), *notice).report),
        }
    }
    bpf::assert_nothing_is_new(&before);
}

/// Asserts that its `doctor` lines have changed, and no others.
fn doctor_says(lack: &Lack) {
    let examine = |rules: &str| {
        let outcome = run(refusing(rules, &pyobs(["doctor", "--json"])));
        outcome.is_calm();
        (lines(&outcome), outcome)
    };
    let ((mut expected, whole), (found, outcome)) = (examine(""), examine(&lack.rules));
    if found[OBJECT]["status"] != "works" {
        // Without the object, `doctor` lists no programs.
        expected.retain(|name, _| name.parse::<Family>().is_err());
    }
    let mut code = whole.code();
    for (name, status, why) in lack.lines {
        let line = &found[*name];
        let reason = json::text(line, "/why");
        assert!(reason.contains(why), "{line:#}");
        assert!(!json::text(line, "/todo").is_empty(), "{line:#}");
        let concerns = json::list(line, "/families").iter().any(|family| DEFAULT.iter().any(|name| family == name));
        if *status == "missing" && concerns {
            code = Some(3);
            assert!(outcome.fails_with(3).contains(name), "{outcome:?}");
        }
        let line = expected.get_mut(*name).unwrap();
        (line["status"], line["todo"]) = ((*status).into(), found[*name]["todo"].clone());
    }
    assert_eq!(outcome.code(), code, "{outcome:?}");
    let statuses = |lines: &BTreeMap<String, Value>| -> Vec<_> {
        let without_why = |line: &Value| (line["status"].clone(), line["todo"].clone(), line["families"].clone());
        lines.iter().map(|(name, line)| (name.clone(), without_why(line))).collect()
    };
    assert_eq!(statuses(&found), statuses(&expected));
}

fn lines(outcome: &Outcome) -> BTreeMap<String, Value> {
    let lines = json::parse(outcome.text());
    let lines = json::list(&lines, "/checks").iter();
    lines.map(|line| (json::text(line, "/name").to_owned(), line.clone())).collect()
}

fn refuses(lack: &Lack, probes: Option<&str>, expected: &str) {
    let folder = Folder::new();
    let mut record = pyobs(["record", "--duration", "1", "-o"]);
    record.arg(folder.join("a.pyobs")).args(probes.iter().flat_map(|probes| ["--probe", probes]));
    let outcome = run(refusing(&lack.rules, &record));
    let sentence = outcome.fails_with(3);
    assert!(sentence.contains(expected), "{sentence}");
    assert!(!folder.join("a.pyobs").exists(), "a file remains: {outcome:?}");
}

fn goes_well(lack: &Lack, probes: Option<&str>, pid: u32, notice: Option<&str>) -> Recording {
    let record = Record::new().rate(499).pid(pid).seconds(1.0).refusing(&lack.rules);
    let recording = probes.iter().fold(record, |record, probes| record.argument("--probe").argument(*probes)).run();
    assert!(recording.status.success(), "{}", recording.stderr);
    is_calm(&recording.stderr);
    let mut notices: Vec<&str> = recording.stderr.lines().collect();
    notices.retain(|line| !line.starts_with("pyobs: recorded "));
    // A refusal is reported at the beginning and at the end.
    notices.dedup();
    match (notice, &notices[..]) {
        (None, []) => {}
        (Some(expected), [notice]) if notice.contains(expected) => {}
        _ => panic!("expected {notice:?}, got {notices:#?}"),
    }
    let samples = |stacks: &[pyobs_tests::Stack]| stacks.iter().map(|stack| stack.samples).sum::<u64>();
    let (all, mut hot) = (recording.stacks(), recording.stacks());
    hot.retain(|stack| stack.has("hot_function"));
    assert!(probes == Some("redundancy") || samples(&hot) > 0, "{:#}", recording.report["stacks"]);
    assert!(samples(&hot) * 10 >= samples(&all) * 9, "{:#}", recording.report["stacks"]);
    recording
}

/// Shared memory without a name: without bpf_find_vma, /proc must tell what is behind the mapping.
fn unnamed_memory() {
    const PROGRAM: &str =
        "import mmap, time; time.sleep(1)\ndef make(): return mmap.mmap(-1, 3 << 20)\nm = make(); time.sleep(2)";
    let folder = Folder::new();
    let file = folder.join("a.pyobs");
    let mut record = pyobs(["record", "--probe", "shm", "-o"]);
    record.arg(&file).arg("--").arg(&python().unwrap().executable).args(["-c", PROGRAM]);
    run(refusing(&rule("helper", FIND_VMA, libc::EINVAL), &record)).succeeds();
    let report = run(pyobs(["report".as_ref(), "--json".as_ref(), file.as_os_str()]));
    let report = json::parse(report.succeeds().text());
    let segments = json::list(&report, "/segments");
    let segment = segments.iter().find(|row| row["bytes"] == 3 << 20).unwrap_or_else(|| panic!("{segments:#?}"));
    assert_eq!(segment["kind"], "anonymous", "{segment:#}");
    let makes = |frame: &&Value| frame["function"] == "make" && frame["line"] == 2;
    assert!(json::list(segment, "/stack").iter().any(|frame| makes(&frame)), "{segment:#}");
    assert_eq!(segment["verdict"], "released", "{segment:#}");
}

/// Samples follow the CPU's clock, and need no hardware counter.
fn clock() {
    let mut spin = Workload::start(python().unwrap().script(workload("fault_spin.py")));
    spin.wait_for("ready");
    let rules = rule("event", CYCLES, libc::ENOENT);
    let recording = Record::new().pid(spin.pid()).seconds(1.0).refusing(&rules).run();
    assert_eq!(json::text(&recording.report, "/recording/sampler"), "cpu-clock");
    let report = run(pyobs(["report".as_ref(), recording.file.as_os_str()]));
    let words = report.succeeds().text();
    assert!(words.contains("Hz (cpu-clock)"), "{words}");
}

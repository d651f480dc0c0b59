//! Tests the family `arena` against CPython's own count of its arenas, and against strace.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::process::{Command, ExitCode};

use pyobs_tests::{Case, Python, Record, Recording, Workload, case, compare, json, needs, workload};
use serde_json::Value;

/// How many pools may come into use between CPython's count and pyobs's.
const POOLS: f64 = 3.0;

type Named = (&'static str, fn(&Python));

fn main() -> ExitCode {
    let mut cases = Vec::new();
    for python in Python::all() {
        let each: [Named; 3] = [
            ("arenas_match_those_that_cpython_counts", counted),
            ("arenas_that_already_exist_are_found", found_later),
            ("births_and_ends_match_the_system_calls_in_strace", traced),
        ];
        cases.extend(each.map(|(name, body)| of(python, name, body).needs(quick(python, name))));
        let rest: [Named; 3] = [
            ("nearly_empty_arenas_are_a_finding", sparse),
            ("a_forked_child_has_copies", forked),
            ("other_memory_of_the_same_size_is_not_an_arena", no_arena),
        ];
        let one = if python.is("3.12") { Ok(()) } else { needs::all() };
        cases.extend(rest.map(|(name, body)| of(python, name, body).needs(one.clone())));
        if python.minor() >= 13 {
            let own = python.clone();
            let name = format!("{}::heaps_match_what_mimalloc_counts", python.name());
            cases.push(case(name, move || heaps(&own)).needs(needs::root()));
        }
    }
    pyobs_tests::run(cases)
}

/// By default, one interpreter runs for each arena size and for each way to find the allocator: by symbol names, and by
/// what a stripped file exports.
fn quick(python: &Python, name: &str) -> Result<(), String> {
    let is_stripped = python.executable.starts_with("/usr");
    let is_one = match name {
        "arenas_match_those_that_cpython_counts" => python.is("3.8") || is_stripped || python.is("3.13"),
        "arenas_that_already_exist_are_found" => python.is("3.8") || python.is("3.12"),
        _ => python.is("3.12"),
    };
    if is_one { Ok(()) } else { needs::all() }
}

fn of(python: &Python, name: &str, body: fn(&Python)) -> Case {
    let own = python.clone();
    let built_so = if python.version.ends_with('t') {
        Err("a free-threaded build has no arenas of CPython's own".to_owned())
    } else {
        Ok(())
    };
    let tracer = if name.contains("strace") { needs::program("strace").map(drop) } else { Ok(()) };
    case(format!("{}::{name}", python.name()), move || body(&own)).needs(needs::root()).needs(built_so).needs(tracer)
}

/// Records this family alone.
fn record() -> Record {
    Record::new().argument("--probe").argument("arena")
}

fn program(python: &Python, mode: &str) -> Command {
    let mut command = python.script(workload("arenas.py"));
    command.arg(mode);
    command
}

/// The figures that `sys._debugmallocstats` prints.
#[derive(Debug)]
struct Stats {
    allocated: u64,
    reclaimed: u64,
    current: u64,
    unused_pools: u64,
}

impl Stats {
    fn of(stderr: &str) -> Self {
        let value = |name: &str| {
            let line = stderr.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {stderr}"));
            line.rsplit_once('=').unwrap().1.trim().replace(',', "").parse().unwrap()
        };
        let unused = stderr.lines().find(|line| line.contains(" unused pools * ")).unwrap();
        Self {
            allocated: value("# arenas allocated total"),
            reclaimed: value("# arenas reclaimed"),
            current: value("# arenas allocated current"),
            unused_pools: unused.split(' ').next().unwrap().replace(',', "").parse().unwrap(),
        }
    }
}

/// The arenas of a process.
fn arenas(recording: &Recording, pid: u64) -> Vec<&Value> {
    json::list(&recording.report, "/arenas").iter().filter(|arena| arena["pid"] == pid).collect()
}

fn first_pid(recording: &Recording) -> u64 {
    let processes = json::list(&recording.report, "/processes");
    json::count(processes.iter().min_by_key(|row| json::count(row, "/pid")).unwrap(), "/pid")
}

fn is_freed(arena: &&&Value) -> bool {
    arena["cause"] == "freed"
}

/// Whether its innermost Python frame is in this function.
fn is_born_in(arena: &Value, function: &str) -> bool {
    let stack = json::list(arena, "/stack");
    let python = stack.iter().rev().find(|frame| frame["kind"] == "python");
    python.is_some_and(|frame| {
        // Up to 3.11 a list comprehension is a function, and before that its name does not include the outer
        // function's.
        let name = frame["function"].as_str().unwrap();
        let file = frame["file"].as_str().unwrap_or_default();
        (name == function || name.contains("<listcomp>")) && file.ends_with("arenas.py") && frame["line"].is_u64()
    })
}

#[track_caller]
fn agrees(arenas: &[&Value], stats: &Stats, is_partial: bool) {
    let freed = arenas.iter().filter(is_freed).count() as u64;
    let kept: Vec<&&Value> = arenas.iter().filter(|arena| !is_freed(arena)).collect();
    assert_eq!(kept.len() as u64, stats.current, "{stats:?}");
    if !is_partial {
        assert_eq!((arenas.len() as u64, freed), (stats.allocated, stats.reclaimed), "{stats:?}");
    }
    let sum = |key: &str| kept.iter().map(|arena| json::count(arena, key)).sum::<u64>();
    let used = sum("/slabs").checked_sub(stats.unused_pools).unwrap();
    let seen = sum("/slabs_used");
    // For an arena that existed before, it is not always known whether it starts with its first pool.
    let found = kept.iter().filter(|arena| arena["born_s"].is_null()).count();
    let allowed = if is_partial { POOLS + found as f64 } else { POOLS };
    assert!((seen as f64 - used as f64).abs() <= allowed, "{seen} pools in use, {used} by CPython's count; {stats:?}");
}

fn nothing_is_lost(recording: &Recording) {
    let loss = recording.report["loss"].as_object().unwrap();
    let lost = loss.keys().find(|key| key.starts_with("arena") || ["ring_full", "table_full"].contains(&key.as_str()));
    assert!(lost.is_none(), "{loss:?}");
}

fn counted(python: &Python) {
    let recording = record().command(program(python, "keep")).run();
    nothing_is_lost(&recording);
    let (stats, pid) = (Stats::of(&recording.stderr), first_pid(&recording));
    let arenas = arenas(&recording, pid);
    agrees(&arenas, &stats, false);
    assert!(arenas.iter().all(|arena| arena["kind"] == "pymalloc"), "{arenas:#?}");
    let expected = if python.minor() >= 10 { 1 << 20 } else { 256 << 10 };
    assert!(arenas.iter().all(|arena| arena["bytes"] == expected), "{arenas:#?}");
    let born = |function| arenas.iter().filter(|arena| is_born_in(arena, function)).count();
    assert!(born("build") >= 10, "{} of {}", born("build"), arenas.len());
    let held = arenas.iter().filter(|arena| is_born_in(arena, "build") && !is_freed(arena)).count();
    assert!(held >= 10, "{held}");
    let folded = recording.export("folded", &["--weight", "bytes", "--pid", &pid.to_string()]);
    let bytes = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    assert_eq!(folded.lines().map(bytes).sum::<u64>(), stats.current * expected, "{folded}");
    let ids: std::collections::BTreeSet<&str> = arenas.iter().map(|arena| json::text(arena, "/id")).collect();
    assert_eq!(ids.len(), arenas.len(), "ids are unique");
}

fn found_later(python: &Python) {
    let mut running = Workload::start(program(python, "wait"));
    running.wait_for("ready");
    let recording = record().pid(running.pid()).start();
    running.signal(libc::SIGUSR1);
    let pid = u64::from(running.pid());
    let recording = recording.wait();
    let stats = Stats::of(&running.wait().stderr);
    nothing_is_lost(&recording);
    let arenas = arenas(&recording, pid);
    agrees(&arenas, &stats, true);
    let there: Vec<&&Value> = arenas.iter().filter(|arena| arena["born_s"].is_null()).collect();
    assert!(there.len() > 2 && there.len() < arenas.len(), "{} of {} existed before", there.len(), arenas.len());
    assert!(there.iter().all(|arena| json::list(arena, "/stack").is_empty()));
    assert!(arenas.iter().any(|arena| is_born_in(arena, "build")));
}

fn sparse(python: &Python) {
    let mut command = program(python, "sparse");
    command.env("PYTHONHASHSEED", "0");
    let recording = record().command(command).run();
    let finding = json::list(&recording.report, "/findings").iter().find(|finding| finding["id"] == "arena/sparse");
    let stats = Stats::of(&recording.stderr);
    let bytes = stats.current * if python.minor() >= 10 { 1 << 20 } else { 256 << 10 };
    let finding = finding.unwrap_or_else(|| panic!("{bytes} bytes gave no finding: {stats:?}"));
    assert_eq!(json::count(finding, "/evidence/arenas"), stats.current, "{finding:#}");
    assert_eq!(json::count(finding, "/evidence/bytes"), bytes, "{finding:#}");
    assert!(json::text(finding, "/summary").contains("arenas.py"), "{finding:#}");
    assert_eq!(finding["pid"], first_pid(&recording));
}

fn forked(python: &Python) {
    let recording = record().command(program(python, "fork")).run();
    let child: u64 = recording.stdout.trim().strip_prefix("child ").unwrap().parse().unwrap();
    let arenas = arenas(&recording, child);
    agrees(&arenas, &Stats::of(&recording.stderr), true);
    let copies: Vec<&&Value> = arenas.iter().filter(|arena| arena["born_s"].is_null()).collect();
    assert!(copies.iter().filter(|arena| is_born_in(arena, "build")).count() >= 10, "copies keep their birthplace");
    let own = arenas.iter().filter(|arena| arena["born_s"].is_f64() && is_born_in(arena, "build")).count();
    assert!(own >= 10, "{own} arenas of the child's own");
}

fn no_arena(python: &Python) {
    let recording = record().command(program(python, "other")).run();
    assert!(recording.stdout.contains("made 5"), "{}", recording.stdout);
    agrees(&arenas(&recording, first_pid(&recording)), &Stats::of(&recording.stderr), false);
}

/// mimalloc counts the blocks in use of one thread's heap. A free-threaded build keeps its objects elsewhere.
fn heaps(python: &Python) {
    let mut command = program(python, "keep");
    command.env("PYTHONMALLOC", "mimalloc");
    let recording = record().command(command).run();
    nothing_is_lost(&recording);
    let counted = recording.stderr.lines().find_map(|line| line.trim().strip_prefix("Allocated Bytes: "));
    let counted: f64 = counted.unwrap_or_else(|| panic!("{}", recording.stderr)).parse().unwrap();
    let arenas = arenas(&recording, first_pid(&recording));
    assert!(arenas.iter().all(|arena| arena["kind"] == "mimalloc" && arena["bytes"] == 32 << 20), "{arenas:#?}");
    let held = || arenas.iter().filter(|arena| !is_freed(arena));
    let sum = |key: &str| held().map(|arena| json::count(arena, key)).sum::<u64>();
    let (used, slabs, slabs_used) = (sum("/used_bytes"), sum("/slabs"), sum("/slabs_used"));
    if python.version.ends_with('t') {
        compare::at_least("bytes in use", used as f64, counted + 400_000.0 * 40.0);
    } else {
        compare::within("bytes in use", used as f64, counted, 0.01);
    }
    // Used bytes lie in slices that hold memory.
    assert!(slabs_used <= slabs && used <= slabs_used * (64 << 10), "{used} bytes in {slabs_used} of {slabs} slices");
    assert!(used * 2 >= slabs_used * (64 << 10), "{used} bytes in {slabs_used} slices");
}

/// strace logs every mapping that the program makes; the size and flags of a call show whether it is an arena.
fn traced(python: &Python) {
    let folder = pyobs_tests::Folder::new();
    let log = folder.join("calls");
    let target = program(python, "keep");
    let mut strace = pyobs_tests::command("strace");
    strace.arg("-qq").arg("-e").arg("trace=mmap,munmap").arg("-o").arg(&log);
    strace.arg(target.get_program()).args(target.get_args());
    let recording = record().command(strace).run();
    let log = std::fs::read_to_string(&log).unwrap();
    let size = if python.minor() >= 10 { "1048576" } else { "262144" };
    let call = format!("mmap(NULL, {size}, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x");
    let births = log.lines().filter(|line| line.starts_with(&call)).count();
    let ends = log.lines().filter(|line| line.starts_with("munmap(") && line.contains(&format!(", {size})"))).count();
    let processes = json::list(&recording.report, "/processes");
    let traced = processes.iter().find(|row| row["python"] == python.version.as_str()).unwrap();
    let arenas = arenas(&recording, json::count(traced, "/pid"));
    compare::at_least("births", births as f64, 10.0);
    let freed = arenas.iter().filter(is_freed).count();
    assert_eq!((arenas.len(), freed), (births, ends));
}

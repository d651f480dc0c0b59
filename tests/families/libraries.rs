//! Tests the libraries' arenas of the family `arena` against what the libraries count themselves: a module with
//! quelling_blade's names and layout, NumPy, whose memory tracemalloc tracks as well, and pyarrow.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use pyobs_tests::{
    Case, Folder, Python, Record, Recording, Workload, case, command, json, needs, python_module, workload,
};
use regex::Regex;
use serde_json::Value;

fn main() -> ExitCode {
    let mut cases = Vec::new();
    for python in Python::all().iter().filter(|python| python.root.is_none()) {
        let own = python.clone();
        cases.push(built(python, "arenas_match_those_that_the_library_counts", needs::every(python), move || {
            quelling(&own);
        }));
        if python.is("3.12") {
            let own = python.clone();
            let name = "errors_in_a_description_are_reported_and_the_rest_works";
            cases.push(built(python, name, Ok(()), move || bad_descriptions(&own)));
            let own = python.clone();
            let name = "a_users_own_description_works";
            cases.push(built(python, name, Ok(()), move || own_description(&own)));
            for how in ["rename", "unlink"] {
                let own = python.clone();
                let name = format!("a_library_that_was_replaced_on_disk_by_{how}_is_followed_as_it_is_mapped");
                cases.push(built(python, &name, Ok(()), move || replaced(&own, how)));
            }
            let own = python.clone();
            let name = "a_library_rewritten_in_place_loses_its_probes_and_gets_new_ones";
            cases.push(built(python, name, Ok(()), move || rewritten(&own)));
            let own = python.clone();
            let name = "objects_beyond_an_explicit_budget_are_given_up_and_reported";
            cases.push(built(python, name, Ok(()), move || often(&own)));
            let own = python.clone();
            let name = "a_library_is_off_unless_it_is_named";
            cases.push(built(python, name, Ok(()), move || off_by_default(&own)));
        }
    }
    for (name, module, body) in [
        ("arrays_match_those_that_tracemalloc_counts", "numpy", numpy as fn()),
        ("buffers_match_those_of_the_pool", "pyarrow", pyarrow),
    ] {
        cases.push(case(name, body).needs(needs::root()).needs(interpreter(module)));
    }
    pyobs_tests::run(cases)
}

fn interpreter(module: &str) -> Result<PathBuf, String> {
    needs::executable_with(module, &format!("PYOBS_{}", module.to_uppercase()))
}

/// Records a program that uses a module; also returns what the program printed.
fn of_module(module: &str) -> (Recording, Value) {
    let mut program = command(interpreter(module).unwrap());
    program.args(["-B", "-u"]).arg(workload("libraries.py")).arg(module);
    let mut running = Workload::start(program);
    running.wait_for("ready");
    let recording = record(module).pid(running.pid()).start();
    running.signal(libc::SIGUSR1);
    let printed = json::parse(&running.line());
    (recording.wait(), printed)
}

fn built(python: &Python, name: &str, also: Result<(), String>, body: impl Fn() + Send + 'static) -> Case {
    let case = case(format!("{}::{name}", python.name()), body).needs(needs::root()).needs(also);
    case.needs(needs::program("c++")).needs(headers(python))
}

/// The folder of an interpreter's `Python.h`.
fn headers(python: &Python) -> Result<PathBuf, String> {
    let mut ask = python.inline("import sysconfig; print(sysconfig.get_paths()['include'])");
    let output = ask.output().map_err(|error| error.to_string())?;
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let found = folder.join("Python.h").is_file();
    if found { Ok(folder) } else { Err(format!("there is no Python.h of {}", python.name())) }
}

/// Builds the module, and returns the command that uses it.
fn program(python: &Python, folder: &Folder) -> Command {
    let mut ask = python.inline("import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))");
    let suffix = String::from_utf8(ask.output().unwrap().stdout).unwrap();
    let package = folder.join("quelling_blade");
    std::fs::create_dir(&package).unwrap();
    std::fs::write(package.join("__init__.py"), "from .arena_allocatable import *\n").unwrap();
    let module = package.join(format!("arena_allocatable{}", suffix.trim()));
    python_module(&workload("quelling_blade.cpp"), &module, &headers(python).unwrap());
    let mut command = python.script(workload("libraries.py"));
    command.arg("quelling").arg(folder.join(""));
    command
}

fn record(libraries: &str) -> Record {
    Record::new().argument("--probe").argument(format!("arena={libraries}"))
}

fn printed(recording: &Recording) -> Value {
    let line = recording.stdout.lines().last().unwrap_or_else(|| panic!("{}", recording.stderr));
    serde_json::from_str(line).unwrap()
}

fn arenas<'a>(recording: &'a Recording, kind: &str) -> Vec<&'a Value> {
    json::list(&recording.report, "/arenas").iter().filter(|arena| arena["kind"] == kind).collect()
}

fn sum(arenas: &[&Value], key: &str) -> u64 {
    arenas.iter().map(|arena| json::count(arena, key)).sum()
}

/// The function of the innermost Python frame.
fn innermost<'a>(arena: &'a Value, key: &str) -> &'a str {
    let python = json::list(arena, key).iter().rev().find(|frame| frame["kind"] == "python");
    let name = python.map_or("", |frame| frame["function"].as_str().unwrap());
    name.rsplit('.').next().unwrap()
}

fn quelling(python: &Python) {
    let folder = Folder::new();
    let recording = record("quelling_blade").command(program(python, &folder)).run();
    let (arenas, printed) = (arenas(&recording, "quelling_blade"), printed(&recording));
    let count = |key: &str| json::count(&printed, key);
    assert_eq!(arenas.len() as u64, count("/made"), "{arenas:#?}");
    assert_eq!((sum(&arenas, "/objects_born"), sum(&arenas, "/objects_dead")), (count("/born"), count("/dead")));
    assert_eq!(sum(&arenas, "/slabs"), count("/slabs"));
    let by = |cause: &str| arenas.iter().filter(|arena| arena["cause"] == cause).copied().collect::<Vec<_>>();
    let (clean, owned, lost) = (by("freed"), by("last_owner"), by("process_end"));
    assert_eq!((clean.len() + owned.len()) as u64, count("/freed"), "{arenas:#?}");
    assert_eq!((clean.len(), owned.len(), lost.len()), (3, 2, 1), "{arenas:#?}");
    assert!(clean.iter().all(|arena| innermost(arena, "/stack") == "clean" && json::count(arena, "/escaped") == 0));
    let escape = |arena: &Value| (json::count(arena, "/escaped"), innermost(arena, "/escape_stack").to_owned());
    let mut owned = owned;
    owned.sort_by_key(|arena| json::number(arena, "/born_s").to_bits());
    assert_eq!(escape(owned[0]), (4, "last_owner".to_owned()));
    // Kept when its context was closed, and released when the context was closed again.
    assert_eq!(escape(owned[1]), (3, "late".to_owned()));
    assert_eq!(escape(lost[0]), (2, "lose".to_owned()));
    assert_eq!((json::count(lost[0], "/objects_born"), json::count(lost[0], "/objects_dead")), (26, 26));
    // An object has 32 bytes.
    assert!(clean.iter().all(|arena| (json::count(arena, "/slabs"), json::count(arena, "/bytes")) == (3, 3 * 256)));
    assert_eq!(json::count(owned[0], "/bytes"), 2 * 512);
    let ids: std::collections::BTreeSet<&str> = arenas.iter().map(|arena| json::text(arena, "/id")).collect();
    assert_eq!(ids.len(), arenas.len(), "addresses are used again, ids are not");
    let findings = json::list(&recording.report, "/findings");
    let found: Vec<&Value> = findings.iter().filter(|finding| finding["id"] == "arena/leaked").collect();
    let [finding] = found[..] else { panic!("{findings:#?}") };
    assert_eq!(json::count(finding, "/evidence/escaped"), 2, "{finding:#}");
    assert!(json::text(finding, "/evidence/line").contains("libraries.py"), "{finding:#}");
}

/// A description that uses arguments and a result at a return, a width, and pointers to pointers.
const OWN: &str = r#"
name = "pool"
module = "library.so"
[[probe]]
symbol = "pool_open"
role = "opened"
at = "return"
arena = "result"
bytes = "arg2"
[[probe]]
symbol = "pool_place"
role = "opened"
arena = "arg1"
memory = "arg1"
bytes = "arg2"
[[probe]]
symbol = "pool_grow"
role = "slab_added"
at = "return"
arena = "[arg1]"
bytes = "[[arg1] + 12]:u32"
[[probe]]
symbol = "pool_t*ke"
role = "object_born"
at = "return"
arena = "arg1"
object = "result"
bytes = "arg2"
[[probe]]
symbol = "pool_give"
role = "object_died"
object = "arg1 + 0"
[[probe]]
symbol = "pool_close"
role = "destroyed"
arena = "arg1"
"#;

fn own_description(python: &Python) {
    let folder = Folder::new();
    let file = folder.join("own.toml");
    std::fs::write(&file, OWN).unwrap();
    let library = pyobs_tests::shared_library(&workload("pool.c"), &folder);
    let mut command = python.script(workload("libraries.py"));
    command.arg("pool").arg(&library);
    let recording = record(&format!("{},shm", file.display())).command(command).run();
    let printed = printed(&recording);
    let mut found = arenas(&recording, "pool");
    found.sort_by_key(|arena| json::number(arena, "/born_s").to_bits());
    let [ended, left, shared, small] = found[..] else { panic!("{found:#?}\n{}", recording.stderr) };
    // The size is the one after growing.
    for (arena, address, bytes, objects, cause) in
        [(ended, 0, 5096, (9, 9), "freed"), (left, 1, 9192, (5, 2), "process_end")]
    {
        assert_eq!(arena["address"], printed["addresses"][address], "{arena:#}");
        let (slabs, cause_of) = (json::count(arena, "/slabs"), json::text(arena, "/cause"));
        assert_eq!((slabs, json::count(arena, "/bytes"), cause_of), (1, bytes, cause), "{arena:#}");
        assert_eq!((json::count(arena, "/objects_born"), json::count(arena, "/objects_dead")), objects, "{arena:#}");
        assert_eq!(innermost(arena, "/stack"), "pool");
        assert!(arena["region"].is_null(), "{arena:#}");
    }
    let placed = |number: usize| hexadecimal(&printed["placed"][number]);
    let around = |list: &str, address: u64, range: &dyn Fn(&Value) -> Vec<(u64, u64)>| {
        let has = |row: &&Value| range(row).iter().any(|(start, bytes)| (*start..start + bytes).contains(&address));
        let found = json::list(&recording.report, list).iter().filter(|row| row["kind"] != "pool").find(has);
        json::text(found.unwrap_or_else(|| panic!("{address:#x}: {:#}", recording.report[&list[1..]])), "/id")
            .to_owned()
    };
    // A segment whose holder has ended has no addresses any more, so it is recognized by its size.
    let segments = json::list(&recording.report, "/segments").iter();
    let of_size: Vec<&Value> = segments.filter(|row| row["kind"] == "anonymous" && row["bytes"] == 8192).collect();
    let [segment] = of_size[..] else { panic!("{of_size:#?}") };
    assert_eq!(shared["region"], serde_json::json!({"kind": "segment", "id": segment["id"]}), "{shared:#}");
    let arena = around("/arenas", placed(1), &|row| vec![(hexadecimal(&row["address"]), json::count(row, "/bytes"))]);
    assert_eq!(small["region"], serde_json::json!({"kind": "arena", "id": arena}), "{small:#}");
    assert_eq!((hexadecimal(&shared["address"]), hexadecimal(&small["address"])), (placed(0), placed(1)));
}

/// The kernel confirms it: pyobs has no probe any more, while the program goes on making objects.
fn often(python: &Python) {
    const BUDGET: f64 = 1.5;
    let folder = Folder::new();
    let file = folder.join("own.toml");
    std::fs::write(&file, OWN).unwrap();
    let library = pyobs_tests::shared_library(&workload("pool.c"), &folder);
    let mut command = python.script(workload("libraries.py"));
    command.arg("often").arg(&library);
    let mut running = Workload::start(command);
    running.wait_for("ready");
    let pid = running.pid();
    let recording = record(&file.display().to_string()).argument("--budget").argument(BUDGET.to_string());
    let recording = recording.pid(pid).start();
    // Without a sampler, the probes are the only perf links.
    let wait = |is_probed: bool| {
        let since = Instant::now();
        while (recording.perf_links() > 0) != is_probed {
            assert!(since.elapsed() < Duration::from_secs(60), "{is_probed}: {}", recording.perf_links());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait(true);
    running.signal(libc::SIGUSR1);
    wait(false);
    std::thread::sleep(Duration::from_secs(1));
    running.signal(libc::SIGUSR2);
    let printed = json::parse(&running.line());
    let recording = recording.wait();
    let sentences = json::list(&recording.report, "/cost/shed");
    let [sentence] = sentences else { panic!("{sentences:#?}") };
    let sentence = sentence.as_str().unwrap();
    let pattern = "^pyobs used ([0-9.]+) % of the machine with a budget of ([0-9.]+) %: arenas of libraries are not followed any more";
    let cost = Regex::new(pattern).unwrap().captures(sentence).unwrap_or_else(|| panic!("{sentence}"));
    let [cost, allowed] = [1, 2].map(|group| cost[group].parse::<f64>().unwrap());
    assert!(cost > allowed && (allowed - BUDGET).abs() < 0.005, "{sentence}");
    let found = arenas(&recording, "pool");
    let [arena] = found[..] else { panic!("{found:#?}\n{}", recording.stderr) };
    let (seen, all) = (json::count(arena, "/objects_born"), json::count(&printed, "/born"));
    assert!(0 < seen && seen < all, "{seen} of {all}");
}

/// The file that takes the library's place has none of the functions.
fn replaced(python: &Python, how: &str) {
    let folder = Folder::new();
    let file = folder.join("own.toml");
    std::fs::write(&file, OWN).unwrap();
    let library = pyobs_tests::shared_library(&workload("pool.c"), &folder);
    let other = pyobs_tests::shared_library_named(&workload("late_code.c"), &folder.join("other.so"), &[]);
    let mut command = python.script(workload("libraries.py"));
    command.arg("replaced").args([&library, &other]).arg(how);
    let mut running = Workload::start(command);
    running.wait_for("ready");
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", running.pid())).unwrap();
    assert!(maps.contains("library.so (deleted)") && library.exists(), "{maps}");
    let recording = record(&file.display().to_string()).pid(running.pid()).start();
    running.signal(libc::SIGUSR1);
    let printed = json::parse(&running.line());
    let recording = recording.wait();
    let found = arenas(&recording, "pool");
    let [arena] = found[..] else { panic!("{found:#?}\n{}", recording.stderr) };
    for (key, truth) in [("address", "address"), ("objects_born", "born"), ("objects_dead", "dead")] {
        assert_eq!(arena[key], printed[truth], "{arena:#}");
    }
}

/// The kernel puts probes into each process that maps the file, wherever the instructions are by then: a breakpoint in
/// the middle of one kills the process.
fn rewritten(python: &Python) {
    let folder = Folder::new();
    let file = folder.join("own.toml");
    std::fs::write(&file, OWN).unwrap();
    let [optimized, plain] = ["-O2", "-O0"].map(|option| {
        let source = workload("pool.c");
        std::fs::read(pyobs_tests::shared_library_named(&source, &folder.join("other.so"), &[option])).unwrap()
    });
    let library = folder.join("library.so");
    std::fs::write(&library, optimized).unwrap();
    let mut first = python
        .inline("import ctypes, sys, time; ctypes.CDLL(sys.argv[1]); print('ready', flush=True); time.sleep(300)");
    first.arg(&library);
    let mut first = Workload::start(first);
    first.wait_for("ready");
    let recording = record(&file.display().to_string()).start();
    let wait = |is_probed: bool| {
        let since = Instant::now();
        while (recording.perf_links() > 0) != is_probed || recording.is_detaching() {
            assert!(since.elapsed() < Duration::from_secs(20), "{is_probed}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait(true);
    // It keeps its inode.
    std::fs::write(&library, plain).unwrap();
    wait(false);
    let mut second = python.script(workload("libraries.py"));
    let output = second.arg("pool").arg(&library).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    drop(first);
    let recording = recording.stop();
    let found = arenas(&recording, "pool");
    for address in printed["addresses"].as_array().unwrap() {
        assert!(found.iter().any(|arena| arena["address"] == *address), "{found:#?}\n{}", recording.stderr);
    }
    assert!(recording.stderr.contains("library.so was written to"), "{}", recording.stderr);
}

fn hexadecimal(address: &Value) -> u64 {
    u64::from_str_radix(address.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

fn bad_descriptions(python: &Python) {
    let folder = Folder::new();
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let start =
        "name = \"NAME\"\nmodule = \"arena_allocatable*\"\n[[probe]]\nrole = \"object_died\"\nobject = \"arg1\"\n";
    let unknown = write("unknown.toml", &format!("{}symbol = \"f\"\nsize = 3\n", start.replace("NAME", "a")));
    let wrong = write("wrong.toml", &start.replace("arg1", "[arg1").replace("role", "symbol = \"f\"\nrole"));
    let missing = write("missing.toml", &format!("{}symbol = \"no_such_function\"\n", start.replace("NAME", "b")));
    let garbage = write("garbage.toml", "\u{1b}[31m");
    let absent = folder.join("absent.toml").to_str().unwrap().to_owned();
    let list = format!("{unknown},{wrong},{missing},{garbage},{absent},cudf,quelling_blade");
    let recording = record(&list).command(program(python, &folder)).run();
    for (file, line, word) in [
        (&unknown, ":7: ", "size"),
        (&wrong, ":6: ", "`object`"),
        (&missing, ":6: ", "no_such_function"),
        (&garbage, ":1: ", ""),
        (&absent, ": ", "cannot be read"),
    ] {
        let sentences: Vec<&str> = recording.stderr.lines().filter(|said| said.contains(file.as_str())).collect();
        let [sentence] = sentences[..] else { panic!("{file}: {}", recording.stderr) };
        assert!(sentence.contains(&format!("{file}{line}")) && sentence.contains(word), "{sentence}");
        assert!(!sentence.contains('\u{1b}'), "{sentence:?}");
    }
    assert_eq!(arenas(&recording, "quelling_blade").len() as u64, json::count(&printed(&recording), "/made"));
    let unfound: Vec<&str> =
        recording.stderr.lines().filter(|said| said.contains("no process that is watched")).collect();
    let [sentence] = unfound[..] else { panic!("{}", recording.stderr) };
    assert!(sentence.contains("arena=cudf"), "{sentence}");
    assert!(!arenas(&recording, "pymalloc").is_empty());
}

fn off_by_default(python: &Python) {
    let folder = Folder::new();
    let recording = Record::new().argument("--probe").argument("arena").command(program(python, &folder)).run();
    assert!(arenas(&recording, "quelling_blade").is_empty() && !arenas(&recording, "pymalloc").is_empty());
}

/// Asserts that the live objects and their bytes match what the program printed. Returns how many were born and died.
fn agrees(recording: &Recording, kind: &str, printed: &Value) -> (u64, u64) {
    let arenas = arenas(recording, kind);
    let [arena] = arenas[..] else { panic!("{arenas:#?}\n{}", recording.stderr) };
    let (born, dead) = (json::count(arena, "/objects_born"), json::count(arena, "/objects_dead"));
    assert_eq!(
        (born - dead, json::count(arena, "/bytes")),
        (json::count(printed, "/live"), json::count(printed, "/bytes"))
    );
    (born, dead)
}

fn numpy() {
    let (recording, printed) = of_module("numpy");
    let (_, dead) = agrees(&recording, "numpy", &printed);
    assert!(dead >= 200, "{dead}");
}

fn pyarrow() {
    let (recording, printed) = of_module("pyarrow");
    let (born, _) = agrees(&recording, "pyarrow", &printed);
    // The buffer that grew was born twice.
    assert_eq!(born, json::count(&printed, "/all") + 1);
}

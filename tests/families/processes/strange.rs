//! Tests interpreters that neither a name nor a path identifies.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use pyobs_tests::{
    Case, Folder, Python, Record, Workload, case, command, compare, executable, json, needs, shared_library_named,
    workload,
};

use super::{RATE, burn, is_named, python, samples_in};

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Python::all().iter().filter_map(|python| embedder(python, "")).collect();
    // Without programs at system calls, the kernel's side-band records announce the library.
    cases.extend(needs::python("3.12").ok().and_then(|python| embedder(&python, "_by_side_band")));
    // One interpreter says itself where its data is, and one does not.
    cases.extend(["3.8", "3.13"].map(|version| {
        let name = format!("python{version}::an_interpreter_that_maps_its_code_twice_is_attached_to");
        case(name, || mapped_twice(version)).needs(needs::python(version))
    }));
    cases.extend([
        case("an_interpreter_under_another_name_is_found", || copied(false)).needs(needs::python("3.12")),
        case("a_deleted_interpreter_is_found", || copied(true)).needs(needs::python("3.12")),
        case("an_interpreter_written_over_another_is_not_mistaken_for_it", rewritten)
            .needs(needs::python("3.8"))
            .needs(needs::python("3.12"))
            .needs(needs::program("cc")),
        case("a_library_written_over_another_with_the_same_times_has_its_own_names", written_over)
            .needs(needs::python("3.12"))
            .needs(needs::program("cc")),
        case("a_second_interpreter_in_a_process_is_reported", two_interpreters)
            .needs(needs::python("3.12").and_then(|python| shared(&python).ok_or("it is a static build".to_owned())))
            .needs(needs::program("cc")),
        case("a_process_in_other_namespaces_is_found_with_its_own_paths", namespaces)
            .needs(needs::python("3.12"))
            .needs(needs::program("unshare")),
        case("a_process_whose_main_thread_has_ended_is_attached_to", || main_thread_ended(true))
            .needs(needs::python("3.12")),
        case("a_process_whose_main_thread_ends_stays_watched", || main_thread_ended(false))
            .needs(needs::python("3.12")),
        case("an_interpreter_in_another_root_is_found", another_root).needs(needs::all()).needs(of_another_root()),
    ]);
    cases.into_iter().map(|case| case.needs(needs::root())).collect()
}

/// A C program that loads a library named "notpy" after a second, while it is watched.
fn embedder(python: &Python, way: &'static str) -> Option<Case> {
    let python = python.clone();
    let library = shared(&python)?;
    let name = format!("{}::an_embedder_that_loads_it_late_is_found{way}", python.name());
    let body = move || {
        let folder = Folder::new();
        let program = executable(&workload("embed.c"), &folder);
        let notpy = folder.join("notpy");
        fs::copy(&library, &notpy).unwrap();
        let script = folder.join("embedded.py");
        let text = "def embedded():\n    for _ in range(5): sum(range(5 * 10**6))\nembedded()\n";
        fs::write(&script, text).unwrap();
        let mut embedder = command(program);
        embedder.arg(notpy).arg(script).arg("1").env("PYTHONHOME", prefix(&python));
        let mut embedder = Workload::start(embedder);
        embedder.wait_for("ready");
        let pid = embedder.pid();
        let record = Record::new().rate(RATE);
        let record = if way.is_empty() { record } else { record.argument("--probe").argument("cpu") };
        let recording = record.start();
        let ended = embedder.wait();
        assert!(ended.status.success(), "{ended:?}");
        is_named(&recording.stop(), &python, pid, "embedded", 0.1);
    };
    Some(case(name, body).needs(needs::program("cc")))
}

/// When its main thread ends first, the kernel keeps it as a zombie without memory or files while the other threads run
/// on.
fn main_thread_ended(before: bool) {
    let mut program = python().script(workload("leader_exits.py"));
    // When attached to, it has to outlive the recording and its report.
    program.arg(if before { "6" } else { "4" });
    let (recording, truth, pid) = if before {
        let mut program = Workload::start(program);
        let (tids, pid) = (json::parse(&program.line()), program.pid());
        program.wait_for("ready");
        let used = used_s(pid, &tids);
        let recording = Record::new().rate(RATE).pid(pid).seconds(4.2).run();
        let truth = used_s(pid, &tids).into_iter().zip(used).map(|(after, before)| after - before).collect();
        // The program must end by itself to remove its segment.
        let ended = program.wait();
        assert!(ended.status.success(), "{ended:?}");
        (recording, truth, pid)
    } else {
        let recording = Record::new().rate(RATE).command(program).run();
        let pid = json::count(&recording.report, "/processes/0/pid") as u32;
        (recording, vec![1.5, 0.7], pid)
    };
    assert!(recording.status.success(), "{}", recording.stderr);
    for (function, cpu_s) in ["alpha", "beta"].into_iter().zip(truth) {
        is_named(&recording, &python(), pid, function, cpu_s);
    }
    assert!(samples_in(&recording, pid, "late_code") > 50, "code that was loaded later has no name");
    let native = json::list(&recording.report, "/frames").iter().filter(|row| row["frame"]["kind"] == "native");
    let sum = |rows: Vec<&serde_json::Value>| rows.iter().map(|row| json::count(row, "/self")).sum::<u64>();
    let (unknown, known): (Vec<_>, Vec<_>) = native.partition(|row| row["frame"]["module"] == "[unknown]");
    let (unknown, known) = (sum(unknown), sum(known));
    assert!(unknown * 50 <= known, "{unknown} samples in native code without a file, {known} in other native code");
    let segments = json::list(&recording.report, "/segments");
    let segment = segments.iter().find(|row| row["name"] == format!("pyobs_leader_{pid}"));
    let stack = segment.unwrap_or_else(|| panic!("the segment is not there: {segments:#?}"))["stack"].to_string();
    assert!(stack.contains("made_late"), "{stack}");
}

/// CPU seconds of the two threads, from the scheduler's account.
fn used_s(pid: u32, tids: &serde_json::Value) -> Vec<f64> {
    let of = |name: &str| {
        let books = fs::read_to_string(format!("/proc/{pid}/task/{}/schedstat", tids[name])).unwrap();
        books.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
    };
    ["alpha", "beta"].map(of).to_vec()
}

/// The second mapping lies below the interpreter, so pyobs sees it first.
fn mapped_twice(version: &str) {
    let python = needs::python(version).unwrap();
    let mut program = Workload::start(python.script(workload("second_mapping.py")));
    program.wait_for("ready");
    let pid = program.pid();
    let recording = Record::new().rate(RATE).pid(pid).run();
    let ended = program.wait();
    assert!(ended.status.success(), "{ended:?}");
    is_named(&recording, &python, pid, "burn", 1.5);
}

/// Only one of the two is read, so the other must be counted.
fn two_interpreters() {
    let python = needs::python("3.12").unwrap();
    let folder = Folder::new();
    let program = executable(&workload("embed_two.c"), &folder);
    let libraries = ["first", "second"].map(|name| {
        let copy = folder.join(name);
        fs::copy(shared(&python).unwrap(), &copy).unwrap();
        copy
    });
    let script = folder.join("embedded.py");
    fs::write(&script, "def embedded():\n    for _ in range(5): sum(range(5 * 10**6))\nembedded()\n").unwrap();
    let mut embedder = command(&program);
    embedder.args(&libraries).arg(&script).env("PYTHONHOME", prefix(&python));
    let mut embedder = Workload::start(embedder);
    embedder.wait_for("ready");
    let recording = Record::new().rate(RATE).pid(embedder.pid()).start();
    embedder.signal(libc::SIGUSR1);
    let recording = recording.wait();
    assert_eq!(json::count(&recording.report, "/loss/interpreter_left_out"), 1, "{}", recording.stderr);
    let said = recording.stderr.lines().filter(|line| line.contains("a second CPython in process"));
    assert_eq!(said.count(), 1, "{}", recording.stderr);
}

/// Two libraries are written into one file, one after the other, so device and inode are the same.
fn rewritten() {
    let folder = Folder::new();
    let program = executable(&workload("embed.c"), &folder);
    let (notpy, script) = (folder.join("notpy"), folder.join("embedded.py"));
    fs::write(&script, "def embedded():\n    for _ in range(5): sum(range(5 * 10**6))\nembedded()\n").unwrap();
    let recording = Record::new().rate(RATE).start();
    let ran = ["3.8", "3.12"].map(|version| {
        let python = needs::python(version).unwrap();
        fs::copy(shared(&python).unwrap(), &notpy).unwrap();
        let mut embedder = command(&program);
        embedder.arg(&notpy).arg(&script).arg("1").env("PYTHONHOME", prefix(&python));
        let embedder = Workload::start(embedder);
        let pid = embedder.pid();
        let ended = embedder.wait();
        assert!(ended.status.success(), "{ended:?}");
        (python, pid)
    });
    let recording = recording.stop();
    for (python, pid) in ran {
        is_named(&recording, &python, pid, "embedded", 0.1);
    }
}

/// Two builds of a library are written into one file, one after the other: device, inode, size and modification time
/// are the same.
fn written_over() {
    const NAMES: [&str; 2] = ["native_first_one", "native_other_one"];
    const CALLS: &str = "\
import ctypes, sys, time
code = getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])
until = time.process_time() + 1
while time.process_time() < until: code(10**6)";
    let folder = Folder::new();
    let build = |name: &str| {
        let library = folder.join(name);
        fs::read(shared_library_named(&workload("late_code.c"), &library, &[&format!("-Dlate_code={name}")])).unwrap()
    };
    let builds = NAMES.map(build);
    assert_eq!(builds[0].len(), builds[1].len());
    let place = folder.join("library.so");
    let recording = Record::new().rate(RATE).start();
    let pids = [0, 1].map(|number| {
        fs::write(&place, &builds[number]).unwrap();
        fs::File::options().write(true).open(&place).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let mut program = needs::python("3.12").unwrap().inline(CALLS);
        program.arg(&place).arg(NAMES[number]);
        let program = Workload::start(program);
        let pid = program.pid();
        let ended = program.wait();
        assert!(ended.status.success(), "{ended:?}");
        pid
    });
    let recording = recording.stop();
    for (number, pid) in pids.into_iter().enumerate() {
        let [own, other] = [number, 1 - number].map(|number| samples_in(&recording, pid, NAMES[number]));
        compare::at_least(&format!("samples of {}", NAMES[number]), own as f64, f64::from(RATE) * 0.7);
        assert_eq!(other, 0, "samples of {} in the other's process", NAMES[1 - number]);
    }
}

/// The shared library of an interpreter, if it has one.
fn shared(python: &Python) -> Option<PathBuf> {
    let library = prefix(python).join(format!("lib/libpython3.{}.so.1.0", python.minor()));
    let debian = prefix(python).join(format!("lib/libpython3.{}m.so.1.0", python.minor()));
    let found = [library, debian].into_iter().find(|library| library.exists());
    found.filter(|_| python.root.is_none())
}

fn prefix(python: &Python) -> &Path {
    python.executable.parent().and_then(Path::parent).unwrap()
}

/// Copies the interpreter, and its library if it has one, under a name that does not contain "python".
fn copy(python: &Python, folder: &Path) -> (PathBuf, Option<PathBuf>) {
    let program = folder.join("notpy");
    fs::copy(&python.executable, &program).unwrap();
    let library = shared(python).map(|library| {
        let copy = folder.join(library.file_name().unwrap());
        fs::copy(library, &copy).unwrap();
        copy
    });
    (program, library)
}

fn copied_command(python: &Python, program: &Path) -> Command {
    let mut command = command(program);
    command.env("PYTHONHOME", prefix(python)).env("LD_LIBRARY_PATH", program.parent().unwrap());
    command.args(["-B", "-u"]);
    command
}

fn copied(delete: bool) {
    let (python, folder) = (python(), Folder::new());
    let (program, library) = copy(&python, &folder);
    let mut command = copied_command(&python, &program);
    command.arg(workload("burn.py")).args(["copied", "60"]);
    let mut burning = Workload::start(command);
    burning.wait_for("ready");
    if delete {
        let maps = fs::read_to_string(format!("/proc/{}/maps", burning.pid())).unwrap();
        let mapped = library.as_deref().unwrap_or(&program);
        assert!(maps.contains(mapped.to_str().unwrap()), "the copy is not what runs: {maps}");
        fs::remove_file(&program).unwrap();
        if let Some(library) = library {
            fs::remove_file(library).unwrap();
        }
    }
    let recording = Record::new().rate(RATE).seconds(1.0).run();
    is_named(&recording, &python, burning.pid(), "copied", 0.1);
}

/// The interpreter and the script lie in a file system that only the process sees, and the process has pid 1 there.
fn namespaces() {
    let (python, folder) = (python(), Folder::new());
    let inside = folder.join("inside");
    fs::create_dir(&inside).unwrap();
    let prepare = r#"set -e
        mount -t tmpfs none "$0"
        cp "$1" "$0/notpy"; [ -z "$2" ] || cp "$2" "$0"; cp "$3" "$0/only_inside.py"
        export PYTHONHOME="$4" LD_LIBRARY_PATH="$0"
        exec "$0/notpy" -B -u "$0/only_inside.py" inside_namespaces 60"#;
    let mut unshare = command("unshare");
    unshare.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", prepare]).arg(&inside);
    unshare.arg(&python.executable).arg(shared(&python).unwrap_or_default());
    unshare.arg(workload("burn.py")).arg(prefix(&python));
    let mut unshare = Workload::start(unshare);
    unshare.wait_for("ready");
    assert!(fs::read_dir(&inside).unwrap().next().is_none(), "the file system is not private");

    let recording = Record::new().rate(RATE).seconds(1.0).run();
    let rows = json::list(&recording.report, "/processes");
    let row = rows.iter().find(|row| row["ppid"] == unshare.pid());
    let row = row.unwrap_or_else(|| panic!("no child of {} in {rows:#?}", unshare.pid()));
    let pid = u32::try_from(json::count(row, "/pid")).unwrap();
    is_named(&recording, &python, pid, "inside_namespaces", 0.1);
    let frames = json::list(&recording.report, "/frames");
    let script = inside.join("only_inside.py");
    let named = frames.iter().any(|row| row["pid"] == pid && row["frame"]["file"] == script.to_str().unwrap());
    assert!(named, "no frame of {} in {frames:#?}", script.display());
}

fn of_another_root() -> Result<Python, String> {
    let found = Python::all().iter().find(|python| python.root.is_some());
    found.cloned().ok_or_else(|| "there is no interpreter in another root in the list of PYOBS_PYTHONS".to_owned())
}

fn another_root() {
    let python = of_another_root().unwrap();
    let mut burning = Workload::start(burn(&python, "in_another_root", "60"));
    burning.wait_for("ready");
    let recording = Record::new().rate(RATE).seconds(1.0).run();
    is_named(&recording, &python, burning.pid(), "in_another_root", 0.1);
    compare::at_least("samples", samples_in(&recording, burning.pid(), "spin") as f64, 50.0);
}

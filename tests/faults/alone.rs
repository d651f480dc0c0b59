//! Tests that pyobs is one static file: it runs without any other file, and beside older C libraries than the one it
//! was built with.

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use object::Endianness;
use object::elf::{DT_NEEDED, PT_INTERP};
use object::read::elf::{Dyn, ElfFile64, ProgramHeader};
use pyobs_tests::{Case, Folder, Workload, case, command, json, needs, workload};
use serde_json::Value;

use crate::python;
use crate::verb::{pyobs, run};

/// Enters the root folder `$1` with its own copy of pyobs, and leaves the output in `$2`. The mounts are in a namespace
/// of their own, so they end with the shell.
const ENTER: &str = r#"
    pyobs=$0 root=$1 output=$2
    mount --rbind /proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs none "$root/mnt"
    cp "$pyobs" "$root/mnt/pyobs"
    chroot "$root" /mnt/pyobs doctor --json > "$output/doctor" || [ $? = 3 ]
    chroot "$root" /mnt/pyobs record --duration 2 --rate 499 -o /mnt/a.pyobs
    chroot "$root" /mnt/pyobs report --json /mnt/a.pyobs > "$output/report"
"#;
/// Runs before it: makes an empty root folder.
const EMPTY: &str = r#"
    mount -t tmpfs none "$1"
    mkdir "$1/proc" "$1/sys" "$1/dev" "$1/mnt"
"#;
/// Runs after it: records the root folder's own interpreter, which is linked to that folder's C library.
const OWN_PYTHON: &str = r#"
    chroot "$root" /mnt/pyobs record --rate 499 -o /mnt/b.pyobs -- /usr/bin/python3 -c '
import time
def hot_function():
    end = time.process_time() + 1
    while time.process_time() < end: sum(range(1000))
hot_function()'
    chroot "$root" /mnt/pyobs report --json /mnt/b.pyobs > "$output/own"
"#;

pub fn cases() -> Vec<Case> {
    let empty = case("alone/one_file_is_enough", one_file_is_enough);
    let debian = [("10", "3.7."), ("11", "3.9.")].map(|(release, version)| {
        let own = move || in_debian(&needs::debian(release).unwrap(), version);
        case(format!("alone/it_runs_in_debian_{release}"), own).needs(needs::all()).needs(needs::debian(release))
    });
    let entering = [empty].into_iter().chain(debian);
    let entering = entering.map(|case| case.needs(needs::root()).needs(needs::program("unshare")).needs(python()));
    entering.chain([case("alone/the_binary_needs_no_other_file", needs_no_other_file)]).collect()
}

fn needs_no_other_file() {
    let path = pyobs_tests::pyobs();
    let data = fs::read(&path).unwrap();
    let file = ElfFile64::<Endianness>::parse(&*data).unwrap();
    let (endian, segments) = (file.endian(), file.elf_program_headers());
    let hint = format!("in {}; `cargo xtask build` makes a static one", path.display());
    assert!(segments.iter().all(|segment| segment.p_type(endian) != PT_INTERP), "there is a loader {hint}");
    let entries = segments.iter().filter_map(|segment| segment.dynamic(endian, &*data).unwrap()).flatten();
    let needed = entries.filter(|entry| entry.d_tag(endian) == DT_NEEDED).count();
    assert_eq!(needed, 0, "there are needed libraries {hint}");
}

fn one_file_is_enough() {
    let root = Folder::new();
    enter(&root, &[EMPTY, ENTER].concat());
    assert_eq!(fs::read_dir(&*root).unwrap().count(), 0, "the mounts leaked out of their namespace");
}

fn in_debian(root: &Path, version: &str) {
    let output = enter(root, &[ENTER, OWN_PYTHON].concat());
    let report = read(&output, "own");
    let process = &json::list(&report, "/processes")[0];
    assert!(json::text(process, "/python").starts_with(version), "{process:#}");
    let pid = u32::try_from(json::count(process, "/pid")).unwrap();
    assert!(samples(&hot(&report, pid)) > 50, "{:#}", report["stacks"]);
    assert_eq!(fs::read_dir(root.join("mnt")).unwrap().count(), 0, "the mounts leaked out of their namespace");
}

/// Inside the root, `doctor` must give the same checks as outside, and the recording must be right about a program that
/// runs outside.
fn enter(root: &Path, script: &str) -> Folder {
    let (python, script_of_spin) = (python().unwrap(), workload("fault_spin.py"));
    let mut spin = Workload::start(python.script(&script_of_spin));
    spin.wait_for("ready");
    let output = Folder::new();
    let mut shell = command("unshare");
    shell.args(["--mount", "--propagation", "private", "sh", "-ec", script]);
    shell.args([pyobs_tests::pyobs().as_os_str(), root.as_os_str(), output.as_os_str()]);
    run(shell).succeeds();

    assert_eq!(checks(&read(&output, "doctor")), checks(&json::parse(run(pyobs(["doctor", "--json"])).text())));
    let report = read(&output, "report");
    let process = json::list(&report, "/processes").iter().find(|row| row["pid"] == spin.pid()).unwrap();
    assert_eq!(process["python"], python.version.as_str(), "{process:#}");
    let hot = hot(&report, spin.pid());
    assert!(samples(&hot) > 50, "{hot:#?}");
    let body = body_of_hot_function(&script_of_spin);
    for row in hot {
        assert_eq!(json::text(row, "/frame/file"), script_of_spin.to_str().unwrap());
        assert!(body.contains(&json::count(row, "/frame/line")), "{row:#}");
    }
    output
}

fn read(output: &Folder, name: &str) -> Value {
    json::parse(&fs::read_to_string(output.join(name)).unwrap())
}

/// The names and statuses of `doctor`'s checks.
fn checks(doctor: &Value) -> Vec<(&str, &str)> {
    json::list(doctor, "/checks").iter().map(|row| (json::text(row, "/name"), json::text(row, "/status"))).collect()
}

/// The rows of a process's function, one for each of its lines.
fn hot(report: &Value, pid: u32) -> Vec<&Value> {
    let rows = json::list(report, "/frames").iter();
    rows.filter(|row| row["pid"] == pid && row["frame"]["function"] == "hot_function").collect()
}

fn samples(rows: &[&Value]) -> u64 {
    rows.iter().map(|row| json::count(row, "/total")).sum()
}

/// The line numbers of the function.
fn body_of_hot_function(script: &Path) -> RangeInclusive<u64> {
    let text = fs::read_to_string(script).unwrap();
    let at = |what: &str| 1 + text.lines().position(|line| line.trim_start().starts_with(what)).unwrap() as u64;
    at("def hot_function")..=at("return total")
}

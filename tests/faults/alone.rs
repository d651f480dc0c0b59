//! pyobs is one file: where there is nothing else but the C library, it records and reports.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pyobs_tests::{Case, Folder, Workload, case, command, json, needs, workload};

use crate::python;
use crate::verb::run;

/// What a program in Rust links to: the C library, its loader, and the unwinder that belongs to every C compiler's programs.
const LIBRARIES: [&str; 8] = [
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "ld-linux-x86-64.so.2",
    "linux-vdso.so.1",
];
/// `$0` is an empty folder, `$1` pyobs, and the libraries follow.
const ENTER: &str = r#"
    mount -t tmpfs none "$0"
    mkdir "$0/proc" "$0/sys"
    cp "$1" "$0/pyobs"; shift
    for library in "$@"; do mkdir -p "$0${library%/*}"; cp -L "$library" "$0$library"; done
    mount --rbind /proc "$0/proc"
    mount --rbind /sys "$0/sys"
    chroot "$0" /pyobs record --duration 1 --rate 499 -o /a.pyobs
    exec chroot "$0" /pyobs report --json /a.pyobs
"#;

pub fn cases() -> Vec<Case> {
    let cases = vec![case("alone/one_file_and_the_c_library_are_enough", enough)];
    let cases = cases.into_iter().map(|case| case.needs(needs::root()).needs(python()));
    cases.map(|case| case.needs(needs::program("ldd")).needs(needs::program("unshare"))).collect()
}

fn enough() {
    let libraries = libraries(&pyobs_tests::pyobs());
    let names: BTreeSet<&str> = libraries.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    let others: Vec<_> = names.iter().filter(|name| !LIBRARIES.contains(name)).collect();
    assert!(others.is_empty(), "pyobs links to {others:?}");

    let mut spin = Workload::start(python().unwrap().script(workload("fault_spin.py")));
    spin.wait_for("ready");
    let root = Folder::new();
    let mut shell = command("unshare");
    shell.args(["--mount", "--propagation", "private", "sh", "-ec", ENTER]);
    shell.arg(&*root).arg(pyobs_tests::pyobs()).args(&libraries);
    let outcome = run(shell);
    let report = json::parse(outcome.succeeds().text());
    let frames = json::list(&report, "/frames");
    let of_spin = |row: &&serde_json::Value| row["pid"] == spin.pid() && row["frame"]["function"] == "hot_function";
    let samples: u64 = frames.iter().filter(of_spin).map(|row| json::count(row, "/total")).sum();
    assert!(samples > 50, "{samples} samples: {:#}", report["stacks"]);
    let process = json::list(&report, "/processes").iter().find(|row| row["pid"] == spin.pid()).unwrap();
    assert_eq!(process["python"], python().unwrap().version.as_str(), "{process:#}");
    assert_eq!(fs::read_dir(&*root).unwrap().count(), 0, "the mounts have not stayed in their namespace");
}

/// `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)`, or a path alone; the vDSO has none.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let mut ldd = command("ldd");
    ldd.arg(program);
    let outcome = run(ldd);
    let lines = outcome.succeeds().text().lines();
    lines.filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from)).collect()
}

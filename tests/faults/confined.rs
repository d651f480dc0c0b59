//! Tests pyobs in a container, for a user without some rights, and under a limit. It must record, or end with exit code
//! 3 and one sentence that names the cause and the next step; `doctor` must agree.

use std::process::Command;

use pyobs_tests::{Case, Folder, Workload, case, command, json, needs, workload};

use crate::python;
use crate::rights::for_everybody;
use crate::verb::{Outcome, pyobs, run};

/// The capabilities that Docker leaves to root in a container (moby, oci/caps/defaults.go), as setpriv names them.
const DOCKER: [&str; 14] = [
    "chown",
    "dac_override",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "net_bind_service",
    "net_raw",
    "sys_chroot",
    "mknod",
    "audit_write",
    "setfcap",
];

pub fn cases() -> Vec<Case> {
    let cases = vec![
        case("confined/by_a_user_namespace", user_namespace).needs(needs::program("unshare")),
        case("confined/by_a_docker_container", docker).needs(needs::program("unshare")),
        case("confined/by_a_docker_container_with_the_hosts_pids", docker_with_pids),
        case("confined/not_by_a_docker_container_with_all_rights", docker_with_all_rights)
            .needs(needs::program("unshare"))
            .needs(python()),
        case("confined/by_a_limit_of_open_files", files).needs(needs::program("prlimit")),
        case("confined/without_a_right_that_it_needs", needed_rights).needs(python()),
        case("confined/without_a_right_that_it_can_spare", helpful_rights).needs(python()),
        case("confined/an_ordinary_user_gets_one_helpful_command", setcap),
    ];
    cases.into_iter().map(|case| case.needs(needs::root()).needs(needs::program("setpriv"))).collect()
}

/// Runs `pyobs` with these arguments under a command that confines it.
fn below(confining: &[&str], arguments: &[&str]) -> Command {
    let (program, rest) = confining.split_first().unwrap();
    let mut confined = command(program);
    confined.args(rest).arg(pyobs_tests::pyobs()).args(arguments);
    confined
}

/// Runs `record` and `doctor` there, which must have the same exit code.
#[track_caller]
fn record_and_doctor(confining: &[&str]) -> (Outcome, Outcome) {
    let folder = Folder::new();
    let file = folder.join("a.pyobs");
    let record = run(below(confining, &["record", "--duration", "1", "-o", file.to_str().unwrap()]));
    let doctor = run(below(confining, &["doctor"]));
    assert_eq!(record.code(), doctor.code(), "{record:#?}, but {doctor:#?}");
    (record, doctor)
}

#[track_caller]
fn refused(confining: &[&str], words: &[&str]) {
    let (record, doctor) = record_and_doctor(confining);
    let sentence = record.fails_with(3);
    for word in words {
        assert!(sentence.contains(word), "no {word}: {sentence}");
    }
    doctor.fails_with(3);
    // The kernel's configuration must not be blamed.
    assert!(!doctor.text().contains("CONFIG_"), "{doctor:#?}");
}

fn user_namespace() {
    refused(&["unshare", "--user", "--map-root-user"], &["user namespace", "on the host"]);
}

fn docker() {
    let caps = docker_capabilities();
    let within = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let confining: Vec<&str> = within.into_iter().chain(caps.iter().map(String::as_str)).collect();
    refused(&confining, &["pid namespace", "docker run --pid=host --privileged"]);
    // A dump shows what can be read, and says how to see the rest.
    let dump = run(below(&confining, &["dump"]));
    let text = dump.succeeds().text();
    assert!(!text.contains("cannot be read") || text.contains("docker run --pid=host --privileged"), "{text}");
}

fn docker_with_pids() {
    let caps = docker_capabilities();
    let confining: Vec<&str> = caps.iter().map(String::as_str).collect();
    refused(&confining, &["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "docker run --pid=host --privileged"]);
}

/// A container with the host's pids and all rights has namespaces of its own, and neither tracefs nor control groups.
fn docker_with_all_rights() {
    const SETUP: &str = "mount -t sysfs -o ro sysfs /sys; exec \"$@\"";
    let mut spin = Workload::start(python().unwrap().script(workload("fault_spin.py")));
    spin.wait_for("ready");
    let within = ["unshare", "--mount", "--uts", "--ipc", "--net", "--cgroup", "sh", "-c", SETUP, "sh"];
    samples_are_seen(&within, &spin);
    let dump = run(below(&within, &["dump", "--pid", &spin.pid().to_string()]));
    assert!(dump.succeeds().text().contains("hot_function"), "{dump:#?}");
}

fn docker_capabilities() -> [String; 3] {
    let kept: String = DOCKER.iter().map(|name| format!(",+{name}")).collect();
    ["setpriv".to_owned(), format!("--inh-caps=-all{kept}"), format!("--bounding-set=-all{kept}")]
}

fn files() {
    let (record, _) = record_and_doctor(&["prlimit", "--nofile=64:64"]);
    let sentence = record.fails_with(3);
    assert!(sentence.contains("open files is 64") && sentence.contains("ulimit -Hn"), "{sentence}");
}

/// Removes these rights, from the bounding set too.
fn without(rights: &str) -> [String; 3] {
    let less: Vec<String> = rights.split(',').map(|right| format!("-{right}")).collect();
    let less = less.join(",");
    ["setpriv".to_owned(), format!("--inh-caps={less}"), format!("--bounding-set={less}")]
}

fn needed_rights() {
    for (rights, name) in
        [("sys_ptrace", "CAP_SYS_PTRACE"), ("perfmon,sys_admin", "CAP_PERFMON"), ("bpf,sys_admin", "CAP_BPF")]
    {
        let confining = without(rights);
        let confining: Vec<&str> = confining.iter().map(String::as_str).collect();
        refused(&confining, &[name, "docker run "]);
    }
}

/// Records `fault_spin.py` from within, which must show its busy function.
#[track_caller]
fn samples_are_seen(confining: &[&str], spin: &Workload) {
    let folder = Folder::new();
    let file = folder.join("a.pyobs");
    let pid = spin.pid().to_string();
    let options = ["record", "--duration", "1", "--rate", "499", "--pid", &pid, "-o", file.to_str().unwrap()];
    run(below(confining, &options)).succeeds();
    let report = run(pyobs(["report".as_ref(), "--json".as_ref(), file.as_os_str()]));
    let report = json::parse(report.succeeds().text());
    let hot = json::list(&report, "/frames").iter().find(|row| row["frame"]["function"] == "hot_function");
    assert!(hot.is_some_and(|row| json::count(row, "/total") > 50), "{confining:?}: {:#}", report["stacks"]);
}

/// A busy process of another user must still be sampled.
fn helpful_rights() {
    let mut spin = Workload::start(python().unwrap().script(workload("fault_spin.py")));
    spin.wait_for("ready");
    for rights in ["dac_read_search,dac_override", "checkpoint_restore,sys_admin", "sys_admin"] {
        let confining = without(rights);
        let confining: Vec<&str> = confining.iter().map(String::as_str).collect();
        samples_are_seen(&confining, &spin);
        let doctor = run(below(&confining, &["doctor"]));
        doctor.succeeds();
    }
}

fn setcap() {
    let folder = Folder::new();
    let mut doctor = command("setpriv");
    doctor.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(for_everybody(&folder)).arg("doctor");
    let doctor = run(doctor);
    doctor.fails_with(3);
    let advice: Vec<_> = doctor.text().lines().filter(|line| line.contains("what to do")).collect();
    let commands = advice.iter().filter(|line| line.contains("sudo setcap cap_bpf,")).count();
    assert_eq!(commands, 1, "{doctor:#?}");
    assert!(advice.len() < 4, "{advice:#?}");
}

//! Processes chosen by where they run: container, control group, name and user. Those that start later are watched too.

use std::process::Command;

use pyobs_tests::control_group::{self, ControlGroup};
use pyobs_tests::{Case, Record, Recording, Workload, case, command, json, needs};
use serde_json::Value;

use super::{RATE, burn, python, samples_in};

/// A user that owns no processes of a test machine.
const UID: u32 = 54_321;

pub fn cases() -> Vec<Case> {
    let cases = vec![
        case("a_container_is_chosen_by_name_also_for_processes_that_start_later", container)
            .needs(control_group::root()),
        case("a_control_group_is_chosen_with_those_below_it", group).needs(control_group::root()),
        case("a_user_is_chosen_by_number", user).needs(for_everybody()),
        case("a_name_of_the_kernel_is_chosen", name).needs(needs::python("3.11")),
        case("a_choice_without_processes_is_said_to_have_none", nobody),
    ];
    cases.into_iter().map(|case| case.needs(needs::root()).needs(needs::python("3.12"))).collect()
}

/// An interpreter that other users may run.
fn for_everybody() -> Result<(), String> {
    let python = needs::python("3.11")?;
    let is_private = python.executable.starts_with("/root");
    if is_private { Err("CPython 3.11 is where only root may go".to_owned()) } else { Ok(()) }
}

/// Starts a program that burns CPU time in a function, in a group.
pub fn start_in(group: Option<&ControlGroup>, function: &str) -> Workload {
    start_command_in(group, burn(&python(), function, "60"))
}

/// Starts a program in a group, with a shell that enters it first, and waits for its first line.
pub fn start_command_in(group: Option<&ControlGroup>, program: Command) -> Workload {
    let command = match group {
        None => program,
        Some(group) => {
            let mut shell = command("sh");
            let enter: Vec<String> =
                group.processes().iter().map(|file| format!("echo $$ > '{}'; ", file.display())).collect();
            shell.arg("-c").arg(enter.concat() + "exec \"$0\" \"$@\"");
            shell.arg(program.get_program()).args(program.get_args());
            shell
        }
    };
    let mut program = Workload::start(command);
    program.line();
    program
}

fn container() {
    let id = format!("{:064x}", std::process::id());
    let group = ControlGroup::limited(&format!("libpod-{id}.scope"));
    let (before, outside) = (start_in(Some(&group), "before_it"), start_in(None, "outside_of_it"));
    let running = Record::new().rate(RATE).seconds(3.0).argument("--container").argument(&id[..63]).start();
    let later = start_in(Some(&group), "later_in_it");
    let recording = running.wait();
    let processes = json::list(&recording.report, "/processes");
    // Sorted by CPU time, and the group's limit gives both about the same.
    let mut pids: Vec<u64> = processes.iter().map(|process| json::count(process, "/pid")).collect();
    pids.sort_unstable();
    let mut expected = [&before, &later].map(|program| u64::from(program.pid()));
    expected.sort_unstable();
    assert_eq!(pids, expected, "not {}", outside.pid());
    for process in processes {
        assert_eq!(json::text(process, "/container/id"), id);
        assert_eq!(json::text(process, "/container/engine"), "podman");
        assert_eq!(json::text(process, "/user"), "root");
    }
    for (program, function) in [(&before, "before_it"), (&later, "later_in_it")] {
        let samples = samples_in(&recording, program.pid(), function);
        assert!(samples > 50, "{function}: {samples}");
    }
    assert!(recording.words().contains(&format!("[{}]", &id[..12])), "{}", recording.words());
    // The group is removed once its processes are gone.
    drop((before, later));
}

fn group() {
    let group = ControlGroup::limited("pyobs-test.slice");
    let below = group.below("worker");
    let (inside, outside) = (start_in(Some(&below), "inside"), start_in(None, "outside"));
    let record = Record::new().seconds(1.0).argument("--cgroup").argument("/sys/fs/cgroup/pyobs-test.slice");
    let recording = record.run();
    let process = only(&recording, &inside);
    assert_eq!(json::text(process, "/cgroup"), "/pyobs-test.slice/worker");
    assert!(process["container"].is_null());
    drop((inside, outside, below));
}

/// The recording's process, which has to be the only one.
#[track_caller]
fn only<'a>(recording: &'a Recording, program: &Workload) -> &'a Value {
    let [process] = json::list(&recording.report, "/processes") else { panic!("{:#}", recording.report["processes"]) };
    assert_eq!(process["pid"], program.pid());
    process
}

fn user() {
    let mut command = needs::python("3.11").unwrap().inline("while True: pass");
    std::os::unix::process::CommandExt::uid(&mut command, UID);
    let (program, _other) = (Workload::start(command), start_in(None, "of_root"));
    let recording = Record::new().seconds(1.0).argument("--user").argument(UID.to_string()).run();
    let process = only(&recording, &program);
    // The machine has no name for it.
    assert!(process["user"].is_null(), "{process:#}");
}

fn name() {
    let program = start_in(None, "burns");
    let comm = std::fs::read_to_string(format!("/proc/{}/comm", program.pid())).unwrap();
    let other = Workload::start(needs::python("3.11").unwrap().inline("while True: pass"));
    let record = Record::new().seconds(1.0).argument("--comm").argument(comm.trim());
    let recording = record.argument("--user").argument("root").run();
    assert_eq!(only(&recording, &program)["user"], "root");
    drop(other);
}

fn nobody() {
    let recording = Record::new().seconds(0.5).argument("--comm").argument("no-such-name").run();
    assert!(recording.stderr.contains("no Python process that runs now matches"), "{}", recording.stderr);
    assert!(json::list(&recording.report, "/processes").is_empty());
}

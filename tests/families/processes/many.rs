//! Tests the whole machine: only the Python processes appear among many processes at once.

use pyobs_tests::{Case, Record, Workload, case, command, json, needs, workload};

use super::{RATE, burn, children, is_named, python};

pub fn cases() -> Vec<Case> {
    let at_once =
        |count: usize| case(format!("{count}_at_once_are_all_named_and_nothing_is_lost"), move || many(count));
    let cases = [
        at_once(40),
        at_once(200).needs(needs::all()),
        case("processes_that_are_not_python_do_not_appear", only_python),
    ];
    cases.into_iter().map(|case| case.needs(needs::root()).needs(needs::python("3.12"))).collect()
}

fn many(count: usize) {
    let mut command = python().script(workload("many.py"));
    command.args([&count.to_string(), "0.2"]);
    let mut many = Workload::start(command);
    many.wait_for("ready");
    // Other programs of the machine may lose samples too, so a second recording, of these processes only, counts
    // losses.
    let (machine, these) = (Record::new().rate(RATE).start(), Record::new().rate(RATE).pid(many.pid()).start());
    many.signal(libc::SIGUSR1);
    let ended = many.wait();
    assert!(ended.status.success(), "{ended:?}");
    let (machine, these) = (machine.stop(), these.wait());
    let children = children(&ended.stdout);
    assert_eq!(children.len(), count);
    for recording in [&these, &machine] {
        for (pid, function) in &children {
            is_named(recording, &python(), *pid, function, 0.2);
        }
    }
    these.lost_only_what_died(0.005);
}

fn only_python() {
    let mut shell = command("sh");
    shell.args(["-c", "echo ready; while :; do :; done"]);
    let mut shell = Workload::start(shell);
    shell.wait_for("ready");
    let mut burning = Workload::start(burn(&python(), "beside_a_shell", "60"));
    burning.wait_for("ready");
    let running = Record::new().rate(RATE).seconds(1.5).start();
    let pyobs = running.pid();
    let recording = running.wait();
    is_named(&recording, &python(), burning.pid(), "beside_a_shell", 0.1);
    let rows = json::list(&recording.report, "/processes");
    for pid in [shell.pid(), pyobs] {
        assert!(rows.iter().all(|row| row["pid"] != pid), "process {pid} is not Python: {rows:#?}");
    }
    assert!(rows.iter().all(|row| row["python"].is_string()), "{rows:#?}");
}

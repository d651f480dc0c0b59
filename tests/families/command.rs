//! Tests what `pyobs record` starts, follows and forwards, and what it leaves when it is stopped.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::process::{Command, ExitCode};

use pyobs_tests::{
    Case, Folder, Python, Record, Recording, Workload, case, command, compare, json, needs, pyobs, workload,
};

const RATE: u32 = 999;

fn main() -> ExitCode {
    let of_python = |name: &str, body: fn(&Python)| {
        case(name, move || body(&python())).needs(needs::root()).needs(needs::python("3.12"))
    };
    let mut cases = vec![
        of_python("a_command_of_50_ms_is_seen_from_its_first_instruction_to_its_end", short_command),
        of_python("all_cpu_time_of_a_command_is_sampled", all_cpu_time),
        of_python("a_pid_is_watched_with_the_children_that_it_starts_and_nothing_else", pid_with_children),
        of_python("the_recording_ends_when_the_watched_process_does", ends_with_the_process),
        of_python("a_duration_ends_the_recording_and_not_the_process", duration),
        of_python("ctrl_c_reaches_the_command_and_finishes_the_recording", interrupted_command),
        of_python("sigterm_is_passed_on_and_finishes_the_recording", terminated_command),
    ];
    for (name, signal) in [("ctrl_c", libc::SIGINT), ("sigterm", libc::SIGTERM)] {
        let body = move || stopped(signal);
        cases.push(
            case(format!("{name}_finishes_the_recording"), body).needs(needs::root()).needs(needs::python("3.12")),
        );
    }
    for (program, status) in [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 128 + 9), ("kill -TERM $$", 128 + 15)] {
        cases.push(status_is_passed_on(program, status));
    }
    cases.push(case("the_streams_of_the_command_are_its_own", streams).needs(needs::root()));
    cases.push(case("a_command_that_does_not_exist_is_named_and_leaves_no_file", no_such_command).needs(needs::root()));
    pyobs_tests::run(cases)
}

fn python() -> Python {
    needs::python("3.12").unwrap()
}

fn burn(function: &str, seconds: &str) -> Command {
    let mut command = python().script(workload("burn.py"));
    command.args([function, seconds]);
    command
}

fn samples_in(recording: &Recording, function: &str) -> u64 {
    recording.stacks().iter().filter(|stack| stack.has(function)).map(|stack| stack.samples).sum()
}

/// If another program takes a CPU for some milliseconds, a command this short ends before pyobs has read anything of
/// it. A single run therefore shows little; more than half of seven runs must lose as little as any recording.
fn short_command(python: &Python) {
    const RUNS: usize = 7;
    let mut good = 0;
    let mut seen = Vec::new();
    for _ in 0..RUNS {
        let recording = Record::new().rate(RATE).command(python.inline("sum(range(10**6))")).run();
        assert_eq!(recording.status.code(), Some(0), "{}", recording.stderr);
        let [process] = json::list(&recording.report, "/processes") else {
            panic!("{:#}", recording.report["processes"])
        };
        let ended = json::number(process, "/ended_s");
        compare::at_least("the end", ended, 0.0);
        let went_on = json::number(&recording.report, "/recording/duration_s") - ended;
        let is_known = process["python"] == python.version.as_str();
        let stacks = recording.stacks();
        let has_start = stacks.iter().any(|stack| stack.python().is_empty());
        let has_module = stacks.iter().any(|stack| stack.has("<module>"));
        let share = recording.share_of_what_died();
        let unattached = recording.report["loss"]["not_attached_yet"].as_u64().unwrap_or(0);
        good += usize::from(is_known && has_start && has_module && share <= 0.1 && unattached == 0 && went_on < 0.1);
        seen.push((is_known, has_start, has_module, share, unattached, went_on));
    }
    assert!(
        good > RUNS / 2,
        "version known, start sampled, module sampled, share lost, samples before it was attached, seconds after its end: \
         {seen:?}"
    );
}

/// Compares the samples with the program's own account of its CPU time, which includes the time before `main`.
fn all_cpu_time(python: &Python) {
    let program = "import resource\n\
                   for _ in range(6): sum(range(4 * 10**6))\n\
                   used = resource.getrusage(resource.RUSAGE_SELF)\n\
                   print(used.ru_utime + used.ru_stime)\n";
    let recording = Record::new().rate(RATE).command(python.inline(program)).run();
    let known: f64 = recording.stdout.trim().parse().unwrap();
    let sampled = json::number(&recording.report, "/processes/0/samples") / f64::from(RATE);
    compare::within("CPU seconds, known and sampled", known, sampled, 0.15);
}

fn pid_with_children(_: &Python) {
    let mut parent = command("sh");
    let child = burn("in_a_child", "1");
    parent.args(["-c", "echo ready; sleep 3; \"$0\" \"$@\"; wait"]).arg(child.get_program()).args(child.get_args());
    let mut parent = Workload::start(parent);
    parent.wait_for("ready");
    let mut stranger = Workload::start(burn("in_a_stranger", "60"));
    stranger.wait_for("ready");
    let recording = Record::new().rate(RATE).pid(parent.pid()).run();
    compare::at_least("samples of the child", samples_in(&recording, "in_a_child") as f64, 500.0);
    assert_eq!(samples_in(&recording, "in_a_stranger"), 0);
    let processes = json::list(&recording.report, "/processes");
    assert!(processes.iter().all(|process| process["pid"] != stranger.pid()), "{processes:#?}");
    let child = processes.iter().find(|process| process["ppid"] == parent.pid());
    assert_eq!(child.unwrap_or_else(|| panic!("no child in {processes:#?}"))["python"], python().version.as_str());
}

fn ends_with_the_process(_: &Python) {
    let mut burning = Workload::start(burn("until_its_end", "4"));
    burning.wait_for("ready");
    let pid = burning.pid();
    // Nothing stops the recording, so the case hangs here if it does not end.
    let recording = Record::new().rate(RATE).pid(pid).run();
    assert_eq!(recording.status.code(), Some(0), "{}", recording.stderr);
    compare::at_least("samples", samples_in(&recording, "until_its_end") as f64, 100.0);
    compare::at_least("the end", json::number(recording.process(pid), "/ended_s"), 0.0);
    burning.wait();
}

fn duration(_: &Python) {
    let mut burning = Workload::start(burn("for_a_while", "60"));
    burning.wait_for("ready");
    let recording = Record::new().rate(RATE).pid(burning.pid()).seconds(0.7).run();
    assert_eq!(recording.status.code(), Some(0), "{}", recording.stderr);
    compare::at_least("duration_s", json::number(&recording.report, "/recording/duration_s"), 0.7);
    assert!(recording.process(burning.pid())["ended_s"].is_null());
    assert!(burning.is_alive());
    compare::at_least("samples", samples_in(&recording, "for_a_while") as f64, 50.0);
}

fn stopped(signal: libc::c_int) {
    let mut burning = Workload::start(burn("until_stopped", "60"));
    burning.wait_for("ready");
    let running = Record::new().rate(RATE).start();
    std::thread::sleep(std::time::Duration::from_secs(1));
    running.signal(signal);
    let recording = running.wait();
    assert_eq!(recording.status.code(), Some(0), "{}", recording.stderr);
    compare::at_least("samples", samples_in(&recording, "until_stopped") as f64, 50.0);
    assert!(
        recording.stderr.starts_with("pyobs: recorded ") && recording.stderr.lines().count() == 1,
        "{}",
        recording.stderr
    );
    assert!(burning.is_alive(), "the watched program was stopped too");
}

/// A terminal sends the signal to the whole foreground group, so the command gets it too.
fn interrupted_command(_: &Python) {
    let running = Record::new().rate(RATE).command(burn("until_interrupted", "60")).start();
    std::thread::sleep(std::time::Duration::from_secs(1));
    running.signal_group(libc::SIGINT);
    let recording = running.wait();
    assert_eq!(recording.status.code(), Some(128 + libc::SIGINT), "{}", recording.stderr);
    assert!(recording.stderr.contains("KeyboardInterrupt"), "{}", recording.stderr);
    compare::at_least("samples", samples_in(&recording, "until_interrupted") as f64, 50.0);
}

fn terminated_command(_: &Python) {
    let running = Record::new().rate(RATE).command(burn("until_terminated", "60")).start();
    std::thread::sleep(std::time::Duration::from_secs(1));
    running.signal(libc::SIGTERM);
    let recording = running.wait();
    assert_eq!(recording.status.code(), Some(128 + libc::SIGTERM), "{}", recording.stderr);
    compare::at_least("samples", samples_in(&recording, "until_terminated") as f64, 50.0);
}

fn status_is_passed_on(program: &'static str, status: i32) -> Case {
    let body = move || {
        let mut sh = command("sh");
        sh.args(["-c", program]);
        let recording = Record::new().command(sh).run();
        assert_eq!(recording.status.code(), Some(status), "{}", recording.stderr);
    };
    case(format!("the_status_of_a_command_is_passed_on_{status}"), body).needs(needs::root())
}

fn streams() {
    let folder = Folder::new();
    let mut sh = command("sh");
    let script = r#"printf 'in\n\001\n' | "$0" record -o "$1" -- sh -c 'cat; printf "out\n"; printf "err\n" >&2'"#;
    sh.args(["-c", script]).arg(pyobs()).arg(folder.join("streams.pyobs"));
    let ended = Workload::start(sh).wait();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.stdout, "in\n\u{1}\nout\n");
    let Some(own) = ended.stderr.strip_prefix("err\n") else { panic!("stderr: {:?}", ended.stderr) };
    assert!(own.starts_with("pyobs: recorded ") && own.lines().count() == 1, "{own:?}");
}

fn no_such_command() {
    let folder = Folder::new();
    let file = folder.join("none.pyobs");
    let mut record = command(pyobs());
    record.arg("record").arg("-o").arg(&file).args(["--", "/no/such/command"]);
    let ended = Workload::start(record).wait();
    assert_eq!(ended.status.code(), Some(127), "{ended:?}");
    assert_eq!(ended.stdout, "");
    assert!(ended.stderr.contains("/no/such/command") && ended.stderr.lines().count() == 1, "{}", ended.stderr);
    assert!(!file.exists());
}

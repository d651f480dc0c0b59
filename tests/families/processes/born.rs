//! Tests the ways in which a Python process begins: already running, started, forked, executed.

use pyobs_tests::{Case, Python, Record, Workload, case, command, compare, json, needs, workload};

use super::{RATE, burn, children, is_named, python, samples_in};

pub fn cases() -> Vec<Case> {
    let on = |python: &Python, name: &str, body: fn(&Python)| {
        let python = python.clone();
        case(format!("{}::{name}", python.name()), move || body(&python)).needs(needs::root())
    };
    let mut cases = Vec::new();
    for python in Python::all().iter().filter(|python| python.root.is_none()) {
        cases.push(on(python, "a_running_process_is_found", runs_already));
        cases.push(on(python, "children_of_200_ms_are_named", short_children).needs(needs::few(python)));
        cases.push(on(python, "forked_children_of_200_ms_are_named", short_forks).needs(needs::every(python)));
    }
    let simple: [(&str, fn()); 6] = [
        ("a_process_that_starts_later_is_found", starts_later),
        ("children_of_multiprocessing_are_named_with_fork", || pool("fork")),
        ("children_of_multiprocessing_are_named_with_spawn", || pool("spawn")),
        ("a_process_that_executes_another_python_becomes_it", executes_python),
        ("a_process_that_executes_a_shell_is_no_longer_python", executes_shell),
        ("a_shell_that_executes_python_is_found", shell_executes_python),
    ];
    cases.extend(simple.map(|(name, body)| case(name, body).needs(needs::root()).needs(needs::python("3.12"))));
    cases
}

fn runs_already(python: &Python) {
    let mut burning = Workload::start(burn(python, "already_running", "60"));
    burning.wait_for("ready");
    let recording = Record::new().rate(RATE).seconds(1.0).start();
    let recording = recording.wait();
    // Other programs share the machine, so only a tenth of a second is certain.
    is_named(&recording, python, burning.pid(), "already_running", 0.1);
}

fn starts_later() {
    let running = Record::new().rate(RATE).start();
    let burning = Workload::start(burn(&python(), "started_later", "0.5"));
    let pid = burning.pid();
    assert!(burning.wait().status.success());
    let recording = running.stop();
    is_named(&recording, &python(), pid, "started_later", 0.5);
    let row = recording.process(pid);
    let (started, ended) = (json::number(row, "/started_s"), json::number(row, "/ended_s"));
    compare::at_least("seconds of its life", ended - started, 0.5);
    compare::at_least("seconds after its life", json::number(&recording.report, "/recording/duration_s") - ended, 0.0);
}

/// Twenty children, two at a time, with 0.15 s of CPU time each.
fn short_children(python: &Python) {
    named_children(python, "children.py", true);
}

fn short_forks(python: &Python) {
    named_children(python, "forks.py", false);
}

fn named_children(python: &Python, script: &str, systemwide: bool) {
    const COUNT: usize = 20;
    let mut command = python.script(workload(script));
    command.args([&COUNT.to_string(), "0.15"]);
    let (recording, stdout) = if systemwide {
        let running = Record::new().rate(RATE).start();
        let ended = Workload::start(command).wait();
        assert!(ended.status.success(), "{ended:?}");
        (running.stop(), ended.stdout)
    } else {
        let recording = Record::new().rate(RATE).command(command).run();
        let stdout = recording.stdout.clone();
        (recording, stdout)
    };
    let found = children(&stdout);
    assert_eq!(found.len(), COUNT);
    for (pid, function) in &found {
        is_named(&recording, python, *pid, function, 0.15);
    }
    only_own_functions(&recording.stacks(), &found);
}

/// No child is charged with another child's function.
fn only_own_functions(stacks: &[pyobs_tests::Stack], children: &[(u32, String)]) {
    for stack in stacks {
        let Some((_, own)) = children.iter().find(|(pid, _)| *pid == stack.pid) else { continue };
        let others = children.iter().map(|(_, function)| function).filter(|function| *function != own);
        let wrong: Vec<_> = others.filter(|function| stack.has(function)).collect();
        assert!(wrong.is_empty(), "process {} burned in {own}, but {wrong:?} are in {stack:?}", stack.pid);
    }
}

fn pool(method: &str) {
    let mut command = python().script(workload("pools.py"));
    command.args([method, "0.3"]);
    let recording = Record::new().rate(RATE).command(command).run();
    assert!(recording.status.success(), "{}", recording.stderr);
    for (pid, function) in children(&recording.stdout) {
        is_named(&recording, &python(), pid, &function, 0.3);
    }
    recording.lost_only_what_died(0.1);
}

fn executes_python() {
    let other = Python::all().iter().rev().find(|other| other.root.is_none() && other.minor() != 12);
    let other = other.expect("this needs a second version of CPython");
    let becomes = burn(other, "after_exec", "0.5");
    let mut command = python().script(workload("execs.py"));
    command.arg("0.3").arg(becomes.get_program()).args(becomes.get_args());
    let recording = Record::new().rate(RATE).command(command).run();
    assert!(recording.status.success(), "{}", recording.stderr);
    let last = json::parse(recording.stdout.lines().last().unwrap());
    let pid = u32::try_from(json::count(&last, "/pid")).unwrap();
    compare::at_least("samples before exec", samples_in(&recording, pid, "before_exec") as f64, 150.0);
    compare::at_least("samples after exec", samples_in(&recording, pid, "after_exec") as f64, 250.0);
    // One pid ran two programs, so it has two rows.
    for (version, least) in [(&python().version, 150.0), (&other.version, 250.0)] {
        let rows = json::list(&recording.report, "/processes");
        let row = rows.iter().find(|row| row["pid"] == pid && row["python"] == version.as_str());
        let row = row.unwrap_or_else(|| panic!("process {pid} has no row for {version}: {rows:#?}"));
        compare::at_least(&format!("samples of {version}"), json::number(row, "/samples"), least);
    }
    recording.lost_only_what_died(0.1);
}

fn executes_shell() {
    let loops = "k=0; while [ $k -lt 300000 ]; do k=$((k+1)); done; echo $$";
    let mut command = python().script(workload("execs.py"));
    command.args(["0.3", "/bin/sh", "-c", loops]);
    let recording = Record::new().rate(RATE).command(command).run();
    let pid: u32 = recording.stdout.trim().parse().unwrap();
    compare::at_least("samples before exec", samples_in(&recording, pid, "before_exec") as f64, 150.0);
    let shell =
        |stack: &&pyobs_tests::Stack| stack.frames.iter().any(|frame| ["dash", "bash", "sh"].contains(&frame.file()));
    let of_shell: Vec<_> = recording.stacks_of(pid).into_iter().filter(|stack| shell(&stack)).collect();
    let samples: u64 = of_shell.iter().map(|stack| stack.samples).sum();
    compare::at_least("samples of the shell", samples as f64, 50.0);
    let python = of_shell.iter().find(|stack| !stack.python().is_empty());
    assert_eq!(python, None, "Python frames in the shell");
    recording.lost_only_what_died(0.1);
}

fn shell_executes_python() {
    let becomes = burn(&python(), "from_a_shell", "0.5");
    let mut command = command("sh");
    command.args(["-c", "exec \"$0\" \"$@\""]).arg(becomes.get_program()).args(becomes.get_args());
    let recording = Record::new().rate(RATE).command(command).run();
    let last = json::parse(recording.stdout.lines().last().unwrap());
    let pid = u32::try_from(json::count(&last, "/pid")).unwrap();
    is_named(&recording, &python(), pid, "from_a_shell", 0.5);
    recording.lost_only_what_died(0.1);
}

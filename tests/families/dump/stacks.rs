//! The stacks of threads, as faulthandler prints them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use pyobs_tests::{Python, Workload, command, json, needs, workload};
use serde_json::Value;

use super::{dump, frames, named, process, start, thread};

/// The stacks that faulthandler wrote, by `pthread_self()`.
fn of_faulthandler(text: &str) -> BTreeMap<u64, Vec<(String, u64, String)>> {
    let (mut threads, mut last) = (BTreeMap::<u64, Vec<_>>::new(), 0);
    for line in text.lines() {
        if let Some(number) = line.split("hread 0x").nth(1) {
            last = u64::from_str_radix(number.split_whitespace().next().unwrap(), 16).unwrap();
        } else if let Some(frame) = line.trim_start().strip_prefix("File \"") {
            let (file, rest) = frame.split_once("\", line ").unwrap();
            let (line, function) = rest.split_once(" in ").unwrap();
            threads.entry(last).or_default().push((file.to_owned(), line.parse().unwrap(), function.to_owned()));
        }
    }
    threads
}

pub fn sleeping_threads(python: &Python) {
    let (program, facts) = start(python, &["threads"]);
    let truths = of_faulthandler(json::text(&facts, "/stacks"));
    let before = uptime();
    let dump = dump(program.pid());
    let after = uptime();
    let pid = json::count(&facts, "/pid");
    let threads = json::list(process(&dump, pid), "/threads");
    let in_proc = fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
    assert_eq!(threads.len(), in_proc, "{dump:#}");
    let mut missing: BTreeMap<_, _> = truths.clone();
    for thread in threads {
        let tid = json::count(thread, "/tid");
        assert_eq!(json::text(thread, "/state"), "asleep", "{thread:#}");
        assert_eq!(json::text(thread, "/stack_state"), "consistent", "{thread:#}");
        let shown = frames(thread);
        if tid == pid {
            assert_eq!(json::text(thread, "/role"), "main");
            assert_eq!((&*shown[0].2, shown[0].1), ("stay", json::count(&facts, "/main")), "{thread:#}");
            continue;
        }
        let known = truths.iter().find(|(_, truth)| **truth == shown);
        let (number, _) = known.unwrap_or_else(|| panic!("{tid} is nowhere in {truths:#?}: {shown:#?}"));
        missing.remove(number);
    }
    // The main thread has gone on.
    assert_eq!(missing.len(), 1, "{missing:#?}");
    let reasons = [("sleep", "sleep"), ("lock", "lock"), ("poll", "poll"), ("read", "io")];
    for (name, reason) in reasons {
        assert_eq!(json::text(named(&dump, &facts, name), "/reason"), reason, "{name}");
    }
    // It fell asleep right after it noted the time. Clocks of the scheduler stand still while a CPU is stolen.
    let since = json::number(&facts, "/since/read");
    let asleep = json::number(named(&dump, &facts, "read"), "/asleep_s");
    assert!(asleep <= after - since + 0.02 && asleep > 0.5 * (before - since), "{since} {before} {asleep} {after}");
    let made = &json::list(named(&dump, &facts, "sleep"), "/stack").last().unwrap();
    assert_eq!(json::text(made, "/source"), "time.sleep(1000)");
}

/// The py-spy of the environment that has one.
pub fn py_spy() -> Result<PathBuf, String> {
    let venv = needs::python("3.12")?.venv.ok_or("CPython 3.12 has no environment")?;
    let program = venv.with_file_name("py-spy");
    if program.is_file() { Ok(program) } else { Err("the environment of CPython 3.12 has no py-spy".to_owned()) }
}

/// Compares the frames of all threads with what py-spy finds.
pub fn as_py_spy(python: &Python) {
    let (program, facts) = start(python, &["threads"]);
    let pid = json::count(&facts, "/pid");
    let dump = dump(program.pid());
    let mut py_spy = command(py_spy().unwrap());
    py_spy.args(["dump", "--json", "--pid", &pid.to_string()]);
    let ended = Workload::start(py_spy).wait();
    let truths = json::parse(&ended.stdout);
    let truths = truths.as_array().unwrap_or_else(|| panic!("{ended:?}"));
    assert!(truths.len() > 10, "{ended:?}");
    for truth in truths {
        let tid = json::count(truth, "/os_thread_id");
        let frame = |frame: &Value| {
            let name = json::text(frame, "/name");
            let plain = name.rsplit('.').next().unwrap_or(name).to_owned();
            (json::text(frame, "/filename").to_owned(), json::count(frame, "/line"), plain)
        };
        let truth: Vec<_> = json::list(truth, "/frames").iter().map(frame).collect();
        assert_eq!(frames(thread(&dump, pid, tid)), truth, "{tid}");
    }
}

/// `CLOCK_BOOTTIME` in seconds, to a hundredth.
fn uptime() -> f64 {
    let text = fs::read_to_string("/proc/uptime").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

pub fn running_thread(python: &Python) {
    let (program, facts) = start(python, &["calls"]);
    let mut consistent = 0;
    for _ in 0..30 {
        let dump = dump(program.pid());
        let pid = json::count(&facts, "/pid");
        let thread = thread(&dump, pid, pid);
        let frames = frames(thread);
        let functions: Vec<&str> = frames.iter().rev().map(|(.., function)| &**function).collect();
        if json::text(thread, "/stack_state") != "consistent" {
            continue;
        }
        consistent += 1;
        assert_eq!(&functions[..2], ["<module>", "calls"], "{functions:?}");
        assert!(functions[2..].windows(2).all(|pair| pair[0] == pair[1]), "{functions:?}");
    }
    assert!(consistent >= 3, "{consistent} of 30");
}

pub fn namespace(python: &Python) {
    let mut unshare = command("unshare");
    unshare.args(["--pid", "--fork", "--kill-child"]).arg(&python.executable);
    unshare.arg(workload("dump.py")).arg("threads");
    let mut program = Workload::start(unshare);
    let facts = json::parse(&program.line());
    let truths = of_faulthandler(json::text(&facts, "/stacks"));
    let dump = dump(program.pid());
    let [process] = json::list(&dump, "/processes") else { panic!("{dump:#}") };
    let shown: Vec<_> = json::list(process, "/threads").iter().map(frames).collect();
    let found = truths.values().filter(|truth| shown.contains(truth)).count();
    assert_eq!(found, truths.len() - 1, "{dump:#}");
}

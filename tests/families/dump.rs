//! Tests `pyobs dump` against what programs know of their own threads, and what faulthandler prints of them.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use pyobs_tests::{Case, Folder, Python, Workload, case, command, json, needs, pyobs, schema, workload};
use serde_json::Value;

type Body = fn(&Python);

fn main() -> ExitCode {
    let mut cases = Vec::new();
    for python in Python::all() {
        let for_this = |what: &str, body: Body| {
            let python = python.clone();
            case(format!("{}::{what}", python.name()), move || body(&python)).needs(needs::root())
        };
        cases.push(for_this("sleeping_threads_are_where_faulthandler_finds_them", sleeping_threads));
        cases.push(for_this("stacks_of_a_running_thread_are_possible", running_thread));
        cases.push(for_this("a_thread_that_sleeps_with_the_gil_is_named", gil));
        if python.minor() >= 8 && !python.version.ends_with('t') {
            cases.push(for_this("tasks_are_as_asyncio_has_them", tasks));
        }
        if python.minor() >= 8 && !python.version.ends_with('t') {
            cases.push(for_this("deadlocks_are_found_with_their_lines", deadlocks));
        }
    }
    let few: [(&str, Body); 10] = [
        ("locks_taken_in_one_order_are_no_deadlock", order),
        ("a_full_pipe_and_a_wait_for_the_child_are_a_deadlock", pipe),
        ("a_connection_has_its_other_end", socket),
        ("a_file_lock_has_its_holder", file_lock),
        ("a_semaphore_has_its_name", semaphore),
        ("ended_and_stopped_children_are_named", children),
        ("a_sleep_that_no_signal_ends_is_named", uninterruptible),
        ("threads_in_a_pid_namespace_have_their_frames", namespace),
        ("a_container_is_named_and_its_limit_is_a_finding", container),
        ("the_text_says_the_same", text),
    ];
    for (name, body) in few {
        let body = move || body(&needs::python("3.12").unwrap());
        cases.push(case(name, body).needs(needs::root()).needs(needs::python("3.12")));
    }
    cases.push(case("a_process_that_does_not_exist_is_an_error", absent));
    pyobs_tests::run(cases.into_iter().map(Case::beside).collect())
}

/// Starts a mode of the program, and returns what it printed.
fn start(python: &Python, arguments: &[&str]) -> (Workload, Value) {
    let mut program = python.script(workload("dump.py"));
    program.args(arguments);
    let mut program = Workload::start(program);
    let facts = json::parse(&program.line());
    (program, facts)
}

/// The dump of a program and its descendants.
fn dump(pid: u32) -> Value {
    dump_with(pid, &[])
}

fn dump_with(pid: u32, options: &[&str]) -> Value {
    let mut pyobs = command(pyobs());
    pyobs.args(["dump", "--json", "--pid", &pid.to_string()]).args(options);
    let ended = Workload::start(pyobs).wait();
    assert!(ended.status.success(), "{ended:?}");
    let dump = json::parse(&ended.stdout);
    schema::check_dump(&dump);
    dump
}

fn process(dump: &Value, pid: u64) -> &Value {
    let processes = json::list(dump, "/processes").iter();
    processes.into_iter().find(|process| json::count(process, "/pid") == pid).unwrap_or_else(|| panic!("{dump:#}"))
}

fn thread(dump: &Value, pid: u64, tid: u64) -> &Value {
    let threads = json::list(process(dump, pid), "/threads").iter();
    threads.into_iter().find(|thread| json::count(thread, "/tid") == tid).unwrap_or_else(|| panic!("{dump:#}"))
}

/// The thread of this name in the program's own list.
fn named<'a>(dump: &'a Value, facts: &Value, name: &str) -> &'a Value {
    thread(dump, json::count(facts, "/pid"), json::count(facts, &format!("/tids/{name}")))
}

/// The thread's frames as faulthandler prints them: innermost first, with the plain name of each function.
fn frames(thread: &Value) -> Vec<(String, u64, String)> {
    let frame = |frame: &Value| {
        let function = json::text(frame, "/function");
        let plain = function.rsplit('.').next().unwrap_or(function);
        (json::text(frame, "/file").to_owned(), json::count(frame, "/line"), plain.to_owned())
    };
    json::list(thread, "/stack").iter().rev().map(frame).collect()
}

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

fn sleeping_threads(python: &Python) {
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

/// `CLOCK_BOOTTIME` in seconds, to a hundredth.
fn uptime() -> f64 {
    let text = fs::read_to_string("/proc/uptime").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

fn running_thread(python: &Python) {
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
    assert!(consistent >= 10, "{consistent} of 30");
}

fn gil(python: &Python) {
    let (program, facts) = start(python, &["gil"]);
    let pid = json::count(&facts, "/pid");
    // The sleep with the GIL begins after the program has printed.
    let (mut holders, mut seen) = (0, Value::Null);
    while holders == 0 {
        seen = dump(program.pid());
        let threads = json::list(process(&seen, pid), "/threads");
        let waits = |thread: &&Value| thread.pointer("/awaits/what").is_some_and(|what| what == "gil");
        let is_in_sleep = |thread: &&Value| thread["holds_gil"] == true && thread["reason"] == "sleep";
        holders =
            usize::from(threads.iter().any(|thread| is_in_sleep(&thread)) && threads.iter().filter(waits).count() == 2);
    }
    let threads = json::list(process(&seen, pid), "/threads");
    let [holder] = &threads.iter().filter(|thread| thread["holds_gil"] == true).collect::<Vec<_>>()[..] else {
        panic!("{seen:#}")
    };
    let line = frames(holder).first().map(|(_, line, _)| *line);
    assert_eq!(line, Some(json::count(&facts, "/line")), "{holder:#}");
    for waiter in threads.iter().filter(|thread| thread["tid"] != holder["tid"]) {
        assert_eq!(json::text(waiter, "/reason"), "gil", "{waiter:#}");
        assert_eq!(waiter.pointer("/awaits/holders/0/tid"), Some(&holder["tid"]), "{waiter:#}");
    }
}

/// The holders that a thread waits for.
fn holders(thread: &Value) -> Vec<u64> {
    let holders = thread.pointer("/awaits/holders").and_then(Value::as_array);
    holders.into_iter().flatten().filter_map(|holder| holder["tid"].as_u64().or(holder["pid"].as_u64())).collect()
}

fn deadlocks(python: &Python) {
    let (program, facts) = start(python, &["locks"]);
    let dump = dump(program.pid());
    let tid = |name: &str| json::count(&facts, &format!("/tids/{name}"));
    let pairs = [
        ("with_one", "with_two", "lock"),
        ("with_two", "with_one", "lock"),
        ("with_three", "with_four", "rlock"),
        ("with_four", "with_three", "rlock"),
        ("with_own", "with_own", "lock"),
        ("waiter", "holder", "lock"),
        ("wants", "joins", "lock"),
        ("joins", "wants", "thread"),
        ("joiner", "sleeper", "thread"),
    ];
    for (waiter, holder, what) in pairs {
        let thread = named(&dump, &facts, waiter);
        assert_eq!(thread.pointer("/awaits/what").and_then(Value::as_str), Some(what), "{thread:#}");
        assert_eq!(holders(thread), [tid(holder)], "{waiter}: {thread:#}");
        assert_eq!(json::text(thread, "/python_name"), format!("t-{waiter}"));
    }
    let findings = json::list(&dump, "/findings");
    assert_eq!(findings.len(), 4, "{findings:#?}");
    for names in [&["with_one", "with_two"][..], &["with_three", "with_four"], &["with_own"], &["wants", "joins"]] {
        let parts = names.iter().map(|name| {
            let line = json::count(&facts, &format!("/lines/{name}"));
            format!("hread {} waits at dump.py:{line} ", tid(name))
        });
        let parts: Vec<String> = parts.collect();
        let is_it = |finding: &&Value| parts.iter().all(|part| json::text(finding, "/detail").contains(part));
        let found = findings.iter().find(is_it).unwrap_or_else(|| panic!("{parts:?}: {findings:#?}"));
        assert_eq!(json::text(found, "/id"), "dump/deadlock");
    }
}

/// Compares the tasks with what asyncio itself says of them: their names, coroutines with lines, and whom they await.
fn tasks(python: &Python) {
    let mut program = Workload::start(python.script(workload("dump_tasks.py")));
    let facts = json::parse(&program.line());
    // The program goes on to block its loop, which is found once it has done so for a while.
    let blocks = |dump: &Value| !json::list(dump, "/findings").is_empty();
    let dump = std::iter::repeat_with(|| dump_with(program.pid(), &["--tasks"])).find(blocks).unwrap();
    let tasks = json::list(&dump, "/processes/0/tasks");
    let known = facts["tasks"].as_object().unwrap();
    // The main task is not in the program's own list.
    assert_eq!(tasks.len(), known.len() + 1, "{dump:#}");
    assert_eq!(tasks.len() as u64, json::count(&facts, "/all"));
    for (name, truth) in known {
        let is_it = |task: &&Value| task["id"] == truth["id"];
        let task = tasks.iter().find(is_it).unwrap_or_else(|| panic!("{name} is missing: {tasks:#?}"));
        let truths = json::list(truth, "/stack").iter();
        let frame = |frame: &Value| {
            (json::text(frame, "/0").to_owned(), json::count(frame, "/1"), json::text(frame, "/2").to_owned())
        };
        let truths: Vec<_> = truths.map(frame).rev().collect();
        assert_eq!(frames(task), truths, "{name}");
        if let Some(known) = truth["name"].as_str() {
            assert_eq!(json::text(task, "/name"), known);
        }
        let state = if name == "created" { "created" } else { "waiting" };
        assert_eq!(json::text(task, "/state"), state, "{name}");
        let ids = |names: &Value| -> BTreeSet<String> {
            let names = names.as_array().into_iter().flatten();
            names.map(|name| known[name.as_str().unwrap()]["id"].as_str().unwrap().to_owned()).collect()
        };
        let awaits: BTreeSet<String> = strings(task, "/awaits").collect();
        assert_eq!(awaits, ids(&facts["edges"][name]), "{name}");
        for other in &awaits {
            let other = tasks.iter().find(|task| task["id"] == **other).unwrap();
            assert!(strings(other, "/awaited_by").any(|id| id == truth["id"].as_str().unwrap()), "{other:#}");
        }
    }
    let running: Vec<&Value> = tasks.iter().filter(|task| task["state"] == "running").collect();
    let [main] = &running[..] else { panic!("{tasks:#?}") };
    let [finding] = json::list(&dump, "/findings") else { panic!("{dump:#}") };
    assert_eq!(json::text(finding, "/id"), "tasks/blocked");
    let place = format!("block at dump_tasks.py:{} blocks the event loop for ", json::count(&facts, "/blocks"));
    let said = json::text(finding, "/summary");
    assert!(said.starts_with(&place) && said.ends_with(&format!("while {} other tasks wait", known.len())), "{said}");
    assert_eq!(json::text(main, "/stack/0/function"), "main");
    assert_eq!(main["tid"], dump["processes"][0]["pid"]);
}

fn strings<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = String> + 'a {
    json::list(value, pointer).iter().map(|text| text.as_str().unwrap().to_owned())
}

fn order(python: &Python) {
    let (program, _) = start(python, &["order"]);
    let mut waits = 0;
    for _ in 0..50 {
        let dump = dump(program.pid());
        assert!(json::list(&dump, "/findings").is_empty(), "{dump:#}");
        let threads = json::list(&dump, "/processes/0/threads");
        waits += threads.iter().filter(|thread| !holders(thread).is_empty()).count();
    }
    assert!(waits > 0, "nobody waited");
}

fn pipe(python: &Python) {
    let (program, facts) = start(python, &["pipe"]);
    let dump = dump(program.pid());
    let (parent, child) = (json::count(&facts, "/pid"), json::count(&facts, "/child"));
    let (waiter, writer) = (thread(&dump, parent, parent), thread(&dump, child, child));
    assert_eq!((waiter.pointer("/awaits/what").unwrap(), holders(waiter)), (&Value::from("child"), vec![child]));
    assert_eq!((writer.pointer("/awaits/what").unwrap(), holders(writer)), (&Value::from("pipe"), vec![parent]));
    let [finding] = json::list(&dump, "/findings") else { panic!("{dump:#}") };
    let said = json::text(finding, "/summary");
    assert!(
        said.contains(&format!("process {parent} waits")) && said.contains(&format!("process {child} waits")),
        "{said}"
    );
}

fn socket(python: &Python) {
    let (program, facts) = start(python, &["socket"]);
    let dump = dump(program.pid());
    let reader = named(&dump, &facts, "read");
    assert_eq!(reader.pointer("/awaits/what").unwrap(), "socket", "{reader:#}");
    let name = format!("127.0.0.1:{}", json::count(&facts, "/port"));
    assert_eq!(reader.pointer("/awaits/name").unwrap(), &name);
    assert_eq!(holders(reader), [json::count(&facts, "/child")]);
}

fn file_lock(python: &Python) {
    let folder = Folder::new();
    let file = folder.join("lock");
    let (program, facts) = start(python, &["lockf", file.to_str().unwrap()]);
    let dump = dump(program.pid());
    let child = json::count(&facts, "/child");
    let waiter = thread(&dump, child, child);
    assert_eq!(waiter.pointer("/awaits/what").unwrap(), "file_lock", "{waiter:#}");
    assert_eq!(waiter.pointer("/awaits/name").unwrap(), file.to_str().unwrap());
    assert_eq!(holders(waiter), [json::count(&facts, "/pid")]);
}

fn semaphore(python: &Python) {
    let (program, facts) = start(python, &["semaphore"]);
    let dump = dump(program.pid());
    let waiter = named(&dump, &facts, "wait");
    assert_eq!(waiter.pointer("/awaits/what").unwrap(), "semaphore", "{waiter:#}");
    let [file] = json::list(&facts, "/files") else { panic!("{facts:#}") };
    let name = file.as_str().unwrap().replace("/dev/shm/sem.", "/");
    assert_eq!(waiter.pointer("/awaits/name").unwrap(), &name);
}

fn children(python: &Python) {
    let (program, facts) = start(python, &["children"]);
    let dump = dump(program.pid());
    let (pid, stopped) = (json::count(&facts, "/pid"), json::count(&facts, "/stopped"));
    let zombies = json::list(process(&dump, pid), "/zombies");
    let ended: Vec<u64> = zombies.iter().map(|zombie| json::count(zombie, "/pid")).collect();
    assert_eq!(ended, [json::count(&facts, "/ended")], "{dump:#}");
    assert_eq!(json::text(thread(&dump, stopped, stopped), "/state"), "stopped");
}

fn uninterruptible(python: &Python) {
    let folder = Folder::new();
    let fifo = folder.join("fifo");
    assert!(
        Workload::start({
            let mut mkfifo = command("mkfifo");
            mkfifo.arg(&fifo);
            mkfifo
        })
        .wait()
        .status
        .success()
    );
    let (program, facts) = start(python, &["vfork", fifo.to_str().unwrap()]);
    let dump = dump(program.pid());
    let child = json::count(&facts, "/child");
    let spawns = thread(&dump, child, child);
    assert_eq!(json::text(spawns, "/state"), "uninterruptible", "{spawns:#}");
    assert_eq!(frames(spawns)[0].2, "vfork");
}

fn namespace(python: &Python) {
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

/// A control group, made as an engine makes it and removed at the end.
struct Group(PathBuf);

impl Group {
    /// With 20 ms of CPU time in each 100 ms.
    fn new(name: &str) -> Self {
        let is_new = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let root = Path::new(if is_new { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/cpu" });
        let group = Self(root.join(name));
        fs::create_dir(&group.0).unwrap();
        if is_new {
            fs::write(root.join("cgroup.subtree_control"), "+cpu").unwrap();
            fs::write(group.0.join("cpu.max"), "20000 100000").unwrap();
        } else {
            fs::write(group.0.join("cpu.cfs_period_us"), "100000").unwrap();
            fs::write(group.0.join("cpu.cfs_quota_us"), "20000").unwrap();
        }
        group
    }

    fn add(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// `nr_throttled` and `nr_periods`.
    fn throttled(&self) -> [u64; 2] {
        let stat = fs::read_to_string(self.0.join("cpu.stat")).unwrap();
        let field = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap();
        [field("nr_throttled"), field("nr_periods")]
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process leaves its group a moment after it was killed.
        while fs::remove_dir(&self.0).is_err() && self.0.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn container(python: &Python) {
    let id = format!("{:064x}", std::process::id());
    let group = Group::new(&format!("docker-{id}.scope"));
    let (program, facts) = start(python, &["burn"]);
    group.add(program.pid());
    while group.throttled()[0] < 20 {
        std::thread::sleep(Duration::from_millis(50));
    }
    let before = group.throttled();
    let dump = dump_with(program.pid(), &["--container", &id[..63]]);
    let [process] = json::list(&dump, "/processes") else { panic!("{dump:#}") };
    assert_eq!(process["pid"], facts["pid"]);
    assert_eq!(json::text(process, "/container/id"), id);
    assert_eq!(json::text(process, "/container/engine"), "docker");
    assert_eq!(json::number(process, "/limit/cpus"), 0.2);
    let said = ["/limit/throttled_periods", "/limit/periods"].map(|field| json::count(process, field));
    let after = group.throttled();
    assert!((0..2).all(|index| (before[index]..=after[index]).contains(&said[index])), "{before:?} {said:?} {after:?}");
    let [finding] = json::list(&dump, "/findings") else { panic!("{dump:#}") };
    assert_eq!(json::text(finding, "/id"), "container/throttled");
    assert!(json::text(finding, "/summary").contains(" is limited to 0.2 CPUs "), "{finding:#}");
    let mut other = command(pyobs());
    other.args(["dump", "--container", "no-such-name"]);
    let ended = Workload::start(other).wait();
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("no Python process runs in a container called no-such-name"), "{}", ended.stderr);
    drop(program);
}

fn text(python: &Python) {
    let (program, facts) = start(python, &["locks"]);
    let mut pyobs = command(pyobs());
    pyobs.args(["dump", "--pid", &program.pid().to_string()]);
    let ended = Workload::start(pyobs).wait();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    for name in ["with_one", "waiter"] {
        let (tid, line) =
            (json::count(&facts, &format!("/tids/{name}")), json::count(&facts, &format!("/lines/{name}")));
        let head = format!("  Thread {tid} ");
        let mut lines = ended.stdout.lines().skip_while(|line| !line.starts_with(&head));
        let state = lines.next().unwrap_or_else(|| panic!("{}", ended.stdout));
        assert!(
            state.contains("asleep for ") && state.contains(" in futex") && state.contains("waits for the lock 0x"),
            "{state}"
        );
        let frame = lines.next().unwrap();
        assert!(frame.contains(&format!("dump.py:{line} ")) && frame.contains("# waits here"), "{frame}");
    }
    assert_eq!(ended.stdout.lines().filter(|line| line.starts_with("! ")).count(), 4, "{}", ended.stdout);
}

fn absent() {
    let mut pyobs = command(pyobs());
    pyobs.args(["dump", "--pid", "4194303"]);
    let ended = Workload::start(pyobs).wait();
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.starts_with("pyobs: there is no process 4194303"), "{}", ended.stderr);
}

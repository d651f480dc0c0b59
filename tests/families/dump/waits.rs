//! What threads and processes wait for, and who has it.

use pyobs_tests::{Folder, Python, Workload, command, json};
use serde_json::Value;

use super::{dump, frames, holders, named, process, start, thread};

/// Dumps until the program sleeps with the GIL.
const TRIES: usize = 100;

pub fn gil(python: &Python) {
    let (program, facts) = start(python, &["gil"]);
    let pid = json::count(&facts, "/pid");
    // The sleep with the GIL begins after the program has printed.
    let (mut holders, mut seen) = (0, Value::Null);
    for _ in 0..TRIES {
        if holders > 0 {
            break;
        }
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

pub fn deadlocks(python: &Python) {
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
    // `Condition.wait` has released the lock of the `with` statement around it. Who took it then is unknown.
    let thread = named(&dump, &facts, "waits_for_six");
    assert_eq!(
        (thread.pointer("/awaits/what").unwrap(), holders(thread)),
        (&Value::from("lock"), vec![]),
        "{thread:#}"
    );
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

pub fn order(python: &Python) {
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

pub fn pipe(python: &Python) {
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

pub fn socket(python: &Python) {
    let (program, facts) = start(python, &["socket"]);
    let dump = dump(program.pid());
    let reader = named(&dump, &facts, "read");
    assert_eq!(reader.pointer("/awaits/what").unwrap(), "socket", "{reader:#}");
    let name = format!("127.0.0.1:{}", json::count(&facts, "/port"));
    assert_eq!(reader.pointer("/awaits/name").unwrap(), &name);
    assert_eq!(holders(reader), [json::count(&facts, "/child")]);
}

pub fn unix(python: &Python) {
    let (program, facts) = start(python, &["unix"]);
    let dump = dump(program.pid());
    let reader = named(&dump, &facts, "read");
    assert_eq!(reader.pointer("/awaits/what").unwrap(), "socket", "{reader:#}");
    assert_eq!(holders(reader), [json::count(&facts, "/child")]);
}

pub fn file_lock(python: &Python) {
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

pub fn semaphore(python: &Python) {
    let (program, facts) = start(python, &["semaphore"]);
    let dump = dump(program.pid());
    let waiter = named(&dump, &facts, "wait");
    assert_eq!(waiter.pointer("/awaits/what").unwrap(), "semaphore", "{waiter:#}");
    let [file] = json::list(&facts, "/files") else { panic!("{facts:#}") };
    let name = file.as_str().unwrap().replace("/dev/shm/sem.", "/");
    assert_eq!(waiter.pointer("/awaits/name").unwrap(), &name);
}

pub fn children(python: &Python) {
    let (program, facts) = start(python, &["children"]);
    let dump = dump(program.pid());
    let (pid, stopped) = (json::count(&facts, "/pid"), json::count(&facts, "/stopped"));
    let zombies = json::list(process(&dump, pid), "/zombies");
    let ended: Vec<u64> = zombies.iter().map(|zombie| json::count(zombie, "/pid")).collect();
    assert_eq!(ended, [json::count(&facts, "/ended")], "{dump:#}");
    assert_eq!(json::text(thread(&dump, stopped, stopped), "/state"), "stopped");
}

pub fn uninterruptible(python: &Python) {
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

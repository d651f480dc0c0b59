//! Native frames, as gdb finds them.

use std::collections::BTreeMap;

use pyobs_tests::{Python, Workload, command, json};

use super::{dump_with, named, process, start};

/// What gdb and pyobs call a function without a name.
const NAMELESS: [&str; 2] = ["??", "<native>"];

/// Prints the functions of each thread but the interpreter's loop, and what is inlined into it. gdb also shows calls that
/// left no frame, because they were the last thing that their function did.
const SCRIPT: &str = "
for thread in gdb.selected_inferior().threads():
    thread.switch()
    print('thread', thread.ptid[1])
    frame, inlined = gdb.newest_frame(), []
    while frame:
        name = frame.name() or '??'
        if 'libc.so' in (gdb.solib_name(frame.pc()) or ''):
            name = 'libc'
        if frame.type() == gdb.INLINE_FRAME:
            inlined.append(name)
        elif frame.type() != gdb.TAILCALL_FRAME:
            if not name.startswith('_PyEval_EvalFrameDefault'):
                for name in [*inlined, name]:
                    print('frame', name)
            inlined = []
        frame = frame.older()
";

/// The functions of each thread, innermost first, as gdb finds them.
fn of_gdb(pid: u32) -> BTreeMap<u64, Vec<String>> {
    let mut gdb = command("gdb");
    gdb.args(["-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load off"]);
    gdb.args(["-p", &pid.to_string(), "-ex", "set backtrace past-main on"]);
    gdb.args(["-ex", &format!("python exec({SCRIPT:?})")]);
    let ended = Workload::start(gdb).wait();
    let (mut threads, mut tid) = (BTreeMap::<u64, Vec<String>>::new(), 0);
    for line in ended.stdout.lines() {
        match line.split_once(' ') {
            Some(("thread", number)) => tid = number.parse().unwrap(),
            Some(("frame", function)) => threads.entry(tid).or_default().push(function.to_owned()),
            _ => {}
        }
    }
    assert!(!threads.is_empty(), "{ended:?}");
    threads
}

/// Functions as they are compared. For those of libc, gdb may have debug information that pyobs does not use.
fn compared(functions: impl Iterator<Item = String>) -> Vec<String> {
    let named = |function: String| if NAMELESS.contains(&&*function) { "?".to_owned() } else { function };
    let mut functions: Vec<String> = functions.map(named).collect();
    functions.dedup_by(|function, before| function == "libc" && function == before);
    functions
}

pub fn natives(python: &Python) {
    let (program, facts) = start(python, &["threads"]);
    let pid = json::count(&facts, "/pid");
    let dump = dump_with(program.pid(), &["--native", "full"]);
    let truths = of_gdb(program.pid());
    let threads = json::list(process(&dump, pid), "/threads");
    assert_eq!(threads.len(), truths.len(), "{truths:#?}");
    for thread in threads {
        let of_kind = |kind: &str| {
            let frames = json::list(thread, "/stack").iter().rev();
            let own = frames.filter(|frame| json::text(frame, "/kind") == kind).collect::<Vec<_>>();
            own.into_iter().map(|frame| match frame["module"].as_str() {
                Some("libc.so.6") => "libc".to_owned(),
                _ => json::text(frame, "/function").to_owned(),
            })
        };
        let truth = compared(truths[&json::count(thread, "/tid")].iter().cloned());
        assert_eq!(compared(of_kind("native")), truth, "{thread:#}");
        assert_eq!(json::text(thread, "/native_stack"), "complete", "{thread:#}");
        assert!(of_kind("python").count() > 0, "{thread:#}");
    }
    // The comparison is made in C code that `sorted` runs.
    let stack = json::list(named(&dump, &facts, "callback"), "/stack");
    let kinds = || stack.iter().rev().map(|frame| json::text(frame, "/kind"));
    let at = |function: &str| {
        let is_it = |frame: &serde_json::Value| json::text(frame, "/function").ends_with(function);
        stack.iter().rev().position(is_it).unwrap_or_else(|| panic!("{function} of {stack:#?}"))
    };
    let between: Vec<&str> = kinds().skip(at("__lt__") + 1).take_while(|kind| *kind == "native").collect();
    assert!(between.len() >= 3, "{stack:#?}");
    let innermost: Vec<&str> = kinds().take_while(|kind| *kind == "native").collect();
    assert!(!innermost.is_empty() && at("sleeps") == innermost.len(), "{stack:#?}");
}

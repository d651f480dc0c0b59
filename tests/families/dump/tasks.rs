//! The tasks of asyncio, as it has them itself.

use std::collections::{BTreeMap, BTreeSet};

use pyobs_tests::{Python, Workload, command, json, workload};
use serde_json::Value;

use super::{dump_with, frames};

/// Dumps until the program has blocked its loop for long enough.
const TRIES: usize = 100;

/// Compares the tasks with what asyncio itself says of them: their names, coroutines with lines, and whom they await.
pub fn tasks(python: &Python) {
    let mut program = Workload::start(python.script(workload("dump_tasks.py")));
    let facts = json::parse(&program.line());
    // The program goes on to block its loop, which is found once it has done so for a while.
    let blocks = |dump: &Value| !json::list(dump, "/findings").is_empty();
    let dump = std::iter::repeat_with(|| dump_with(program.pid(), &["--tasks"])).take(TRIES).find(blocks);
    let dump = dump.expect("the blocked loop is found");
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
        let state = facts["states"][name].as_str().unwrap_or("waiting");
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

/// Compares with `python -m asyncio ps`: the tasks, their names and coroutines, and who awaits them.
pub fn listed(python: &Python) {
    let mut program = Workload::start(python.script(workload("dump_tasks.py")));
    json::parse(&program.line());
    let pid = program.pid().to_string();
    let mut ps = command("nsenter");
    ps.args(["--target", &pid, "--mount", "--root"]).arg(&python.executable).args(["-m", "asyncio", "ps", &pid]);
    let ended = Workload::start(ps).wait();
    let mut lines = ended.stdout.lines();
    let heading = lines.next().unwrap();
    let columns = ["task id", "task name", "coroutine stack", "awaiter chain", "awaiter name", "awaiter id"];
    let starts = columns.map(|title| heading.find(title).unwrap());
    // The heading is underlined. By task: its name, its outermost coroutine, and who awaits it.
    let truths: BTreeMap<String, (String, String, BTreeSet<String>)> = lines
        .skip(1)
        .map(|line| {
            let end = |column: usize| starts.get(column + 1).map_or(line.len(), |end| (*end).min(line.len()));
            let cell = |column: usize| line.get(starts[column]..end(column)).unwrap_or_default().trim().to_owned();
            let outermost = cell(2).rsplit(" -> ").next().unwrap().to_owned();
            let awaiter = Some(cell(5)).filter(|id| id != "0x0").into_iter().collect();
            (cell(0), (cell(1), outermost, awaiter))
        })
        .collect();
    let dump = dump_with(program.pid(), &["--tasks"]);
    let shown = json::list(&dump, "/processes/0/tasks").iter().map(|task| {
        let text = |pointer: &str| json::text(task, pointer).to_owned();
        (text("/id"), (text("/name"), text("/stack/0/function"), strings(task, "/awaited_by").collect()))
    });
    let shown: BTreeMap<String, (String, String, BTreeSet<String>)> = shown.collect();
    assert!(truths.len() > 10, "{ended:?}");
    assert_eq!(shown, truths);
}

fn strings<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = String> + 'a {
    json::list(value, pointer).iter().map(|text| text.as_str().unwrap().to_owned())
}

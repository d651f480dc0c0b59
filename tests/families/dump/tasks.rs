//! The tasks of asyncio, as it has them itself.

use std::collections::BTreeSet;

use pyobs_tests::{Python, Workload, json, workload};
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

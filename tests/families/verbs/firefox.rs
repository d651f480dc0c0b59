//! Tests the export for Firefox's profiler with its own code: Mozilla's profiler-cli, a server and a client that
//! queries it.

use std::process::Command;

use pyobs_tests::{Folder, Workload, command, compare, json, needs};
use serde_json::Value;

use super::exports::{BURNED, inclusive};
use super::{recording, run};

struct Profiler {
    folder: Folder,
}

impl Profiler {
    fn start() -> Self {
        let profiler = Self { folder: Folder::new() };
        let profile = profiler.folder.join("profile.json").display().to_string();
        let written = run(&["export", recording().file.to_str().unwrap(), "--format", "firefox", "-o", &profile]);
        assert!(written.status.success(), "{written:?}");
        profiler.ask(&["load", &profile]);
        profiler
    }

    fn client(&self, arguments: &[&str]) -> Command {
        let [node, script] = needs::firefox().unwrap();
        let mut client = command(node);
        client.env("PROFILER_CLI_SESSION_DIR", &*self.folder).arg(script).args(arguments);
        client
    }

    fn ask(&self, arguments: &[&str]) -> String {
        let ended = Workload::start(self.client(arguments)).wait();
        assert!(ended.status.success(), "{ended:?}");
        ended.stdout
    }

    fn document(&self, arguments: &[&str]) -> Value {
        json::parse(&self.ask(&[arguments, &["--limit", "0", "--json"]].concat()))
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        // A server that keeps running does not disturb the next one, which has a folder of its own.
        let _ended = self.client(&["stop", "--all"]).output();
    }
}

/// A function's CPU time over all threads must match the folded stacks, and sleeps must be markers with a stack.
pub fn counts() {
    let profiler = Profiler::start();
    let threads = profiler.document(&["thread", "list"]);
    let threads = json::list(&threads, "/threads");
    assert!(threads.iter().any(|thread| json::text(thread, "/name").starts_with("first-thread")), "{threads:#?}");
    let (mut functions, mut sleeps) = (Vec::new(), 0);
    for thread in threads {
        let handle = json::text(thread, "/threadHandle");
        let output = profiler.document(&["thread", "functions", "--thread", handle, "--include-idle"]);
        functions.extend(json::list(&output, "/functions").to_vec());
        let output = profiler.document(&["thread", "markers", "--thread", handle, "--has-stack"]);
        let kinds = json::list(&output, "/byType").iter();
        let of_sleep = kinds.filter(|kind| json::text(kind, "/markerName").starts_with("Sleep: "));
        sleeps += of_sleep.map(|kind| json::count(kind, "/count")).sum::<u64>();
    }
    let period_ms = 1000.0 / json::number(&recording().report, "/recording/rate_hz");
    for function in BURNED {
        let name = format!("{function} ({function}.py)");
        let rows = functions.iter().filter(|row| row["name"] == name.as_str());
        // The weights are in milliseconds, so their sum is too.
        let found: f64 = rows.map(|row| json::number(row, "/totalSamples")).sum();
        let (periods, lines) = inclusive(function);
        // The folded stacks round each line to a sampling period, and the profile each thread to a millisecond.
        let rounding = 0.5 * lines as f64 * period_ms + threads.len() as f64;
        compare::close(&format!("milliseconds of {function}"), found, periods as f64 * period_ms, rounding);
    }
    assert!(sleeps > 0, "no sleeps, although threads are joined");
}

//! Tests programs that share at random and are killed meanwhile, against what `/proc` shows afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pyobs_tests::{Case, Folder, Python, Workload, case, json, needs, workload};
use serde_json::Value;

use super::{FOLDER, nothing_is_lost, record, segments};

const SEEDS: u64 = 50;
/// How many seeds run by default.
const SOME: u64 = 4;

pub fn cases() -> Vec<Case> {
    let pythons: Vec<&Python> =
        Python::all().iter().filter(|python| python.minor() >= 8 && python.root.is_none()).collect();
    let mut cases = Vec::new();
    for seed in 0..SEEDS {
        let Some(python) = pythons.get(seed as usize % pythons.len().max(1)) else { break };
        let name = format!("{}::processes_killed_at_random_leave_what_proc_shows::{seed}", python.name());
        let python = (*python).clone();
        let case = case(name, move || check(&python, seed)).needs(needs::root());
        cases.push(if seed < SOME { case } else { case.needs(needs::all()) });
    }
    cases
}

/// Device and inode.
type Key = (u64, u64);
/// How many descriptors and mappings a process has of a segment, and the mappings' ranges.
type Held = BTreeMap<(Key, u64), (u64, u64, Ranges)>;
type Ranges = Vec<(u64, u64)>;

struct Cleaner(String, Vec<u64>);

impl Drop for Cleaner {
    fn drop(&mut self) {
        for pid in &self.1 {
            // SAFETY: the call takes two numbers. The processes are children of the case's own program.
            unsafe { libc::kill(*pid as libc::pid_t, libc::SIGKILL) };
        }
        for entry in fs::read_dir(FOLDER).into_iter().flatten().flatten() {
            if entry.file_name().as_bytes().starts_with(self.0.as_bytes()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn check(python: &Python, seed: u64) {
    let folder = Folder::new();
    let log = folder.join("made");
    let prefix = format!("pyobs_test_{}_{seed}", std::process::id());
    let mut cleaner = Cleaner(prefix.clone(), Vec::new());
    let mut command = python.script(workload("segments.py"));
    command.arg(seed.to_string()).arg(&prefix).arg(&log);
    let mut program = Workload::start(command);
    program.wait_for("ready");
    let recording = record().pid(program.pid()).start();
    program.signal(libc::SIGUSR1);
    let line = json::parse(&program.line());
    let lines: Vec<Value> = fs::read_to_string(&log).unwrap().lines().map(json::parse).collect();
    let children = lines.iter().filter_map(|line| line["child"].as_u64());
    cleaner.1.extend(children);
    let pids: Vec<u64> = json::list(&line, "/pids").iter().filter_map(Value::as_u64).collect();
    let mut truth = what_proc_shows(&pids);
    let names: BTreeSet<Key> = names(&prefix);
    let recording = recording.stop();
    let report = &recording.report;
    nothing_is_lost(report);

    // A worker that is killed between a fork and its log entry leaves a child that the log does not list.
    let of_prefix = segments(report).iter().filter(|segment| is_of(segment, &pids, &prefix));
    let holders = of_prefix.flat_map(|segment| json::list(segment, "/holders"));
    let others: BTreeSet<u64> = holders.map(|row| json::count(row, "/pid")).filter(|pid| !pids.contains(pid)).collect();
    truth.extend(what_proc_shows(&others.into_iter().collect::<Vec<u64>>()));

    let mut seen: Held = BTreeMap::new();
    let made: BTreeSet<Key> = lines.iter().filter(|line| line["ino"].is_u64()).map(key).collect();
    let mut wrong = Vec::new();
    let ours: Vec<&Value> = segments(report).iter().filter(|segment| is_of(segment, &pids, &prefix)).collect();
    for segment in &ours {
        let alive = segment["verdict"] != "released";
        for holder in json::list(segment, "/holders") {
            let mut ranges: Ranges = json::list(holder, "/ranges").iter().map(range).collect();
            merge(&mut ranges);
            let held = (json::count(holder, "/fds"), json::count(holder, "/mappings"), ranges);
            seen.insert((key(segment), json::count(holder, "/pid")), held);
        }
        if names.contains(&key(segment)) && alive != segment["ended_s"].is_null() {
            wrong.push(format!("still has a name: {segment:#}"));
        }
        if segment["verdict"] == "residue" && !names.contains(&key(segment)) {
            wrong.push(format!("has no name: {segment:#}"));
        }
    }
    for missing in made.iter().filter(|made| !ours.iter().any(|segment| key(segment) == **made)) {
        wrong.push(format!("{missing:?} was made but not reported"));
    }
    let both: BTreeSet<_> = truth.keys().chain(seen.keys()).collect();
    for place in both {
        if truth.get(place) != seen.get(place) {
            wrong.push(format!("{place:?}: {:?} in /proc, {:?} in the report", truth.get(place), seen.get(place)));
        }
    }
    assert!(truth.len() >= 3, "{truth:?}");
    assert!(wrong.is_empty(), "seed {seed}: {} wrong\n{}", wrong.len(), wrong.join("\n"));
}

fn range(row: &Value) -> (u64, u64) {
    let start = u64::from_str_radix(json::text(row, "/address").trim_start_matches("0x"), 16).unwrap();
    (start, start + json::count(row, "/bytes"))
}

/// Joins adjacent ranges, because the kernel merges adjacent mappings if it can.
fn merge(ranges: &mut Ranges) {
    ranges.sort_unstable();
    let mut merged: Ranges = Vec::new();
    for (start, end) in ranges.drain(..) {
        match merged.last_mut().filter(|last| last.1 == start) {
            Some(last) => last.1 = end,
            None => merged.push((start, end)),
        }
    }
    *ranges = merged;
}

fn key(row: &Value) -> Key {
    (json::count(row, "/dev"), json::count(row, "/ino"))
}

fn is_of(segment: &Value, pids: &[u64], prefix: &str) -> bool {
    let is_held = || json::list(segment, "/holders").iter().any(|row| pids.contains(&json::count(row, "/pid")));
    segment["name"].as_str().is_some_and(|name| name.starts_with(prefix)) || is_held()
}

/// The inodes that have a name in `/dev/shm`.
fn names(prefix: &str) -> BTreeSet<Key> {
    let entries = fs::read_dir(FOLDER).unwrap().flatten();
    let of_prefix = entries.filter(|entry| entry.file_name().as_bytes().starts_with(prefix.as_bytes()));
    of_prefix.filter_map(|entry| entry.metadata().ok()).map(|found| (found.dev(), found.ino())).collect()
}

fn what_proc_shows(pids: &[u64]) -> Held {
    let folder = fs::metadata(FOLDER).unwrap().dev();
    // SAFETY: the name is NUL-terminated, and the file owns the new descriptor and closes it.
    let memory = unsafe { <fs::File as std::os::fd::FromRawFd>::from_raw_fd(libc::memfd_create(c"t".as_ptr(), 0)) };
    let internal = memory.metadata().unwrap().dev();
    let mut held = Held::new();
    for pid in pids {
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let Ok(found) = fs::metadata(entry.path()) else { continue };
            if found.is_file() && [folder, internal].contains(&found.dev()) {
                held.entry(((found.dev(), found.ino()), *pid)).or_default().0 += 1;
            }
        }
        for line in fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default().lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (Some(range), Some(inode)) = (words.first(), words.get(4)) else { continue };
            let link = format!("/proc/{pid}/map_files/{range}");
            let found = if *inode == "0" { None } else { fs::metadata(Path::new(&link)).ok() };
            if let Some(found) = found.filter(|found| [folder, internal].contains(&found.dev())) {
                let entry = held.entry(((found.dev(), found.ino()), *pid)).or_default();
                entry.1 += 1;
                let (start, end) = range.split_once('-').unwrap();
                let address = |text| u64::from_str_radix(text, 16).unwrap();
                entry.2.push((address(start), address(end)));
            }
        }
    }
    held.values_mut().for_each(|held| merge(&mut held.2));
    held
}

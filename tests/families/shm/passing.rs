//! Tests tensors that processes pass to each other by descriptor or by name.

use pyobs_tests::{Case, Python, Recording, case, command, json, needs, workload};
use serde_json::Value;

use super::{Names, all_holders, is_born_in, nothing_is_lost, passes, path, quick, record, segment, segments};

const BYTES: u64 = 1 << 20;
const COUNT: usize = 3;
const MODES: [&str; 5] = ["ok", "killboth", "norecv", "fs-ok", "fs-killboth"];

pub fn cases() -> Vec<Case> {
    let pythons = Python::all().iter().filter(|python| python.minor() >= 8);
    let mut cases: Vec<Case> = pythons.flat_map(|python| MODES.map(|mode| of_mode(python, mode))).collect();
    let python = needs::python("3.12");
    let many = {
        let python = python.clone();
        move || hundreds(&python.clone().unwrap())
    };
    let name = "five_hundred_passed_segments_are_all_seen";
    cases.push(case(name, many).needs(needs::root()).needs(python));
    cases
}

fn of_mode(python: &Python, mode: &'static str) -> Case {
    let name = format!("{}::segments_match_what_the_program_knows::{mode}", python.name());
    let (python, every) = (python.clone(), quick(python, mode, &["fs-killboth"]));
    case(name, move || check(&python, mode)).needs(needs::root()).needs(every)
}

fn run(python: &Python, arguments: &[&str]) -> Recording {
    let mut command = python.script(workload("fd_pass.py"));
    command.args(arguments);
    record().command(command).run()
}

/// Like [`run`], for programs that get killed. Records for three more seconds: from 3.14 on, multiprocessing starts a resource
/// tracker by default, and pyobs reports no residue while a tracker that might remove it is alive.
fn run_killed(python: &Python, arguments: &[&str]) -> Recording {
    let program = python.script(workload("fd_pass.py"));
    let mut shell = command("sh");
    shell.args(["-c", "\"$@\"; sleep 3", "sh"]).arg(program.get_program()).args(program.get_args()).args(arguments);
    record().command(shell).run()
}

fn check(python: &Python, mode: &str) {
    let is_killed = mode.ends_with("killboth");
    let arguments = [mode, &BYTES.to_string(), &COUNT.to_string()];
    let recording = if is_killed { run_killed(python, &arguments) } else { run(python, &arguments) };
    let report = &recording.report;
    let printed: Vec<Value> = recording.stdout.lines().map(json::parse).collect();
    nothing_is_lost(report);
    let made: Vec<&Value> = segments(report).iter().filter(|it| is_tensor(it)).collect();
    let _names = Names(made.iter().filter_map(|it| Some(it["name"].as_str()?.to_owned())).collect());
    assert_eq!(made.len(), COUNT, "{:#}", report["segments"]);
    let by_name = mode.starts_with("fs-");
    // All segments of one line form one finding.
    let residue = json::list(report, "/findings").iter().filter(|finding| finding["id"] == "shm/residue");
    let counts: Vec<u64> = residue.map(|finding| json::count(finding, "/evidence/segments")).collect();
    assert_eq!(counts.iter().sum::<u64>(), if mode == "fs-killboth" { COUNT as u64 } else { 0 }, "{counts:?}");
    assert!(counts.len() <= 2, "{counts:?}");
    for segment in &made {
        assert_eq!((&segment["bytes"], &segment["kind"]), (&BYTES.into(), &"shm".into()), "{segment:#}");
        assert!(json::text(segment, "/name").starts_with(&format!("tensor_{}_", segment["creator_pid"])));
        // Segments made before the interpreter is found have native frames only.
        if json::list(segment, "/stack").iter().any(|frame| frame["kind"] == "python") {
            is_born_in(segment, "share", "fd_pass.py");
        }
        let creator = json::count(segment, "/creator_pid");
        let is_residue = mode == "fs-killboth";
        assert_eq!(segment["verdict"], if is_residue { "residue" } else { "released" }, "{segment:#}");
        assert_eq!(segment["evicted_s"].is_null(), is_residue, "{segment:#}");
        assert_eq!(path(json::text(segment, "/name")).exists(), is_residue);
        if !is_killed {
            assert_eq!(segment["unlinked_by"], creator, "{segment:#}");
        }
        if mode == "norecv" {
            assert_eq!((all_holders(segment), passes(segment)), (vec![creator], vec![]));
        }
    }
    if is_killed {
        // The receiver dies with the first segment, which it holds at that moment.
        let received: Vec<_> = made.iter().filter(|segment| all_holders(segment).len() == 2).collect();
        assert_eq!(received.len(), 1, "{made:#?}");
        assert_eq!(passes(received[0]).len(), usize::from(!by_name));
    }
    let known = printed.iter().find(|line| line["segments"].is_array());
    assert_eq!(known.is_some(), mode.ends_with("ok"));
    for known in known.iter().flat_map(|line| json::list(line, "/segments")) {
        as_the_program_says(report, known, by_name);
    }
}

fn is_tensor(segment: &Value) -> bool {
    segment["name"].as_str().is_some_and(|name| name.starts_with("tensor_"))
}

#[track_caller]
fn as_the_program_says(report: &Value, known: &Value, by_name: bool) {
    let (creator, receiver) = (json::count(known, "/creator"), json::count(known, "/receiver"));
    let segment = segment(report, json::text(known, "/name"));
    assert_eq!((&segment["bytes"], &segment["creator_pid"]), (&known["bytes"], &known["creator"]));
    assert_eq!(all_holders(segment), [creator.min(receiver), creator.max(receiver)], "{segment:#}");
    let expected = if by_name { vec![] } else { vec![(creator, receiver)] };
    assert_eq!(passes(segment), expected, "{segment:#}");
    // mmap.mmap() keeps a duplicate of the descriptor beside the mapping.
    let held = json::list(segment, "/past_holders").iter().find(|row| row["pid"] == receiver).unwrap();
    assert_eq!((json::count(held, "/fds"), json::count(held, "/mappings")), (2, 1), "{segment:#}");
}

fn hundreds(python: &Python) {
    let recording = run(python, &["ok", "4096", "500"]);
    let known = json::parse(recording.stdout.lines().last().unwrap());
    let known = json::list(&known, "/segments");
    assert_eq!(known.len(), 500);
    nothing_is_lost(&recording.report);
    assert_eq!(segments(&recording.report).iter().filter(|it| is_tensor(it)).count(), 500);
    for known in known {
        as_the_program_says(&recording.report, known, false);
    }
}

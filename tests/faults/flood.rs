//! Tests more load than pyobs can handle: its loop must keep its schedule, and programs that start meanwhile must be
//! sampled.

use pyobs_tests::{Case, Record, Recording, Workload, case, json, needs, rule, workload};

use crate::python;

/// How many programs switch between threads all the time. Two of them make 380,000 switches a second on two CPUs. Four
/// make 280,000, and under them Linux 6.18 left its own threads (RCU, writeback) without a CPU for minutes, even
/// without pyobs.
const FLOOD: usize = 2;
const SECONDS: f64 = 6.0;

pub fn cases() -> Vec<Case> {
    vec![
        case("flood/a_program_that_starts_in_a_flood_of_switches_is_seen", || {
            let flood = flood();
            let running = Record::new().seconds(SECONDS).start();
            let mut late = python().unwrap().script(workload("late.py"));
            late.arg("3");
            let late = Workload::start(late).wait();
            let spent: f64 = late.stdout.split_whitespace().last().unwrap().parse().unwrap();
            let recording = running.wait();
            drop(flood);
            keeps_its_times(&recording, SECONDS);
            let rows = json::list(&recording.report, "/frames").iter();
            let row =
                rows.filter(|row| row["frame"]["function"] == "late_marker").map(|row| json::number(row, "/total_s"));
            let seen: f64 = row.sum();
            assert!((seen - spent).abs() < 0.2 * spent + 0.1, "{seen} s of {spent} s: {:#}", recording.report["loss"]);
        })
        .needs(needs::root())
        .needs(python()),
        case("flood/a_slow_disk_does_not_block_the_loop", || {
            let rules = rule("delay", "fsync", 1500);
            let recording = Record::new().argument("--probe").argument("cpu").seconds(SECONDS).refusing(&rules).run();
            keeps_its_times(&recording, SECONDS);
        })
        .needs(needs::root())
        .needs(needs::program("cc")),
    ]
}

fn flood() -> Vec<Workload> {
    let start = |_| {
        let mut program = Workload::start(python().unwrap().script(workload("ping_pong.py")));
        program.wait_for("ready");
        program
    };
    (0..FLOOD).map(start).collect()
}

/// Asserts that the recording lasts as long as requested, and that its costs were accounted every second.
#[track_caller]
fn keeps_its_times(recording: &Recording, seconds: f64) {
    let long = json::number(&recording.report, "/recording/duration_s");
    assert!((seconds - 0.2..seconds + 1.0).contains(&long), "{long} s instead of {seconds} s");
    let file = rusqlite::Connection::open(&recording.file).unwrap();
    let mut costs = file.prepare("SELECT at_ns FROM costs ORDER BY at_ns").unwrap();
    let times: Vec<f64> =
        costs.query_map([], |row| row.get::<_, i64>(0)).unwrap().map(|at| at.unwrap() as f64 / 1e9).collect();
    let gap = times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
    assert!(gap < 2.0 && times.len() as f64 > seconds / 2.0, "costs accounted at {times:?}");
}

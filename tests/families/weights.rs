//! Tests that CPU seconds and shares are right, whatever is dropped, however short the recording, and whatever
//! coincides with the sampler's period.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::process::ExitCode;

use pyobs_tests::{Record, Recording, Workload, case, command, compare, json, needs, workload};

const MARKERS: [&str; 2] = ["first_marker", "second_marker"];
/// The functions of known_shares.py.
const BURNERS: [&str; 5] = ["burn_a", "burn_b", "burn_c", "native_sum", "native_sort"];
/// Shares must be right within this, or within what the number of samples allows.
const POINTS: f64 = 0.03;
/// By chance, one of 2000 such figures is further off.
const DEVIATIONS: f64 = 3.5;
/// Samples of a program in step with the ticks are not independent. Their shares deviate up to this many times as
/// much, as a unit test of the ticks shows. Sums of their weights do not.
const IN_STEP: f64 = 1.4;
/// So small a budget that most samples are dropped at the default rate.
const SCARCE: [&str; 2] = ["--budget", "0.1"];

fn main() -> ExitCode {
    let case = |name: &str, body: fn()| case(name, body).needs(needs::root()).needs(needs::python("3.12"));
    pyobs_tests::run(vec![
        case("a_busy_loop_is_one_cpu_in_short_recordings", || {
            for seconds in [0.5, 1.0, 2.0] {
                is_one_cpu(seconds);
            }
        }),
        case("two_phases_keep_their_shares_when_samples_are_dropped", || {
            let recording = record(&["phases", "16"], &SCARCE);
            let dropped = json::count(&recording.report["loss"], "/budget_shed");
            assert!(dropped > 0, "nothing was dropped: {:#}", recording.report["cost"]);
            shares_are_true(&recording);
        }),
        case("turns_at_the_samplers_rate_keep_their_shares", || {
            let recording = record(&["turns", "12", "99"], &["--budget", "50"]);
            shares_are_true_within(&recording, IN_STEP * DEVIATIONS);
        }),
        case("new_code_that_wakes_user_space_at_each_tick_adds_no_time", || {
            all_seconds_are_seen(&record(&["fresh", "16"], &["--probe", "cpu", "--rate", "20"]), 0.03);
        }),
        case("the_lowest_rate_takes_samples", || {
            all_seconds_are_seen(&record(&["fresh", "16"], &["--probe", "cpu", "--rate", "1"]), 0.15);
        }),
        case("bursts_at_50_hz_have_their_seconds", || shares_are_true(&record(&["bursts", "12", "50"], &[]))),
        case("bursts_at_50_hz_have_their_seconds_when_samples_are_dropped", || {
            shares_are_true(&record(&["bursts", "16", "50"], &SCARCE));
        }),
        case("bursts_at_the_rate_of_the_sampler_have_their_seconds_when_samples_are_dropped", || {
            shares_are_true(&record(&["bursts", "12", "99"], &SCARCE));
        }),
        case("kept_samples_are_chosen_at_random", chosen_at_random),
        case("known_shares_are_within_the_stated_error_when_samples_are_dropped", known_shares),
    ])
}

fn record(arguments: &[&str], flags: &[&str]) -> Recording {
    let mut command = needs::python("3.12").unwrap().script(workload("weights.py"));
    command.args(arguments);
    let recording = flags.iter().fold(Record::new(), |record, flag| record.argument(*flag)).command(command).run();
    assert!(recording.status.success(), "{}", recording.stderr);
    recording
}

/// Five functions in two threads, with a budget of a tenth of a percent of the machine, compared with the threads' CPU
/// clocks.
fn known_shares() {
    let mut command = needs::python("3.12").unwrap().script(workload("known_shares.py"));
    command.args(["30", "2"]);
    let recording = SCARCE.iter().fold(Record::new(), |record, flag| record.argument(*flag)).command(command).run();
    assert!(recording.status.success(), "{}", recording.stderr);
    let dropped = json::count(&recording.report["loss"], "/budget_shed");
    assert!(dropped > 0, "nothing was dropped: {:#}", recording.report["cost"]);
    let truth = json::parse(recording.stdout.lines().last().unwrap_or_default());
    let known = BURNERS.map(|burner| json::number(&truth, &format!("/cpu_s/{burner}")));
    // Each function burns on one line, so its time and error are those of one row.
    let seen = BURNERS.map(|burner| {
        let of_burner = |row: &&serde_json::Value| row["frame"]["function"] == burner;
        let rows: Vec<_> = json::list(&recording.report, "/frames").iter().filter(of_burner).collect();
        let [row] = rows[..] else { panic!("{burner} has {} rows", rows.len()) };
        ["/total_s", "/total_error_s"].map(|key| json::number(row, key))
    });
    let all_known: f64 = known.iter().sum();
    let all_seen: f64 = seen.iter().map(|[seconds, _]| seconds).sum();
    let samples = samples_of_equal_weights(&recording);
    println!(
        "  {all_seen:.2} s seen, {all_known:.2} s by the threads' clocks; {samples:.0} samples, {dropped} dropped"
    );
    for ((burner, known), [seconds, error]) in BURNERS.iter().zip(known).zip(seen) {
        let (share, truth, stated) = (seconds / all_seen, known / all_known, error / all_seen);
        println!("  {burner:12} {share:.3} ± {stated:.3}, used {truth:.3}");
        compare::close(&format!("share of {burner}"), share, truth, POINTS.max(DEVIATIONS * stated));
        // The stated error must not be inflated.
        let by_chance = (truth * (1.0 - truth) / samples).sqrt();
        assert!(stated < 2.0 * by_chance, "{burner}: ± {stated}, by chance {by_chance}");
    }
    compare::within("CPU seconds, seen and known", all_seen, all_known, POINTS.max(DEVIATIONS / samples.sqrt()));
}

/// Compares the gap before each sample of a busy loop with the CPU time that the sample stands for. Random dropping
/// gives the gaps a geometric distribution, with at most a quarter of them near the mean. A fixed stride puts all of
/// them there.
fn chosen_at_random() {
    let recording = record(&["fresh", "12"], &[&["--probe", "cpu"], &SCARCE[..]].concat());
    let database = rusqlite::Connection::open(&recording.file).unwrap();
    let mut statement = database.prepare("SELECT at_ns, weight_ns FROM samples ORDER BY at_ns").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let samples: Vec<(f64, f64)> = rows.collect::<Result<_, _>>().unwrap();
    let gaps = samples.windows(2).map(|pair| (pair[1].0 - pair[0].0, pair[1].1));
    let kept: Vec<f64> = gaps.filter(|(_, weight)| *weight > 1.5e9 / 99.0).map(|(gap, weight)| gap / weight).collect();
    compare::at_least("samples that stand for others", kept.len() as f64, 40.0);
    let average = kept.iter().filter(|gap| (0.75..1.25).contains(*gap)).count() as f64 / kept.len() as f64;
    println!("  {} samples, {average:.3} of the gaps are near the average", kept.len());
    assert!(average < 0.5, "{kept:.2?}");
}

/// Compares each marker's CPU seconds and share with what the program measured by its thread's clock.
fn shares_are_true(recording: &Recording) {
    shares_are_true_within(recording, DEVIATIONS);
}

/// The error allowed for a share is this many standard deviations of independent samples.
fn shares_are_true_within(recording: &Recording, deviations: f64) {
    let truth = json::parse(recording.stdout.lines().last().unwrap_or_default());
    let known = MARKERS.map(|marker| json::number(&truth, &format!("/{marker}")));
    let rows = |marker: &str| {
        let rows =
            json::list(&recording.report, "/frames").iter().filter(move |row| row["frame"]["function"] == marker);
        // A function has a row for each of its lines; a stack contributes to one of them.
        rows.map(|row| json::number(row, "/total_s")).sum::<f64>()
    };
    let seen = MARKERS.map(rows);
    let (all_known, all_seen): (f64, f64) = (known.iter().sum(), seen.iter().sum());
    let samples = samples_of_equal_weights(recording);
    println!("  {seen:?}, by the program's clock {known:?}; {samples:.0} samples");
    for ((marker, known), seconds) in MARKERS.iter().zip(known).zip(seen) {
        let (share, truth) = (seconds / all_seen, known / all_known);
        let deviation = (truth * (1.0 - truth) / samples).sqrt();
        compare::close(&format!("share of {marker}"), share, truth, POINTS.max(deviations * deviation));
    }
    // The relative error of a sum of this many samples.
    let error = DEVIATIONS / samples.sqrt();
    compare::within("CPU seconds, seen and known", all_seen, all_known, POINTS.max(error));
}

/// How many samples of equal weight would have the same variance (Kish's effective sample size).
fn samples_of_equal_weights(recording: &Recording) -> f64 {
    let database = rusqlite::Connection::open(&recording.file).unwrap();
    let weight = "SELECT sum(w) * sum(w) / sum(w * w) FROM (SELECT weight_ns / 1e9 AS w FROM samples)";
    database.query_row(weight, [], |row| row.get(0)).unwrap()
}

/// For a program that never sleeps: its ticks are evenly spaced, so they measure much better than random samples.
fn all_seconds_are_seen(recording: &Recording, error: f64) {
    let truth = json::parse(recording.stdout.lines().last().unwrap_or_default());
    let seen = json::number(&recording.report, "/processes/0/cpu_s");
    compare::within("CPU seconds, seen and known", seen, json::number(&truth, "/all"), error);
}

/// Compares with the scheduler's account of the process around the recording.
fn is_one_cpu(seconds: f64) {
    let spin = needs::python("3.12").unwrap().inline("print('ready', flush=True)\nwhile True: pass");
    // The highest priority, so that the program comes first in the queue for a CPU.
    let mut first = command("nice");
    first.args(["-n", "-20"]).arg(spin.get_program()).args(spin.get_args());
    let mut program = Workload::start(first);
    program.wait_for("ready");
    let account = || {
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", program.pid())).unwrap();
        let ran: f64 = text.split_whitespace().next().unwrap().parse().unwrap();
        (ran / 1e9, std::time::Instant::now())
    };
    let running = Record::new().pid(program.pid()).seconds(seconds).argument("--budget").argument("50").start();
    let before = account();
    let recording = running.wait();
    let after = account();
    let ran = (after.0 - before.0) / after.1.duration_since(before.1).as_secs_f64();
    let long = json::number(&recording.report, "/recording/duration_s");
    compare::close("length of the recording", long, seconds, 0.05);
    let busy = json::number(&recording.report, "/processes/0/cpu_s") / long;
    println!("  {busy:.3} CPUs in {long:.3} s; by the scheduler's account {ran:.3}");
    // Other programs use the CPU at other times; a tick is 10 ms.
    compare::close("CPUs", busy, ran, 0.03 + 0.01 / seconds);
}

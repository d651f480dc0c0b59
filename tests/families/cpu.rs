//! Tests the family `cpu`: the profile must be accurate, complete, and the same for every observer.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::collections::BTreeMap;
use std::env;
use std::process::{Command, ExitCode};

use rusqlite::Connection;

use pyobs_tests::{Case, Record, Recording, Stack, Workload, case, command, compare, json, needs, workload};

fn main() -> ExitCode {
    let mut cases = vec![
        truth("3.12", 1, 10),
        truth("3.12", 4, 10),
        deep_stacks_are_complete(),
        samples_record_their_cpu(),
        debug_builds_are_read_like_others(),
        too_deep_stacks_keep_the_leaf_and_are_counted(),
        two_recordings_at_once_agree(),
        a_rate_is_samples_per_second_of_cpu(),
        an_idle_process_has_no_samples(),
        other_costs_do_not_shed_samples(),
        load_above_the_budget_is_shed_until_it_ends(),
    ];
    for version in ["3.8", "3.10", "3.11", "3.12", "3.13"] {
        for threads in [1, 4] {
            cases.push(truth(version, threads, 20).needs(needs::all()));
        }
    }
    pyobs_tests::run(cases)
}

const BURNERS: [&str; 5] = ["burn_a", "burn_b", "burn_c", "native_sum", "native_sort"];
const RATE: u32 = 999;

fn truth(version: &'static str, threads: u32, seconds: u32) -> Case {
    let body = move || {
        let mut command = needs::python(version).unwrap().script(workload("known_shares.py"));
        command.args([seconds.to_string(), threads.to_string()]);
        let recording = samples_of(command);
        assert!(recording.status.success(), "{}", recording.stderr);
        shares_are_true(&recording, seconds);
    };
    let plural = if threads == 1 { "" } else { "s" };
    case(format!("shares_are_true_on_{version}_with_{threads}_thread{plural}_for_{seconds}_s"), body)
        .needs(needs::root())
        .needs(needs::python(version))
}

/// The interpreters in PYOBS_TEST_INTERPRETERS (paths, separated by colons) are usually builds that no distribution
/// installs, such as those with `--with-pydebug --with-trace-refs`.
fn debug_builds_are_read_like_others() -> Case {
    let paths = || env::var_os("PYOBS_TEST_INTERPRETERS").iter().flat_map(env::split_paths).collect::<Vec<_>>();
    let body = move || {
        for path in paths() {
            eprintln!("  {}", path.display());
            let mut command = command(&path);
            command.arg("-B").arg(workload("known_shares.py")).args(["10", "1"]);
            let recording = samples_of(command);
            assert!(recording.status.success(), "{}", recording.stderr);
            shares_are_true(&recording, 10);
        }
    };
    let named = move || if paths().is_empty() { Err("PYOBS_TEST_INTERPRETERS names none".to_owned()) } else { Ok(()) };
    case("debug_builds_are_read_like_others", body).needs(needs::root()).needs(named())
}

/// Compares shares with the ones that the program measured by the threads' CPU clocks.
fn shares_are_true(recording: &Recording, seconds: u32) {
    let truth = json::parse(recording.stdout.lines().last().unwrap_or_default());
    let known: BTreeMap<&str, f64> =
        BURNERS.iter().map(|burner| (*burner, json::number(&truth, &format!("/cpu_s/{burner}")))).collect();
    let all_known: f64 = known.values().sum();
    let stacks = recording.stacks();
    // A sample belongs to the outermost burner of its stack.
    let of =
        |stack: &Stack| stack.frames.iter().find_map(|frame| BURNERS.iter().position(|name| *name == frame.function));
    let samples =
        |burner: usize| stacks.iter().filter(|stack| of(stack) == Some(burner)).map(|stack| stack.samples).sum();
    let sampled: Vec<u64> = (0..BURNERS.len()).map(samples).collect();
    let all_sampled: u64 = sampled.iter().sum();
    for (burner, samples) in BURNERS.iter().zip(&sampled) {
        let (known, sampled) = (known[burner] / all_known * 100.0, *samples as f64 / all_sampled as f64 * 100.0);
        eprintln!("  {burner:12} used {known:6.2} %, has {sampled:6.2} % of {all_sampled} samples");
        compare::close(&format!("share of {burner} in percent, known and sampled"), known, sampled, 1.0);
    }
    compare::within("CPU seconds, known and sampled", all_known, all_sampled as f64 / f64::from(RATE), 0.1);
    // 99.5 % of 20 s. Samples from the start are missing, because that code is freed before pyobs can read its name.
    is_complete(recording, 1.0 - 0.005 * 20.0 / f64::from(seconds));
}

/// Records without sleeps, so that every loss is a loss of samples.
fn samples_of(command: Command) -> Recording {
    Record::new().rate(RATE).argument("--probe").argument("cpu").command(command).run()
}

/// Losses of names. One stack may have several; it still exists, but is not counted as complete.
const OF_NAMES: [&str; 6] =
    ["code_changed", "code_invalid", "code_unreadable", "name_invalid", "line_unknown", "process_gone"];

/// Asserts that this share of all samples is complete. A lost sample counts as incomplete.
fn is_complete(recording: &Recording, least: f64) {
    let loss = recording.report["loss"].as_object().unwrap();
    let samples_lost = loss.iter().filter(|(reason, _)| !OF_NAMES.contains(&reason.as_str()));
    let lost: u64 = samples_lost.filter_map(|(_, count)| count.as_u64()).sum();
    let samples = json::count(&recording.report, "/stacks/samples") + lost;
    let complete = json::count(&recording.report, "/stacks/complete");
    eprintln!("  {complete} of {samples} are complete; {} {}", recording.report["stacks"], recording.report["loss"]);
    compare::at_least("share of samples that are complete", complete as f64 / samples as f64, least);
    let database = Connection::open(&recording.file).unwrap();
    let without: i64 = database.query_row(NONE_IN_BETWEEN, [], |row| row.get(0)).unwrap();
    compare::at_least("share of samples with Python frames", 1.0 - without as f64 / samples as f64, 0.995);
}

/// Counts samples without Python frames between a thread's first and last complete one: these programs never leave
/// Python.
const NONE_IN_BETWEEN: &str = "\
SELECT count(*) FROM samples JOIN outcomes ON outcomes.id = samples.outcome JOIN (
    SELECT process, tid, min(at_ns) AS first, max(at_ns) AS last
    FROM samples JOIN outcomes ON outcomes.id = samples.outcome WHERE name = 'complete' GROUP BY process, tid
) AS lives ON lives.process = samples.process AND lives.tid = samples.tid
WHERE at_ns BETWEEN first AND last AND name = 'no_python'";

/// Runs two programs, each bound to one CPU.
fn samples_record_their_cpu() -> Case {
    let body = || {
        let burn = needs::python("3.12").unwrap().script(workload("burn.py"));
        let bound = |cpu: &str| {
            let mut taskset = command("taskset");
            taskset.args(["-c", cpu]).arg(burn.get_program()).args(burn.get_args()).args(["bound", "60"]);
            let mut program = Workload::start(taskset);
            program.wait_for("ready");
            program
        };
        let programs = [("0", bound("0")), ("1", bound("1"))];
        let recording = Record::new().rate(RATE).argument("--probe").argument("cpu").seconds(2.0).run();
        let database = Connection::open(&recording.file).unwrap();
        let query = "SELECT count(*), count(*) FILTER (WHERE cpu = ?2) FROM samples JOIN processes \
                     ON processes.id = samples.process WHERE pid = ?1";
        for (cpu, program) in programs {
            let counts = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
            let (all, there): (i64, i64) = database.query_row(query, (program.pid(), cpu), counts).unwrap();
            program.kill();
            assert!(there == all && all > 100, "{there} of {all} samples are of CPU {cpu}");
        }
    };
    let two = std::thread::available_parallelism().map_err(|error| error.to_string());
    let two = two.and_then(|cpus| if cpus.get() > 1 { Ok(()) } else { Err("there is one CPU".to_owned()) });
    let case = case("samples_record_their_cpu", body).needs(needs::root()).needs(two);
    case.needs(needs::python("3.12")).needs(needs::program("taskset"))
}

/// Records a program that recurses to this depth and then burns CPU time in a C function.
fn recursion(depth: u32) -> Recording {
    let mut command = needs::python("3.12").unwrap().script(workload("deep.py"));
    command.arg(depth.to_string());
    samples_of(command)
}

/// The stack with the most samples: the one in the C function, because nothing else takes time.
fn heaviest(recording: &Recording) -> Stack {
    recording.stacks().into_iter().max_by_key(|stack| stack.samples).expect("no stack was sampled")
}

fn deep_stacks_are_complete() -> Case {
    let body = || {
        let recording = recursion(500);
        let stack = heaviest(&recording);
        let python = stack.python();
        let functions: Vec<&str> = python.iter().map(|frame| frame.0).collect();
        assert_eq!(functions.len(), 503, "module, main, recurse 500 times, bottom; got {functions:?}");
        assert_eq!(functions[..2], ["<module>", "main"]);
        assert!(functions[2..502].iter().all(|function| *function == "recurse"), "{functions:?}");
        assert_eq!(functions[502], "bottom");
        assert_eq!(json::count(&recording.report, "/stacks/truncated"), 0);
        is_complete(&recording, 0.9);
    };
    case("stacks_of_500_frames_are_complete", body).needs(needs::root()).needs(needs::python("3.12"))
}

fn too_deep_stacks_keep_the_leaf_and_are_counted() -> Case {
    let body = || {
        let recording = recursion(2000);
        let stack = heaviest(&recording);
        let python = stack.python();
        assert_eq!(python.last().unwrap().0, "bottom", "{python:?}");
        assert!((500..2003).contains(&python.len()), "{} frames", python.len());
        assert!(python[..python.len() - 1].iter().all(|frame| frame.0 == "recurse"), "{python:?}");
        // The shares are compared, because an export sums the samples' weights while the report counts samples.
        let all: u64 = recording.stacks().iter().map(|stack| stack.samples).sum();
        let count = |pointer| json::number(&recording.report, pointer);
        let truncated = count("/stacks/truncated") / count("/stacks/samples");
        let least = stack.samples as f64 / all as f64 * 0.97;
        compare::at_least("share of stacks that are counted as truncated", truncated, least);
    };
    case("stacks_of_2000_frames_keep_the_leaf_and_are_counted_as_truncated", body)
        .needs(needs::root())
        .needs(needs::python("3.12"))
}

fn samples_in(recording: &Recording, pid: u32, function: &str) -> f64 {
    let stacks = recording.stacks_of(pid);
    stacks.iter().filter(|stack| stack.has(function)).map(|stack| stack.samples).sum::<u64>() as f64
}

/// One recording covers the machine and one the program; both must see everything that the program does.
fn two_recordings_at_once_agree() -> Case {
    let body = || {
        let mut command = needs::python("3.12").unwrap().script(workload("many.py"));
        command.args(["1", "3"]);
        let mut parent = Workload::start(command);
        parent.wait_for("ready");
        let (first, second) = (Record::new().rate(RATE).start(), Record::new().rate(RATE).pid(parent.pid()).start());
        parent.signal(libc::SIGUSR1);
        let truth = json::parse(parent.wait().stdout.lines().last().unwrap());
        let (first, second) = (first.stop(), second.wait());
        let pid = u32::try_from(json::count(&truth, "/children/0/pid")).unwrap();
        let [first, second] = [first, second].map(|recording| samples_in(&recording, pid, "many_000"));
        compare::within("samples of two pyobs", first, second, 0.1);
        compare::within("CPU seconds, known and sampled", 3.0, first / f64::from(RATE), 0.15);
    };
    case("two_recordings_at_once_agree", body).needs(needs::root()).needs(needs::python("3.12"))
}

fn a_rate_is_samples_per_second_of_cpu() -> Case {
    let body = || {
        let mut command = needs::python("3.12").unwrap().script(workload("burn.py"));
        command.args(["counted", "3"]);
        let recording = Record::new().rate(250).command(command).run();
        let cpu_s = json::number(&json::parse(recording.stdout.lines().last().unwrap()), "/cpu_s");
        let pid = recording.report["processes"][0]["pid"].as_u64().unwrap();
        let sampled = samples_in(&recording, u32::try_from(pid).unwrap(), "counted") / 250.0;
        compare::within("CPU seconds, known and sampled", cpu_s, sampled, 0.1);
    };
    case("a_rate_is_samples_per_second_of_cpu", body).needs(needs::root()).needs(needs::python("3.12"))
}

/// A program that makes segments as fast as it can makes pyobs exceed its budget, whatever happens to the samples. The
/// report of all these segments must still fit in the machine's memory.
fn other_costs_do_not_shed_samples() -> Case {
    let body = || {
        let script = "import mmap, time\nend = time.monotonic() + 60\n\
                      while time.monotonic() < end: mmap.mmap(-1, 4096).close()";
        let recording = Record::new().command(needs::python("3.12").unwrap().inline(script)).run();
        let kernel_s = json::number(&recording.report, "/cost/bpf_s");
        let budget_s = 0.6 * std::thread::available_parallelism().unwrap().get() as f64;
        compare::at_least("seconds in the kernel, beyond the budget of all of pyobs", kernel_s, budget_s);
        let database = Connection::open(&recording.file).unwrap();
        let late = "SELECT count(*) FROM samples WHERE at_ns > 40000000000";
        let late: u32 = database.query_row(late, [], |row| row.get(0)).unwrap();
        // The rate may drop to an eighth for a while.
        compare::at_least("samples of the last 20 s", f64::from(late), 20.0 * 99.0 / 8.0);
        let segments = recording.report["segments"].as_array().unwrap().len();
        let forgotten = recording.report["loss"]["past_forgotten"].as_u64().unwrap_or_default();
        eprintln!("  {segments} segments, {forgotten} forgotten, {kernel_s:.2} s in the kernel, {late} samples");
        assert!(segments <= 65_536);
    };
    case("other_costs_do_not_shed_samples", body).needs(needs::root()).needs(needs::python("3.12")).needs(needs::all())
}

/// Burns CPU time, which exceeds the budget at a high rate, and then sleeps.
const NOISY: &str = "\
import time
def deep(depth, until):
    if depth: return deep(depth - 1, until)
    while time.monotonic() < until: pass
deep(60, time.monotonic() + 8)
time.sleep(20)
";

fn load_above_the_budget_is_shed_until_it_ends() -> Case {
    let body = || {
        let record = Record::new().argument("--probe").argument("cpu").rate(20_000).argument("--budget").argument("3");
        let recording = record.command(needs::python("3.12").unwrap().inline(NOISY)).run();
        let shed = json::list(&recording.report, "/shed");
        assert!(!shed.is_empty(), "{}", recording.report["cost"]);
        for measure in shed {
            assert_eq!(measure["family"], "cpu", "{shed:?}");
            let (from, to) = (measure["from_s"].as_f64().unwrap(), measure["to_s"].as_f64());
            assert!(to.is_some_and(|to| to > from), "the measure was not lifted: {shed:?}");
        }
        assert!(!json::list(&recording.report, "/cost/shed").is_empty());
    };
    case("load_above_the_budget_is_shed_until_it_ends", body)
        .needs(needs::root())
        .needs(needs::python("3.12"))
        .needs(needs::all())
}

fn an_idle_process_has_no_samples() -> Case {
    let body = || {
        let mut command = needs::python("3.12").unwrap().inline("import time; print('ready'); time.sleep(60)");
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        let mut idle = Workload::start(command);
        idle.wait_for("ready");
        let recording = Record::new().rate(RATE).pid(idle.pid()).seconds(1.0).run();
        assert_eq!(json::count(&recording.report, "/stacks/samples"), 0, "{:#}", recording.report["frames"]);
        assert_eq!(recording.report["frames"], serde_json::json!([]));
        assert_eq!(recording.process(idle.pid())["samples"], 0);
    };
    case("an_idle_process_has_no_samples", body).needs(needs::root()).needs(needs::python("3.12"))
}

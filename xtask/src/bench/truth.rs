//! Measures whether the profile is right: compares a program that knows its own shares with the samples.

use std::{collections::BTreeMap, process::Command};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    Setting,
    record::{Recorded, folded, number, record, shown},
    table::Table,
    workload,
};
use crate::process::{output, progress};

const VERSIONS: [&str; 5] = ["3.8", "3.10", "3.11", "3.12", "3.13"];
const THREADS: [&str; 2] = ["1", "4"];
const SECONDS: &str = "20";
const BURNERS: [&str; 5] = ["burn_a", "burn_b", "burn_c", "native_sum", "native_sort"];

type Shares = BTreeMap<&'static str, f64>;

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "Truth at 999 Hz",
        "`tests/workloads/known_shares.py` measures by the thread's CPU clock the share that each of its five functions\n\
         used. The table has the largest difference between a function's share and its share of the samples, in\n\
         percentage points.",
        &["CPython", "threads", "samples", "worst difference (pp)", "of", "complete stacks (%)"],
    );
    let (mut worst, mut least_complete) = (0.0_f64, 100.0_f64);
    for version in VERSIONS {
        for threads in THREADS {
            progress(format!("truth: CPython {version} with {threads} thread(s), {SECONDS} s"));
            let (error, complete) = measure(setting, version, threads, &mut table)?;
            worst = worst.max(error);
            least_complete = least_complete.min(complete);
        }
    }
    table.at_most("worst difference of a share (percentage points)", worst, 1.0);
    table.at_least("complete Python stacks (%)", least_complete, 99.5);
    Ok(table)
}

fn measure(setting: &Setting, version: &str, threads: &str, table: &mut Table) -> Result<(f64, f64)> {
    let python = setting.python(version)?;
    let exact = output(Command::new(python).args(["-c", "import platform; print(platform.python_version())"]))?;
    let script = workload("known_shares.py");
    let mut args: Vec<String> = ["--rate", "999", "--"].map(str::to_owned).into();
    args.extend([python.display().to_string(), script.display().to_string(), SECONDS.to_owned(), threads.to_owned()]);
    let recorded = record(setting, "truth", &args)?;

    let truth = known(&recorded.stdout)?;
    let seen = sampled(&folded(&recorded)?);
    let (burner, error) = worst_difference(&truth, &seen);
    let complete = complete(&recorded)?;
    let samples = number(&recorded.report, "/stacks/samples")?;
    let cells = vec![
        exact.trim().to_owned(),
        threads.to_owned(),
        format!("{samples:.0}"),
        format!("{error:.2}"),
        burner.to_owned(),
        format!("{complete:.2}"),
    ];
    table.row(cells, &shown(&args));
    Ok((error, complete))
}

fn complete(recorded: &Recorded) -> Result<f64> {
    let samples = number(&recorded.report, "/stacks/samples")?;
    Ok(number(&recorded.report, "/stacks/complete")? / samples.max(1.0) * 100.0)
}

/// The shares that the program prints in its last line.
fn known(stdout: &str) -> Result<Shares> {
    let line = stdout.lines().last().unwrap_or_default();
    let value: Value =
        serde_json::from_str(line).with_context(|| format!("known_shares.py printed {line:?}, not JSON"))?;
    Ok(normalized(|burner| value.pointer(&format!("/cpu_s/{burner}")).and_then(Value::as_f64).unwrap_or(0.0)))
}

/// A sample belongs to the outermost burner of its stack.
fn sampled(stacks: &[(Vec<String>, f64)]) -> Shares {
    let burner_of = |frames: &[String]| frames.iter().find_map(|frame| burner_named(frame));
    normalized(|burner| {
        stacks.iter().filter(|(frames, _)| burner_of(frames) == Some(burner)).map(|(_, samples)| samples).sum()
    })
}

/// Frames look like `function (file.py)`.
fn burner_named(frame: &str) -> Option<&'static str> {
    let function = frame.split(" (").next()?;
    BURNERS.into_iter().find(|burner| *burner == function)
}

fn normalized(amount: impl Fn(&'static str) -> f64) -> Shares {
    let amounts = BURNERS.map(|burner| (burner, amount(burner)));
    let total: f64 = amounts.iter().map(|(_, amount)| amount).sum();
    amounts.into_iter().map(|(burner, amount)| (burner, amount / total.max(f64::MIN_POSITIVE))).collect()
}

/// The worst difference, in percentage points.
fn worst_difference(truth: &Shares, seen: &Shares) -> (&'static str, f64) {
    let differences = BURNERS.map(|burner| (burner, (truth[burner] - seen[burner]).abs() * 100.0));
    differences.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("", 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_compared_in_percentage_points() {
        let truth = known("noise\n{\"cpu_s\": {\"burn_a\": 3.0, \"burn_b\": 1.0}, \"threads\": 1}").unwrap();
        let frames = |names: &[&str]| names.iter().map(|name| format!("{name} (known_shares.py)")).collect::<Vec<_>>();
        let stacks = [
            (frames(&["worker", "burn_a", "spin"]), 70.0),
            (frames(&["worker", "burn_b", "burn_b_inner", "spin"]), 30.0),
            (frames(&["worker", "choice"]), 500.0),
        ];
        let (_, error) = worst_difference(&truth, &sampled(&stacks));
        assert!((error - 5.0).abs() < 1e-9, "{error}");
    }

    #[test]
    fn no_samples_are_wrong_but_do_not_crash() {
        let truth = known("{\"cpu_s\": {\"burn_a\": 3.0}}").unwrap();
        assert_eq!(worst_difference(&truth, &sampled(&[])), ("burn_a", 100.0));
    }
}

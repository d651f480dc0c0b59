//! Reports which families work under which kernel, and what its verifier processes.

use std::{collections::BTreeMap, fs};

use anyhow::Result;
use serde_json::Value;

use super::{Setting, table::Table};
use crate::{
    errors::lacking,
    kernels::{self, Outcome, checks},
};

const COLUMNS: [&str; checks::ALL.len() + 3] = {
    let mut columns = ["kernel"; checks::ALL.len() + 3];
    let mut at = 0;
    while at < checks::ALL.len() {
        columns[at + 1] = checks::ALL[at];
        at += 1;
    }
    columns[at + 1] = "accelerator";
    columns[at + 2] = "time (s)";
    columns
};

pub(super) fn run(_: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "Kernels",
        "Debian's kernels under QEMU, with the real pyobs on CPython 3.8, 3.10, 3.12 and 3.13: the default record, each family\n\
         alone, what is left after a `kill -9`, whether `pyobs doctor` says what then happens, what the kernel logs, and settings that\n\
         confine pyobs. A family works if it reports what programs know about themselves (tests/kernels/guest/checks);\n\
         otherwise it only loads.",
        &COLUMNS,
    );
    let outcomes = kernels::check(&kernels::of_tests(true)?)?;
    let mut whole = 0;
    for outcome in &outcomes {
        let words = checks::ALL.map(|family| kernels::word(outcome, family).to_owned());
        let package = outcome.package.as_deref().unwrap_or_default();
        let release = package.trim_start_matches("linux-image-").trim_start_matches("linux-binary-");
        let mut cells = vec![release.trim_end_matches("-cloud-amd64").to_owned()];
        cells.extend(words);
        cells.push(outcome.accelerator.to_owned());
        cells.push(format!("{:.0}", outcome.seconds));
        table.row(cells, &format!("cargo xtask kernels {}", outcome.kernel));
        whole += u32::from(outcome.is_as_expected());
    }
    for reason in outcomes.iter().flat_map(remarks) {
        table.remark(reason);
    }
    table.at_least("kernels where all is as it should be", f64::from(whole), outcomes.len() as f64);
    Ok(table)
}

fn remarks(outcome: &Outcome) -> Vec<String> {
    kernels::reasons(outcome).into_iter().map(|reason| format!("{}: {reason}", outcome.kernel)).collect()
}

/// From the third on, the columns are kernels, as tests/kernels/kernels.toml names them.
const VERIFIER_COLUMNS: [&str; 8] = ["program", "families", "6.1", "6.12", "6.16", "6.18", "7.0", "newest"];
/// The verifier gives up on a program after this many instructions (BPF_COMPLEXITY_LIMIT_INSNS).
const INSTRUCTIONS_MAX: f64 = 1e6;

/// How many programs the page lists.
const LARGEST: usize = 6;

/// Uses the results of the guests that ran last.
pub(super) fn verifier(_: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "Verifier",
        "Instructions that the verifier of each kernel processed until it accepted a program, by `pyobs doctor --json`\n\
         in the guests of the previous table, for the largest programs of the newest kernel. A program that is `refused`\n\
         needs something that the kernel lacks, and pyobs does without it.",
        &VERIFIER_COLUMNS,
    )
    .with_raw(&VERIFIER_COLUMNS);
    let kernels = &VERIFIER_COLUMNS[2..];
    let (mut programs, mut most) = (BTreeMap::new(), 0.0_f64);
    for (column, kernel) in kernels.iter().enumerate() {
        for program in programs_of(kernel) {
            let text = |key: &str| program.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            let families = program.get("families").and_then(Value::as_array).map_or(0, Vec::len);
            let instructions = program.get("instructions").and_then(Value::as_u64);
            let (_, cells) =
                programs.entry(text("name")).or_insert_with(|| (families, vec![String::new(); kernels.len()]));
            cells[column] = instructions.map_or_else(|| "refused".to_owned(), |count| count.to_string());
            most = most.max(instructions.unwrap_or_default() as f64);
        }
    }
    if programs.is_empty() {
        return Err(lacking("no guest has left results of doctor; run `cargo xtask bench kernels` first"));
    }
    let largest = |(_, (_, counts)): &(String, (usize, Vec<String>))| {
        std::cmp::Reverse(counts.last().and_then(|count| count.parse::<u64>().ok()))
    };
    let mut programs: Vec<_> = programs.into_iter().collect();
    programs.sort_by_key(largest);
    for (place, (name, (families, counts))) in programs.into_iter().enumerate() {
        let cells = [vec![name, families.to_string()], counts].concat();
        if place < LARGEST {
            table.row(cells.clone(), "cargo xtask kernels");
        }
        table.raw_row(cells, "cargo xtask kernels");
    }
    table.at_most(
        "share of the verifier's limit that the largest program takes (%)",
        100.0 * most / INSTRUCTIONS_MAX,
        60.0,
    );
    Ok(table)
}

fn programs_of(kernel: &str) -> Vec<Value> {
    let text = fs::read_to_string(kernels::results().join(format!("{kernel}.json"))).unwrap_or_default();
    let outcome: Value = serde_json::from_str(&text).unwrap_or_default();
    outcome.pointer("/doctor/programs").and_then(Value::as_array).cloned().unwrap_or_default()
}

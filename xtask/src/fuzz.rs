//! `cargo xtask fuzz`: looks for inputs that break the decoders of foreign bytes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{
    errors::usage,
    process::{cargo, progress, run as run_command},
    repo, setup,
};

const SECONDS: u64 = 600;
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// The compiler records for libFuzzer which edges of the code an input takes, and adds AddressSanitizer.
const FLAGS: [&str; 6] = [
    "-Zsanitizer=address",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];
/// How many files of this machine become inputs, and their largest size.
const SAMPLES: usize = 24;
const SAMPLE_MAX: u64 = 64 << 10;
/// Targets whose inputs may be whole ELF files.
const OF_FILES: [&str; 2] = ["elf", "unwind"];

pub(crate) fn run(args: &[String]) -> Result<()> {
    let (wanted, seconds) = match args {
        [] => (None, SECONDS),
        [one] => one.parse().map_or((Some(one), SECONDS), |seconds| (None, seconds)),
        [target, seconds] => match seconds.parse() {
            Ok(seconds) => (Some(target), seconds),
            Err(_) => return usage(format!("{seconds:?} is not a number of seconds")),
        },
        _ => return usage("`cargo xtask fuzz` takes [TARGET] [SECONDS]"),
    };
    let names = targets()?;
    let chosen: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| wanted.is_none_or(|wanted| wanted == name)).collect();
    if chosen.is_empty() {
        return usage(format!(
            "unknown target {:?}; expected one of: {}",
            wanted.map(String::as_str).unwrap_or_default(),
            names.join(", ")
        ));
    }
    setup::ensure()?;
    let fuzzer = build()?;
    let mut broken = Vec::new();
    for name in chosen {
        progress(format!("fuzz {name} for {seconds} s"));
        if let Err(error) = fuzz(&fuzzer, name, seconds) {
            progress(format!("fuzz {name}: {error:#}"));
            broken.push(name);
        }
    }
    if !broken.is_empty() {
        bail!("inputs were found that break {}; they lie in tests/fuzz/corpus", broken.join(", "));
    }
    Ok(())
}

fn corpus() -> PathBuf {
    repo::root().join("tests/fuzz/corpus")
}

/// The targets' names: each has a folder of inputs.
fn targets() -> Result<Vec<String>> {
    let folders = fs::read_dir(corpus()).with_context(|| format!("cannot read {}", corpus().display()))?;
    let mut names: Vec<String> = folders.flatten().filter_map(|folder| folder.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

fn build() -> Result<PathBuf> {
    let target = repo::target().join("fuzz/build");
    let flags = FLAGS.map(|flag| format!("{flag:?}")).join(", ");
    let mut command = cargo();
    command.args(["build", "--release", "--manifest-path", "tests/fuzz/Cargo.toml", "--target", TRIPLE]);
    command.arg("--target-dir").arg(&target).arg("--config").arg(format!("target.{TRIPLE}.rustflags = [{flags}]"));
    // Stable compilers allow the sanitizer only with this.
    run_command(command.env("RUSTC_BOOTSTRAP", "1"))?;
    Ok(target.join(TRIPLE).join("release/pyobs-fuzz"))
}

fn fuzz(fuzzer: &Path, name: &str, seconds: u64) -> Result<()> {
    let own = corpus().join(name);
    let found = repo::target().join("fuzz/corpus").join(name);
    for folder in [&own, &found] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    if OF_FILES.contains(&name) {
        seed(&found)?;
    }
    let mut command = Command::new(fuzzer);
    command.env("PYOBS_FUZZ_TARGET", name).arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-artifact_prefix={}/", own.display()));
    command.args(["-timeout=10", "-rss_limit_mb=1024", "-print_final_stats=1", "-verbosity=0", "-max_len=65536"]);
    run_command(command.args([&found, &own]))
}

/// Adds small libraries of this machine to the inputs.
fn seed(folder: &Path) -> Result<()> {
    let libraries = fs::read_dir("/lib/x86_64-linux-gnu").into_iter().flatten().flatten();
    let mut small: Vec<PathBuf> = libraries
        .filter(|entry| entry.metadata().is_ok_and(|file| file.is_file() && file.len() <= SAMPLE_MAX))
        .map(|entry| entry.path())
        .collect();
    small.sort();
    for library in small.iter().take(SAMPLES) {
        let name = library.file_name().unwrap_or_default();
        fs::copy(library, folder.join(name)).with_context(|| library.display().to_string())?;
    }
    Ok(())
}

//! Compares the static binary with the same program linked to this machine's C library.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};

use super::{
    Setting, first_screen,
    record::{Program, record, shown, watch},
    table::{Table, median},
};
use crate::{
    build,
    process::{cargo, run as run_command},
    repo,
};

const NOTE: &str = "\
`cargo xtask build` links glibc into the binary (static-pie). It is compared with the same program linked to the shared glibc,\n\
as `cargo build --release` makes it. The two take turns; the last figure is the median of the pairs' ratios. The recording has\n\
some 20,000 samples of 30 frames in nearly as many stacks, so that `report` and `export` allocate a lot. Peak RSS includes the\n\
pages of shared libraries.\n\
\n\
musl was the alternative (2026-11-25, three binaries in turns on the same machine, without the call of `mallopt`, which\n\
is glibc's; musl : dynamic): `report` 1.36, `export --format firefox` 1.33, `doctor` 1.00, first screen 1.03, `--version`\n\
0.48 (0.8 ms), peak RSS 0.94, size 22.6 MiB. Its allocator makes the verbs over a recording a third slower, and SQLite needs\n\
`musl-gcc` beside the C compiler. Static glibc is as fast as shared glibc and needs no second toolchain.\n";

const MIB: f64 = 1024.0 * 1024.0;
/// A word on the first screen, which ends the run. Only the time of the first screen is used.
const TAB: &str = "Frames";
/// The number of pairs for verbs that take milliseconds, for verbs that read a recording, and for those that take
/// seconds.
const PAIRS: [usize; 3] = [101, 15, 7];

/// Calls that take another path each time, so that nearly every sample has a stack of its own.
const PROGRAM: &str = "\
import random
for number in range(300):
    exec(f'def f{number}(depth):\\n if depth: return random.choice(ALL)(depth - 1)\\n return sum(range(2000))')
ALL = [globals()[f'f{number}'] for number in range(300)]
while True: random.choice(ALL)(28)
";
const SPIN: &str = "while True: sum(range(1000))";

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new("One static file", NOTE, &["what", "dynamic", "static", "static : dynamic"]);
    let binaries = [dynamic(setting)?, repo::pyobs()];
    let python = setting.python("3.12")?;

    let size = |file: &PathBuf| Ok(fs::metadata(file)?.len() as f64 / MIB);
    let sizes = binaries.iter().map(size).collect::<Result<Vec<f64>>>()?;
    add_row(&mut table, "size (MiB)", &[[sizes[0], sizes[1]]], "ls -l target/release/pyobs");

    let recording = large_recording(setting, python)?;
    let file = recording.display().to_string();
    let null = "/dev/null";
    let verbs: [(&str, usize, Vec<&str>); 5] = [
        ("wall time (ms)", PAIRS[0], vec!["--version"]),
        ("wall time (ms)", PAIRS[1], vec!["doctor"]),
        ("wall time (ms)", PAIRS[1], vec!["report", &file, "--json"]),
        ("wall time (ms)", PAIRS[1], vec!["export", &file, "--format", "firefox", "-o", null]),
        ("wall time (ms)", PAIRS[1], vec!["export", &file, "--format", "perfetto", "-o", null]),
    ];
    for (what, count, arguments) in verbs {
        let pairs = pairs(&binaries, count, |binary| wall_ms(binary, &arguments))?;
        let command = format!("pyobs {}", arguments.join(" ")).replace(&file, "large.pyobs");
        add_row(&mut table, what, &pairs, &command);
    }
    memory(setting, python, &binaries, &mut table)?;
    screens(python, &binaries, &mut table)?;
    Ok(table)
}

/// Builds the binary without xtask's options, and copies it away from the static one's place.
fn dynamic(setting: &Setting) -> Result<PathBuf> {
    run_command(cargo().args(["build", "--release", "--package", "pyobs"]))?;
    let copy = setting.folder.join("pyobs-dynamic");
    fs::copy(repo::pyobs(), &copy).with_context(|| format!("cannot write {}", copy.display()))?;
    build::release()?;
    Ok(copy)
}

fn large_recording(setting: &Setting, python: &Path) -> Result<PathBuf> {
    let program = Program::start(python, PROGRAM)?;
    let pid = program.pid().to_string();
    let args = ["--pid", &pid, "--rate", "999", "--budget", "100", "--duration", "20"].map(str::to_owned);
    Ok(record(setting, "large", &args)?.file)
}

/// `[dynamic, static]` for each round. Each of them goes first in every second round.
fn pairs(
    binaries: &[PathBuf; 2],
    count: usize,
    mut measure: impl FnMut(&Path) -> Result<f64>,
) -> Result<Vec<[f64; 2]>> {
    let mut pair = |round: usize| {
        let mut values = [0.0; 2];
        for at in [round % 2, 1 - round % 2] {
            values[at] = measure(&binaries[at])?;
        }
        Ok(values)
    };
    // The first pair warms the page cache.
    pair(0)?;
    (0..count).map(pair).collect()
}

fn wall_ms(binary: &Path, arguments: &[&str]) -> Result<f64> {
    let mut command = Command::new(binary);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let started = Instant::now();
    let status = command.status()?;
    let wall = started.elapsed();
    // doctor returns 3 on machines that lack something.
    if !status.success() && status.code() != Some(3) {
        bail!("{command:?}: {status}");
    }
    Ok(wall.as_secs_f64() * 1e3)
}

fn memory(setting: &Setting, python: &Path, binaries: &[PathBuf; 2], table: &mut Table) -> Result<()> {
    let program = Program::start(python, SPIN)?;
    let args = |pid: &str| ["--pid", pid, "--duration", "5"].map(str::to_owned);
    let file = setting.folder.join("linkage.pyobs");
    let peak_mib = |binary: &Path| {
        if file.exists() {
            fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
        let mut command = Command::new(binary);
        command.args(["record", "-o"]).arg(&file).args(args(&program.pid().to_string()));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(watch(&mut child, |_| ())? / MIB)
    };
    let pairs = pairs(binaries, PAIRS[2], peak_mib)?;
    let ratio = add_row(table, "peak RSS (MiB)", &pairs, &shown(&args("PID")));
    table.at_most("peak RSS, static : dynamic", ratio, 1.0);
    Ok(())
}

fn screens(python: &Path, binaries: &[PathBuf; 2], table: &mut Table) -> Result<()> {
    let _program = Program::start(python, SPIN)?;
    let pairs = pairs(binaries, PAIRS[1], |binary| {
        let mut top = Command::new(binary);
        top.arg("top");
        Ok(first_screen::once(python, TAB, &top)?.0)
    })?;
    let ratio = add_row(table, "first screen (s)", &pairs, "pyobs top");
    table.at_most("time to the first screen, static : dynamic", ratio, 1.05);
    Ok(())
}

/// Returns the median of the ratios.
fn add_row(table: &mut Table, what: &str, pairs: &[[f64; 2]], command: &str) -> f64 {
    let of = |at: usize| median(pairs.iter().map(|pair| pair[at]).collect());
    let ratio = median(pairs.iter().map(|[dynamic, fixed]| fixed / dynamic).collect());
    let number = |value: f64| if value < 10.0 { format!("{value:.2}") } else { format!("{value:.1}") };
    table.row(vec![what.to_owned(), number(of(0)), number(of(1)), format!("{ratio:.2}")], command);
    ratio
}

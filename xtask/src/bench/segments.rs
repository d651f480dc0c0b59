//! Measures what following its memory costs a program, and what it costs pyobs.

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    Setting, paired,
    record::{kernel_share, record, shown},
    table::Table,
};
use crate::repo;

const MIB: f64 = 1024.0 * 1024.0;
/// The figure by which a workload is judged, and its limit in percent.
enum Judged {
    /// How much longer it takes, if that is too much for noise to hide.
    Longer(f64),
    /// The share of a core that the kernel programs use.
    Kernel(f64),
}
const PAIRED: [(&str, Judged); 3] =
    [("pairs", Judged::Longer(2.0)), ("compute", Judged::Kernel(0.2)), ("objects", Judged::Kernel(0.2))];
const ROUNDS: paired::Rounds = (7, "4.0");
/// Maps and unmaps a segment up to 50,000 times a second for three seconds. Prints the rate of both events together.
const BURST: &str = "\
import ctypes, os, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
time.sleep(1)
fd = os.memfd_create('burst')
os.ftruncate(fd, 4096)
since, count = time.monotonic(), 0
while time.monotonic() < since + 3:
    until = since + count / 50000
    while time.monotonic() < until: pass
    for _ in range(100): libc.munmap(libc.mmap(None, 4096, 3, 1, fd, 0), 4096)
    count += 100
print(2 * count / (time.monotonic() - since))
time.sleep(0.5)
";
const LIVE: usize = 10_000;
/// Nothing, many segments, or many arenas of CPython 3.9 that are full of pieces of 512 bytes.
const HELD: [(&str, &str); 3] = [("nothing", "3.12"), ("segments", "3.12"), ("arenas", "3.9")];
const MAKE: &str = "\
import mmap, sys, time
time.sleep(1)
what, count = sys.argv[1], int(sys.argv[2])
held = []
if what == 'segments':
    for _ in range(count):
        held.append(mmap.mmap(-1, 4096))
        held[-1][0] = 1
elif what == 'arenas':
    held = [bytes(470) for _ in range(count * 63 * 8)]
time.sleep(6)
import os
os._exit(0)
";

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "Memory that is followed",
        "How much longer a CPython 3.12 program needs for the same work, in its own CPU time, while its segments and arenas are\n\
         followed than just before and after (`xtask/src/bench/paired.py`): `pairs` does nothing but mmap and munmap.\n\
         Empty programs at the beginning and end of system calls (`xtask/src/bench/empty.py`) already slow it down as\n\
         shown, and any observer of each mmap pays that. `compute` works on integers, `objects` on lists that come and\n\
         go. The time of pyobs's programs in the kernel, on all CPUs, is the kernel's own account (`bpf_stats`) of the\n\
         last round. Noise, which is larger than the cost allowed for the last two, does not affect it. Then come a\n\
         program that maps and unmaps a segment 100,000 times a second, and pyobs's memory for 10,000 of a kind, beyond\n\
         that for a program without any.",
        &["what", "figure", "10th to 90th percentile", "programs in the kernel (% of a core)", "lost"],
    );
    empty(setting, &mut table)?;
    for (workload, judged) in &PAIRED {
        paired(setting, &mut table, workload, judged)?;
    }
    burst(setting, &mut table)?;
    held(setting, &mut table)?;
    Ok(table)
}

/// What `pairs` pays for having any programs at the start and end of system calls.
fn empty(setting: &Setting, table: &mut Table) -> Result<()> {
    let python = setting.python("3.12")?;
    let (rounds, command) = paired::beside_nothing(setting, python, &["pairs"], ROUNDS, &["sys_enter", "sys_exit"])?;
    let [low, middle, high] = paired::longer(&rounds);
    let cells = [
        "pairs, with programs that do nothing",
        &format!("{middle:.2} % longer"),
        &format!("{low:.2} to {high:.2} %"),
        "",
        "",
    ];
    table.row(cells.map(str::to_owned).to_vec(), &command);
    Ok(())
}

fn paired(setting: &Setting, table: &mut Table, workload: &str, judged: &Judged) -> Result<()> {
    let file = setting.folder.join("paired.pyobs");
    let (path, pyobs) = (file.display().to_string(), repo::pyobs().display().to_string());
    let watcher = [&pyobs, "record", "--pid", "PID", "--probe", "shm,arena", "-o", &path];
    let python = setting.python("3.12")?;
    let rounds = paired::run(python, &[workload], ROUNDS, &[&watcher])?;
    let [low, middle, high] = paired::longer(rounds.first().map_or(&[], Vec::as_slice));
    let kernel = 100.0 * kernel_share(python, &file, ROUNDS.1)?;
    let figures = [format!("{middle:.2} % longer"), format!("{low:.2} to {high:.2} %"), format!("{kernel:.3}")];
    table.row(
        [&[workload.to_owned()], &figures[..], &[String::new()]].concat(),
        &shown(&["--pid", "PID", "--probe", "shm,arena"].map(str::to_owned)),
    );
    let (what, figure, most) = match *judged {
        Judged::Longer(most) => ("longer by (%)", middle, most),
        Judged::Kernel(most) => ("programs in the kernel (% of a core)", kernel, most),
    };
    table.at_most(&format!("{workload}: {what}"), figure, most);
    Ok(())
}

fn command(setting: &Setting, python: &str, code: &str, more: &[&str]) -> Result<Vec<String>> {
    let python = setting.python(python)?.display().to_string();
    let own = ["--probe", "shm,arena", "--", &python, "-c", code];
    Ok(own.iter().chain(more).map(|word| (*word).to_owned()).collect())
}

fn burst(setting: &Setting, table: &mut Table) -> Result<()> {
    let recorded = record(setting, "burst", &command(setting, "3.12", BURST, &[])?)?;
    let rate: f64 = recorded.stdout.trim().parse().with_context(|| format!("{:?} is not a rate", recorded.stdout))?;
    let loss = recorded.report.get("loss").map_or_else(String::new, Value::to_string);
    let (what, figure, none) = ("mappings of a segment".to_owned(), format!("{rate:.0} events/s"), String::new());
    let cells = vec![what, figure, none.clone(), none, loss.clone()];
    table.row(cells, "pyobs record --probe shm,arena -- python3.12 -c BURST");
    table.at_least("mappings that come and go, events a second", rate, 99_000.0);
    let is_none = loss_of(&recorded.report).is_empty();
    table.goal(format!("lost of these: {loss}, nothing may be"), is_none);
    Ok(())
}

/// Losses after the programs have started.
fn loss_of(report: &Value) -> Vec<&String> {
    let loss = report.get("loss").and_then(Value::as_object);
    loss.into_iter().flatten().map(|(reason, _)| reason).filter(|reason| *reason != "not_attached_yet").collect()
}

fn held(setting: &Setting, table: &mut Table) -> Result<()> {
    let mut idle = 0.0;
    for (what, python) in HELD {
        let recorded = record(setting, "held", &command(setting, python, MAKE, &[what, &LIVE.to_string()])?)?;
        let (peak, loss) = (recorded.peak_rss_bytes / MIB, recorded.report.get("loss").map(Value::to_string));
        let list = if what == "arenas" { "/arenas" } else { "/segments" };
        let seen = recorded.report.pointer(list).and_then(Value::as_array).map_or(0, Vec::len);
        let loss = loss.unwrap_or_default();
        let figure = format!("{peak:.1} MiB at the most, {seen} {}", if what == "nothing" { "segments" } else { what });
        let shown = format!("pyobs record --probe shm,arena -- python{python} -c MAKE {what} {LIVE}");
        table.row(vec![format!("holds {what}"), figure, String::new(), String::new(), loss], &shown);
        if what == "nothing" {
            idle = peak;
            continue;
        }
        table.at_most(&format!("{LIVE} {what}: memory beyond that of an idle pyobs (MiB)"), peak - idle, 40.0);
        table.at_least(&format!("{what} that the report has"), seen as f64, LIVE as f64);
    }
    Ok(())
}

//! Describes the machine on which figures were measured.

use std::{fs, process::Command};

use anyhow::Result;

use crate::{process::output, repo};

pub(super) fn introduction() -> Result<String> {
    Ok(format!(
        "# Benchmarks\n\n\
         `cargo xtask bench` writes this page; `cargo xtask bench NAME` measures one table again. Absolute figures are\n\
         those of the processor that each table names; only the goals must hold everywhere. Figures are medians unless\n\
         they say otherwise. A round of `paired.py` counts as the lower quartile of its tenths of a second (until\n\
         2026-11-25 their median, too), because a virtual machine's neighbours make work slower for seconds at a time,\n\
         and never faster.\n\n\
         | machine | |\n|---|---|\n\
         | processor | {}, {} cores online |\n\
         | memory | {} |\n\
         | kernel | {} |\n\
         | rustc | {} |\n\
         | pyobs | {} |\n",
        processor(),
        std::thread::available_parallelism().map_or(0, usize::from),
        memory(),
        output(Command::new("uname").arg("-r"))?.trim(),
        output(Command::new("rustc").arg("--version"))?.trim(),
        output(Command::new(repo::pyobs()).arg("--version"))?.trim(),
    ))
}

/// Today's date in UTC, and the processor, because the next table may be measured on another.
pub(super) fn when() -> Result<String> {
    Ok(format!("on {}, {}", output(Command::new("date").args(["-u", "+%F"]))?.trim(), processor()))
}

fn processor() -> String {
    field("/proc/cpuinfo", "model name")
}

/// The value of the first `name : value` line of a file of /proc.
fn field(file: &str, name: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let mut values = lines.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned());
    values.next().unwrap_or_else(|| "unknown".to_owned())
}

fn memory() -> String {
    let text = field("/proc/meminfo", "MemTotal");
    let kib = text.split_whitespace().next().and_then(|number| number.parse::<f64>().ok());
    kib.map_or(text, |kib| format!("{:.0} GiB", kib / 1024.0 / 1024.0))
}

//! The sampling clock: performance events on every CPU.

use std::fs;
use std::io::{self, BufRead, BufReader};

use pyobs_model::Family;

use super::{ALL, Area, Check, Status, refusal, rights, sys};

const EVERYBODY: i32 = -1;

pub(super) fn examine(checks: &mut Vec<Check>) {
    let mut area = Area::new("sampling", checks);
    let cpus = aya::util::online_cpus().unwrap_or_else(|_| vec![0]);
    let cpus: Vec<i32> = cpus.into_iter().map(u32::cast_signed).collect();
    every_cpu(&mut area, &cpus);
    notices(&mut area, cpus[0]);
    paranoid(&mut area);
    rate_limit(&mut area);
    kernel_symbols(&mut area);
}

fn every_cpu(area: &mut Area<'_>, cpus: &[i32]) {
    let attributes = sys::event(sys::EVENT_SOFTWARE, sys::SOFTWARE_CPU_CLOCK);
    let tried = cpus.iter().try_for_each(|cpu| sys::open_event(&attributes, EVERYBODY, *cpu).map(drop));
    let todo =
        "run a kernel built with CONFIG_PERF_EVENTS=y, and allow perf_event_open() in the container's seccomp profile";
    area.tried(
        "cpu-clock",
        &[Family::Cpu, Family::Redundancy],
        tried,
        &format!("opened and closed on {} CPUs", cpus.len()),
        todo,
    );

    let attached = sys::open_event(&attributes, EVERYBODY, cpus[0]).and_then(|event| {
        let program = sys::load_program(sys::PROG_PERF_EVENT, None)?;
        sys::attach_to_event(&event, &program)
    });
    area.tried("program on a sample", &[Family::Cpu], attached, "a program was attached to cpu-clock", todo);
}

/// The kernel's notices of every new mapping, name, fork and exit of a process.
fn notices(area: &mut Area<'_>, cpu: i32) {
    let mut attributes = sys::event(sys::EVENT_SOFTWARE, sys::SOFTWARE_DUMMY);
    attributes.set_mmap(1);
    attributes.set_mmap2(1);
    attributes.set_comm(1);
    attributes.set_task(1);
    attributes.set_sample_id_all(1);
    let tried = sys::open_event(&attributes, EVERYBODY, cpu);
    area.preferred(
        "notices of mappings",
        ALL,
        tried,
        "a dummy event with mmap2, comm and task was opened",
        "nothing while `arena` or `shm` is on, whose programs tell the same; without both, run a newer kernel",
    );
}

fn paranoid(area: &mut Area<'_>) {
    const NAME: &str = "perf_event_paranoid";
    let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    let level: Option<i32> = level.and_then(|text| text.trim().parse().ok());
    let said = level.map_or("unknown".to_owned(), |level| level.to_string());
    if rights::is_privileged() {
        area.works(NAME, &[Family::Cpu], format!("{said}, which does not bind this user"));
    } else if level.is_some_and(|level| level < 0) {
        area.works(NAME, &[Family::Cpu], format!("{said}: everybody may sample every CPU"));
    } else {
        area.lacks(
            NAME,
            &[Family::Cpu],
            Status::Degraded,
            format!("{said} binds this user"),
            "run it as root: `sudo pyobs doctor`",
        );
    }
}

fn rate_limit(area: &mut Area<'_>) {
    const PATH: &str = "/proc/sys/kernel/perf_event_max_sample_rate";
    const DEFAULT_HZ: u64 = 99;
    let limit = fs::read_to_string(PATH).ok().and_then(|text| text.trim().parse::<u64>().ok());
    match limit {
        Some(limit) if limit < DEFAULT_HZ => area.lacks(
            "rate limit",
            &[Family::Cpu],
            Status::Degraded,
            format!("{limit} samples a second and CPU"),
            "`sysctl kernel.perf_event_max_sample_rate=100000`",
        ),
        Some(limit) => area.works("rate limit", &[Family::Cpu], format!("{limit} samples a second and CPU")),
        None => area.works("rate limit", &[Family::Cpu], "the kernel shows none"),
    }
}

fn kernel_symbols(area: &mut Area<'_>) {
    const NAME: &str = "kernel symbols";
    let todo = "`sysctl kernel.kptr_restrict=1` and run it as root; until then kernel frames have no names";
    match symbols_visible() {
        Ok(true) => area.works(NAME, &[Family::Cpu, Family::OffCpu], "/proc/kallsyms shows addresses"),
        Ok(false) => area.lacks(
            NAME,
            &[Family::Cpu, Family::OffCpu],
            Status::Degraded,
            "/proc/kallsyms hides its addresses",
            todo,
        ),
        Err(error) => area.lacks(NAME, &[Family::Cpu, Family::OffCpu], Status::Degraded, refusal(&error), todo),
    }
}

/// Checks several, because the first symbols (per-CPU ones) can be zero even for root.
fn symbols_visible() -> io::Result<bool> {
    const ENOUGH: usize = 4096;
    for line in BufReader::new(fs::File::open("/proc/kallsyms")?).lines().take(ENOUGH) {
        let line = line?;
        if line.split(' ').next().is_some_and(|address| address.bytes().any(|digit| digit != b'0')) {
            return Ok(true);
        }
    }
    Ok(false)
}

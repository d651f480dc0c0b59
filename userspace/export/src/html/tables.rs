//! The tables of the page: what the report lists, a table for each family that was on.

use std::collections::HashMap;

use pyobs_model::report::{FrameOut, Report};
use pyobs_model::{FrameKind, Model, Pid, Tid};

use super::table::{Cell, Table};
use crate::escape::{self, MAX_NAME};
use crate::names;

pub(super) fn all(model: &Model, report: &Report) -> Vec<Table> {
    let threads = Threads::of(model);
    let tables = [
        frames(report),
        sleeps(model, report, &threads),
        gil(report, &threads),
        calls(report),
        segments(report),
        arenas(report),
        meminfos(report),
        stages(report),
        transfers(report, &threads),
        workers(report, &threads),
        redundancy(report),
    ];
    tables.into_iter().flatten().collect()
}

/// How threads are called, with their roles.
struct Threads(HashMap<(Pid, Tid), String>);

impl Threads {
    fn of(model: &Model) -> Self {
        let of = |(process, state): (_, &pyobs_model::ProcessState)| {
            let pid = state.process.pid;
            state.threads.keys().map(move |tid| ((pid, *tid), names::thread(model, process, *tid))).collect::<Vec<_>>()
        };
        Self(model.processes().flat_map(of).collect())
    }

    fn cell(&self, pid: Pid, tid: Tid) -> Cell {
        self.0.get(&(pid, tid)).map_or_else(|| Cell::number(tid.0.into()), |name| Cell::text(name))
    }
}

fn name(frame: &FrameOut) -> String {
    let file = frame.file.as_deref().or(frame.module.as_deref()).unwrap_or("?");
    match (frame.kind, frame.line) {
        (FrameKind::Kernel, _) => format!("{} [kernel]", frame.function),
        (_, Some(line)) => format!("{} ({file}:{line})", frame.function),
        (_, None) => format!("{} ({file})", frame.function),
    }
}

/// The innermost Python frame.
fn place(stack: &[FrameOut]) -> Cell {
    let python = stack.iter().rfind(|frame| frame.kind == FrameKind::Python);
    Cell::text(&python.or(stack.last()).map(name).unwrap_or_default())
}

/// What something lies in, with its name or its kind where its own table has it: `segment tensor 27:9:0`.
fn region(report: &Report, region: Option<(&str, &str)>) -> Cell {
    let Some((kind, id)) = region else { return Cell::text("") };
    let segment = report.segments.iter().flatten().find(|it| kind == "segment" && it.id == id);
    let arena = report.arenas.iter().flatten().find(|it| kind == "arena" && it.id == id);
    let name = segment.and_then(|it| it.name.as_deref()).or(arena.map(|it| it.kind.as_str()));
    let name = name.map(|name| format!("{} ", escape::line(name, MAX_NAME / 2))).unwrap_or_default();
    Cell::text(&format!("{kind} {name}{id}"))
}

/// The innermost frame of all.
fn leaf(stack: &[FrameOut]) -> Cell {
    Cell::text(&stack.last().map(name).unwrap_or_default())
}

fn frames(report: &Report) -> Option<Table> {
    let rows = report.frames.as_ref()?;
    let all: f64 = report.processes.iter().map(|process| process.cpu_s).sum();
    let share = |seconds: f64| Cell::share(if all > 0.0 { seconds / all } else { 0.0 });
    let columns = ["own", "own samples", "total", "total samples", "frame", "kind", "pid"];
    let mut table = Table::new("frames", "Frames", &columns);
    for row in rows {
        let kind = match row.frame.kind {
            FrameKind::Python => "Python",
            FrameKind::Native => "native",
            FrameKind::Kernel => "kernel",
        };
        table.row([
            share(row.self_s),
            Cell::count(row.own),
            share(row.total_s),
            Cell::count(row.total),
            Cell::text(&name(&row.frame)),
            Cell::text(kind),
            Cell::number(u64::from(row.pid.0)),
        ]);
    }
    Some(table)
}

fn sleeps(model: &Model, report: &Report, threads: &Threads) -> Option<Table> {
    let columns = ["time", "times", "longest", "reason", "where", "in", "woken by", "pid", "thread", "stacks"];
    let mut table = Table::new("offcpu", "Sleeps", &columns);
    for row in report.offcpu.as_ref()? {
        let waker = row.wakers.first().map(|it| names::waker(model, &it.waker)).unwrap_or_default();
        table.row([
            Cell::time(row.spent.total_s),
            Cell::count(row.spent.count),
            Cell::time(row.spent.max_s),
            Cell::text(row.reason.name()),
            place(&row.stack),
            leaf(&row.stack),
            Cell::text(&waker),
            Cell::number(u64::from(row.pid.0)),
            threads.cell(row.pid, row.tid),
            Cell::count(row.stacks),
        ]);
    }
    Some(table)
}

fn gil(report: &Report, threads: &Threads) -> Option<Table> {
    let columns = ["time", "times", "longest", "who waits", "where", "behind", "which is at", "pid", "stacks"];
    let mut table = Table::new("gil", "Waits for the GIL", &columns);
    for row in report.gil.as_ref()? {
        let holder = row.holder.as_ref();
        table.row([
            Cell::time(row.spent.total_s),
            Cell::count(row.spent.count),
            Cell::time(row.spent.max_s),
            threads.cell(row.pid, row.waiter.tid),
            place(&row.waiter.stack),
            holder.map_or_else(|| Cell::text(""), |it| threads.cell(row.pid, it.tid)),
            place(holder.map_or(&[], |it| &it.stack)),
            Cell::number(u64::from(row.pid.0)),
            Cell::count(row.stacks),
        ]);
    }
    Some(table)
}

fn calls(report: &Report) -> Option<Table> {
    let mut table = Table::new("calls", "Calls", &["calls", "time", "longest", "function", "pid"]);
    for row in report.calls.as_ref()? {
        let line = row.line.map(|line| format!(":{line}")).unwrap_or_default();
        table.row([
            Cell::count(row.spent.count),
            Cell::time(row.spent.total_s),
            Cell::time(row.spent.max_s),
            Cell::text(&format!("{} ({}{line})", row.function, row.file.as_deref().unwrap_or("?"))),
            Cell::number(u64::from(row.pid.0)),
        ]);
    }
    Some(table)
}

fn segments(report: &Report) -> Option<Table> {
    let columns = ["bytes", "name", "verdict", "created", "unlinked", "evicted", "holders", "passed", "made at", "id"];
    let mut table = Table::new("segments", "Segments", &columns);
    for row in report.segments.as_ref()? {
        let holders: Vec<String> = row.holders.iter().map(|it| it.holder.pid.to_string()).collect();
        table.row([
            Cell::bytes(row.bytes),
            Cell::text(row.name.as_deref().unwrap_or_default()),
            Cell::text(row.verdict),
            Cell::at(row.created_s),
            Cell::at(row.unlinked_s),
            Cell::at(row.evicted_s),
            Cell::text(&holders.join(" ")),
            Cell::count(row.passed.len() as u64),
            place(&row.stack),
            Cell::text(&row.id),
        ]);
    }
    Some(table)
}

fn arenas(report: &Report) -> Option<Table> {
    let columns = ["bytes", "used", "kind", "born", "died", "cause", "born at", "pid", "address"];
    let mut table = Table::new("arenas", "Arenas", &columns);
    for row in report.arenas.as_ref()? {
        table.row([
            Cell::bytes(row.bytes),
            row.used_bytes.map_or_else(|| Cell::text(""), Cell::bytes),
            Cell::text(&row.kind),
            Cell::at(row.born_s),
            Cell::at(row.died_s),
            Cell::text(row.cause.unwrap_or_default()),
            place(&row.stack),
            Cell::number(u64::from(row.pid.0)),
            Cell::text(&row.address),
        ]);
    }
    Some(table)
}

fn meminfos(report: &Report) -> Option<Table> {
    let all = report.meminfos.as_ref()?;
    let mut table = Table::new("meminfos", "MemInfos", &["bytes", "live", "born", "born at", "pid"])
        .note(format!("{} were born, {} died, {} live.", all.born, all.died, all.live));
    for row in &all.sites {
        table.row([
            Cell::bytes(row.bytes),
            Cell::count(row.live),
            Cell::count(row.born),
            place(&row.stack),
            Cell::number(u64::from(row.pid.0)),
        ]);
    }
    Some(table)
}

fn stages(report: &Report) -> Option<Table> {
    let columns = ["stage", "transfers", "50 %", "90 %", "99 %", "longest", "pid"];
    let mut table = Table::new("stages", "Stages of transfers", &columns);
    for row in report.transfer_stages.as_ref()? {
        table.row([
            Cell::text(row.stage),
            Cell::count(row.count),
            Cell::time(row.p50_s),
            Cell::time(row.p90_s),
            Cell::time(row.p99_s),
            Cell::time(row.max_s),
            Cell::number(u64::from(row.pid.0)),
        ]);
    }
    Some(table)
}

fn transfers(report: &Report, threads: &Threads) -> Option<Table> {
    let columns = [
        "asked",
        "operation",
        "bytes",
        "queued",
        "pending",
        "to wake",
        "lies in",
        "asked at",
        "status",
        "pid",
        "thread",
    ];
    let mut table = Table::new("transfers", "Transfers", &columns);
    for row in report.transfers.as_ref()? {
        let length = |from: Option<f64>, to: Option<f64>| match (from, to) {
            (Some(from), Some(to)) => Cell::time((to - from).max(0.0)),
            _ => Cell::text(""),
        };
        table.row([
            Cell::at(row.registered_s.or(row.submitted_s)),
            Cell::text(row.operation.name()),
            Cell::bytes(row.bytes),
            length(row.registered_s, row.submitted_s),
            length(row.submitted_s, row.completed_s),
            length(row.completed_s, row.woken_s),
            region(report, row.region.as_ref().map(|it| (it.kind, it.id.as_str()))),
            place(&row.stack),
            Cell::text(&row.status.map(|status| status.to_string()).unwrap_or_default()),
            Cell::number(u64::from(row.pid.0)),
            threads.cell(row.pid, row.tid),
        ]);
    }
    Some(table)
}

fn workers(report: &Report, threads: &Threads) -> Option<Table> {
    let columns = ["thread", "mode", "busy", "in Python", "progress a second", "queue", "waited for the GIL", "pid"];
    let mut table = Table::new("workers", "Workers", &columns);
    for row in report.workers.as_ref()? {
        table.row([
            threads.cell(row.pid, row.tid),
            Cell::text(row.mode),
            Cell::share(row.busy),
            row.python.map_or_else(|| Cell::text(""), Cell::share),
            row.progress_per_s.map_or_else(|| Cell::text(""), |it| Cell::count(it.round() as u64)),
            Cell::count(row.queue_max),
            row.gil_wait_s.map_or_else(|| Cell::text(""), Cell::time),
            Cell::number(u64::from(row.pid.0)),
        ]);
    }
    Some(table)
}

fn redundancy(report: &Report) -> Option<Table> {
    let all = report.redundancy.as_ref()?;
    let columns = ["redundant", "of", "equal", "compared", "what", "memory", "lies in", "first", "second", "pid"];
    let mut table = Table::new("redundancy", "Redundant loads and stores", &columns)
        .note(format!("{} samples in native code, {} watchpoints, {} traps.", all.samples, all.armed, all.traps));
    for row in &all.pairs {
        let of = row.of.as_deref().unwrap_or_default();
        table.row([
            Cell::bytes(row.redundant_bytes),
            Cell::bytes(row.total_bytes),
            Cell::count(row.equal),
            Cell::count(row.compared),
            Cell::text(row.kind.name()),
            Cell::text(&format!("{} {of}", row.memory)),
            region(report, row.region.as_ref().map(|it| (it.kind, it.id.as_str()))),
            place(&row.first.stack),
            place(&row.second.stack),
            Cell::number(u64::from(row.pid.0)),
        ]);
    }
    Some(table)
}

//! The page's tables: one per list of the report. A family that was off has none.

use std::collections::HashMap;

use pyobs_model::report::{FrameOut, Report};
use pyobs_model::{FrameKind, Model, Pid, Tid};

use super::table::{Cell, Table};
use crate::escape::{self, MAX_NAME};
use crate::names;

pub(super) fn all(model: &Model, report: &Report<'_>) -> Vec<Table> {
    let threads = Threads::of(model);
    let tables = [
        Some(processes(report)),
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

/// Display names of threads, with their roles.
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
        self.0.get(&(pid, tid)).map_or_else(|| Cell::number(tid.0), |name| Cell::text(name))
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

/// The innermost Python frame, or else the leaf.
fn place(stack: &[FrameOut]) -> Cell {
    let python = stack.iter().rfind(|frame| frame.kind == FrameKind::Python);
    Cell::text(&python.or(stack.last()).map(name).unwrap_or_default())
}

/// The segment or arena that memory belongs to, with a segment's name or an arena's kind: `segment tensor 27:9:0`.
///
/// The name is cut first, so that a long one leaves room for the id.
fn region(report: &Report<'_>, kind: &str, id: &str) -> Cell {
    let segment = report.segments.iter().flatten().find(|it| kind == "segment" && it.id == id);
    let arena = report.arenas.iter().flatten().find(|it| kind == "arena" && it.id == id);
    let name = segment.and_then(|it| it.name.as_deref()).or(arena.map(|it| it.kind.as_str()));
    let name = name.map(|name| format!("{} ", escape::line(name, MAX_NAME / 2))).unwrap_or_default();
    Cell::text(&format!("{kind} {name}{id}"))
}

/// The innermost frame of any kind.
fn leaf(stack: &[FrameOut]) -> Cell {
    Cell::text(&stack.last().map(name).unwrap_or_default())
}

fn processes(report: &Report<'_>) -> Table {
    Table::new("processes", "Processes", &report.processes, |row| {
        [
            ("pid", Cell::number(row.pid.0)),
            ("command", Cell::text(&row.command)),
            ("Python", Cell::text(row.python.as_deref().unwrap_or_default())),
            ("CPU time", Cell::time(row.cpu_s)),
            ("samples", Cell::count(row.samples)),
            ("threads", Cell::count(row.threads.len() as u64)),
            ("from", Cell::at(row.started_s)),
            ("to", Cell::at(row.ended_s)),
        ]
    })
}

fn frames(report: &Report<'_>) -> Option<Table> {
    let rows = report.frames.as_deref()?;
    let all: f64 = report.processes.iter().map(|process| process.cpu_s).sum();
    let share = |seconds: f64| Cell::share(if all > 0.0 { seconds / all } else { 0.0 });
    Some(Table::new("frames", "Frames", rows, |row| {
        let kind = match row.frame.kind {
            FrameKind::Python => "Python",
            FrameKind::Native => "native",
            FrameKind::Kernel => "kernel",
        };
        [
            ("own", share(row.self_s)),
            ("own samples", Cell::count(row.own)),
            ("total", share(row.total_s)),
            ("total samples", Cell::count(row.total)),
            ("frame", Cell::text(&name(&row.frame))),
            ("kind", Cell::text(kind)),
            ("pid", Cell::number(row.pid.0)),
        ]
    }))
}

fn sleeps(model: &Model, report: &Report<'_>, threads: &Threads) -> Option<Table> {
    Some(Table::new("offcpu", "Sleeps", report.offcpu.as_deref()?, |row| {
        let waker = row.wakers.first().map(|it| names::waker(model, &it.waker)).unwrap_or_default();
        [
            ("time", Cell::time(row.spent.total_s)),
            ("times", Cell::count(row.spent.count)),
            ("longest", Cell::time(row.spent.max_s)),
            ("reason", Cell::text(row.reason.name())),
            ("where", place(&row.stack)),
            ("in", leaf(&row.stack)),
            ("woken by", Cell::text(&waker)),
            ("pid", Cell::number(row.pid.0)),
            ("thread", threads.cell(row.pid, row.tid)),
            ("stacks", Cell::count(row.stacks)),
        ]
    }))
}

fn gil(report: &Report<'_>, threads: &Threads) -> Option<Table> {
    Some(Table::new("gil", "Waits for the GIL", report.gil.as_deref()?, |row| {
        let holder = row.holder.as_ref();
        [
            ("time", Cell::time(row.spent.total_s)),
            ("times", Cell::count(row.spent.count)),
            ("longest", Cell::time(row.spent.max_s)),
            ("who waits", threads.cell(row.pid, row.waiter.tid)),
            ("where", place(&row.waiter.stack)),
            ("behind", Cell::optional(holder, |it| threads.cell(row.pid, it.tid))),
            ("which is at", place(holder.map_or(&[], |it| &it.stack))),
            ("pid", Cell::number(row.pid.0)),
            ("stacks", Cell::count(row.stacks)),
        ]
    }))
}

fn calls(report: &Report<'_>) -> Option<Table> {
    Some(Table::new("calls", "Calls", report.calls.as_deref()?, |row| {
        let line = row.line.map(|line| format!(":{line}")).unwrap_or_default();
        [
            ("calls", Cell::count(row.spent.count)),
            ("time", Cell::time(row.spent.total_s)),
            ("longest", Cell::time(row.spent.max_s)),
            ("function", Cell::text(&format!("{} ({}{line})", row.function, row.file.as_deref().unwrap_or("?")))),
            ("pid", Cell::number(row.pid.0)),
        ]
    }))
}

fn segments(report: &Report<'_>) -> Option<Table> {
    Some(Table::new("segments", "Segments", report.segments.as_deref()?, |row| {
        let holders: Vec<String> = row.holders.iter().map(|it| it.holder.pid.to_string()).collect();
        [
            ("bytes", Cell::bytes(row.bytes)),
            ("name", Cell::text(row.name.as_deref().unwrap_or_default())),
            ("verdict", Cell::text(row.verdict)),
            ("created", Cell::at(row.created_s)),
            ("unlinked", Cell::at(row.unlinked_s)),
            ("evicted", Cell::at(row.evicted_s)),
            ("holders", Cell::text(&holders.join(" "))),
            ("passed", Cell::count(row.passed.len() as u64)),
            ("made at", place(&row.stack)),
            ("id", Cell::text(&row.id)),
        ]
    }))
}

fn arenas(report: &Report<'_>) -> Option<Table> {
    Some(Table::new("arenas", "Arenas", report.arenas.as_deref()?, |row| {
        [
            ("bytes", Cell::bytes(row.bytes)),
            ("used", Cell::optional(row.used_bytes, Cell::bytes)),
            ("kind", Cell::text(&row.kind)),
            ("born", Cell::at(row.born_s)),
            ("died", Cell::at(row.died_s)),
            ("cause", Cell::text(row.cause.unwrap_or_default())),
            ("born at", place(&row.stack)),
            ("pid", Cell::number(row.pid.0)),
            ("address", Cell::text(&row.address)),
        ]
    }))
}

fn meminfos(report: &Report<'_>) -> Option<Table> {
    let all = report.meminfos.as_ref()?;
    Some(
        Table::new("meminfos", "MemInfos", &all.sites, |row| {
            [
                ("bytes", Cell::bytes(row.bytes)),
                ("live", Cell::count(row.live)),
                ("born", Cell::count(row.born)),
                ("born at", place(&row.stack)),
                ("pid", Cell::number(row.pid.0)),
            ]
        })
        .note(format!("{} were born, {} died, {} live.", all.born, all.died, all.live)),
    )
}

fn stages(report: &Report<'_>) -> Option<Table> {
    Some(Table::new("stages", "Stages of transfers", report.transfer_stages.as_deref()?, |row| {
        [
            ("stage", Cell::text(row.stage)),
            ("transfers", Cell::count(row.count)),
            ("50 %", Cell::time(row.p50_s)),
            ("90 %", Cell::time(row.p90_s)),
            ("99 %", Cell::time(row.p99_s)),
            ("longest", Cell::time(row.max_s)),
            ("pid", Cell::number(row.pid.0)),
        ]
    }))
}

fn transfers(report: &Report<'_>, threads: &Threads) -> Option<Table> {
    Some(Table::new("transfers", "Transfers", report.transfers.as_deref()?, |row| {
        let length = |from: Option<f64>, to: Option<f64>| match (from, to) {
            (Some(from), Some(to)) => Cell::time((to - from).max(0.0)),
            _ => Cell::text(""),
        };
        [
            ("asked", Cell::at(row.registered_s.or(row.submitted_s))),
            ("operation", Cell::text(row.operation.name())),
            ("bytes", Cell::bytes(row.bytes)),
            ("queued", length(row.registered_s, row.submitted_s)),
            ("pending", length(row.submitted_s, row.completed_s)),
            ("to wake", length(row.completed_s, row.woken_s)),
            ("lies in", Cell::optional(row.region.as_ref(), |it| region(report, it.kind, &it.id))),
            ("asked at", place(&row.stack)),
            ("status", Cell::text(&row.status.map(|status| status.to_string()).unwrap_or_default())),
            ("pid", Cell::number(row.pid.0)),
            ("thread", threads.cell(row.pid, row.tid)),
        ]
    }))
}

fn workers(report: &Report<'_>, threads: &Threads) -> Option<Table> {
    Some(Table::new("workers", "Workers", report.workers.as_deref()?, |row| {
        [
            ("thread", threads.cell(row.pid, row.tid)),
            ("mode", Cell::text(row.mode)),
            ("busy", Cell::share(row.busy)),
            ("in Python", Cell::optional(row.python, Cell::share)),
            ("progress a second", Cell::optional(row.progress_per_s, |it| Cell::count(it.round() as u64))),
            ("queue", Cell::count(row.queue_max)),
            ("waited for the GIL", Cell::optional(row.gil_wait_s, Cell::time)),
            ("pid", Cell::number(row.pid.0)),
        ]
    }))
}

fn redundancy(report: &Report<'_>) -> Option<Table> {
    let all = report.redundancy.as_ref()?;
    Some(
        Table::new("redundancy", "Redundant loads and stores", &all.pairs, |row| {
            let of = row.of.as_deref().unwrap_or_default();
            [
                ("redundant", Cell::bytes(row.redundant_bytes)),
                ("of", Cell::bytes(row.total_bytes)),
                ("equal", Cell::count(row.equal)),
                ("compared", Cell::count(row.compared)),
                ("what", Cell::text(row.kind.name())),
                ("memory", Cell::text(&format!("{} {of}", row.memory))),
                ("lies in", Cell::optional(row.region.as_ref(), |it| region(report, it.kind, &it.id))),
                ("first", place(&row.first.stack)),
                ("second", place(&row.second.stack)),
                ("pid", Cell::number(row.pid.0)),
            ]
        })
        .note(format!("{} samples in native code, {} watchpoints, {} traps.", all.samples, all.armed, all.traps)),
    )
}

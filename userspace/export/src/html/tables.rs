//! The page's tables: one per list of the report. A family that was off has none.

use std::collections::HashMap;

use pyobs_model::report::{FrameOut, HeapLineOut, HeapOut, Report};
use pyobs_model::{FrameKind, Model, Pid, Tid};

use super::table::{HtmlTable, TableCell};
use crate::escape::{self, MAX_NAME};
use crate::names;

pub(super) fn all(model: &Model, report: &Report<'_>) -> Vec<HtmlTable> {
    let threads = ThreadNames::of(model);
    let tables = [
        Some(processes(report)),
        frames(report),
        offcpu(model, report, &threads),
        gil(report, &threads),
        eval(report),
        heap(report),
        shm(report),
        arena(report),
        nrt(report),
        stages(report),
        transfers(report, &threads),
        workers(report, &threads),
        redundancy(report),
    ];
    tables.into_iter().flatten().collect()
}

/// Display names of threads, with their roles.
struct ThreadNames(HashMap<(Pid, Tid), String>);

impl ThreadNames {
    fn of(model: &Model) -> Self {
        let of = |(process, state): (_, &pyobs_model::ProcessState)| {
            let pid = state.process.pid;
            state.threads.keys().map(move |tid| ((pid, *tid), names::thread(model, process, *tid))).collect::<Vec<_>>()
        };
        Self(model.processes().flat_map(of).collect())
    }

    fn cell(&self, pid: Pid, tid: Tid) -> TableCell {
        self.0.get(&(pid, tid)).map_or_else(|| TableCell::number(tid.0), |name| TableCell::text(name))
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
fn place(stack: &[FrameOut]) -> TableCell {
    let python = stack.iter().rfind(|frame| frame.kind == FrameKind::Python);
    TableCell::text(&python.or(stack.last()).map(name).unwrap_or_default())
}

/// The segment or arena that memory belongs to, with a segment's name or an arena's kind: `segment tensor 27:9:0`.
///
/// The name is cut first, so that a long one leaves room for the id.
fn region(report: &Report<'_>, kind: &str, id: &str) -> TableCell {
    let segment = report.segments.iter().flatten().find(|it| kind == "segment" && it.id == id);
    let arena = report.arenas.iter().flatten().find(|it| kind == "arena" && it.id == id);
    let name = segment.and_then(|it| it.name.as_deref()).or(arena.map(|it| it.kind.as_str()));
    let name = name.map(|name| format!("{} ", escape::line(name, MAX_NAME / 2))).unwrap_or_default();
    TableCell::text(&format!("{kind} {name}{id}"))
}

/// The innermost frame of any kind.
fn leaf(stack: &[FrameOut]) -> TableCell {
    TableCell::text(&stack.last().map(name).unwrap_or_default())
}

fn processes(report: &Report<'_>) -> HtmlTable {
    HtmlTable::new("processes", "Processes", &report.processes, |row| {
        [
            ("pid", TableCell::number(row.pid.0)),
            ("command", TableCell::text(&row.command)),
            ("Python", TableCell::text(row.python.as_deref().unwrap_or_default())),
            ("CPU time", TableCell::time(row.cpu_s)),
            ("samples", TableCell::count(row.samples)),
            ("threads", TableCell::count(row.threads.len() as u64)),
            ("from", TableCell::at(row.started_s)),
            ("to", TableCell::at(row.ended_s)),
        ]
    })
}

fn frames(report: &Report<'_>) -> Option<HtmlTable> {
    let rows = report.frames.as_deref()?;
    let all: f64 = report.processes.iter().map(|process| process.cpu_s).sum();
    let share = |seconds: f64| TableCell::share(if all > 0.0 { seconds / all } else { 0.0 });
    Some(HtmlTable::new("frames", "Frames", rows, |row| {
        let kind = match row.frame.kind {
            FrameKind::Python => "Python",
            FrameKind::Native => "native",
            FrameKind::Kernel => "kernel",
        };
        [
            ("own", share(row.self_s)),
            ("own samples", TableCell::count(row.own)),
            ("total", share(row.total_s)),
            ("total samples", TableCell::count(row.total)),
            ("frame", TableCell::text(&name(&row.frame))),
            ("kind", TableCell::text(kind)),
            ("pid", TableCell::number(row.pid.0)),
        ]
    }))
}

fn offcpu(model: &Model, report: &Report<'_>, threads: &ThreadNames) -> Option<HtmlTable> {
    Some(HtmlTable::new("offcpu", "Sleeps", report.offcpu.as_deref()?, |row| {
        let waker = row.wakers.first().map(|it| names::waker(model, &it.waker)).unwrap_or_default();
        [
            ("time", TableCell::time(row.spent.total_s)),
            ("times", TableCell::count(row.spent.count)),
            ("longest", TableCell::time(row.spent.max_s)),
            ("reason", TableCell::text(row.reason.name())),
            ("where", place(&row.stack)),
            ("in", leaf(&row.stack)),
            ("woken by", TableCell::text(&waker)),
            ("pid", TableCell::number(row.pid.0)),
            ("thread", threads.cell(row.pid, row.tid)),
            ("stacks", TableCell::count(row.stacks)),
        ]
    }))
}

fn gil(report: &Report<'_>, threads: &ThreadNames) -> Option<HtmlTable> {
    Some(HtmlTable::new("gil", "Waits for the GIL", report.gil.as_deref()?, |row| {
        let holder = row.holder.as_ref();
        [
            ("time", TableCell::time(row.spent.total_s)),
            ("times", TableCell::count(row.spent.count)),
            ("longest", TableCell::time(row.spent.max_s)),
            ("who waits", threads.cell(row.pid, row.waiter.tid)),
            ("where", place(&row.waiter.stack)),
            ("behind", TableCell::optional(holder, |it| threads.cell(row.pid, it.tid))),
            ("which is at", place(holder.map_or(&[], |it| &it.stack))),
            ("pid", TableCell::number(row.pid.0)),
            ("stacks", TableCell::count(row.stacks)),
        ]
    }))
}

fn eval(report: &Report<'_>) -> Option<HtmlTable> {
    Some(HtmlTable::new("calls", "Calls", report.calls.as_deref()?, |row| {
        let line = row.line.map(|line| format!(":{line}")).unwrap_or_default();
        [
            ("calls", TableCell::count(row.spent.count)),
            ("time", TableCell::time(row.spent.total_s)),
            ("longest", TableCell::time(row.spent.max_s)),
            ("function", TableCell::text(&format!("{} ({}{line})", row.function, row.file.as_deref().unwrap_or("?")))),
            ("pid", TableCell::number(row.pid.0)),
        ]
    }))
}

fn shm(report: &Report<'_>) -> Option<HtmlTable> {
    Some(HtmlTable::new("segments", "Segments", report.segments.as_deref()?, |row| {
        let holders: Vec<String> = row.holders.iter().map(|it| it.holder.pid.to_string()).collect();
        [
            ("bytes", TableCell::bytes(row.bytes)),
            ("name", TableCell::text(row.name.as_deref().unwrap_or_default())),
            ("verdict", TableCell::text(row.verdict)),
            ("created", TableCell::at(row.created_s)),
            ("unlinked", TableCell::at(row.unlinked_s)),
            ("evicted", TableCell::at(row.evicted_s)),
            ("holders", TableCell::text(&holders.join(" "))),
            ("passed", TableCell::count(row.passed.len() as u64)),
            ("made at", place(&row.stack)),
            ("id", TableCell::text(&row.id)),
        ]
    }))
}

fn arena(report: &Report<'_>) -> Option<HtmlTable> {
    Some(HtmlTable::new("arenas", "Arenas", report.arenas.as_deref()?, |row| {
        [
            ("bytes", TableCell::bytes(row.bytes)),
            ("used", TableCell::optional(row.used_bytes, TableCell::bytes)),
            ("kind", TableCell::text(&row.kind)),
            ("born", TableCell::at(row.born_s)),
            ("died", TableCell::at(row.died_s)),
            ("cause", TableCell::text(row.cause.unwrap_or_default())),
            ("born at", place(&row.stack)),
            ("pid", TableCell::number(row.pid.0)),
            ("address", TableCell::text(&row.address)),
        ]
    }))
}

fn heap(report: &Report<'_>) -> Option<HtmlTable> {
    let processes = report.heap.as_ref()?;
    let lines = processes.iter().flat_map(|process| process.lines.iter().map(move |line| (process, line)));
    let mut rows: Vec<(&HeapOut, &HeapLineOut)> = lines.collect();
    rows.sort_by_key(|(_, line)| std::cmp::Reverse(line.bytes));
    let table = HtmlTable::new("memory", "Memory by line", &rows, |(process, line)| {
        [
            ("bytes", TableCell::bytes(line.bytes)),
            ("touched", TableCell::bytes(line.touched_bytes)),
            ("since", TableCell::at(Some(line.since_s))),
            ("kind", TableCell::text(line.kind)),
            ("line", TableCell::text(&line.frame.as_ref().map(name).unwrap_or_default())),
            ("pid", TableCell::number(process.pid.0)),
            ("moment", TableCell::text(process.at)),
        ]
    });
    Some(table.note("Of processes that have ended, at the moment when they had most.".to_owned()))
}

fn nrt(report: &Report<'_>) -> Option<HtmlTable> {
    let all = report.meminfos.as_ref()?;
    Some(
        HtmlTable::new("meminfos", "MemInfos", &all.sites, |row| {
            [
                ("bytes", TableCell::bytes(row.bytes)),
                ("live", TableCell::count(row.live)),
                ("born", TableCell::count(row.born)),
                ("born at", place(&row.stack)),
                ("pid", TableCell::number(row.pid.0)),
            ]
        })
        .note(format!("{} were born, {} died, {} live.", all.born, all.died, all.live)),
    )
}

fn stages(report: &Report<'_>) -> Option<HtmlTable> {
    Some(HtmlTable::new("stages", "Stages of transfers", report.transfer_stages.as_deref()?, |row| {
        [
            ("stage", TableCell::text(row.stage)),
            ("transfers", TableCell::count(row.count)),
            ("50 %", TableCell::time(row.p50_s)),
            ("90 %", TableCell::time(row.p90_s)),
            ("99 %", TableCell::time(row.p99_s)),
            ("longest", TableCell::time(row.max_s)),
            ("pid", TableCell::number(row.pid.0)),
        ]
    }))
}

fn transfers(report: &Report<'_>, threads: &ThreadNames) -> Option<HtmlTable> {
    Some(HtmlTable::new("transfers", "Transfers", report.transfers.as_deref()?, |row| {
        let length = |from: Option<f64>, to: Option<f64>| match (from, to) {
            (Some(from), Some(to)) => TableCell::time((to - from).max(0.0)),
            _ => TableCell::text(""),
        };
        [
            ("asked", TableCell::at(row.registered_s.or(row.submitted_s))),
            ("operation", TableCell::text(row.operation.name())),
            ("bytes", TableCell::bytes(row.bytes)),
            ("queued", length(row.registered_s, row.submitted_s)),
            ("pending", length(row.submitted_s, row.completed_s)),
            ("to wake", length(row.completed_s, row.woken_s)),
            ("lies in", TableCell::optional(row.region.as_ref(), |it| region(report, it.kind, &it.id))),
            ("asked at", place(&row.stack)),
            ("status", TableCell::text(&row.status.map(|status| status.to_string()).unwrap_or_default())),
            ("pid", TableCell::number(row.pid.0)),
            ("thread", threads.cell(row.pid, row.tid)),
        ]
    }))
}

fn workers(report: &Report<'_>, threads: &ThreadNames) -> Option<HtmlTable> {
    Some(HtmlTable::new("workers", "Workers", report.workers.as_deref()?, |row| {
        [
            ("thread", threads.cell(row.pid, row.tid)),
            ("mode", TableCell::text(row.mode)),
            ("busy", TableCell::share(row.busy)),
            ("in Python", TableCell::optional(row.python, TableCell::share)),
            ("progress a second", TableCell::optional(row.progress_per_s, |it| TableCell::count(it.round() as u64))),
            ("queue", TableCell::count(row.queue_max)),
            ("waited for the GIL", TableCell::optional(row.gil_wait_s, TableCell::time)),
            ("pid", TableCell::number(row.pid.0)),
        ]
    }))
}

fn redundancy(report: &Report<'_>) -> Option<HtmlTable> {
    let all = report.redundancy.as_ref()?;
    Some(
        HtmlTable::new("redundancy", "Redundant loads and stores", &all.pairs, |row| {
            let of = row.of.as_deref().unwrap_or_default();
            [
                ("redundant", TableCell::bytes(row.redundant_bytes)),
                ("of", TableCell::bytes(row.total_bytes)),
                ("equal", TableCell::count(row.equal)),
                ("compared", TableCell::count(row.compared)),
                ("what", TableCell::text(row.kind.name())),
                ("memory", TableCell::text(&format!("{} {of}", row.memory))),
                ("lies in", TableCell::optional(row.region.as_ref(), |it| region(report, it.kind, &it.id))),
                ("first", place(&row.first.stack)),
                ("second", place(&row.second.stack)),
                ("line", TableCell::optional(row.frame.as_ref(), |it| TableCell::text(&name(it)))),
                ("called from", TableCell::optional(row.caller.as_ref(), |it| TableCell::text(&name(it)))),
                ("pid", TableCell::number(row.pid.0)),
            ]
        })
        .note(crate::words::redundancy::looked(all.samples, all.armed, all.traps)),
    )
}

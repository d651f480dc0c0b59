//! A timeline in the trace event format that Perfetto reads: a track for each thread with its waits and what it did with
//! transfers, arrows from the thread that asked to the one that was woken, each transfer as a slice with its stages, and
//! the memory of arenas and segments as counters.
//!
//! Format: "Trace Event Format", <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>.

mod memory;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use pyobs_model::families::ucx::State;
use pyobs_model::views::{self, Stage, birthplace};
use pyobs_model::{Model, Nanos, Pid, ProcessRef, Selection, Tid, TransferId};
use serde::Serialize;

use crate::escape::{self, MAX_NAME};
use crate::{Error, Options, names};

/// The moment at which a thread had to do with a transfer is a slice of this length, or up to its next moment: arrows
/// end at slices.
const MOMENT: Nanos = Nanos(1000);
/// Of the tracks of transfers.
const CATEGORY: &str = "transfer";
/// What anything here comes from.
const FAMILIES: [&str; 5] = ["offcpu", "gil", "arena", "shm", "ucx"];

/// One event; its fields are the format's.
#[derive(Serialize)]
struct Record<'a> {
    ph: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    pid: Pid,
    tid: Tid,
    /// Microseconds.
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// An arrow ends at the slice around its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    args: BTreeMap<&'static str, String>,
}

impl<'a> Record<'a> {
    fn new(ph: &'static str, name: &'a str, (pid, tid): (Pid, Tid), at: Nanos) -> Self {
        Self { ph, name, cat: None, pid, tid, ts: micros(at), dur: None, id: None, bp: None, args: BTreeMap::new() }
    }
}

fn micros(time: Nanos) -> f64 {
    time.0 as f64 / 1e3
}

/// Events between commas.
struct Trace<'a> {
    out: &'a mut dyn Write,
    is_first: bool,
}

/// A number that changes.
#[derive(Serialize)]
struct Counter {
    ph: &'static str,
    name: &'static str,
    pid: Pid,
    ts: f64,
    args: BTreeMap<&'static str, u64>,
}

impl Trace<'_> {
    fn put(&mut self, record: &impl Serialize) -> Result<(), Error> {
        let comma = if self.is_first { "\n" } else { ",\n" };
        self.is_first = false;
        let text = serde_json::to_string(record)?;
        self.out.write_all(comma.as_bytes())?;
        Ok(self.out.write_all(escape::json(&text).as_bytes())?)
    }
}

/// A thread has to do with a transfer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    at: Nanos,
    deed: Deed,
    id: TransferId,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Deed {
    Asks,
    Submits,
    Completes,
    Notifies,
    Wakes,
}

impl Deed {
    fn name(self) -> &'static str {
        match self {
            Self::Asks => "ask",
            Self::Submits => "submit",
            Self::Completes => "complete",
            Self::Notifies => "notify",
            Self::Wakes => "wake",
        }
    }
}

/// What was done with a transfer, in order: by which thread, when.
fn deeds(state: &State) -> Vec<(Deed, Tid, Nanos)> {
    let transfer = &state.transfer;
    let asked = transfer.registered.map(|at| (Deed::Asks, transfer.tid, at));
    let submitted = transfer.submitted.filter(|_| !transfer.operation.is_multi()).zip(transfer.submitter);
    let completed = transfer.completed.zip(transfer.completer);
    let notified = state.woken.map(|woken| woken.notified).zip(transfer.completer);
    let woken = state.woken.map(|woken| (Deed::Wakes, woken.tid, woken.woken));
    let of = |deed, both: Option<(Nanos, Tid)>| both.map(|(at, tid)| (deed, tid, at));
    let all =
        [asked, of(Deed::Submits, submitted), of(Deed::Completes, completed), of(Deed::Notifies, notified), woken];
    all.into_iter().flatten().collect()
}

pub(crate) fn write(model: &Model, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    if !FAMILIES.iter().any(|family| model.is_on(family)) {
        return Err(Error::NoTimeline);
    }
    let rows = views::transfers(model, &options.selection);
    let mut threads: BTreeMap<(ProcessRef, Tid), Vec<Moment>> = BTreeMap::new();
    for (id, state, _) in &rows {
        for (deed, tid, at) in deeds(state) {
            threads.entry((state.transfer.process, tid)).or_default().push(Moment { at, deed, id: *id });
        }
    }
    out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut trace = Trace { out, is_first: true };
    let mut named = waits::threads(model, &options.selection);
    named.extend(threads.keys().copied());
    write_names(model, named.into_iter(), &mut trace)?;
    for (thread, mut moments) in threads {
        moments.sort_unstable();
        write_thread(model, thread, &moments, &mut trace)?;
    }
    for (id, state, bytes) in &rows {
        write_transfer(model, *id, state, *bytes, &mut trace)?;
    }
    write_queues(model, &options.selection, &rows, &mut trace)?;
    waits::write(model, &options.selection, &mut trace)?;
    memory::write(model, &options.selection, &mut trace)?;
    Ok(out.write_all(b"\n]}\n")?)
}

fn write_names(
    model: &Model,
    threads: impl Iterator<Item = (ProcessRef, Tid)>,
    trace: &mut Trace<'_>,
) -> Result<(), Error> {
    let mut named = BTreeSet::new();
    for (process, tid) in threads {
        let Some(state) = model.process(process) else { continue };
        let own = (state.process.pid, tid);
        if named.insert(process) {
            let name = BTreeMap::from([("name", names::process(&state.process))]);
            trace.put(&Record { args: name, ..Record::new("M", "process_name", own, Nanos(0)) })?;
        }
        let name = state.threads.get(&tid).and_then(|thread| thread.name.as_deref()).unwrap_or("thread");
        let name = BTreeMap::from([("name", escape::line(name, MAX_NAME).into_owned())]);
        trace.put(&Record { args: name, ..Record::new("M", "thread_name", own, Nanos(0)) })?;
    }
    Ok(())
}

/// What a thread did, and the arrows that begin, go on and end there.
fn write_thread(
    model: &Model,
    (process, tid): (ProcessRef, Tid),
    moments: &[Moment],
    trace: &mut Trace<'_>,
) -> Result<(), Error> {
    let Some(pid) = model.process(process).map(|state| state.process.pid) else { return Ok(()) };
    let next = moments.iter().skip(1).map(|next| next.at).chain([Nanos(u64::MAX)]);
    for (moment, next) in moments.iter().zip(next) {
        let Some(state) = model.ucx().get(moment.id) else { continue };
        let name = format!("{} {}", moment.deed.name(), state.transfer.operation.name());
        let length = MOMENT.min(next.saturating_sub(moment.at));
        let id = format!("{:#x}", moment.id.0);
        let args = BTreeMap::from([("transfer", id.clone())]);
        let slice = Record::new("X", &name, (pid, tid), moment.at);
        trace.put(&Record { cat: Some("thread"), dur: Some(micros(length)), args, ..slice })?;
        let deeds = deeds(state);
        let at = deeds.iter().position(|(deed, ..)| *deed == moment.deed);
        let (ph, bp) = match at {
            _ if deeds.len() < 2 => continue,
            Some(0) => ("s", None),
            Some(last) if last + 1 == deeds.len() => ("f", Some("e")),
            _ => ("t", None),
        };
        let arrow = Record::new(ph, CATEGORY, (pid, tid), moment.at);
        trace.put(&Record { cat: Some("flow"), id: Some(id), bp, ..arrow })?;
    }
    Ok(())
}

/// A transfer from its beginning to its end, and within it its stages. One that has no end has none here.
fn write_transfer(
    model: &Model,
    id: TransferId,
    state: &State,
    bytes: u64,
    trace: &mut Trace<'_>,
) -> Result<(), Error> {
    let transfer = &state.transfer;
    let pid = model.process(transfer.process).map(|state| state.process.pid);
    let (Some(pid), Some(begun)) = (pid, transfer.begun()) else { return Ok(()) };
    let own = (pid, transfer.tid);
    let id = Some(format!("{:#x}", id.0));
    let of = |ph, name, at| Record { cat: Some(CATEGORY), id: id.clone(), ..Record::new(ph, name, own, at) };
    trace.put(&Record { args: args(model, state, bytes), ..of("b", transfer.operation.name(), begun) })?;
    for stage in Stage::ALL {
        if let Some((from, to)) = stage.of(state) {
            trace.put(&of("b", stage.name(), from))?;
            trace.put(&of("e", stage.name(), to.max(from)))?;
        }
    }
    if let Some(ended) = state.ended() {
        trace.put(&of("e", transfer.operation.name(), ended.max(begun)))?;
    }
    Ok(())
}

fn args(model: &Model, state: &State, bytes: u64) -> BTreeMap<&'static str, String> {
    let transfer = &state.transfer;
    let hex = |number: u64| format!("{number:#x}");
    let mut args = BTreeMap::from([
        ("bytes", bytes.to_string()),
        ("library", transfer.library.name().to_owned()),
        ("buffer", hex(transfer.buffer)),
        ("endpoint", hex(transfer.through)),
        ("immediate", transfer.immediate.to_string()),
        ("delayed", transfer.is_delayed().to_string()),
    ]);
    args.extend(transfer.tag.map(|tag| ("tag", hex(tag))));
    args.extend(transfer.status.map(|status| ("status", status.to_string())));
    args.extend(transfer.protocol.map(|protocol| ("protocol", protocol.name().to_owned())));
    args.extend(transfer.parent.map(|parent| ("parent", hex(parent.0))));
    let frame = birthplace(model, model.ucx().stack(state)).and_then(|frame| model.frame(frame));
    args.extend(frame.map(|frame| ("asked_at", names::frame(frame, true))));
    args
}

/// How many transfers of each process wait to be handed to UCX.
fn write_queues(
    model: &Model,
    selection: &Selection,
    rows: &[(TransferId, &State, u64)],
    trace: &mut Trace<'_>,
) -> Result<(), Error> {
    let processes: BTreeSet<ProcessRef> = rows.iter().map(|(_, state, _)| state.transfer.process).collect();
    for process in processes {
        let Some(pid) = model.process(process).map(|state| state.process.pid) else { continue };
        let of_it = Selection { processes: Some([process].into()), ..selection.clone() };
        for (at, depth) in views::queue(model, &of_it) {
            let args = BTreeMap::from([("waiting", depth)]);
            trace.put(&Counter { ph: "C", name: "queue", pid, ts: micros(at), args })?;
        }
    }
    Ok(())
}

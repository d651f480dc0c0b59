//! A timeline for Perfetto. Each thread has its samples, a track of waits, and below that a track of its steps in transfers,
//! with arrows from the thread that asked to the one that was woken. Each transfer is a slice with its stages. Counters show
//! the memory of arenas and segments.

mod execs;
mod memory;
pub mod proto;
mod samples;
mod trace;
mod waits;

use std::collections::BTreeMap;
use std::io::Write;

use pyobs_model::families::ucx::TransferState;
use pyobs_model::views::{self, Stage, birthplace};
use pyobs_model::{Family, Model, Nanos, ProcessRef, Selection, Tid, TransferId};

use self::proto::Unit;
use self::trace::{Slice, TraceWriter, Track};
use crate::{Error, Format, Options, left_out, names};

/// The length of a step's slice, unless the thread's next step begins earlier. A step takes no time, but arrows connect
/// slices.
const STEP_LENGTH: Nanos = Nanos(1000);
// Categories of slices.
const TRANSFER: &str = "transfer";
const THREAD: &str = "thread";
const SHED: &str = "shed";
const LEFT_OUT: &str = "left_out";
/// The families that a timeline shows.
const FAMILIES: [Family; 6] = [Family::Cpu, Family::OffCpu, Family::Gil, Family::Arena, Family::Shm, Family::Ucx];

/// Their names, in a sentence.
pub(crate) fn families() -> String {
    let [first @ .., last] = FAMILIES.map(Family::name);
    format!("{} and {last}", first.join(", "))
}

/// A step at the time when a thread took it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ThreadStep {
    at: Nanos,
    step: TransferStep,
    id: TransferId,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TransferStep {
    Ask,
    Submit,
    Complete,
    Notify,
    Wake,
}

impl TransferStep {
    fn name(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Submit => "submit",
            Self::Complete => "complete",
            Self::Notify => "notify",
            Self::Wake => "wake",
        }
    }
}

/// The steps of a transfer in order, with their threads and times.
fn steps(state: &TransferState) -> Vec<(TransferStep, Tid, Nanos)> {
    let transfer = &state.transfer;
    let asked = transfer.registered.map(|at| (TransferStep::Ask, transfer.tid, at));
    let submitted = transfer.submitted.filter(|_| !transfer.operation.is_multi()).zip(transfer.submitter);
    let completed = transfer.completed.zip(transfer.completer);
    let notified = state.woken.map(|woken| woken.notified).zip(transfer.completer);
    let woken = state.woken.map(|woken| (TransferStep::Wake, woken.tid, woken.woken));
    let of = |step, both: Option<(Nanos, Tid)>| both.map(|(at, tid)| (step, tid, at));
    let all = [
        asked,
        of(TransferStep::Submit, submitted),
        of(TransferStep::Complete, completed),
        of(TransferStep::Notify, notified),
        woken,
    ];
    all.into_iter().flatten().collect()
}

pub(crate) fn write(model: &Model, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    if !FAMILIES.into_iter().any(|family| model.is_on(family)) {
        return Err(Error::NoTimeline);
    }
    let rows = views::transfers(model, &options.selection);
    let mut trace = TraceWriter::new(model, out);
    let mut threads: BTreeMap<(ProcessRef, Tid), Vec<ThreadStep>> = BTreeMap::new();
    for (id, state, _) in &rows {
        for (step, tid, at) in steps(state) {
            threads.entry((trace.process(state.transfer.process), tid)).or_default().push(ThreadStep {
                at,
                step,
                id: *id,
            });
        }
    }
    for (thread, mut own_steps) in threads {
        own_steps.sort_unstable();
        write_thread(model, thread, &own_steps, &mut trace)?;
    }
    for (id, state, bytes) in &rows {
        write_transfer(model, *id, state, *bytes, &mut trace)?;
    }
    write_queues(model, &options.selection, &mut trace)?;
    samples::write(model, options, &mut trace)?;
    waits::write(model, &options.selection, &mut trace)?;
    write_sheds(model, &mut trace)?;
    write_left_out(model, options, &mut trace)?;
    memory::write(model, &options.selection, &mut trace)
}

/// Writes the measures that kept pyobs inside its budget, with one track per family.
fn write_sheds(model: &Model, trace: &mut TraceWriter<'_>) -> Result<(), Error> {
    Family::ALL.into_iter().try_for_each(|family| {
        let of_family = model.sheds().filter(|shed| *shed.family == *family.name());
        let slices: Vec<Slice> = of_family
            .map(|shed| Slice {
                name: shed.measure.to_string(),
                category: SHED,
                from: shed.from,
                to: Some(shed.to.unwrap_or(model.now())),
                ..Slice::default()
            })
            .collect();
        if slices.is_empty() { Ok(()) } else { trace.slices(Track::Shed(family), slices) }
    })
}

/// Writes what is not shown, over the time before everything is.
fn write_left_out(model: &Model, options: &Options, trace: &mut TraceWriter<'_>) -> Result<(), Error> {
    let Some(name) = left_out::note(model, Format::Perfetto, options) else { return Ok(()) };
    let (from, to) = (options.selection.from.unwrap_or_default(), Some(model.listed_since()));
    trace.slices(Track::LeftOut, vec![Slice { name, category: LEFT_OUT, from, to, ..Slice::default() }])
}

/// Writes a thread's steps, with the arrows that begin, continue or end there.
fn write_thread(
    model: &Model,
    (process, tid): (ProcessRef, Tid),
    own_steps: &[ThreadStep],
    trace: &mut TraceWriter<'_>,
) -> Result<(), Error> {
    let next = own_steps.iter().skip(1).map(|next| next.at).chain([Nanos(u64::MAX)]);
    let slice = |(own, next): (&ThreadStep, Nanos)| {
        let state = model.ucx().get(own.id)?;
        let steps = steps(state);
        let at = steps.iter().position(|(step, ..)| *step == own.step)?;
        let arrow = (steps.len() > 1).then_some((own.id.0, at + 1 == steps.len()));
        Some(Slice {
            name: format!("{} {}", own.step.name(), state.transfer.operation.name()),
            category: THREAD,
            from: own.at,
            to: Some(own.at.saturating_add(STEP_LENGTH.min(next.saturating_sub(own.at)))),
            args: BTreeMap::from([("transfer", format!("{:#x}", own.id.0))]),
            arrow,
        })
    };
    trace.slices(Track::Steps(process, tid), own_steps.iter().zip(next).filter_map(slice).collect())
}

/// Writes a transfer with its stages inside. A transfer without an end stays open.
fn write_transfer(
    model: &Model,
    id: TransferId,
    state: &TransferState,
    bytes: u64,
    trace: &mut TraceWriter<'_>,
) -> Result<(), Error> {
    let transfer = &state.transfer;
    let (Some(_), Some(begun)) = (model.process(transfer.process), transfer.begun()) else { return Ok(()) };
    let mut args = args(model, state, bytes);
    args.insert("transfer", format!("{:#x}", id.0));
    let of = |name: &str, from, to| Slice { name: name.to_owned(), category: TRANSFER, from, to, ..Slice::default() };
    let mut slices = vec![Slice { args, ..of(transfer.operation.name(), begun, state.ended()) }];
    let stages = Stage::ALL.iter().filter_map(|stage| stage.of(state).map(|(from, to)| (stage, from, to)));
    slices.extend(stages.map(|(stage, from, to)| of(stage.name(), from, Some(to))));
    trace.slices(Track::Transfer(trace.process(transfer.process), transfer.operation, id), slices)
}

fn args(model: &Model, state: &TransferState, bytes: u64) -> BTreeMap<&'static str, String> {
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

/// Writes the number of transfers per process that wait to be submitted to UCX.
fn write_queues(model: &Model, selection: &Selection, trace: &mut TraceWriter<'_>) -> Result<(), Error> {
    for (process, depths) in views::queues(model, selection) {
        for (at, depth) in depths {
            trace.count(Track::Counter(trace.process(process), "queue", Unit::Count), at, depth)?;
        }
    }
    Ok(())
}

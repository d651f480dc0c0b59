//! A timeline for Perfetto: for each thread its samples and a track with its waits, one below it with what it did with
//! transfers, arrows from the thread that asked to the one that was woken, each transfer as a slice with its stages, and the
//! memory of arenas and segments as counters.

mod lives;
mod memory;
pub mod proto;
mod samples;
mod trace;
mod waits;

use std::collections::BTreeMap;
use std::io::Write;

use pyobs_model::families::ucx::State;
use pyobs_model::views::{self, Stage, birthplace};
use pyobs_model::{Family, Model, Nanos, ProcessRef, Selection, Tid, TransferId};

use self::proto::Unit;
use self::trace::{Slice, Trace, Track};
use crate::{Error, Options, names};

/// The moment at which a thread had to do with a transfer is a slice of this length, or up to its next moment: arrows
/// end at slices.
const MOMENT: Nanos = Nanos(1000);
/// Of the slices of transfers, and of what threads do with them.
const TRANSFER: &str = "transfer";
const THREAD: &str = "thread";
const SHED: &str = "shed";
/// What anything here comes from.
const FAMILIES: [Family; 6] = [Family::Cpu, Family::OffCpu, Family::Gil, Family::Arena, Family::Shm, Family::Ucx];

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
    if !FAMILIES.into_iter().any(|family| model.is_on(family)) {
        return Err(Error::NoTimeline);
    }
    let rows = views::transfers(model, &options.selection);
    let mut trace = Trace::new(model, out);
    let mut threads: BTreeMap<(ProcessRef, Tid), Vec<Moment>> = BTreeMap::new();
    for (id, state, _) in &rows {
        for (deed, tid, at) in deeds(state) {
            threads.entry((trace.process(state.transfer.process), tid)).or_default().push(Moment { at, deed, id: *id });
        }
    }
    for (thread, mut moments) in threads {
        moments.sort_unstable();
        write_thread(model, thread, &moments, &mut trace)?;
    }
    for (id, state, bytes) in &rows {
        write_transfer(model, *id, state, *bytes, &mut trace)?;
    }
    write_queues(model, &options.selection, &mut trace)?;
    samples::write(model, options, &mut trace)?;
    waits::write(model, &options.selection, &mut trace)?;
    write_sheds(model, &mut trace)?;
    memory::write(model, &options.selection, &mut trace)
}

/// The measures that kept pyobs inside the budget: a track for each family.
fn write_sheds(model: &Model, trace: &mut Trace<'_>) -> Result<(), Error> {
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

/// What a thread did, and the arrows that begin, go on and end there.
fn write_thread(
    model: &Model,
    (process, tid): (ProcessRef, Tid),
    moments: &[Moment],
    trace: &mut Trace<'_>,
) -> Result<(), Error> {
    let next = moments.iter().skip(1).map(|next| next.at).chain([Nanos(u64::MAX)]);
    let slice = |(moment, next): (&Moment, Nanos)| {
        let state = model.ucx().get(moment.id)?;
        let deeds = deeds(state);
        let at = deeds.iter().position(|(deed, ..)| *deed == moment.deed)?;
        let arrow = (deeds.len() > 1).then_some((moment.id.0, at + 1 == deeds.len()));
        Some(Slice {
            name: format!("{} {}", moment.deed.name(), state.transfer.operation.name()),
            category: THREAD,
            from: moment.at,
            to: Some(moment.at.saturating_add(MOMENT.min(next.saturating_sub(moment.at)))),
            args: BTreeMap::from([("transfer", format!("{:#x}", moment.id.0))]),
            arrow,
        })
    };
    trace.slices(Track::Deeds(process, tid), moments.iter().zip(next).filter_map(slice).collect())
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
    let (Some(_), Some(begun)) = (model.process(transfer.process), transfer.begun()) else { return Ok(()) };
    let mut args = args(model, state, bytes);
    args.insert("transfer", format!("{:#x}", id.0));
    let of = |name: &str, from, to| Slice { name: name.to_owned(), category: TRANSFER, from, to, ..Slice::default() };
    let mut slices = vec![Slice { args, ..of(transfer.operation.name(), begun, state.ended()) }];
    let stages = Stage::ALL.iter().filter_map(|stage| stage.of(state).map(|(from, to)| (stage, from, to)));
    slices.extend(stages.map(|(stage, from, to)| of(stage.name(), from, Some(to))));
    trace.slices(Track::Transfer(trace.process(transfer.process), transfer.operation, id), slices)
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
fn write_queues(model: &Model, selection: &Selection, trace: &mut Trace<'_>) -> Result<(), Error> {
    for (process, depths) in views::queues(model, selection) {
        for (at, depth) in depths {
            trace.count(Track::Counter(trace.process(process), "queue", Unit::Count), at, depth)?;
        }
    }
    Ok(())
}

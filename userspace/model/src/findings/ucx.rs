//! Transfers that are slower or more numerous than they should be.

use crate::Family;
use std::collections::{BTreeMap, HashMap};

use super::{Cost, Evidence, Finding, Severity, Target, commonest, name, own_place, place, seconds};
use crate::families::ucx::TransferState;
use crate::number::{plural, size};
use crate::views::{self, By, Group, Role, Spread, Stage, WorkerRow, spread};
use crate::{GilWait, Model, Nanos, Place, ProcessRef, Selection, StackId};

/// A thread polls in vain if it is busy for longer than this time and share, with fewer transfers per second than this.
const POLL_TIME: Nanos = Nanos(2_000_000_000);
const POLL_BUSY: f64 = 0.9;
const POLL_TRANSFERS: f64 = 200.0;
/// A thread that makes progress calls less often than this computes in between.
const POLL_CALLS: f64 = 5000.0;
/// Minimum wakes for `ucx/slow-notify`, and the delay that one in ten must reach. The median delay must also reach
/// the median time that transfers are with UCX.
const WAKES: u64 = 20;
const SLOW_WAKE: Nanos = Nanos(5_000_000);
/// A queue grows if in the last quarter of its changes it exceeds this length, and twice its length in the first
/// quarter.
const QUEUE: u64 = 32;
/// How often the progress thread must wait for the GIL.
const GIL_WAITS: u64 = 20;
/// Minimum repetitions of a buffer with the same content, and its minimum bytes.
const RESENDS: u64 = 3;
const RESENT_BYTES: u64 = 4096;

pub(super) fn find(model: &Model, selection: &Selection) -> Vec<Finding> {
    if !model.is_on(Family::Ucx) {
        return Vec::new();
    }
    let workers = views::workers(model, selection);
    let rows = views::transfers(model, selection);
    let mut by_process: BTreeMap<ProcessRef, Vec<&TransferState>> = BTreeMap::new();
    for (_, state, _) in &rows {
        by_process.entry(state.transfer.process).or_default().push(state);
    }
    // A thread whose transfers are all forgotten may still wait for its notifier.
    for worker in &workers {
        by_process.entry(worker.process).or_default();
    }
    let waits = model.gil().waits_by_thread(selection);
    let gil_waits = |worker: &WorkerRow| waits.get(&(worker.process, worker.tid)).map_or(&[][..], Vec::as_slice);
    let mut found: Vec<Finding> = workers
        .iter()
        .flat_map(|worker| [busy_poll(model, worker), gil(model, worker, gil_waits(worker))])
        .flatten()
        .collect();
    let lasting = Selection { tid: None, ..selection.lasting() };
    let queues = views::queues(model, &lasting);
    let shutdowns = shutdowns(model, &lasting);
    for (process, states) in &by_process {
        let of_it: Vec<&WorkerRow> = workers.iter().filter(|worker| worker.process == *process).collect();
        found.extend(slow_notify(model, selection, *process, states, &of_it));
        found.extend(queues.get(process).and_then(|depths| queue_grows(model, *process, depths)));
        found.extend(unfinished(model, *process, states, &of_it, shutdowns.get(process).copied()));
        found.extend(resend(model, *process, states));
    }
    found
}

fn finding(
    model: &Model,
    process: ProcessRef,
    (id, severity): (&'static str, Severity),
    (summary, detail, advice): (String, String, &str),
    evidence: BTreeMap<&'static str, Evidence>,
) -> Finding {
    let pid = model.process(process).map(|state| state.process.pid);
    let (advice, cost, target) = (advice.to_owned(), Cost::default(), Some(Target::Transfers(None)));
    Finding { id, severity, summary, detail, advice, process: Some(process), pid, evidence, cost, target }
}

fn busy_poll(model: &Model, worker: &WorkerRow) -> Option<Finding> {
    let thread = &worker.thread;
    let handled = thread.completed.saturating_add(thread.submitted);
    let rate = handled as f64 / seconds(thread.observed).max(1e-9);
    let polls = worker.role == Role::Progress && worker.mode.ends_with("polling");
    let computes = worker.progress.is_some_and(|calls| calls < POLL_CALLS);
    if !polls || computes || thread.observed < POLL_TIME || worker.busy < POLL_BUSY || rate > POLL_TRANSFERS {
        return None;
    }
    let who = name(model, worker.process, worker.tid);
    let summary = format!("thread {who} burns a core: it polls for {rate:.0} transfers a second");
    let detail = format!(
        "Thread {who} was on a CPU, or ready to be, for {:.0}% of {:.1} s and had {} transfers to submit or complete \
         in that time.",
        worker.busy * 100.0,
        seconds(thread.observed),
        handled,
    );
    let advice = "Choose a progress mode that waits for events (`blocking`, or `thread` for UCXX): it leaves the core \
                  to others.";
    let mut evidence = BTreeMap::from([
        ("tid", Evidence::Count(u64::from(worker.tid.0))),
        ("busy", Evidence::Number(worker.busy)),
        ("transfers_per_s", Evidence::Number(rate)),
    ]);
    evidence.extend(worker.progress.map(|calls| ("progress_per_s", Evidence::Number(calls))));
    let found =
        finding(model, worker.process, ("ucx/busy-poll", Severity::Warning), (summary, detail, advice), evidence);
    Some(Finding { cost: Cost::time(worker.busy), target: Some(Target::Worker(worker.tid)), ..found })
}

fn gil(model: &Model, worker: &WorkerRow, waits: &[GilWait]) -> Option<Finding> {
    let is_apart = worker.role == Role::Progress && worker.mode.starts_with("thread");
    let others = model.ucx().threads_of(worker.process).any(|other| other.tid != worker.tid && other.registered > 0);
    if !is_apart || !others || worker.gil_waits < GIL_WAITS {
        return None;
    }
    let who = name(model, worker.process, worker.tid);
    let waited = worker.gil_wait.map_or(0.0, seconds);
    let line =
        place(model, commonest(waits.iter().map(|wait| (views::asked_at(model, wait.stack), Nanos(wait.count)))));
    let summary = format!("thread {who} waited {} times for the GIL, mostly at {line}", worker.gil_waits);
    let detail = format!(
        "Thread {who} hands transfers to UCX and completes them; while it waits for the GIL, no transfer goes on. It waited \
         {} times, {:.1} ms in all. A callback in Python, or an object of Python's that is released there, makes it take \
         the GIL.",
        worker.gil_waits,
        waited * 1e3,
    );
    let advice = "Have Python told of transfers by UCXX's futures instead of callbacks of your own, and keep the last \
                  references to what is sent in your own threads.";
    let evidence = BTreeMap::from([
        ("tid", Evidence::Count(u64::from(worker.tid.0))),
        ("waits", Evidence::Count(worker.gil_waits)),
        ("waited_s", Evidence::Number(waited)),
        ("held_s", Evidence::Number(seconds(worker.gil_held))),
        ("line", Evidence::Text(line)),
    ]);
    let found = finding(
        model,
        worker.process,
        ("ucx/gil-on-progress-thread", Severity::Warning),
        (summary, detail, advice),
        evidence,
    );
    Some(Finding {
        cost: Cost::time(waited / seconds(worker.thread.observed).max(1e-9)),
        target: Some(Target::Worker(worker.tid)),
        ..found
    })
}

fn of_stage(states: &[&TransferState], stage: Stage) -> Spread {
    let lengths = states.iter().filter_map(|state| stage.of(state));
    spread(lengths.map(|(from, to)| to.saturating_sub(from)).collect())
}

fn slow_notify(
    model: &Model,
    selection: &Selection,
    process: ProcessRef,
    states: &[&TransferState],
    workers: &[&WorkerRow],
) -> Option<Finding> {
    let (wakes, pending) = (of_stage(states, Stage::Notified), of_stage(states, Stage::Pending));
    if wakes.count < WAKES || wakes.p90 < SLOW_WAKE || wakes.p50 < pending.p50 {
        return None;
    }
    let waiters: Vec<_> =
        workers.iter().filter(|worker| worker.role != Role::Progress).map(|worker| worker.tid).collect();
    let waits = views::gil_waits(model, selection, By::Line, Group::None);
    let waits = waits.iter().filter(|row| row.process == process && waiters.contains(&row.waiter));
    let holder = commonest(waits.map(|row| (row.holder_frame, row.times.total)));
    let behind = holder.map_or_else(String::new, |frame| {
        format!(" Meanwhile its threads waited for the GIL, mostly behind {}.", place(model, Some(frame)))
    });
    let (p50, p90) = (seconds(wakes.p50) * 1e3, seconds(wakes.p90) * 1e3);
    let summary = format!("Python learns of finished transfers {p50:.1} ms late (median), {p90:.1} ms for one in ten");
    let detail = format!(
        "In {} transfers, the time from handing over the future to setting it had a median of {p50:.1} ms, and one in \
         ten took {p90:.1} ms or more; UCX itself took {:.1} ms (median).{behind} The event loop sets futures in \
         batches: whatever runs in it, or holds the GIL, delays all of them.",
        wakes.count,
        seconds(pending.p50) * 1e3,
    );
    let advice =
        "Move what runs for long in the event loop's process into another one, so that the loop comes round sooner.";
    let mut evidence = BTreeMap::from([
        ("wakes", Evidence::Count(wakes.count)),
        ("p50_s", Evidence::Number(seconds(wakes.p50))),
        ("p90_s", Evidence::Number(seconds(wakes.p90))),
        ("pending_p50_s", Evidence::Number(seconds(pending.p50))),
    ]);
    if holder.is_some() {
        evidence.insert("holder_line", Evidence::Text(place(model, holder)));
    }
    Some(finding(model, process, ("ucx/slow-notify", Severity::Warning), (summary, detail, advice), evidence))
}

fn queue_grows(model: &Model, process: ProcessRef, depths: &[(Nanos, u64)]) -> Option<Finding> {
    let quarter = depths.len() / 4;
    let deepest = |part: &[(Nanos, u64)]| part.iter().map(|(_, depth)| *depth).max();
    let first = deepest(depths.get(..quarter)?)?;
    let last = deepest(depths.get(depths.len() - quarter..)?)?;
    if last < QUEUE || last <= first * 2 {
        return None;
    }
    let summary = format!("{last} transfers waited at once to be handed to UCX, after {first} in the beginning");
    let detail = format!(
        "Transfers are registered faster than the thread that makes progress hands them to UCX: at the most {first} waited \
         at once in the first quarter, and {last} in the last."
    );
    let advice = "Look at what else the thread that makes progress does, or hold fewer transfers in flight.";
    let evidence = BTreeMap::from([("first", Evidence::Count(first)), ("last", Evidence::Count(last))]);
    Some(finding(model, process, ("ucx/queue-grows", Severity::Warning), (summary, detail, advice), evidence))
}

/// Transfers that never finished, and interpreters that cannot exit because of a thread that nobody stopped.
fn unfinished(
    model: &Model,
    process: ProcessRef,
    states: &[&TransferState],
    workers: &[&WorkerRow],
    shuts_down: Option<Nanos>,
) -> Option<Finding> {
    let has_ended = model.process(process)?.ended.is_some();
    let left: Vec<&&TransferState> = states.iter().filter(|state| state.transfer.completed.is_none()).collect();
    let notifier = workers.iter().find(|worker| worker.role == Role::Notifier);
    if let Some(notifier) = notifier.filter(|_| !has_ended)
        && let Some(since) = shuts_down
    {
        let who = name(model, process, notifier.tid);
        let summary = format!(
            "the interpreter cannot exit: threading._shutdown waits for UCXX's notifier thread {who}, which was never stopped"
        );
        let detail = format!(
            "The main thread has waited for {:.1} s for threads to end, and thread {who} goes on to wait for transfers: an \
             error or an early return skipped `ucxx.stop_notifier_thread()`. {} had no end.",
            seconds(since),
            plural(left.len() as u64, "transfer", "transfers"),
        );
        let advice = "Call `ucxx.stop_notifier_thread()` in a `finally`.";
        let evidence = BTreeMap::from([
            ("unfinished", Evidence::Count(left.len() as u64)),
            ("notifier_tid", Evidence::Count(u64::from(notifier.tid.0))),
            ("waited_s", Evidence::Number(seconds(since))),
        ]);
        let words = (summary, detail, advice);
        return Some(finding(model, process, ("ucx/unfinished", Severity::Serious), words, evidence));
    }
    if left.is_empty() || !has_ended {
        return None;
    }
    let line = own_place(model, left.iter().find_map(|state| model.ucx().stack(state)));
    let bytes = left.iter().fold(0, |sum: u64, state| sum.saturating_add(state.transfer.bytes));
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for state in &left {
        *kinds.entry(state.transfer.operation.name()).or_default() += 1;
    }
    let kinds: Vec<String> = kinds.into_iter().map(|(operation, count)| format!("{count} {operation}")).collect();
    let summary = format!("{} ({}) had no end when the process ended", kinds.join(" and "), size(bytes));
    let transfers = match left.len() {
        1 => format!("1 transfer, asked for at {line}, was"),
        many => format!("{many} transfers, the first asked for at {line}, were"),
    };
    let detail = format!(
        "{transfers} neither completed nor cancelled before the process ended: the other side went away, or nobody waited.",
    );
    let advice = "Wait for each transfer, or cancel it, before the process ends, also where there was an error.";
    let evidence = BTreeMap::from([
        ("unfinished", Evidence::Count(left.len() as u64)),
        ("bytes", Evidence::Count(bytes)),
        ("line", Evidence::Text(line)),
    ]);
    let found = finding(model, process, ("ucx/unfinished", Severity::Info), (summary, detail, advice), evidence);
    Some(Finding { cost: Cost::bytes(bytes), ..found })
}

/// How long the threads of a process have waited at one place in `threading._shutdown` (Lib/threading.py), if that is
/// long.
fn shutdowns(model: &Model, selection: &Selection) -> BTreeMap<ProcessRef, Nanos> {
    let mut known: HashMap<StackId, bool> = HashMap::new();
    let mut is_shutdown = |stack| {
        *known.entry(stack).or_insert_with(|| {
            model.stack(stack).iter().filter_map(|frame| model.frame(*frame)).any(|frame| {
                &*frame.function == "_shutdown"
                    && frame.file.as_deref().is_some_and(|file| file.ends_with("threading.py"))
            })
        })
    };
    let mut totals: BTreeMap<Place, Nanos> = BTreeMap::new();
    for (key, sum) in model.offcpu().sums(selection).into_iter().filter(|(key, _)| is_shutdown(key.place.stack)) {
        let total = totals.entry(key.place).or_default();
        *total = total.saturating_add(sum.times.total);
    }
    let mut longest: BTreeMap<ProcessRef, Nanos> = BTreeMap::new();
    for (place, total) in totals.into_iter().filter(|(_, total)| *total >= Nanos(1_000_000_000)) {
        let longest = longest.entry(place.process).or_default();
        *longest = total.max(*longest);
    }
    longest
}

fn resend(model: &Model, process: ProcessRef, states: &[&TransferState]) -> Option<Finding> {
    let mut sends: BTreeMap<(u64, u64, u64, u64), Vec<&TransferState>> = BTreeMap::new();
    for state in states {
        let transfer = &state.transfer;
        if let Some(hash) = transfer.hash.filter(|_| transfer.bytes >= RESENT_BYTES) {
            let key = (transfer.through, transfer.buffer, transfer.bytes, hash);
            sends.entry(key).or_default().push(state);
        }
    }
    let again = sends.into_iter().filter(|(_, same)| same.len() as u64 >= RESENDS);
    let ((_, buffer, bytes, _), same) =
        again.max_by_key(|((_, _, bytes, _), same)| bytes.saturating_mul(same.len() as u64))?;
    let line = own_place(model, same.iter().find_map(|state| model.ucx().stack(state)));
    let count = same.len() as u64;
    let summary = format!("the same {} were sent {count} times, unchanged, at {line}", size(bytes));
    let detail = format!(
        "The buffer at {buffer:#x} was sent {count} times through one endpoint with the same content, judging by a sample \
         of 128 bytes. If the other side still has it, {} need not have been sent.",
        size(bytes.saturating_mul(count - 1)),
    );
    let advice = "Have the other side keep what it got, and send only what has changed.";
    let evidence = BTreeMap::from([
        ("sends", Evidence::Count(count)),
        ("bytes", Evidence::Count(bytes)),
        ("buffer", Evidence::Text(format!("{buffer:#x}"))),
        ("line", Evidence::Text(line)),
    ]);
    let found = finding(model, process, ("ucx/resend", Severity::Info), (summary, detail, advice), evidence);
    Some(Finding { cost: Cost::bytes(bytes.saturating_mul(count - 1)), ..found })
}

//! Threads that wait for the GIL longer than they use it.

use std::collections::{BTreeMap, HashMap};

use super::{Cost, Evidence, Finding, Severity, Target, commonest, mean, name, place, seconds};
use crate::views::{self, By, GilRow, GilShare};
use crate::{Model, Nanos, ProcessRef, Selection, Tid, WaitReason};

/// A thread computes and so holds the GIL more than this share of the time,
const HELD: f64 = 0.5;
/// another asks for it at least so often,
const WAITS: u64 = 20;
/// each time waits so long on average, for the one who computes gives it away only after the switch interval (5 ms),
const MEAN: Nanos = Nanos(2_000_000);
/// loses this share of its time by that,
const LOST: f64 = 0.1;
/// most of it behind the one who computes, as far as the holder is known,
const BEHIND: f64 = 0.5;
/// and uses the GIL for less than this part of the time that it waits for it: it does not compute itself.
const USED: f64 = 0.5;
/// From this share on the loss is serious.
const SERIOUS: f64 = 0.5;

/// Threads that wait a switch interval whenever they need the GIL for a moment (the convoy effect).
pub(super) fn find(model: &Model, selection: &Selection) -> Vec<Finding> {
    let mut rows: HashMap<(ProcessRef, Tid), Vec<GilRow>> = HashMap::new();
    for row in views::gil_waits(model, selection, By::Line) {
        rows.entry((row.process, row.waiter)).or_default().push(row);
    }
    let mut found = Vec::new();
    let shares = views::gil_shares(model, selection);
    let times =
        times(model, selection, shares.iter().filter_map(|(process, share)| Some((*process, share.holder()?.0))));
    for (process, share) in shares {
        let Some((holder, _)) = share.holder() else { continue };
        let held = had(&share, holder, times.get(&(process, holder)).copied().unwrap_or_default());
        if share.observed == Nanos(0) || held <= HELD * seconds(share.observed) {
            continue;
        }
        for (waiter, thread) in &share.threads {
            let rows = rows.get(&(process, *waiter)).map_or(&[][..], Vec::as_slice);
            let elsewhere = rows.iter().filter(|row| row.holder.is_some_and(|tid| tid != holder));
            let elsewhere: f64 = elsewhere.map(|row| seconds(row.times.total)).sum();
            let wanted = seconds(thread.wanted.total);
            if *waiter != holder
                && thread.wanted.count >= WAITS
                && mean(thread.wanted) >= seconds(MEAN)
                && wanted >= LOST * seconds(share.observed)
                && elsewhere <= (1.0 - BEHIND) * wanted
                && seconds(thread.held) < USED * wanted
            {
                found.push(convoy(model, process, &share, (holder, held), *waiter, rows));
            }
        }
    }
    found
}

/// What is known of a thread's time.
#[derive(Clone, Copy, Default)]
struct Spent {
    ran: Nanos,
    /// Asleep, but not for the GIL.
    asleep: Nanos,
}

fn times(
    model: &Model,
    selection: &Selection,
    threads: impl Iterator<Item = (ProcessRef, Tid)>,
) -> HashMap<(ProcessRef, Tid), Spent> {
    let mut times: HashMap<_, Spent> = threads.map(|thread| (thread, Spent::default())).collect();
    if times.is_empty() || !model.is_on("offcpu") {
        return times;
    }
    for (place, sum) in model.cpu().sums(selection) {
        if let Some(spent) = times.get_mut(&(place.process, place.tid)) {
            spent.ran = spent.ran.saturating_add(sum.time);
        }
    }
    for sleep in model.offcpu().sleeps(selection).filter(|sleep| sleep.reason != WaitReason::Gil) {
        if let Some(spent) = times.get_mut(&(sleep.process, sleep.tid)) {
            spent.asleep = spent.asleep.saturating_add(sleep.total);
        }
    }
    times
}

/// For how many seconds a thread had the GIL. Samples see it while it runs; where it had to share a CPU with others, it kept the
/// GIL while it was ready and did not run: as much of that time as of the time in which it ran.
fn had(share: &GilShare, tid: Tid, spent: Spent) -> f64 {
    let thread = share.threads.get(&tid).copied().unwrap_or_default();
    let held = seconds(thread.held);
    if spent.ran == Nanos(0) {
        return held;
    }
    let ran = seconds(spent.ran);
    let awake = seconds(share.observed) - seconds(thread.wanted.total) - seconds(spent.asleep);
    held.max((held / ran).min(1.0) * awake)
}

fn convoy(
    model: &Model,
    process: ProcessRef,
    share: &GilShare,
    (holder, held): (Tid, f64),
    waiter: Tid,
    rows: &[GilRow],
) -> Finding {
    let thread = |tid: Tid| share.threads.get(&tid).copied().unwrap_or_default();
    let (wanted, observed) = (thread(waiter).wanted, seconds(share.observed));
    let (lost, held_share) = (seconds(wanted.total) / observed, (held / observed).min(1.0));
    let waiter_line = commonest(rows.iter().map(|row| (row.frame, row.times.total)));
    let behind = rows.iter().filter(|row| row.holder == Some(holder));
    let holder_line = commonest(behind.map(|row| (row.holder_frame, row.times.total)));
    let (waiter_line, holder_line) = (place(model, waiter_line), place(model, holder_line));
    let (waiter_name, holder_name) = (name(model, process, waiter), name(model, process, holder));
    let mean_ms = mean(wanted) * 1e3;
    let detail = format!(
        "Thread {waiter_name} waited {} {} for the GIL, {mean_ms:.1} ms on average and {:.2} s of {observed:.2} s in \
         all ({:.0}%), mostly at {waiter_line}. Thread {holder_name} held it {:.0}% of the time, mostly at {holder_line}. \
         A thread that computes gives the GIL away only when the switch interval (sys.getswitchinterval, 5 ms by \
         default) is over.",
        wanted.count,
        // The stacks of pieces were sampled, which hides where a wait begins.
        if thread(waiter).sampled.is_exact() { "times" } else { "switch intervals or less" },
        seconds(wanted.total),
        lost * 100.0,
        held_share * 100.0,
    );
    let advice = "Have the thread that holds the GIL compute in another process, or in code that releases it.";
    let evidence = BTreeMap::from([
        ("waiter_tid", Evidence::Count(u64::from(waiter.0))),
        ("waiter_line", Evidence::Text(waiter_line)),
        ("waits", Evidence::Count(wanted.count)),
        ("waited_s", Evidence::Number(seconds(wanted.total))),
        ("holder_tid", Evidence::Count(u64::from(holder.0))),
        ("holder_line", Evidence::Text(holder_line)),
        ("held_s", Evidence::Number(held)),
        ("observed_s", Evidence::Number(observed)),
    ]);
    Finding {
        id: "gil/convoy",
        severity: if lost >= SERIOUS { Severity::Serious } else { Severity::Warning },
        summary: format!("thread {waiter_name} waits {mean_ms:.1} ms for the GIL each time, behind {holder_name}"),
        detail,
        advice: advice.to_owned(),
        process: Some(process),
        pid: model.process(process).map(|state| state.process.pid),
        evidence,
        cost: Cost::time(lost),
        target: Some(Target::GilWaits(waiter)),
    }
}

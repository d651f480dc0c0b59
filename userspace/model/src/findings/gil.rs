//! Threads that wait for the GIL longer than they use it.

use crate::Family;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::{Cost, Evidence, Finding, Severity, Target, commonest, mean, name, place, seconds};
use crate::views::{self, By, GilRow, GilShare, GilThread, Group};
use crate::{Model, Nanos, ProcessRef, Selection, Tid, WaitReason};

/// A convoy: one thread computes and so holds the GIL for more than this share of the time,
const HELD: f64 = 0.5;
/// another asks for it at least this many times,
const WAITS: u64 = 20;
/// waits at least this long on average, because the computing thread releases it only after the switch interval (5 ms),
const MEAN: Nanos = Nanos(2_000_000);
/// loses this share of its time waiting,
const LOST: f64 = 0.1;
/// most of it behind the computing thread as far as the holder is known,
const BEHIND: f64 = 0.5;
/// and uses the GIL for less than this share of its waiting time, so it does not compute itself.
const USED: f64 = 0.5;
/// Share of time lost from which the finding is serious.
const SERIOUS: f64 = 0.5;
/// The switch interval alone does not explain waits that average more than this, in seconds.
const LONG: f64 = 0.010;
/// A holder is starved of CPU if it ran for less than this share of the time it was runnable.
const STARVED: f64 = 0.4;
/// A CPU limit holds a holder up if it was throttled for more than this share of the time it was runnable.
const THROTTLED: f64 = 0.25;
/// A holder sleeps with the GIL if it was asleep for more than this share of the time it held it.
const ASLEEP: f64 = 0.5;
/// How many waiters the detail names besides the one that waited longest.
const NAMED: usize = 8;

/// Finds threads that wait a switch interval or longer each time they need the GIL briefly (the convoy effect). One
/// finding per thread that they wait behind.
pub(super) fn find(model: &Model, selection: &Selection) -> Vec<Finding> {
    let mut rows: HashMap<ProcessRef, BTreeMap<Tid, Vec<GilRow>>> = HashMap::new();
    for row in views::gil_waits(model, selection, By::Line, Group::None) {
        rows.entry(row.process).or_default().entry(row.waiter).or_default().push(row);
    }
    let shares = views::gil_shares(model, selection);
    // For each process, the threads that the others may be waiting behind.
    let candidates: BTreeMap<ProcessRef, Vec<Candidate>> = shares
        .iter()
        .map(|(process, share)| (*process, candidates(share, rows.entry(*process).or_default())))
        .collect();
    let threads = candidates.iter().flat_map(|(process, of)| of.iter().map(|one| (*process, one.tid)));
    let times = times(model, selection, threads);
    let mut found = Vec::new();
    for (process, share) in &shares {
        let rows = &rows[process];
        let held = candidates[process].iter().map(|Candidate { tid, least }| {
            let spent = times.get(&(*process, *tid)).copied().unwrap_or_default();
            Blocker { tid: *tid, held: had(share, *tid, spent).max(seconds(*least)), spent }
        });
        let Some(holder) = held.max_by(|one, other| one.held.total_cmp(&other.held)) else { continue };
        if share.observed == Nanos(0) || holder.held <= HELD * seconds(share.observed) {
            continue;
        }
        let mut waiters: Vec<Tid> = share.threads.keys().copied().filter(|tid| *tid != holder.tid).collect();
        waiters.retain(|tid| is_held_up(share, *tid, holder.tid, rows.get(tid).map_or(&[], Vec::as_slice)));
        waiters.sort_by_key(|tid| Reverse(share.threads[tid].wanted.total));
        if !waiters.is_empty() {
            found.push(convoy(model, *process, share, &holder, &waiters, rows));
        }
    }
    found
}

/// A thread that may hold the GIL most of the time.
struct Candidate {
    tid: Tid,
    /// A lower bound of how long it held the GIL: how long another thread waited behind it.
    least: Nanos,
}

/// The thread that samples most often saw holding the GIL, and the thread that others waited behind longest. A thread
/// that sleeps while it holds the GIL has no samples.
fn candidates(share: &GilShare, rows: &BTreeMap<Tid, Vec<GilRow>>) -> Vec<Candidate> {
    let behind = longest_wait_behind(rows);
    let waited_for = behind.iter().max_by_key(|(tid, time)| (**time, Reverse(**tid))).map(|(tid, _)| *tid);
    let sampled = share.holder().map(|(tid, _)| tid);
    let tids = sampled.into_iter().chain(waited_for.filter(|tid| Some(*tid) != sampled));
    tids.map(|tid| Candidate { tid, least: behind.get(&tid).copied().unwrap_or_default() }).collect()
}

/// For each holder, the longest total time that any single thread waited behind it.
fn longest_wait_behind(rows: &BTreeMap<Tid, Vec<GilRow>>) -> HashMap<Tid, Nanos> {
    let mut longest: HashMap<Tid, Nanos> = HashMap::new();
    for rows in rows.values() {
        let mut behind: HashMap<Tid, Nanos> = HashMap::new();
        for row in rows {
            if let Some(holder) = row.holder {
                let sum = behind.entry(holder).or_default();
                *sum = sum.saturating_add(row.times.total);
            }
        }
        for (holder, time) in behind {
            let longest = longest.entry(holder).or_default();
            *longest = time.max(*longest);
        }
    }
    longest
}

fn is_held_up(share: &GilShare, waiter: Tid, holder: Tid, rows: &[GilRow]) -> bool {
    let thread = share.threads[&waiter];
    let elsewhere = rows.iter().filter(|row| row.holder.is_some_and(|tid| tid != holder));
    let elsewhere: f64 = elsewhere.map(|row| seconds(row.times.total)).sum();
    let wanted = seconds(thread.wanted.total);
    thread.wanted.count >= WAITS
        && mean(thread.wanted) >= seconds(MEAN)
        && wanted >= LOST * seconds(share.observed)
        && elsewhere <= (1.0 - BEHIND) * wanted
        && seconds(thread.held) < USED * wanted
}

/// The thread that the others wait behind.
struct Blocker {
    tid: Tid,
    /// Seconds for which it held the GIL.
    held: f64,
    spent: ThreadTime,
}

/// How a thread spent its time.
#[derive(Clone, Copy, Default)]
struct ThreadTime {
    ran: Nanos,
    /// Asleep, except for waits for the GIL.
    asleep: Nanos,
    /// Kept from running by the limit of its control group.
    throttled: Nanos,
}

fn times(
    model: &Model,
    selection: &Selection,
    threads: impl Iterator<Item = (ProcessRef, Tid)>,
) -> HashMap<(ProcessRef, Tid), ThreadTime> {
    let mut times: HashMap<_, ThreadTime> = threads.map(|thread| (thread, ThreadTime::default())).collect();
    if times.is_empty() || !model.is_on(Family::OffCpu) {
        return times;
    }
    for (place, sum) in model.cpu().sums(selection) {
        if let Some(spent) = times.get_mut(&(place.process, place.tid)) {
            spent.ran = spent.ran.saturating_add(sum.time);
        }
    }
    for ((process, tid, reason), slept) in model.offcpu().threads(selection) {
        let Some(spent) = times.get_mut(&(process, tid)) else { continue };
        let sum = match reason {
            WaitReason::Gil => continue,
            WaitReason::Throttled => &mut spent.throttled,
            _ => &mut spent.asleep,
        };
        *sum = sum.saturating_add(slept.total);
    }
    times
}

/// Seconds for which a thread held the GIL. Samples show it only while it runs. If it had to share a CPU, it also held
/// the GIL for the same share of the time in which it was runnable.
fn had(share: &GilShare, tid: Tid, spent: ThreadTime) -> f64 {
    let held = seconds(share.threads.get(&tid).copied().unwrap_or_default().held);
    let ran = seconds(spent.ran);
    if ran == 0.0 { held } else { held.max((held / ran).min(1.0) * awake(share, tid, spent)) }
}

/// Seconds for which it was running or runnable.
fn awake(share: &GilShare, tid: Tid, spent: ThreadTime) -> f64 {
    let wanted = share.threads.get(&tid).copied().unwrap_or_default().wanted;
    seconds(share.observed) - seconds(wanted.total) - seconds(spent.asleep)
}

/// Why the holder keeps the others waiting, and what to try. The length of a wait does not tell: waiters wake up every
/// switch interval, and if stacks are sampled those sleeps are what is counted.
fn reason(share: &GilShare, holder: &Blocker, mean: f64) -> (String, &'static str) {
    let ran = seconds(holder.spent.ran);
    let awake = awake(share, holder.tid, holder.spent).max(0.0);
    let slept = holder.held - awake;
    if slept > ASLEEP * holder.held && holder.spent.asleep > Nanos(0) {
        let text = format!("It slept for at least {slept:.2} s of that time, in code that keeps the GIL.");
        return (text, "Have the code that sleeps release the GIL (Py_BEGIN_ALLOW_THREADS; ctypes.CDLL, not PyDLL).");
    }
    let throttled = seconds(holder.spent.throttled);
    if throttled > THROTTLED * awake {
        let text = format!(
            "It was runnable for {awake:.2} s, and for {throttled:.2} s of that its control group had used up its CPU limit, so \
             it kept the GIL without running."
        );
        return (text, "Raise the group's CPU limit, or run fewer threads that compute in it.");
    }
    if ran > 0.0 && ran < STARVED * awake {
        let text = format!(
            "It was runnable for {awake:.2} s and got the CPU for {ran:.2} s of it: other programs had the CPU."
        );
        return (text, "Give the process more CPU, or run fewer threads that compute.");
    }
    let text = if mean > LONG {
        "The average wait is longer than the switch interval (sys.getswitchinterval, 5 ms by default): the holder runs \
         native code that keeps the GIL."
    } else {
        "Python code gives the GIL away when the switch interval (sys.getswitchinterval, 5 ms by default) is over, native code \
         only when it releases it or returns."
    };
    (text.to_owned(), "Have the thread that holds the GIL compute in another process, or in code that releases it.")
}

fn convoy(
    model: &Model,
    process: ProcessRef,
    share: &GilShare,
    holder: &Blocker,
    waiters: &[Tid],
    rows: &BTreeMap<Tid, Vec<GilRow>>,
) -> Finding {
    let thread = |tid: Tid| share.threads.get(&tid).copied().unwrap_or_default();
    // Sorted by total wait time: the first waited longest.
    let waiter = waiters[0];
    let rows = rows.get(&waiter).map_or(&[][..], Vec::as_slice);
    let (wanted, observed) = (thread(waiter).wanted, seconds(share.observed));
    let (lost, held_share) = (seconds(wanted.total) / observed, (holder.held / observed).min(1.0));
    let waiter_line = commonest(rows.iter().map(|row| (row.frame, row.times.total)));
    let behind = rows.iter().filter(|row| row.holder == Some(holder.tid));
    let holder_line = commonest(behind.map(|row| (row.holder_frame, row.times.total)));
    let (waiter_line, holder_line) = (place(model, waiter_line), place(model, holder_line));
    let (waiter_name, holder_name) = (name(model, process, waiter), name(model, process, holder.tid));
    let mean_ms = mean(wanted) * 1e3;
    let others = waiters
        .iter()
        .skip(1)
        .take(NAMED)
        .map(|tid| format!("{} {:.2} s", name(model, process, *tid), seconds(thread(*tid).wanted.total)));
    let others: Vec<String> = others.collect();
    let others = match waiters.len().saturating_sub(1 + NAMED) {
        _ if others.is_empty() => String::new(),
        0 => format!(" So did {}.", others.join(", ")),
        more => format!(" So did {} and {more} more.", others.join(", ")),
    };
    let (reason, advice) = reason(share, holder, mean(wanted));
    let detail = format!(
        "Thread {waiter_name} waited {} {} for the GIL, {mean_ms:.1} ms on average and {:.2} s of {observed:.2} s in \
         all ({:.0}%), mostly at {waiter_line}.{others} Thread {holder_name} held it {:.0}% of the time, mostly at \
         {holder_line}. {reason}",
        wanted.count,
        // Sampled stacks hide where a wait begins.
        if thread(waiter).sampled.is_exact() { "times" } else { "switch intervals or less" },
        seconds(wanted.total),
        lost * 100.0,
        held_share * 100.0,
    );
    let sum = |each: fn(&GilThread) -> f64| waiters.iter().map(|tid| each(&thread(*tid))).sum::<f64>();
    let tids: Vec<String> = waiters.iter().map(Tid::to_string).collect();
    let evidence = BTreeMap::from([
        ("waiter_tid", Evidence::Count(u64::from(waiter.0))),
        ("waiter_tids", Evidence::Text(tids.join(" "))),
        ("waiter_line", Evidence::Text(waiter_line)),
        ("waits", Evidence::Count(waiters.iter().map(|tid| thread(*tid).wanted.count).sum())),
        ("waited_s", Evidence::Number(sum(|thread| seconds(thread.wanted.total)))),
        ("holder_tid", Evidence::Count(u64::from(holder.tid.0))),
        ("holder_line", Evidence::Text(holder_line)),
        ("held_s", Evidence::Number(holder.held)),
        ("observed_s", Evidence::Number(observed)),
    ]);
    let how_long = match thread(waiter).sampled.is_exact() {
        true => format!("{mean_ms:.1} ms for the GIL each time"),
        false => format!("for the GIL {:.0}% of the time", lost * 100.0),
    };
    let summary = match waiters.len() {
        1 => format!("thread {waiter_name} waits {how_long}, behind {holder_name}"),
        many => format!("{many} threads, such as {waiter_name}, wait {how_long}, behind {holder_name}"),
    };
    Finding {
        id: "gil/convoy",
        severity: if lost >= SERIOUS { Severity::Serious } else { Severity::Warning },
        summary,
        detail,
        advice: advice.to_owned(),
        process: Some(process),
        pid: model.process(process).map(|state| state.process.pid),
        evidence,
        cost: Cost::time(sum(|thread| seconds(thread.wanted.total)) / observed),
        target: Some(Target::GilWaits(waiter)),
    }
}

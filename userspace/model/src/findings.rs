//! What deserves to be said first: statements that the sums bear out, with their numbers.

mod arena;
mod nrt;
mod redundancy;
mod shm;
mod ucx;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::families::Times;
use crate::views::{self, By, GilRow, GilShare};
use crate::{FrameId, Model, Nanos, Pid, ProcessRef, Selection, Tid};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Info,
    Warning,
    Serious,
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Serious => "serious",
        }
    }
}

/// A number or a name that a finding rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Evidence {
    Count(u64),
    Number(f64),
    Text(String),
}

/// Text holds names of watched processes: escape it before it reaches a terminal or a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// `family/name`.
    pub id: &'static str,
    pub severity: Severity,
    pub summary: String,
    /// Whole sentences.
    pub detail: String,
    #[serde(skip)]
    pub process: Option<ProcessRef>,
    pub pid: Option<Pid>,
    pub evidence: BTreeMap<&'static str, Evidence>,
}

/// The most serious first.
pub fn find(model: &Model, selection: &Selection) -> Vec<Finding> {
    let mut findings = convoys(model, selection);
    findings.extend(arena::find(model, selection));
    findings.extend(shm::find(model));
    findings.extend(nrt::find(model, selection));
    findings.extend(ucx::find(model, selection));
    findings.extend(redundancy::find(model, selection));
    findings.sort_by_key(|finding| Reverse(finding.severity));
    findings
}

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
fn convoys(model: &Model, selection: &Selection) -> Vec<Finding> {
    let mut rows: HashMap<(ProcessRef, Tid), Vec<GilRow>> = HashMap::new();
    for row in views::gil_waits(model, selection, By::Line) {
        rows.entry((row.process, row.waiter)).or_default().push(row);
    }
    let mut found = Vec::new();
    for (process, share) in views::gil_shares(model, selection) {
        let Some((holder, held)) = share.holder() else { continue };
        if share.observed == Nanos(0) || seconds(held.held) <= HELD * seconds(share.observed) {
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
                found.push(convoy(model, process, &share, holder, *waiter, rows));
            }
        }
    }
    found
}

fn convoy(model: &Model, process: ProcessRef, share: &GilShare, holder: Tid, waiter: Tid, rows: &[GilRow]) -> Finding {
    let thread = |tid: Tid| share.threads.get(&tid).copied().unwrap_or_default();
    let (wanted, observed) = (thread(waiter).wanted, seconds(share.observed));
    let (lost, held) = (seconds(wanted.total) / observed, (seconds(thread(holder).held) / observed).min(1.0));
    let waiter_line = commonest(rows.iter().map(|row| (row.frame, row.times.total)));
    let behind = rows.iter().filter(|row| row.holder == Some(holder));
    let holder_line = commonest(behind.map(|row| (row.holder_frame, row.times.total)));
    let (waiter_line, holder_line) = (place(model, waiter_line), place(model, holder_line));
    let (waiter_name, holder_name) = (name(model, process, waiter), name(model, process, holder));
    let mean_ms = mean(wanted) * 1e3;
    let detail = format!(
        "Thread {waiter_name} waited {} times for the GIL, {mean_ms:.1} ms on average and {:.2} s of {observed:.2} s in \
         all ({:.0}%), mostly at {waiter_line}. Thread {holder_name} held it {:.0}% of the time, mostly at {holder_line}. \
         A thread that computes gives the GIL away only when the switch interval (sys.getswitchinterval, 5 ms by \
         default) is over: let it compute in another process, or in code that releases the GIL.",
        wanted.count,
        seconds(wanted.total),
        lost * 100.0,
        held * 100.0,
    );
    let evidence = BTreeMap::from([
        ("waiter_tid", Evidence::Count(u64::from(waiter.0))),
        ("waiter_line", Evidence::Text(waiter_line)),
        ("waits", Evidence::Count(wanted.count)),
        ("waited_s", Evidence::Number(seconds(wanted.total))),
        ("holder_tid", Evidence::Count(u64::from(holder.0))),
        ("holder_line", Evidence::Text(holder_line)),
        ("held_s", Evidence::Number(seconds(thread(holder).held))),
        ("observed_s", Evidence::Number(observed)),
    ]);
    Finding {
        id: "gil/convoy",
        severity: if lost >= SERIOUS { Severity::Serious } else { Severity::Warning },
        summary: format!("thread {waiter_name} waits {mean_ms:.1} ms for the GIL each time, behind {holder_name}"),
        detail,
        process: Some(process),
        pid: model.process(process).map(|state| state.process.pid),
        evidence,
    }
}

/// An amount of memory, in words.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

fn seconds(time: Nanos) -> f64 {
    time.as_secs_f64()
}

fn mean(times: Times) -> f64 {
    seconds(times.total) / times.count.max(1) as f64
}

fn commonest(frames: impl Iterator<Item = (Option<FrameId>, Nanos)>) -> Option<FrameId> {
    let mut sums: BTreeMap<FrameId, Nanos> = BTreeMap::new();
    for (frame, time) in frames {
        if let Some(frame) = frame {
            let sum = sums.entry(frame).or_default();
            *sum = sum.saturating_add(time);
        }
    }
    sums.into_iter().max_by_key(|(frame, time)| (*time, Reverse(*frame))).map(|(frame, _)| frame)
}

/// `fetch (/app/client.py:31)`.
pub fn place(model: &Model, frame: Option<FrameId>) -> String {
    let Some(frame) = frame.and_then(|frame| model.frame(frame)) else { return "an unknown place".to_owned() };
    let file = frame.file.as_deref().unwrap_or("?");
    let line = frame.line.map(|line| format!(":{line}")).unwrap_or_default();
    format!("{} ({file}{line})", frame.function)
}

/// `4250 (io-worker)`.
fn name(model: &Model, process: ProcessRef, tid: Tid) -> String {
    let thread = model.process(process).and_then(|state| state.threads.get(&tid));
    match thread.and_then(|thread| thread.name.as_deref()) {
        Some(name) => format!("{tid} ({name})"),
        None => tid.to_string(),
    }
}

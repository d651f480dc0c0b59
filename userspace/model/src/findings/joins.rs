//! Findings that need several families: a finished transfer whose waiter is held up by the GIL, bytes of a shared
//! segment that are sent again unchanged, and computing that waits for transfers it could overlap.

use crate::Family;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Cost, Evidence, Finding, Severity, Target, commonest, name, own_place, place, seconds};
use crate::families::cpu::CpuSum;
use crate::families::redundancy::PairSum;
use crate::families::ucx::TransferState;
use crate::number::{plural, size};
use crate::views;
use crate::{
    FrameId, GilWait, Model, Nanos, ProcessRef, RegionId, Sample, SegmentId, Selection, StackId, Tid, TransferId,
};

/// Minimum transfers for `ucx/behind-gil`, the share of them that must be held up, and how long each of those must wait
/// for the GIL.
const TRANSFERS: usize = 10;
const HELD_UP: f64 = 0.5;
const LATE: Nanos = Nanos(1_000_000);
/// Minimum repetitions of a buffer with the same content for `shm/resent`, and its minimum bytes.
const SENDS: usize = 3;
const SENT_BYTES: u64 = 4096;
/// A line likely rewrote the bytes if this share of its stores left the value unchanged.
const REWRITTEN: f64 = 0.7;
const STORES: u64 = 20;
/// `ucx/no-overlap` needs transfers and computing to take at least the first share of the time each, and computing to
/// overlap transfers for at most the second.
const BOTH: f64 = 0.2;
const BESIDE: f64 = 0.05;
const SAMPLES: u64 = 100;
/// Upper bound of the span of one event of waits for the GIL.
const SPAN_MAX: Nanos = Nanos(6_000_000_000);

type Transfers<'a> = BTreeMap<ProcessRef, Vec<(TransferId, &'a TransferState)>>;
/// The waits of each thread, in the order of their ends.
type Waits = HashMap<(ProcessRef, Tid), Vec<GilWait>>;
/// A piece of a segment and its content: offset, size and hash.
type Content = (SegmentId, u64, u64, u64);

pub(super) fn find(model: &Model, selection: &Selection) -> Vec<Finding> {
    if !model.is_on(Family::Ucx) {
        return Vec::new();
    }
    let mut transfers = Transfers::new();
    for (id, state) in model.ucx().transfers().filter(|(_, state)| views::has_transfer(selection, state)) {
        transfers.entry(state.transfer.process).or_default().push((id, state));
    }
    let everyone = Selection { tid: None, ..selection.clone() };
    let waits = model.gil().waits_by_thread(&everyone);
    let mut samples: HashMap<ProcessRef, Vec<&Sample>> = HashMap::new();
    for sample in model.cpu().selected(&everyone).filter(|sample| transfers.contains_key(&sample.process)) {
        samples.entry(sample.process).or_default().push(sample);
    }
    let mut found = Vec::new();
    for (process, states) in &transfers {
        let samples = samples.get(process).map_or(&[][..], Vec::as_slice);
        found.extend(behind_gil(model, selection, *process, states, &waits));
        found.extend(resent(model, selection, *process, states));
        found.extend(no_overlap(model, selection, *process, states, samples));
    }
    found
}

/// Whether `finding` says everything that `other` does, and more.
pub(super) fn says_more(finding: &Finding, other: &Finding) -> bool {
    let is_same = finding.process == other.process && finding.evidence.get("bytes") == other.evidence.get("bytes");
    is_same && (finding.id, other.id) == ("shm/resent", "ucx/resend")
}

fn finding(
    model: &Model,
    process: ProcessRef,
    id: &'static str,
    (summary, detail, advice): (String, String, &str),
    evidence: BTreeMap<&'static str, Evidence>,
) -> Finding {
    let pid = model.process(process).map(|state| state.process.pid);
    let (severity, cost, target) = (Severity::Warning, Cost::default(), Some(Target::Transfers(None)));
    let advice = advice.to_owned();
    Finding { id, severity, summary, detail, advice, process: Some(process), pid, evidence, cost, target }
}

/// Merges overlapping spans, and sorts them.
fn joined(mut spans: Vec<(Nanos, Nanos)>) -> Vec<(Nanos, Nanos)> {
    spans.sort_unstable();
    let mut joined: Vec<(Nanos, Nanos)> = Vec::new();
    for (from, to) in spans {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    joined
}

fn length(spans: &[(Nanos, Nanos)]) -> Nanos {
    spans.iter().fold(Nanos(0), |sum, (from, to)| sum.saturating_add(to.saturating_sub(*from)))
}

/// Transfers were finished, but the thread to be notified waited for the GIL.
fn behind_gil(
    model: &Model,
    selection: &Selection,
    process: ProcessRef,
    states: &[(TransferId, &TransferState)],
    waits: &Waits,
) -> Option<Finding> {
    let since = model.gil().kept_since();
    let mut delays = Vec::new();
    let mut held_up = Vec::new();
    let mut behind: BTreeMap<(Tid, Option<FrameId>), Nanos> = BTreeMap::new();
    let mut waiters = BTreeSet::new();
    for (id, state) in states {
        let (Some(over), Some(woken)) = (state.transfer.completed, state.woken) else { continue };
        // For earlier transfers, the waits for the GIL are not kept one by one.
        if over < since {
            continue;
        }
        delays.push(woken.woken.saturating_sub(over));
        let waits = waits.get(&(process, woken.tid)).map_or(&[][..], Vec::as_slice);
        // Waits are sorted by their ends. One that began before the future was set may end up to `SPAN_MAX` later.
        let first = waits.partition_point(|wait| wait.at <= over);
        let is_near = |wait: &&GilWait| wait.at <= woken.woken.saturating_add(SPAN_MAX);
        let mut held = Nanos(0);
        for wait in waits[first..].iter().take_while(is_near) {
            let part = wait.within((over, woken.woken));
            if part == Nanos(0) {
                continue;
            }
            held = held.saturating_add(part);
            if let Some(holder) = wait.holder {
                let sum = behind.entry((holder.tid, views::own_line(model, holder.stack))).or_default();
                *sum = sum.saturating_add(part);
            }
        }
        if held >= LATE {
            held_up.push((held, *id));
            waiters.insert(woken.tid);
        }
    }
    if delays.len() < TRANSFERS || (held_up.len() as f64) < HELD_UP * delays.len() as f64 {
        return None;
    }
    let ((holder, frame), _) = behind.into_iter().max_by_key(|(_, time)| *time)?;
    let (all, count) = (delays.len(), held_up.len());
    let lost = held_up.iter().fold(Nanos(0), |sum: Nanos, (held, _)| sum.saturating_add(*held));
    let worst = held_up.iter().max().map(|(_, id)| *id);
    let mean = seconds(lost) / count.max(1) as f64 * 1e3;
    let (line, who) = (place(model, frame), name(model, process, holder));
    let waiter = waiters.iter().next().map_or_else(String::new, |tid| name(model, process, *tid));
    let summary = format!("transfers are over and wait {mean:.1} ms for the GIL, which thread {who} holds at {line}");
    let detail = format!(
        "{count} of {} ended while thread {waiter}, which notifies Python, waited for the GIL: {mean:.1} ms \
         each on average, {:.2} s in all. Thread {who} held it, mostly at {line}. The transfers themselves are not slow.",
        plural(all as u64, "transfer", "transfers"),
        seconds(lost),
    );
    let advice = "Have the line that holds the GIL release it, or compute in another process.";
    let evidence = BTreeMap::from([
        ("transfers", Evidence::Count(all as u64)),
        ("held_up", Evidence::Count(count as u64)),
        ("lost_s", Evidence::Number(seconds(lost))),
        ("holder_tid", Evidence::Count(u64::from(holder.0))),
        ("holder_line", Evidence::Text(line)),
    ]);
    let found = finding(model, process, "ucx/behind-gil", (summary, detail, advice), evidence);
    let observed = model.observed(process, selection, model.gil().since(selection).max(since));
    let cost = Cost::time((seconds(lost) / seconds(observed).max(1e-9)).min(1.0));
    Some(Finding { cost, target: Some(Target::Transfers(worst)), ..found })
}

/// The same bytes of a shared segment are sent again unchanged.
fn resent(
    model: &Model,
    selection: &Selection,
    process: ProcessRef,
    states: &[(TransferId, &TransferState)],
) -> Option<Finding> {
    let mut sends: BTreeMap<Content, Vec<(TransferId, &TransferState)>> = BTreeMap::new();
    for (id, state) in states {
        let transfer = &state.transfer;
        let (Some(hash), Some(begun)) = (transfer.hash, transfer.begun()) else { continue };
        if transfer.bytes < SENT_BYTES {
            continue;
        }
        let mut around = model.regions_at_time(process, transfer.buffer, begun);
        let segment = around.find_map(|region| match region.id {
            RegionId::Segment(id) => Some((id, region.offset.saturating_add(transfer.buffer - region.address))),
            RegionId::Arena(_) | RegionId::MemInfo(_) => None,
        });
        if let Some((segment, offset)) = segment {
            sends.entry((segment, offset, transfer.bytes, hash)).or_default().push((*id, *state));
        }
    }
    let again = sends.into_iter().filter(|(_, same)| same.len() >= SENDS);
    let ((segment, _, bytes, _), same) =
        again.max_by_key(|((_, _, bytes, _), same)| bytes.saturating_mul(same.len() as u64))?;
    let state = model.shm().get(segment)?;
    let segment_name = state.segment.name.as_deref().unwrap_or(state.segment.kind.name());
    let born = own_place(model, state.stack);
    let asked = own_place(model, same.iter().find_map(|(_, state)| model.ucx().stack(state)));
    let (count, vain) = (same.len() as u64, bytes.saturating_mul(same.len() as u64 - 1));
    let writer = rewriter(model, selection, process, segment).map(|frame| place(model, Some(frame)));
    let rewritten = writer.as_ref().map_or_else(String::new, |line| {
        format!(" Meanwhile {line} mostly stored what was there already: likely it writes them again each time.")
    });
    let summary =
        format!("the same {} of segment {segment_name} were sent {count} times, unchanged, at {asked}", size(bytes));
    let detail = format!(
        "Segment {segment_name} was made at {born}. {} of it were sent {count} times with the same content, judging by a \
         sample of 128 bytes; {} need not have been sent.{rewritten}",
        size(bytes),
        size(vain),
    );
    let advice = "Send only what has changed, or all of it once.";
    let mut evidence = BTreeMap::from([
        ("sends", Evidence::Count(count)),
        ("bytes", Evidence::Count(bytes)),
        ("segment", Evidence::Text(state.id())),
        ("born", Evidence::Text(born)),
        ("line", Evidence::Text(asked)),
    ]);
    if let Some(line) = writer {
        evidence.insert("rewritten_at", Evidence::Text(line));
    }
    let found = finding(model, process, "shm/resent", (summary, detail, advice), evidence);
    let latest = same.last().map(|(id, _)| *id);
    Some(Finding { cost: Cost::bytes(vain), target: Some(Target::Transfers(latest)), ..found })
}

/// The line, in any process, whose stores into a segment most often leave the value unchanged. In the process that
/// sends the segment, stores with an unknown address count too.
fn rewriter(model: &Model, selection: &Selection, process: ProcessRef, segment: SegmentId) -> Option<FrameId> {
    let everyone = Selection { processes: None, tid: None, ..selection.lasting() };
    let stores = views::stores(model, &everyone, |pair| {
        views::lies_in(model, pair, |id| id == RegionId::Segment(segment)).unwrap_or(pair.process == process)
    });
    let is_vain = |sum: &PairSum| sum.compared >= STORES && sum.equal as f64 > REWRITTEN * sum.compared as f64;
    let vain = stores.into_iter().filter(|(_, sum)| is_vain(sum));
    vain.max_by_key(|(line, sum)| (sum.equal, std::cmp::Reverse(*line))).map(|(line, _)| line.frame)
}

/// The process alternates between computing and waiting for transfers.
fn no_overlap(
    model: &Model,
    selection: &Selection,
    process: ProcessRef,
    states: &[(TransferId, &TransferState)],
    samples: &[&Sample],
) -> Option<Finding> {
    if !model.is_on(Family::Cpu) || states.len() < TRANSFERS {
        return None;
    }
    // Samples of earlier times are not kept one by one.
    let since = model.cpu().kept_since();
    let pending = states.iter().filter_map(|(_, state)| Some((state.transfer.submitted?, state.transfer.completed?)));
    let pending = pending.filter(|(_, to)| *to >= since).map(|(from, to)| (from.max(since), to));
    let pending = joined(pending.collect());
    let observed = seconds(model.observed(process, selection, since));
    let mut driving: BTreeMap<StackId, bool> = BTreeMap::new();
    let (mut beside, mut apart) = (CpuSum::default(), CpuSum::default());
    let mut lines: BTreeMap<StackId, u64> = BTreeMap::new();
    for sample in samples {
        if *driving.entry(sample.stack).or_insert_with(|| drives_transfers(model, sample.stack)) {
            continue;
        }
        let next = pending.partition_point(|(_, to)| *to < sample.at);
        if pending.get(next).is_some_and(|(from, _)| *from <= sample.at) {
            beside.add_sample(sample);
        } else {
            apart.add_sample(sample);
            *lines.entry(sample.stack).or_default() += sample.weight.0;
        }
    }
    let computed = seconds(apart.time) / observed.max(1e-9);
    let waited = seconds(length(&pending)) / observed.max(1e-9);
    let all = beside.and(apart);
    let (share, _) = beside.share_of(&all);
    if all.samples < SAMPLES || computed < BOTH || waited < BOTH || share > BESIDE {
        return None;
    }
    let weighed = lines.into_iter().map(|(stack, count)| (views::own_line(model, stack), Nanos(count)));
    let line = place(model, commonest(weighed));
    let asked = own_place(model, states.iter().find_map(|(_, state)| model.ucx().stack(state)));
    let saved = computed.min(waited).min(1.0);
    let (computed, waited) = (computed * 100.0, waited * 100.0);
    let summary = format!("computing and transfers take turns: {computed:.0}% of the time one, {waited:.0}% the other");
    let detail = format!(
        "Transfers were pending for {waited:.0}% of the time, and code that has nothing to do with them ran for {computed:.0}%, mostly at \
         {line}; of {} samples of it only {} were taken while a transfer was pending. The transfers are asked \
         for at {asked}.",
        all.samples, beside.samples,
    );
    let advice = format!(
        "Ask for the next transfer before the computing begins: up to {:.0}% of the time is saved.",
        saved * 100.0
    );
    let evidence = BTreeMap::from([
        ("pending_share", Evidence::Number(waited / 100.0)),
        ("computed_share", Evidence::Number(computed / 100.0)),
        ("samples", Evidence::Count(all.samples)),
        ("samples_beside", Evidence::Count(beside.samples)),
        ("asked_at", Evidence::Text(asked)),
        ("line", Evidence::Text(line)),
    ]);
    let found = finding(model, process, "ucx/no-overlap", (summary, detail, &advice), evidence);
    Some(Finding { severity: Severity::Info, cost: Cost::time(saved), ..found })
}

/// Whether UCX itself is running, which is not computing.
fn drives_transfers(model: &Model, stack: StackId) -> bool {
    let modules = model.stack(stack).iter().filter_map(|frame| model.frame(*frame)?.module.as_deref());
    modules
        .into_iter()
        .any(|module| ["libucp", "libuct", "libucs", "libucxx", "libucm"].iter().any(|name| module.starts_with(name)))
}

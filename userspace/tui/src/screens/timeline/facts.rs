//! The facts about a lane at the cursor: what happened, at which line, and why.

use std::collections::BTreeMap;

use pyobs_model::families::ucx::TransferState;
use pyobs_model::findings::{Board, Finding, place};
use pyobs_model::views::{Cells, Doing, Lane, LaneId, Slots, birthplace, buffer_region, region_birth};
use pyobs_model::{FrameId, Model, Nanos, ProcessRef, Selection, Tid, WaitReason};
use ratatui::style::Style;

use super::chart::{is_of, label};
use crate::number;
use crate::screens::names::process_label;
use crate::text;
use crate::theme::Theme;

#[derive(Default)]
pub(super) struct Facts {
    what: String,
    why: String,
    finding: Option<String>,
}

impl Facts {
    pub(super) fn of(model: &Model, board: &Board, lane: &Lane, slots: Slots, column: usize) -> Self {
        let span = (slots.start(column), slots.start(column + 1));
        let at = format!("{:.3} s", span.0.as_secs_f64());
        let (what, why) = match (&lane.cells, lane.id) {
            (Cells::Doing(cells), LaneId::Thread(process, tid)) => {
                thread(model, (process, tid), cells.get(column).copied().flatten(), span)
            }
            (Cells::Amounts(amounts), id) => amount(model, id, amounts.get(column).copied().unwrap_or(0), span),
            _ => Default::default(),
        };
        let finding = board.entries().find(|entry| is_of(lane.id, entry.finding.process, entry.finding.target));
        let name = text::fit(&label(model, lane.id), 40);
        Self { what: format!("{at}  {name}: {what}"), why, finding: finding.map(|entry| entry.finding.summary.clone()) }
    }

    pub(super) fn of_findings(at: Nanos, found: &[&Finding]) -> Self {
        let at = format!("{:.3} s", at.as_secs_f64());
        let count = number::plural(found.len() as u64, "finding rests", "findings rest");
        let (what, why) = (format!("{at}  {count} on what happened then"), String::new());
        let Some((first, others)) = found.split_first() else { return Self { what, why, finding: None } };
        let others: Vec<&str> = others.iter().map(|finding| finding.id).collect();
        let why = if others.is_empty() { why } else { format!("also {}", others.join(", ")) };
        Self { what, why, finding: Some(format!("{}: {}", first.id, first.summary)) }
    }

    pub(super) fn lines(&self, theme: Theme) -> Vec<(String, Style)> {
        let mut lines = vec![(self.what.clone(), theme.strong())];
        if !self.why.is_empty() {
            lines.push((self.why.clone(), theme.text()));
        }
        lines.extend(self.finding.iter().map(|words| (format!("! {words}"), theme.warning())));
        lines
    }
}

fn within(process: ProcessRef, tid: Option<Tid>, (from, to): (Nanos, Nanos)) -> Selection {
    Selection { processes: Some([process].into()), tid, from: Some(from), to: Some(to), ..Selection::default() }
}

fn thread(
    model: &Model,
    (process, tid): (ProcessRef, Tid),
    doing: Option<Doing>,
    span: (Nanos, Nanos),
) -> (String, String) {
    let of = format!("of {}", process_label(model, Some(process)));
    match doing {
        None => ("nothing is known".to_owned(), of),
        Some(Doing::Ran(frame)) => {
            let line = commonest(model.cpu().selected(&within(process, Some(tid), span)).map(|sample| {
                (birthplace(model, Some(sample.stack)).filter(|id| Some(model.function_of(*id)) == frame), 1)
            }));
            (format!("ran {}", place(model, line.or(frame))), of)
        }
        Some(Doing::Waited(WaitReason::Gil)) => {
            let later = Selection { to: None, ..within(process, Some(tid), span) };
            let mut waits = model.gil().waits(&later).filter(|wait| wait.from < span.1);
            let Some(wait) = waits.next() else { return ("waited for the GIL".to_owned(), of) };
            let at = place(model, birthplace(model, Some(wait.stack)));
            let why = match wait.holder {
                Some(holder) => {
                    let line = place(model, birthplace(model, Some(holder.stack)));
                    format!("thread {} held it at {line}", holder.tid)
                }
                None => "who held it is not known".to_owned(),
            };
            (format!("waited for the GIL at {at}"), why)
        }
        Some(Doing::Waited(reason)) => {
            let later = Selection { to: None, ..within(process, Some(tid), span) };
            let sleeps = model.offcpu().sleeps(&later);
            let sleep = sleeps.filter(|sleep| sleep.from < span.1).find(|sleep| sleep.reason == reason);
            let at = place(model, sleep.as_ref().and_then(|sleep| birthplace(model, Some(sleep.stack))));
            let waker = sleep.as_ref().and_then(|sleep| sleep.waker.as_ref());
            let why = waker.map_or(of, |waker| format!("woken by {} {}", waker.tid, text::head(&waker.name, 64)));
            (format!("waited ({}) at {at}", reason.name()), why)
        }
    }
}

fn amount(model: &Model, lane: LaneId, amount: u64, span: (Nanos, Nanos)) -> (String, String) {
    match lane {
        LaneId::Thread(..) | LaneId::Findings => Default::default(),
        LaneId::Shed => {
            let here = model.sheds().filter(|shed| shed.from < span.1 && shed.to.is_none_or(|to| to > span.0));
            let words = here.take(8).map(|shed| {
                let to = shed.to.map_or("the end".to_owned(), |to| format!("{:.1} s", to.as_secs_f64()));
                format!("{} {} from {:.1} s to {to}", shed.family, shed.measure, shed.from.as_secs_f64())
            });
            let words: Vec<String> = words.collect();
            let measures = number::plural(amount, "measure kept", "measures kept");
            (format!("{measures} pyobs inside the budget"), text::head(&words.join(", "), 256).to_owned())
        }
        LaneId::Arenas(process, frame) => {
            let of = process_label(model, Some(process));
            (format!("{} of arenas", number::size(amount)), format!("born at {}, in {of}", place(model, frame)))
        }
        LaneId::Segment(id) => {
            let Some(state) = model.shm().get(id) else { return Default::default() };
            let line = place(model, birthplace(model, state.stack));
            let made = state
                .segment
                .creator
                .map_or_else(|| "there before the recording".to_owned(), |pid| format!("made by {pid} at {line}"));
            let holders: Vec<String> = state.holders.keys().take(8).map(ToString::to_string).collect();
            let held = if holders.is_empty() { String::new() } else { format!(", held by {}", holders.join(", ")) };
            (format!("{}, {}", number::size(amount), state.verdict().name()), format!("{made}{held}"))
        }
        LaneId::Transfers(process, stage) => {
            let states = model.ucx().transfers().map(|(_, state)| state);
            let mut here = states.filter(|state| {
                state.transfer.process == process && {
                    let pending =
                        state.transfer.submitted.map(|from| (from, state.transfer.completed.unwrap_or(span.1)));
                    stage.of(state).or(pending).is_some_and(|(from, to)| from < span.1 && to >= span.0)
                }
            });
            let what = format!("{} {}", number::plural(amount, "transfer", "transfers"), stage.name());
            (what, here.next().map(|state| transfer(model, state)).unwrap_or_default())
        }
    }
}

/// A sentence about a transfer: who asked for it, and what its buffer lies in.
fn transfer(model: &Model, state: &TransferState) -> String {
    let transfer = &state.transfer;
    let asked = place(model, birthplace(model, model.ucx().stack(state)));
    let region = buffer_region(model, transfer).map(|region| {
        let born = place(model, birthplace(model, region_birth(model, region)));
        format!("; its buffer lies in one {} born at {born}", region.id.kind())
    });
    let what = transfer.operation.name();
    format!("{what} of {} asked for at {asked}{}", number::size(transfer.bytes), region.unwrap_or_default())
}

fn commonest(frames: impl Iterator<Item = (Option<FrameId>, u64)>) -> Option<FrameId> {
    let mut counts: BTreeMap<FrameId, u64> = BTreeMap::new();
    for (frame, count) in frames {
        if let Some(frame) = frame {
            *counts.entry(frame).or_default() += count;
        }
    }
    counts.into_iter().max_by_key(|(frame, count)| (*count, std::cmp::Reverse(*frame))).map(|(frame, _)| frame)
}

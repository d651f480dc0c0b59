//! Memory that a process cannot free, because a little of each arena is still in use or because its library lost the
//! arena.

use std::collections::{BTreeMap, HashMap};

use super::{Cost, Evidence, Finding, Severity, Target, own_place};
use crate::families::arena::{ArenaState, Closed};
use crate::number::{plural, size};
use crate::views::birthplace;
use crate::views::{self, BirthRow};
use crate::{Model, ProcessRef, Selection};

/// No finding below this many bytes in arenas,
const BYTES: u64 = 16 << 20;
/// or above this share of pools in use.
const USED: f64 = 0.25;
/// Bytes from which the finding is more than a hint.
const MUCH: u64 = 256 << 20;

pub(super) fn find(model: &Model, selection: &Selection) -> Vec<Finding> {
    let mut processes: HashMap<ProcessRef, Vec<BirthRow>> = HashMap::new();
    for row in views::arenas(model, selection).into_iter().filter(|row| row.live > 0 && &*row.kind == "pymalloc") {
        processes.entry(row.process).or_default().push(row);
    }
    let mut found: Vec<Finding> =
        processes.into_iter().filter_map(|(process, rows)| sparse(model, process, &rows)).collect();
    let end = selection.end();
    let states = model.arenas().arenas().map(|(_, state)| state);
    let states = states.filter(|state| views::is_selected(state, selection) && state.is_kept_at(end));
    let closed = |state: &ArenaState| state.closed.filter(|closed| !closed.popped && closed.at < end);
    found.extend(states.filter_map(|state| leaked(model, state, closed(state)?)));
    found.sort_by_key(|finding| finding.pid);
    found
}

/// A library's arena that was closed but stayed on the library's stack.
fn leaked(model: &Model, state: &ArenaState, closed: Closed) -> Option<Finding> {
    let (kind, bytes) = (&state.arena.kind, size(state.arena.bytes));
    let (escaped, were) = match closed.escaped {
        1 => ("1 object".to_owned(), "was"),
        many => (format!("{many} objects"), "were"),
    };
    let line = own_place(model, closed.stack);
    let born = own_place(model, state.stack);
    let left = state.objects.born - state.objects.dead;
    let detail = format!(
        "{escaped} {were} alive when their arena of {kind}, born at {born}, was closed at {line}. {kind} then leaves the \
         arena on the stack of the objects' type, which owns it from then on: it is not given back when the last object has \
         gone, and later objects of the type are made in it. {} objects have been made in it, of which {left} are \
         left.",
        state.objects.born,
    );
    Some(Finding {
        id: "arena/leaked",
        severity: Severity::Warning,
        summary: format!("an arena of {kind} ({bytes}) is never given back: {escaped} escaped at {line}"),
        detail,
        advice: "Let go of all objects of an arena before its context ends.".to_owned(),
        process: Some(state.arena.process),
        pid: model.process(state.arena.process).map(|state| state.process.pid),
        evidence: BTreeMap::from([
            ("address", Evidence::Text(format!("{:#x}", state.arena.address))),
            ("bytes", Evidence::Count(state.arena.bytes)),
            ("escaped", Evidence::Count(closed.escaped)),
            ("objects_born", Evidence::Count(state.objects.born)),
            ("objects_dead", Evidence::Count(state.objects.dead)),
            ("line", Evidence::Text(line)),
        ]),
        cost: Cost::bytes(state.arena.bytes),
        target: Some(Target::Arenas(birthplace(model, model.arenas().birth(state)))),
    })
}

fn sparse(model: &Model, process: ProcessRef, rows: &[BirthRow]) -> Option<Finding> {
    let sum = |of: fn(&BirthRow) -> u64| rows.iter().map(of).sum::<u64>();
    let (live, bytes) = (sum(|row| row.live), sum(|row| row.bytes));
    let (slabs, used) = (sum(|row| row.slabs), sum(|row| row.used));
    let share = used as f64 / slabs.max(1) as f64;
    if bytes < BYTES || slabs == 0 || share > USED {
        return None;
    }
    // The rows are sorted by the memory they hold.
    let most = rows.iter().find(|row| row.frame.is_some());
    let line = own_place(model, most.and_then(|row| row.stack));
    let born = most.map_or(0, |row| row.live);
    let percent = share * 100.0;
    let held = size(bytes);
    let (arenas, are) = (plural(live, "arena", "arenas"), if live == 1 { "is" } else { "are" });
    let detail = format!(
        "{arenas} of {held} in all {are} held by {percent:.0}% of their pools ({used} of {slabs}), in which {} are in \
         use. CPython gives an arena back when nothing is left in any of its pools, and an object is never moved: what lives \
         on keeps them. {born} of them were born at {line}.",
        size(sum(|row| row.used_bytes)),
    );
    let advice = "Make what lives long before what dies soon, keep it in another process, or build large and \
                  short-lived data outside Python objects.";
    Some(Finding {
        id: "arena/sparse",
        severity: if bytes >= MUCH { Severity::Warning } else { Severity::Info },
        summary: format!("{arenas} ({held}) {are} held by {percent:.0}% of their pools, born at {line}"),
        detail,
        advice: advice.to_owned(),
        process: Some(process),
        pid: model.process(process).map(|state| state.process.pid),
        evidence: BTreeMap::from([
            ("arenas", Evidence::Count(live)),
            ("bytes", Evidence::Count(bytes)),
            ("pools", Evidence::Count(slabs)),
            ("pools_used", Evidence::Count(used)),
            ("line", Evidence::Text(line)),
        ]),
        cost: Cost::bytes(bytes.saturating_sub(sum(|row| row.used_bytes))),
        target: Some(Target::Arenas(most.and_then(|row| row.frame))),
    })
}

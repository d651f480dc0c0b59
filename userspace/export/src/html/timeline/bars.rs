//! Bars: the lives of arenas, segments and transfers, and what pyobs shed.

use std::collections::BTreeMap;

use pyobs_model::number::{size, time};
use pyobs_model::{Family, Model, Nanos, ProcessRef, Selection, views};

use super::TimelineSpan;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bar {
    pub(super) class: &'static str,
    pub(super) from: Nanos,
    pub(super) to: Nanos,
    pub(super) title: String,
}

pub(super) fn bars(model: &Model, selection: &Selection, span: TimelineSpan) -> BTreeMap<ProcessRef, Vec<Bar>> {
    let mut bars: BTreeMap<ProcessRef, Vec<Bar>> = BTreeMap::new();
    let mut add = |process, bar: Bar| {
        if bar.to >= span.from && bar.from <= span.to {
            bars.entry(process).or_default().push(bar);
        }
    };
    for (_, state, bytes) in views::transfers(model, selection) {
        let Some(from) = state.transfer.begun() else { continue };
        let to = state.ended().unwrap_or(span.to).max(from);
        let took = time(to.saturating_sub(from));
        let title = format!("{} of {}, {took}", state.transfer.operation.name(), size(bytes));
        add(state.transfer.process, Bar { class: "transfer", from, to, title });
    }
    for (_, state) in model.shm().segments() {
        let process = state.segment.creator.and_then(|pid| model.process_at(pid, state.begun)).map(|(id, _)| id);
        let Some(process) = process.filter(|process| selection.has_process(*process)) else { continue };
        let name = state.segment.name.as_deref().unwrap_or("segment without a name");
        let title = format!("{name}, {}, {}", size(state.segment.bytes), state.verdict().name());
        let to = state.evicted.or(state.ended).unwrap_or(span.to);
        add(process, Bar { class: "segment", from: state.begun, to: to.max(state.begun), title });
    }
    for (_, state) in model.arenas().arenas().filter(|(_, state)| views::is_selected(state, selection)) {
        let to = state.died.map_or(span.to, |(at, _)| at).max(state.begun);
        let title = format!("{} arena at {:#x}, {}", state.arena.kind, state.arena.address, size(state.arena.bytes));
        add(state.arena.process, Bar { class: "arena", from: state.begun, to, title });
    }
    bars
}

/// What pyobs gave up to stay inside its budget, per family.
pub(super) fn sheds(model: &Model, span: TimelineSpan) -> Vec<(Family, Vec<Bar>)> {
    let of = |family: Family| {
        let sheds = model.sheds().filter(|shed| *shed.family == *family.name()).map(|shed| Bar {
            class: "shed",
            from: shed.from,
            to: shed.to.unwrap_or(model.now()),
            title: format!("{family} {}", shed.measure),
        });
        (family, sheds.filter(|shed| shed.to > span.from && shed.from < span.to).collect::<Vec<_>>())
    };
    Family::ALL.into_iter().map(of).filter(|(_, sheds)| !sheds.is_empty()).collect()
}

/// Puts each bar into the first row of its class that has room, and counts the bars that find none. A class gets at most
/// `max_rows` rows.
pub(super) fn pack(mut bars: Vec<Bar>, max_rows: usize) -> (Vec<Vec<Bar>>, usize) {
    let mut rows: BTreeMap<&str, Vec<Vec<Bar>>> = BTreeMap::new();
    let mut left_out = 0;
    bars.sort_by_key(|bar| bar.from);
    for bar in bars {
        let own = rows.entry(bar.class).or_default();
        match own.iter().position(|row| row.last().is_none_or(|last| last.to <= bar.from)) {
            Some(row) => own[row].push(bar),
            None if own.len() < max_rows => own.push(vec![bar]),
            None => left_out += 1,
        }
    }
    (rows.into_values().flatten().collect(), left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_that_meet_have_rows_of_their_own() {
        let bar = |class, from, to| Bar { class, from: Nanos(from), to: Nanos(to), title: String::new() };
        let bars = vec![bar("a", 0, 5), bar("a", 5, 9), bar("a", 3, 4), bar("b", 9, 9), bar("a", 0, 9)];
        let (rows, left_out) = pack(bars, 2);
        let spans: Vec<Vec<_>> =
            rows.iter().map(|row| row.iter().map(|bar| (bar.from.0, bar.to.0)).collect()).collect();
        assert_eq!(spans, [vec![(0, 5), (5, 9)], vec![(0, 9)], vec![(9, 9)]]);
        assert_eq!(left_out, 1);
    }
}

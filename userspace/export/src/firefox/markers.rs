//! Markers: whatever has a beginning and an end.

use fxprof_processed_profile::{
    CategoryHandle, MarkerFieldFlags, MarkerFieldFormat, MarkerLocations, MarkerTiming, Profile, StaticSchemaMarker,
    StaticSchemaMarkerField, StringHandle,
};
use pyobs_model::number;
use pyobs_model::views::{self, Stage};
use pyobs_model::{Nanos, ProcessRef, StackId, Tid};

use super::{FirefoxBuilder, timestamp};
use crate::escape::{self, MAX_NAME};
use crate::{Format, left_out, names};

/// A period with a sentence about it.
struct Marker {
    name: StringHandle,
    category: CategoryHandle,
    detail: StringHandle,
}

impl StaticSchemaMarker for Marker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "pyobs";
    const LOCATIONS: MarkerLocations =
        MarkerLocations::MARKER_CHART.union(MarkerLocations::MARKER_TABLE).union(MarkerLocations::TIMELINE_OVERVIEW);
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.detail}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.name}: {marker.data.detail}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[StaticSchemaMarkerField {
        key: "detail",
        label: "Detail",
        format: MarkerFieldFormat::String,
        flags: MarkerFieldFlags::SEARCHABLE,
    }];

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, _: u32) -> StringHandle {
        self.detail
    }

    fn number_field_value(&self, _: u32) -> f64 {
        0.0
    }
}

/// A marker whose thread may not have a track yet.
struct PendingMarker {
    process: ProcessRef,
    tid: Tid,
    from: Nanos,
    to: Option<Nanos>,
    name: String,
    category: CategoryHandle,
    detail: String,
    stack: Option<StackId>,
}

impl FirefoxBuilder<'_> {
    pub(super) fn add_markers(&mut self) {
        // One kind at a time, because together they may be large.
        let kinds = [Self::missing, Self::sleeps, Self::gil_waits, Self::transfers, Self::arenas, Self::segments];
        for markers in kinds {
            markers(self).iter().for_each(|pending| self.add(pending));
        }
    }

    fn add(&mut self, pending: &PendingMarker) {
        let Some(thread) = self.thread(pending.process, pending.tid) else { return };
        let name = self.profile.intern_string(&pending.name);
        let detail = self.profile.intern_string(&escape::line(&pending.detail, MAX_NAME));
        let timing = match pending.to {
            Some(to) => MarkerTiming::Interval(timestamp(pending.from), timestamp(to.max(pending.from))),
            None => MarkerTiming::IntervalStart(timestamp(pending.from)),
        };
        let marker = self.profile.add_marker(thread, timing, Marker { name, category: pending.category, detail });
        if let Some(stack) = pending.stack.and_then(|stack| self.stack(thread, stack)) {
            self.profile.set_marker_stack(thread, marker, Some(stack));
        }
    }

    /// What is not shown, on the first thread.
    fn missing(&self) -> Vec<PendingMarker> {
        let note = left_out::note(self.model, Format::Firefox, self.options);
        let marker = |(detail, (process, tid)): (String, &(ProcessRef, Tid))| PendingMarker {
            process: *process,
            tid: *tid,
            from: self.options.selection.from.unwrap_or_default(),
            to: Some(self.model.listed_since()),
            name: "Left out".to_owned(),
            category: self.categories.memory,
            detail,
            stack: None,
        };
        note.zip(self.threads.keys().next()).map(marker).into_iter().collect()
    }

    fn sleeps(&self) -> Vec<PendingMarker> {
        let pending = |sleep: pyobs_model::Sleep| {
            let waker = sleep.waker.as_ref().map(|waker| format!(", woken by {}", names::waker(self.model, waker)));
            let others = format!(", one of {} that were {} together", sleep.count, number::time(sleep.total));
            PendingMarker {
                process: sleep.process,
                tid: sleep.tid,
                from: sleep.at.saturating_sub(sleep.length),
                to: Some(sleep.at),
                name: format!("Sleep: {}", sleep.reason.name()),
                category: self.categories.waits,
                detail: [
                    number::time(sleep.length),
                    waker.unwrap_or_default(),
                    if sleep.count > 1 { others } else { String::new() },
                ]
                .concat(),
                stack: Some(sleep.stack),
            }
        };
        views::whole_sleeps(self.model, &self.options.selection).into_iter().map(pending).collect()
    }

    fn gil_waits(&self) -> Vec<PendingMarker> {
        let pending = |wait: pyobs_model::GilWait| {
            let behind = wait.holder.map(|holder| {
                let place = views::birthplace(self.model, Some(holder.stack)).and_then(|id| self.model.frame(id));
                let place = place.map(|frame| format!(" at {}", names::frame(frame, true))).unwrap_or_default();
                format!(", behind {}{place}", names::thread(self.model, wait.process, holder.tid))
            });
            PendingMarker {
                process: wait.process,
                tid: wait.tid,
                from: wait.at.saturating_sub(wait.length),
                to: Some(wait.at),
                name: "Wait for the GIL".to_owned(),
                category: self.categories.waits,
                detail: format!("{}{}", number::time(wait.length), behind.unwrap_or_default()),
                stack: Some(wait.stack),
            }
        };
        self.model.gil().waits(&self.options.selection).map(pending).collect()
    }

    fn transfers(&self) -> Vec<PendingMarker> {
        let rows = views::transfers(self.model, &self.options.selection);
        let markers = rows.into_iter().filter_map(|(_, state, bytes)| {
            let transfer = &state.transfer;
            let stages = Stage::ALL.iter().filter_map(|stage| Some((stage, stage.of(state)?)));
            let stages: String = stages
                .map(|(stage, (from, to))| format!(", {} {}", stage.name(), number::time(to.saturating_sub(from))))
                .collect();
            Some(PendingMarker {
                process: transfer.process,
                tid: transfer.tid,
                from: transfer.begun()?,
                to: state.ended(),
                name: transfer.operation.name().to_owned(),
                category: self.categories.transfers,
                detail: format!("{} B{stages}", number::grouped(bytes)),
                stack: self.model.ucx().stack(state),
            })
        });
        markers.collect()
    }

    /// On the main thread, because an arena belongs to no thread.
    fn arenas(&self) -> Vec<PendingMarker> {
        let states = self.model.arenas().arenas().map(|(_, state)| state);
        let states = states.filter(|state| views::is_selected(state, &self.options.selection));
        let markers = states.filter_map(|state| {
            let (arena, died) = (&state.arena, state.died);
            let cause = died.map(|(_, cause)| format!(", {}", cause.name())).unwrap_or_default();
            Some(PendingMarker {
                process: arena.process,
                tid: self.main_thread(arena.process)?,
                from: state.begun,
                to: died.map(|(at, _)| at),
                name: format!("Arena: {}", escape::line(&arena.kind, MAX_NAME)),
                category: self.categories.memory,
                detail: format!("{:#x}, {} B{cause}", arena.address, number::grouped(arena.bytes)),
                stack: self.model.arenas().birth(state),
            })
        });
        markers.collect()
    }

    /// On the creator's main thread. A segment whose creator was not watched has no marker.
    fn segments(&self) -> Vec<PendingMarker> {
        let markers = self.model.shm().segments().filter_map(|(_, state)| {
            let segment = &state.segment;
            let (process, _) = self.model.process_at(segment.creator?, state.begun)?;
            let name = segment.name.as_deref().unwrap_or("without a name");
            Some(PendingMarker {
                process,
                tid: self.main_thread(process)?,
                from: state.begun,
                to: state.evicted.or(state.ended),
                name: "Segment".to_owned(),
                category: self.categories.memory,
                detail: format!("{name}, {} B, {}", number::grouped(segment.bytes), state.verdict().name()),
                stack: state.stack,
            })
        });
        markers.collect()
    }

    fn main_thread(&self, process: ProcessRef) -> Option<Tid> {
        let state = self.model.process(process)?;
        let tid = Tid(state.process.pid.0);
        self.options.selection.has_thread(process, tid).then_some(tid)
    }
}

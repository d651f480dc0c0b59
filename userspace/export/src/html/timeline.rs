//! The timeline: what each thread did, and which memory and transfers lived meanwhile.

mod bars;
mod lanes;

use std::collections::BTreeMap;

use maud::{Markup, PreEscaped, html};
use pyobs_model::{Model, Nanos, ProcessRef, Selection, Tid};

use self::bars::Bar;
use self::lanes::ThreadLane;
use super::text;
use crate::{Format, Options, escape, left_out, names};

// Lengths in the units of the picture's `viewBox`.
const LEFT: f64 = 230.0;
const WIDTH: f64 = 1130.0;
const LANE: u32 = 20;
const BAR: u32 = 7;
const GAP: u32 = 4;
/// Shorter bars could be neither seen nor hovered over.
const MIN_BAR: f64 = 1.5;
/// Only the busiest threads are drawn. The others are counted.
const MAX_THREADS: usize = 200;
/// Rows of bars per kind and process. Bars that find no room in them are only counted.
const MAX_ROWS: usize = 4;
const TICKS: u32 = 10;
/// Characters that fit beside a lane.
const MAX_LABEL: usize = 36;

/// The legend: classes of the style sheet, and what their colours mean.
const KEY: [(&str, &str); 7] = [
    ("cpu", "on a CPU"),
    ("gilwait", "waiting for the GIL"),
    ("sleep", "asleep"),
    ("arena", "arena"),
    ("segment", "segment"),
    ("transfer", "transfer"),
    ("shed", "given up for the budget"),
];

/// The time that the picture covers.
#[derive(Clone, Copy)]
struct TimelineSpan {
    from: Nanos,
    to: Nanos,
}

impl TimelineSpan {
    fn of(model: &Model, selection: &Selection) -> Self {
        let from = selection.from.unwrap_or_default().min(model.now());
        Self { from, to: selection.to.unwrap_or(model.now()).min(model.now()) }
    }

    fn length(self) -> Nanos {
        self.to.saturating_sub(self.from)
    }

    /// Where a time is in the span, from 0 to 1.
    fn share(self, at: Nanos) -> f64 {
        let length = self.length().0.max(1) as f64;
        (at.saturating_sub(self.from).0 as f64 / length).min(1.0)
    }

    fn x(self, at: Nanos) -> f64 {
        LEFT + WIDTH * self.share(at)
    }
}

pub(super) fn section(model: &Model, options: &Options) -> Markup {
    let selection = &options.selection;
    let span = TimelineSpan::of(model, selection);
    html! {
        section #timeline {
            h2 { "Timeline" }
            @if span.length() == Nanos(0) {
                p { "Nothing was seen." }
            } @else {
                @if let Some(note) = left_out::note(model, Format::Html, options) { p.note { "Drawn " (note) "." } }
                p.note.key { @for (class, meaning) in KEY { span class=(class) {} (meaning) } }
                (draw(model, selection, span).finish())
            }
        }
    }
}

fn draw(model: &Model, selection: &Selection, span: TimelineSpan) -> Picture {
    let mut picture = Picture { span, drawn: ruler(span).into_string(), y: 24 };
    for (family, sheds) in bars::sheds(model, span) {
        let label = html! { text x="0" y=(picture.y + BAR) { "shed: " (family.name()) } };
        picture.add(BAR + GAP, html! { (label) @for shed in &sheds { (picture.bar(shed)) } });
    }
    let (lanes, left_out) = lanes::busiest(lanes::lanes(model, selection, span), MAX_THREADS);
    let mut bars = bars::bars(model, selection, span);
    let mut processes: BTreeMap<ProcessRef, Vec<(Tid, ThreadLane)>> = BTreeMap::new();
    for ((process, tid), lane) in lanes {
        processes.entry(process).or_default().push((tid, lane));
    }
    // A process between fork and exec did nothing of its own: its bars are copies of its parent's.
    for process in bars.keys().filter(|process| !is_momentary(model, **process, span)) {
        processes.entry(*process).or_default();
    }
    for (process, lanes) in processes {
        let Some(state) = model.process(process) else { continue };
        let name = names::process_in_container(state);
        picture.add(17, html! { text.process x="0" y=(picture.y + 12) { (text(&name)) } });
        for (tid, lane) in lanes {
            picture.add_lane(&names::thread(model, process, tid), &lane);
        }
        picture.add_bars(bars.remove(&process).unwrap_or_default());
        picture.y += GAP;
    }
    if left_out > 0 {
        let text = html! { text x="12" y=(picture.y + 12) { "and " (left_out) " threads that did less" } };
        picture.add(17, text);
    }
    picture
}

/// Whether a process lived for less than one slot.
fn is_momentary(model: &Model, process: ProcessRef, span: TimelineSpan) -> bool {
    let state = model.process(process);
    let lived = state.and_then(|state| Some(state.ended?.saturating_sub(state.process.started?)));
    lived.is_some_and(|lived| lived < lanes::slot(span))
}

fn ruler(span: TimelineSpan) -> Markup {
    html! {
        @for tick in 0..=TICKS {
            @let share = f64::from(tick) / f64::from(TICKS);
            @let seconds = span.from.as_secs_f64() + span.length().as_secs_f64() * share;
            text x=(format_args!("{:.0}", LEFT + WIDTH * share)) y="12"
                text-anchor=(if tick == TICKS { "end" } else { "start" }) {
                (format_args!("{seconds:.2} s"))
            }
        }
    }
}

/// A picture that grows downwards.
struct Picture {
    span: TimelineSpan,
    /// Markup.
    drawn: String,
    /// Where the next part begins.
    y: u32,
}

impl Picture {
    fn add(&mut self, height: u32, part: Markup) {
        self.drawn += &part.into_string();
        self.y += height;
    }

    fn add_lane(&mut self, name: &str, lane: &ThreadLane) {
        let drawn = html! {
            g {
                title { (text(name)) }
                text x="12" y=(self.y + 14) { (escape::line(name, MAX_LABEL)) }
                rect.lane x=(LEFT) y=(self.y) width=(WIDTH) height=(LANE) {}
                (lane.draw(self.y))
            }
        };
        self.add(LANE + GAP, drawn);
    }

    fn add_bars(&mut self, bars: Vec<Bar>) {
        let (rows, left_out) = bars::pack(bars, MAX_ROWS);
        for row in rows {
            self.add(BAR, html! { @for bar in &row { (self.bar(bar)) } });
        }
        if left_out > 0 {
            self.add(14, html! { text x=(LEFT) y=(self.y + 11) { "and " (left_out) " more, in the tables" } });
        }
    }

    fn bar(&self, bar: &Bar) -> Markup {
        let (x, end) = (self.span.x(bar.from), self.span.x(bar.to));
        html! {
            rect class=(bar.class) x=(format_args!("{x:.1}")) y=(self.y)
                width=(format_args!("{:.1}", (end - x).max(MIN_BAR))) height=(BAR - 1) {
                title { (text(&bar.title)) }
            }
        }
    }

    fn finish(self) -> Markup {
        let height = self.y + 16;
        html! {
            svg viewBox={ "0 0 " (LEFT + WIDTH + 10.0) " " (height) } data-left=(LEFT) data-width=(WIDTH)
                data-from=(self.span.from.as_secs_f64()) data-to=(self.span.to.as_secs_f64()) {
                (PreEscaped(self.drawn))
                line.cursor x1=(LEFT) x2=(LEFT) y1="16" y2=(height) {}
                text.now {}
            }
        }
    }
}

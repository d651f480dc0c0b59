//! Processes and threads over time: what each thread did, and what lived meanwhile.

mod bars;
mod lanes;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;

use pyobs_model::{Family, Model, Nanos, ProcessRef, Selection, Tid};

use self::bars::Bar;
use self::lanes::Lane;
use super::text;
use crate::{Error, names};

/// The lanes' place in the picture.
const LEFT: f64 = 230.0;
const WIDTH: f64 = 1130.0;
const LANE: u32 = 20;
const BAR: u32 = 7;
const GAP: u32 = 4;
/// Threads that are drawn: those that did most.
const THREADS: usize = 200;
/// Rows of bars of each kind in each process.
const ROWS: usize = 4;
const TICKS: u32 = 10;

/// The time that is shown.
#[derive(Clone, Copy)]
struct Span {
    from: Nanos,
    to: Nanos,
}

impl Span {
    fn of(model: &Model, selection: &Selection) -> Self {
        let from = selection.from.unwrap_or_default().min(model.now());
        Self { from, to: selection.to.unwrap_or(model.now()).min(model.now()) }
    }

    fn length(self) -> Nanos {
        self.to.saturating_sub(self.from)
    }

    /// From 0 to 1.
    fn share(self, at: Nanos) -> f64 {
        let length = self.length().0.max(1) as f64;
        (at.saturating_sub(self.from).0 as f64 / length).min(1.0)
    }

    fn x(self, at: Nanos) -> f64 {
        LEFT + WIDTH * self.share(at)
    }
}

pub(super) fn write(model: &Model, selection: &Selection, out: &mut dyn Write) -> Result<(), Error> {
    let span = Span::of(model, selection);
    let mut part = String::from("<section id=\"timeline\"><h2>Timeline</h2>\n");
    if span.length() == Nanos(0) {
        part += "<p>Nothing was seen.</p></section>\n";
        return Ok(out.write_all(part.as_bytes())?);
    }
    let key = [
        ("cpu", "on a CPU"),
        ("gilwait", "waiting for the GIL"),
        ("sleep", "asleep"),
        ("arena", "arena"),
        ("segment", "segment"),
        ("transfer", "transfer"),
        ("shed", "given up for the budget"),
    ];
    part += "<p class=\"note key\">";
    for (class, meaning) in key {
        let _ = write!(part, "<span class=\"{class}\"></span>{meaning}");
    }
    part += "</p>\n";
    let (drawing, height) = draw(model, selection, span);
    let (from, to) = (span.from.as_secs_f64(), span.to.as_secs_f64());
    let _ = write!(
        part,
        "<svg viewBox=\"0 0 {} {height}\" data-left=\"{LEFT}\" data-width=\"{WIDTH}\" data-from=\"{from}\" \
         data-to=\"{to}\">\n{drawing}<line class=\"cursor\" x1=\"{LEFT}\" x2=\"{LEFT}\" y1=\"16\" y2=\"{height}\"/>\
         <text class=\"now\"></text></svg></section>\n",
        LEFT + WIDTH + 10.0,
    );
    Ok(out.write_all(part.as_bytes())?)
}

/// What pyobs gave up to stay inside its budget, a lane for each family.
fn draw_sheds(model: &Model, span: Span, y: &mut u32, drawing: &mut String) {
    for family in Family::ALL {
        let mut bars = String::new();
        for shed in model.sheds().filter(|shed| *shed.family == *family.name()) {
            let to = shed.to.unwrap_or(model.now());
            if to <= span.from || shed.from >= span.to {
                continue;
            }
            let (x, end) = (span.x(shed.from), span.x(to));
            let title = text(&format!("{family} {}", shed.measure));
            let _ = write!(
                bars,
                "<rect class=\"shed\" x=\"{x:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{BAR}\"><title>{title}</title></rect>",
                (end - x).max(1.0)
            );
        }
        if !bars.is_empty() {
            let _ = writeln!(drawing, "<text x=\"0\" y=\"{}\">shed: {family}</text>{bars}", *y + BAR);
            *y += BAR + GAP;
        }
    }
}

fn draw(model: &Model, selection: &Selection, span: Span) -> (String, u32) {
    let mut drawing = ruler(span);
    let mut y = 24;
    let (lanes, left_out) = lanes::most(lanes::lanes(model, selection, span), THREADS);
    let mut bars = bars::bars(model, selection, span);
    let mut processes: BTreeMap<ProcessRef, Vec<(Tid, Lane)>> = BTreeMap::new();
    for ((process, tid), lane) in lanes {
        processes.entry(process).or_default().push((tid, lane));
    }
    // One that was there for a moment and did nothing has only what it got from its parent.
    for process in bars.keys().filter(|process| !is_momentary(model, **process, span)) {
        processes.entry(*process).or_default();
    }
    draw_sheds(model, span, &mut y, &mut drawing);
    for (process, lanes) in processes {
        let Some(state) = model.process(process) else { continue };
        let name = text(&names::process(&state.process));
        let _ = writeln!(drawing, "<text class=\"process\" x=\"0\" y=\"{}\">{name}</text>", y + 12);
        y += 17;
        for (tid, lane) in lanes {
            let name = names::thread(model, process, tid);
            let _ = write!(drawing, "<g><title>{}</title>", text(&name));
            let _ = write!(drawing, "<text x=\"12\" y=\"{}\">{}</text>", y + 14, short(&name));
            let _ =
                write!(drawing, "<rect class=\"lane\" x=\"{LEFT}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{LANE}\"/>");
            lane.draw(y, &mut drawing);
            drawing += "</g>\n";
            y += LANE + GAP;
        }
        y = draw_bars(bars.remove(&process).unwrap_or_default(), span, y, &mut drawing);
        y += GAP;
    }
    if left_out > 0 {
        let _ = writeln!(drawing, "<text x=\"12\" y=\"{}\">and {left_out} threads that did less</text>", y + 12);
        y += 17;
    }
    (drawing, y + 16)
}

/// Whether a process was there for less than is drawn of one.
fn is_momentary(model: &Model, process: ProcessRef, span: Span) -> bool {
    let state = model.process(process);
    let lived = state.and_then(|state| Some(state.ended?.saturating_sub(state.process.started?)));
    lived.is_some_and(|lived| lived < lanes::slot(span))
}

/// As many rows as needed for none to lie over another; what has no place in the last of its kind is left out.
fn draw_bars(bars: Vec<Bar>, span: Span, mut y: u32, drawing: &mut String) -> u32 {
    let (rows, left_out) = bars::pack(bars, ROWS);
    for row in rows {
        for bar in row {
            let (x, width) = (span.x(bar.from), (span.x(bar.to) - span.x(bar.from)).max(1.5));
            let _ = writeln!(
                drawing,
                "<rect class=\"{}\" x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\"><title>{}</title></rect>",
                bar.class,
                BAR - 1,
                text(&bar.title)
            );
        }
        y += BAR;
    }
    if left_out > 0 {
        let _ = writeln!(drawing, "<text x=\"{LEFT}\" y=\"{}\">and {left_out} more, in the tables</text>", y + 11);
        y += 14;
    }
    y
}

fn ruler(span: Span) -> String {
    let mut drawing = String::new();
    for tick in 0..=TICKS {
        let share = f64::from(tick) / f64::from(TICKS);
        let seconds = span.from.as_secs_f64() + span.length().as_secs_f64() * share;
        let anchor = if tick == TICKS { "end" } else { "start" };
        let x = LEFT + WIDTH * share;
        let _ = write!(drawing, "<text x=\"{x:.0}\" y=\"12\" text-anchor=\"{anchor}\">{seconds:.2} s</text>");
    }
    drawing + "\n"
}

/// What there is room for beside a lane.
fn short(name: &str) -> String {
    crate::escape::html(name, 36)
}

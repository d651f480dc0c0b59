//! The machine in five lines, each with its course over time.

use pyobs_model::views::{By, CpuLine, GilLine, Machine, MemoryLine, TransfersLine};
use pyobs_model::{Family, Frame, Model};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::number;
use crate::paint::{HeadingPainter, RowPainter};
use crate::screens::names::thread_label;
use crate::screens::names::{self, process_label};
use crate::text;
use crate::ui::Ui;

pub(super) const COUNT: u16 = 5;
const NAMES: usize = 10;

/// The number of points in time per line.
pub(super) fn points(width: u16) -> usize {
    match width {
        0..70 => 10,
        70..110 => 20,
        110..180 => 40,
        _ => 60,
    }
}

pub(super) fn draw(machine: &Machine, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let theme = ui.theme;
    let mut head = HeadingPainter::new(buf, area, theme);
    head.left(usize::MAX, " MACHINE", None);
    let off = |family: Family| (&[][..], format!("not watched: the family {family} is off"));
    let shown = [
        ("CPU", machine.cpu.as_ref().map_or_else(|| off(Family::Cpu), |line| (&line.series, cpu(model, line)))),
        ("GIL", machine.gil.as_ref().map_or_else(|| off(Family::Gil), |line| (&line.series, gil(model, line)))),
        ("memory", machine.memory.as_ref().map_or_else(|| off(Family::Shm), |line| (&line.series, memory(line)))),
        (
            "transfers",
            machine.transfers.as_ref().map_or_else(|| off(Family::Ucx), |line| (&line.series, transfers(line))),
        ),
        ("pyobs", (&machine.cost[..], own(model))),
    ];
    let points = points(area.width);
    for ((name, (series, words)), y) in shown.into_iter().zip(area.y + 1..area.bottom()) {
        let mut row = RowPainter::new(buf, Rect { y, height: 1, ..area });
        row.left(NAMES, &format!(" {name}"), theme.dim());
        let latest = &series[series.len().saturating_sub(points)..];
        row.blocks(latest, theme.total());
        row.skip(points.saturating_sub(latest.len()).saturating_sub(usize::from(!latest.is_empty())));
        let is_loss = name == "pyobs" && !(model.loss().is_empty() && model.shed().is_empty());
        row.rest(&words, if is_loss { theme.warning() } else { theme.text() });
    }
}

fn cpu(model: &Model, line: &CpuLine) -> String {
    let pythons = model.processes().filter(|(_, state)| state.process.python.is_some() && state.is_alive(model.now()));
    let (processes, threads) = pythons
        .fold((0, 0), |(processes, threads), (_, state)| (processes + 1, threads + state.threads.len().max(1) as u64));
    let processes = number::plural(processes, "process", "processes");
    let hottest = line.hottest.and_then(|(frame, share)| Some((model.frame(frame)?, share)));
    let hottest =
        hottest.map(|(frame, share)| format!(" · {:.0} % at {}", share * 100.0, at(frame))).unwrap_or_default();
    format!("{:.2} cores{hottest} · {processes} · {}", line.cores, number::plural(threads, "thread", "threads"))
}

/// `layers.py:61 Linear.forward`, truncated so that the rest of the line stays in sight.
fn at(frame: &Frame) -> String {
    let place = names::place(frame, By::Line);
    format!("{} {}", text::fit(text::base_name(&place), 24), text::fit(&names::name(frame), 24))
}

fn gil(model: &Model, line: &GilLine) -> String {
    let Some(process) = line.process else { return "nobody holds it or waits for it".to_owned() };
    let thread = line.holder.map(|tid| format!(", most by {}", text::fit(&thread_label(model, process, tid), 24)));
    let of = text::fit(&process_label(model, Some(process)), 24);
    let waiting = number::two_digits(line.wanted);
    format!("{waiting} waiting · {:.0} % held{} · {of}", line.held * 100.0, thread.unwrap_or_default())
}

fn memory(line: &MemoryLine) -> String {
    let part = |what: &str, (count, bytes): (u64, u64)| match count {
        0 => format!("no {what}s"),
        1 => format!("1 {what} {}", number::size(bytes)),
        count => format!("{} {what}s {}", number::short(count), number::size(bytes)),
    };
    let known = [("segment", Some(line.segments)), ("arena", Some(line.arenas)), ("MemInfo", line.meminfos)];
    let parts: Vec<String> = known.into_iter().filter_map(|(what, sum)| Some(part(what, sum?))).collect();
    parts.join(" · ")
}

fn transfers(line: &TransfersLine) -> String {
    if line.count == 0 {
        return "none".to_owned();
    }
    let pending = if line.pending > 0 { format!(" · {} pending", number::short(line.pending)) } else { String::new() };
    let (count, bytes) = (number::short(line.count), number::size(line.bytes));
    format!("{count} · {bytes} · one in ten over {}{pending}", number::time(line.p90))
}

fn own(model: &Model) -> String {
    let (kernel, user) = model.cost_now();
    let loss = model.loss();
    let lost = match loss.iter().max_by_key(|(_, count)| *count) {
        Some((reason, _)) => format!("lost {}: {}", number::short(loss.total()), reason.name()),
        None => "nothing lost".to_owned(),
    };
    let cost = model.cost();
    let used = match cost.at.0 {
        0 => String::new(),
        _ => {
            let (percent, of) = model.cost_percent(kernel + user);
            format!("{percent:.1} % {of} · {} · ", number::size(cost.rss_bytes))
        }
    };
    // Nothing else on the screen says what pyobs gave up.
    let shed = model.shed().last().map(|what| format!("{} · ", text::head(what, 256))).unwrap_or_default();
    format!("{shed}{used}{lost}")
}

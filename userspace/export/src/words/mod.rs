//! The text of `pyobs report`.

mod arena;
mod eval;
mod findings;
mod heap;
mod nrt;
pub(crate) mod redundancy;
mod shm;
mod tasks;
mod ucx;
mod waits;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;

use pyobs_model::families::cpu::CpuSum;
use pyobs_model::number::{grouped, plural, time};
use pyobs_model::views::{self, By, CpuLineRow, Look, Native};
use pyobs_model::{Family, Frame, FrameKind, Model, Selection, Shed};

use crate::names::metadata;
use crate::{Error, escape, names};

const WIDTH: usize = 100;
/// The indent of continued lines.
const INDENT: usize = 12;

// Widths of columns.
const PLACE: usize = 32;
const COMMAND: usize = WIDTH - SHARE - 42;
const FUNCTION: usize = WIDTH - PLACE - 2 * SHARE - 5;
/// A share with its error.
const SHARE: usize = 12;

/// A section, and the family that has to be on for it.
type Section = (Family, fn(&mut ReportText<'_>));

/// The sections of the families, in this order.
const SECTIONS: &[Section] = &[
    (Family::Cpu, |report| report.cpu()),
    (Family::OffCpu, |report| report.offcpu()),
    (Family::Gil, |report| report.gil()),
    (Family::Eval, |report| report.eval()),
    (Family::Heap, |report| report.heap()),
    (Family::Arena, |report| report.arena()),
    (Family::Shm, |report| report.shm()),
    (Family::Shm, |report| report.residents()),
    (Family::Redundancy, |report| report.redundancy()),
    (Family::Nrt, |report| report.nrt()),
    (Family::Ucx, |report| report.ucx()),
    (Family::Tasks, |report| report.tasks()),
];

/// Writes at most `limit` rows per section.
pub fn words(model: &Model, selection: Selection, limit: usize, out: &mut dyn Write) -> Result<(), Error> {
    let mut report = ReportText { model, selection, limit, text: String::new() };
    report.heading();
    report.findings();
    SECTIONS.iter().filter(|(family, _)| model.is_on(*family)).for_each(|(_, write)| write(&mut report));
    report.loss();
    report.cost();
    Ok(out.write_all(report.text.as_bytes())?)
}

struct ReportText<'a> {
    model: &'a Model,
    /// The moment of the memory. All else is shown of the whole recording.
    selection: Selection,
    limit: usize,
    text: String,
}

impl ReportText<'_> {
    fn line(&mut self, line: &str) {
        self.text += line.trim_end();
        self.text.push('\n');
    }

    fn section(&mut self, title: &str, note: &str) {
        let note = if note.is_empty() { String::new() } else { format!(" ({note})") };
        self.line("");
        self.line(&format!("{title}{note}"));
    }

    fn heading(&mut self) {
        let about = self.model.meta();
        let seconds = self.model.now().as_secs_f64();
        let (host, started, kernel) = (metadata(&about.host), metadata(&about.started), metadata(&about.kernel));
        let probes = escape::line(&about.probes.join(", "), 60).into_owned();
        let sampler = metadata(&about.sampler);
        self.line(&format!("{host}, {started}"));
        self.line(&format!("{seconds:.1} s at {} Hz ({sampler}), Linux {kernel}", about.rate_hz));
        self.line(&format!("pyobs {}, probes: {probes}", metadata(&about.pyobs)));
        if !self.model.is_finished() {
            self.line("The recording was cut off, or is still being written: its last second may be missing.");
        }
        for refusal in about.refusals() {
            self.wrapped_at(0, "", &refusal);
        }
        self.line("");
        if !self.model.is_on(Family::Cpu) {
            return self.line("The probe `cpu` was off, so nothing is known of where CPU time went.");
        }
        let samples = self.model.cpu().total();
        if samples == 0 {
            return self.line("No samples: no watched thread was on a CPU when one was taken.");
        }
        let processes = plural(self.model.process_counts().1, "process", "processes");
        let spent = self.model.cpu().sum().time.as_secs_f64();
        let cores = if seconds > 0.0 { spent / seconds } else { 0.0 };
        let samples = plural(samples, "sample", "samples");
        let all = self.model.load().busy(&Selection::default());
        let all = all.map(|all| format!(" All programs of the machine kept {all:.2} busy.")).unwrap_or_default();
        self.line(&format!("{samples} in {processes}, which kept {cores:.2} CPUs busy on average.{all}"));
    }

    fn cpu(&mut self) {
        self.processes();
        self.frames(
            By::Line,
            "Hottest lines",
            "own: the line and the native code below it; total: and the Python it calls",
        );
        self.frames(By::Function, "Hottest functions", "all lines of a function together");
        self.stacks();
    }

    fn processes(&mut self) {
        let rows = views::processes(self.model, &Selection::default());
        let all = self.model.cpu().sum();
        let busy: Vec<_> = rows.iter().filter(|row| row.cpu.samples > 0).collect();
        if busy.is_empty() {
            return;
        }
        self.section("Processes", "");
        let head = ["CPU time", " share", "samples", "pid", "python"];
        self.line(&format!(
            "{:>10}  {:<SHARE$}  {:>8}  {:>7}  {:<7}  command",
            head[0], head[1], head[2], head[3], head[4]
        ));
        for row in busy.iter().take(self.limit) {
            let Some(state) = self.model.process(row.process) else { continue };
            let process = &state.process;
            let python = process.python.as_deref().unwrap_or("-");
            let container =
                state.placement.container.as_ref().map(|container| format!("[{}] ", container.short_name()));
            let command = container.unwrap_or_default() + &process.command;
            self.line(&format!(
                "{:>10}  {:<SHARE$}  {:>8}  {:>7}  {:<7}  {}",
                time(row.cpu.time),
                share_with_error(row.cpu.share_of(&all)),
                grouped(row.cpu.samples),
                process.pid,
                escape::line(python, 7),
                escape::line(&command, COMMAND),
            ));
        }
        self.rest(busy.len());
    }

    fn frames(&mut self, by: By, title: &str, note: &str) {
        let view =
            views::cpu_lines(self.model, &Selection::default(), Look { by, native: Native::None, ..Look::default() });
        if view.rows.is_empty() {
            return;
        }
        self.section(title, note);
        let place = if by == By::Line { "line" } else { "file" };
        self.line(&format!("{:<SHARE$} {:<SHARE$}  {place:<PLACE$}  function", "   own", " total"));
        for row in view.rows.iter().take(self.limit) {
            self.frame(row, by, &view.all);
        }
        self.rest(view.rows.len());
    }

    fn frame(&mut self, row: &CpuLineRow, by: By, all: &CpuSum) {
        let Some(frame) = self.model.frame(row.frame) else { return };
        let place = place(frame, by == By::Line);
        let (place, function) = (escape::tail(&place, PLACE), escape::line(&frame.function, FUNCTION));
        let (own, total) = (share_with_error(row.own.share_of(all)), share_with_error(row.total.share_of(all)));
        self.line(&format!("{own:<SHARE$} {total:<SHARE$}  {place:<PLACE$}  {function}"));
    }

    fn rest(&mut self, rows: usize) {
        if rows > self.limit {
            self.line(&format!("  and {} more", grouped((rows - self.limit) as u64)));
        }
    }

    fn stacks(&mut self) {
        let stacks = self.model.cpu().stacks();
        if stacks.samples == 0 {
            return;
        }
        self.section("Stacks", "");
        self.line(&format!(
            "  {} of the {} samples of Python threads have a complete Python stack.",
            percent(stacks.complete, stacks.samples),
            grouped(stacks.samples),
        ));
        if stacks.truncated > 0 {
            self.line(&format!("  {} were deeper than pyobs walks and lack their root.", grouped(stacks.truncated)));
        }
        let failed: Vec<_> = stacks.failed.iter().collect();
        for (reason, count) in failed {
            self.reason(count, reason.name(), reason.sentence());
        }
        if !stacks.cut.is_empty() {
            let whole = stacks.complete.saturating_sub(stacks.cut.total());
            let share = percent(whole, stacks.samples);
            self.line(&format!("  {share} are whole: their native frames lead to the outermost as well. The others:"));
            for (reason, count) in stacks.cut.iter() {
                self.reason(count, reason.name(), reason.sentence());
            }
        }
    }

    fn loss(&mut self) {
        self.section("Lost", "");
        let losses: Vec<_> = self.model.loss().iter().collect();
        if losses.is_empty() {
            self.line("  Nothing.");
        }
        for (reason, count) in losses {
            self.reason(count, reason.name(), reason.sentence());
        }
        self.summed();
    }

    /// What a long recording has in sums only.
    fn summed(&mut self) {
        let listed = |counts: BTreeMap<&str, u64>| {
            let counts =
                counts.into_iter().map(|(kind, count)| format!("{} {}", grouped(count), kind.replace('_', " ")));
            counts.collect::<Vec<_>>().join(", ")
        };
        let (summed, left_out) = (listed(self.model.summed()), listed(self.model.left_out()));
        if !summed.is_empty() {
            self.line("");
            self.wrapped_at(0, "Kept only as sums, because there were too many to keep one by one: ", &summed);
        }
        if !left_out.is_empty() {
            self.wrapped_at(0, "In no sum, because there were too many functions or lines: ", &left_out);
        }
    }

    fn reason(&mut self, count: u64, name: &str, sentence: &str) {
        let first = format!("{:>10}  {name}: ", grouped(count));
        self.wrapped(&first, sentence);
    }

    /// Writes a sentence after `first` and wraps it.
    fn wrapped(&mut self, first: &str, sentence: &str) {
        self.wrapped_at(INDENT, first, sentence);
    }

    /// Like [`Self::wrapped()`], with another indent of continued lines: at most [`INDENT`], or long words would not fit.
    fn wrapped_at(&mut self, indent: usize, first: &str, sentence: &str) {
        let mut line = first.to_owned();
        for word in sentence.split_whitespace().map(|word| escape::line(word, WIDTH - INDENT)) {
            if line.chars().count() + word.chars().count() > WIDTH {
                self.line(&line);
                line = " ".repeat(indent);
            }
            let _ = write!(line, "{word} ");
        }
        self.line(&line);
    }

    fn cost(&mut self) {
        let cost = self.model.cost();
        let seconds = self.model.now().as_secs_f64();
        let (kernel, user) = (cost.bpf.as_secs_f64(), cost.cpu.as_secs_f64());
        let (startup, steady) = (cost.startup.as_secs_f64(), cost.steady().as_secs_f64());
        let (share, of) = self.model.cost_percent(if seconds > 0.0 { steady / seconds } else { 0.0 });
        let mib = cost.rss_bytes >> 20;
        self.section("Cost of pyobs", "");
        self.line(&format!(
            "  {share:.2}% {of}: {kernel:.2} s in the kernel, {:.2} s of its own; {mib} MiB of memory.",
            (user - startup).max(0.0)
        ));
        if startup > 0.0 {
            self.line(&format!("  Start-up work apart from that: {startup:.2} s."));
        }
        let shed: Vec<String> = self.model.sheds().map(shed_line).collect();
        for line in shed.iter().take(self.limit) {
            self.line(&escape::line(line, WIDTH));
        }
        self.rest(shed.len());
        let sheds: Vec<String> = self.model.shed().iter().map(|what| escape::line(what, 1000).into_owned()).collect();
        for what in sheds.iter().take(self.limit) {
            self.wrapped("  Given up to stay inside the budget: ", what);
        }
        self.rest(sheds.len());
    }
}

/// A line about a measure that kept pyobs inside its budget, and when it was in force.
fn shed_line(shed: &Shed) -> String {
    let to = shed.to.map_or("the end".to_owned(), |to| format!("{:.0} s", to.as_secs_f64()));
    format!("  Shed from {:.0} s to {to}: {} {}", shed.from.as_secs_f64(), shed.family, shed.measure)
}

/// The file, module or `[kernel]` of a frame. Not escaped.
fn place(frame: &Frame, lines: bool) -> String {
    match frame.kind {
        FrameKind::Kernel => "[kernel]".to_owned(),
        FrameKind::Python | FrameKind::Native => names::place(frame, lines),
    }
}

fn percent(part: u64, all: u64) -> String {
    share(if all == 0 { 0.0 } else { part as f64 / all as f64 })
}

/// A share, with its 95 % confidence interval if that is at least half a point.
fn share_with_error((part, error): (f64, f64)) -> String {
    let points = 1.96 * error * 100.0;
    let error = if points < 0.5 { String::new() } else { format!(" ±{points:.1}") };
    format!("{:>6}{error}", share(part))
}

fn share(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

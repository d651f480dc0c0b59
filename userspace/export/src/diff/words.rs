//! The text of `pyobs diff`.

use std::io::Write;

use pyobs_model::diff::{About, Changes, Delta, Diff, Function, Verdict};
use pyobs_model::number::{grouped, size, time};
use pyobs_model::{Family, FrameKind, Model, Nanos};

use crate::names::metadata;
use crate::{Error, escape};

const WIDTH: usize = 100;

/// Writes at most `limit` changes per list.
pub fn words(before: &Model, after: &Model, limit: usize, out: &mut dyn Write) -> Result<(), Error> {
    let diff = Diff::new(before, after);
    let mut report = DiffText { limit, text: String::new() };
    report.line(&format!("Before: {}", about(&diff.before)));
    report.line(&format!("After:  {}", about(&diff.after)));
    if !diff.changed {
        report.line("");
        report.line("No change: whatever differs, chance explains it.");
    }
    if let Some(delta) = diff.totals.cpu_per_s.filter(|delta| delta.verdict.is_some()) {
        report.line("");
        report.line("CPU time per second, all processes together");
        report.row(&delta, |seconds| format!("{seconds:.3} s"), "");
    }
    report.frames(&diff);
    report.waits(&diff);
    report.memory(&diff);
    report.transfers(&diff);
    report.redundancy(&diff);
    report.findings(&diff);
    report.left_out(before, after);
    Ok(out.write_all(report.text.as_bytes())?)
}

fn about(about: &About) -> String {
    let (host, started) = (metadata(&about.host), metadata(&about.started));
    let samples = grouped(about.samples);
    format!("{host}, {started}, {:.1} s, {samples} samples at {} Hz", about.duration_s, about.rate_hz)
}

fn share(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn length(seconds: f64) -> String {
    time(Nanos::from_secs_f64(seconds))
}

fn count(count: f64) -> String {
    grouped(count as u64)
}

fn name(place: &Function) -> String {
    let at = place.file.as_deref().or(place.module.as_deref()).unwrap_or("?");
    match place.kind {
        FrameKind::Kernel => format!("{} [kernel]", place.function),
        _ => format!("{} ({at})", place.function),
    }
}

fn somewhere(place: Option<&Function>) -> String {
    place.map_or_else(|| "an unknown place".to_owned(), name)
}

struct DiffText {
    limit: usize,
    text: String,
}

impl DiffText {
    fn line(&mut self, line: &str) {
        self.text += escape::line(line, WIDTH).trim_end();
        self.text.push('\n');
    }

    /// Leaves the section out if nothing changed.
    fn section<T>(&mut self, title: &str, rows: Option<&Changes<T>>, mut row: impl FnMut(&mut Self, &T)) {
        let Some(rows) = rows.filter(|rows| !rows.changed.is_empty()) else { return };
        self.line("");
        self.line(&format!("{title} ({} of {} changed)", rows.changed.len(), rows.compared));
        for changed in rows.changed.iter().take(self.limit) {
            row(self, changed);
        }
        if let Some(rest) = rows.changed.len().checked_sub(self.limit).filter(|rest| *rest > 0) {
            self.line(&format!("  and {rest} more; --limit shows them"));
        }
    }

    fn row(&mut self, delta: &Delta, unit: impl Fn(f64) -> String, name: &str) {
        let verdict = delta.verdict.map_or("", Verdict::name);
        let (before, after, noise) = (unit(delta.before), unit(delta.after), unit(delta.noise));
        self.line(&format!("  {verdict:<4} {before:>9} -> {after:<9} (noise {noise:>7})  {name}"));
    }

    fn frames(&mut self, diff: &Diff) {
        for (title, of) in [
            ("Functions by their own samples", (|row| row.own) as fn(&pyobs_model::diff::FrameChange) -> Delta),
            ("Functions by all samples in which they are", |row| row.total),
        ] {
            let rows = diff.frames.as_ref().map(|rows| {
                let mut changed: Vec<_> =
                    rows.changed.iter().filter(|row| of(row).verdict.is_some()).cloned().collect();
                changed.sort_by(|one, other| of(other).weight().total_cmp(&of(one).weight()));
                Changes { compared: rows.compared, changed }
            });
            self.section(title, rows.as_ref(), |report, row| report.row(&of(row), share, &name(&row.place)));
        }
    }

    fn waits(&mut self, diff: &Diff) {
        self.section("Sleeps, per second", diff.offcpu.as_ref(), |report, row| {
            let name = format!("{} at {}", row.reason.name(), somewhere(row.place.as_ref()));
            report.row(&row.per_s, length, &name);
        });
        self.section("Waits for the GIL, per second", diff.gil.as_ref(), |report, row| {
            let (waiter, holder) = (somewhere(row.waiter.as_ref()), somewhere(row.holder.as_ref()));
            report.row(&row.per_s, length, &format!("{waiter} behind {holder}"));
        });
    }

    fn memory(&mut self, diff: &Diff) {
        self.section("Arenas", diff.arenas.as_ref(), |report, row| {
            let at = somewhere(row.place.as_ref());
            report.row_if(&row.born, count, &format!("{} born at {at}", row.kind));
            let bytes = format!("{} -> {}", size(row.kept_bytes_before), size(row.kept_bytes_after));
            report.row_if(&row.kept, count, &format!("{} kept ({bytes}) at {at}", row.kind));
        });
        self.section("Segments", diff.segments.as_ref(), |report, row| {
            let at = somewhere(row.place.as_ref());
            let bytes = format!("{} -> {}", size(row.bytes_before), size(row.bytes_after));
            report.row_if(&row.made, count, &format!("{} made ({bytes}) at {at}", row.kind.name()));
            report.row_if(&row.residue, count, &format!("{} left behind, made at {at}", row.kind.name()));
        });
    }

    fn transfers(&mut self, diff: &Diff) {
        self.section("Stages of transfers", diff.transfers.as_ref(), |report, row| {
            for (percent, delta) in [("50 %", row.p50), ("90 %", row.p90), ("99 %", row.p99)] {
                if let Some(delta) = delta {
                    report.row_if(
                        &delta,
                        length,
                        &format!("{} {}, {percent} of them", row.operation.name(), row.stage),
                    );
                }
            }
        });
    }

    fn redundancy(&mut self, diff: &Diff) {
        self.section("Redundant loads and stores, of all compared", diff.redundancy.as_ref(), |report, row| {
            let (first, second) = (somewhere(row.first.as_ref()), somewhere(row.second.as_ref()));
            report.row(&row.equal, share, &format!("{}s of {second} after {first}", row.kind.name()));
        });
    }

    fn row_if(&mut self, delta: &Delta, unit: impl Fn(f64) -> String, name: &str) {
        if delta.verdict.is_some() {
            self.row(delta, unit, name);
        }
    }

    fn findings(&mut self, diff: &Diff) {
        for (title, ids) in [("before", &diff.findings.gone), ("after", &diff.findings.new)] {
            if !ids.is_empty() {
                self.line("");
                self.line(&format!("Found only {title}: {}; `pyobs report` says more", ids.join(", ")));
            }
        }
    }

    /// Names the families that only one recording has, because they were not compared.
    fn left_out(&mut self, before: &Model, after: &Model) {
        let families = Family::ALL.into_iter();
        let one = families.filter(|family| before.is_on(*family) != after.is_on(*family)).map(Family::name);
        let one: Vec<&str> = one.collect();
        if !one.is_empty() {
            self.line("");
            self.line(&format!("Not compared, because only one recording has it: {}.", one.join(", ")));
        }
    }
}

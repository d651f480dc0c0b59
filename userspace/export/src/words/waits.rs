//! What threads waited for: sleeps and waits for the GIL.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use pyobs_model::families::{Sampled, Times};
use pyobs_model::number::{grouped, time};
use pyobs_model::views::{self, By, Group, SleepRow};
use pyobs_model::{Frame, FrameId, FrameKind, ProcessRef, Selection};

use super::{ReportText, WIDTH, place, share};
use crate::escape;

pub(super) const PLACE: usize = 26;

/// The head of the columns that [`spent`] fills.
const SPENT: &str = "       time       count    longest";

impl ReportText<'_> {
    pub(super) fn offcpu(&mut self) {
        let rows = views::sleeps(self.model, &Selection::default(), By::Line, Group::None);
        self.reasons(&rows);
        self.places(&rows);
    }

    fn reasons(&mut self, rows: &[SleepRow]) {
        self.section("Waits", "of all threads together, by what they waited for");
        // Totals by reason are exact even if stacks were sampled.
        let reasons = summed(rows.iter().map(|row| (row.reason, row.times, Sampled::default())));
        if reasons.is_empty() {
            return self.nothing();
        }
        self.line(&format!("{SPENT}  reason"));
        for (reason, times, _) in reasons {
            self.line(&format!("{}  {}", spent(times), reason.name()));
        }
    }

    fn places(&mut self, rows: &[SleepRow]) {
        let places = summed(rows.iter().map(|row| ((row.reason, row.frame, row.inner), row.times, row.sampled)));
        if places.is_empty() {
            return;
        }
        self.section(
            "Where threads wait",
            "the innermost line of Python, the function below it, the stacks it rests on",
        );
        self.line(&format!("{SPENT}  {:>7}  {:<6}  {:<PLACE$}  function", "stacks", "reason", "line"));
        for ((reason, frame, inner), times, sampled) in places.iter().take(self.limit) {
            let [frame, inner] = [frame, inner].map(|id| id.and_then(|id| self.model.frame(id)));
            let function = match (frame, inner) {
                (Some(frame), Some(inner)) => format!("{} > {}", frame.function, inner.function),
                (frame, inner) => frame.or(inner).map_or("?", |frame| &frame.function).to_owned(),
            };
            let stacks = grouped(sampled.stacks);
            let spent =
                if sampled.is_enough() { spent(*times) } else { format!("{:>1$}", "not enough data", SPENT.len()) };
            let begin = format!("{spent}  {stacks:>7}  {:<6}", reason.name());
            self.row(&begin, frame.or(inner), &function);
        }
        self.rest(places.len());
    }

    pub(super) fn gil(&mut self) {
        self.section("GIL", "how much of the time it was held, how many waited for it, behind which line mostly");
        let selection = Selection::default();
        let mut shares: Vec<_> = views::gil_shares(self.model, &selection).into_iter().collect();
        if shares.is_empty() {
            return self.nothing();
        }
        shares.sort_by_key(|(_, share)| Reverse((share.wanted.total, share.held)));
        let holders = worst_holders(&views::gil_waits(self.model, &selection, By::Line, Group::None));
        let (held, wanted, waits, longest) = ("held", "wanted", "waits", "longest");
        self.line(&format!(
            "{held:>7}  {wanted:>7}  {waits:>10}  {longest:>9}  {:>7}  {:<PLACE$}  function",
            "pid", "line"
        ));
        let mut has_pieces = false;
        for (process, it) in shares.iter().take(self.limit) {
            let Some(state) = self.model.process(*process) else { continue };
            let (held, wanted, pid) = (share(it.held_share()), share(it.wanted_share()), state.process.pid);
            let holder = holders.get(process).and_then(|frame| self.model.frame(*frame));
            let (mut waits, mut longest) = (grouped(it.wanted.count), time(it.wanted.max));
            if !it.sampled.is_exact() {
                (waits, longest) = (format!("≤{waits}"), format!("≥{longest}"));
                has_pieces = true;
            }
            let begin = format!("{held:>7}  {wanted:>7}  {waits:>10}  {longest:>9}  {pid:>7}");
            self.row(&begin, holder, holder.map_or("-", |frame| &frame.function));
        }
        self.rest(shares.len());
        if has_pieces {
            let sampled = "Stacks were sampled. What threads wanted is exact; the line is an estimate. A wait has one or more \
                           pieces of at most a switch interval, and these were counted.";
            self.wrapped_at(2, "  ", sampled);
        }
    }

    /// Appends a place and a function to `begin`.
    pub(super) fn row(&mut self, begin: &str, frame: Option<&Frame>, function: &str) {
        let place = frame.map_or("-".to_owned(), |frame| place(frame, frame.kind == FrameKind::Python));
        let line = format!("{begin}  {:<PLACE$}  {function}", escape::tail(&place, PLACE));
        self.line(&escape::line(&line, WIDTH));
    }

    pub(super) fn nothing(&mut self) {
        self.line("  Nothing was seen.");
    }
}

fn spent(times: Times) -> String {
    format!("{:>11}  {:>10}  {:>9}", time(times.total), grouped(times.count), time(times.max))
}

/// Sorted by total time, longest first.
fn summed<K: Ord>(rows: impl Iterator<Item = (K, Times, Sampled)>) -> Vec<(K, Times, Sampled)> {
    let mut sums: BTreeMap<K, (Times, Sampled)> = BTreeMap::new();
    for (key, times, sampled) in rows {
        let sum = sums.entry(key).or_default();
        sum.0.add(times);
        sum.1.add(sampled);
    }
    let mut sums: Vec<_> = sums.into_iter().map(|(key, (times, sampled))| (key, times, sampled)).collect();
    sums.sort_by_key(|(_, times, _)| Reverse(times.total));
    sums
}

/// Per process, the line behind which other threads waited longest, unless too few stacks support it.
fn worst_holders(rows: &[views::GilRow]) -> BTreeMap<ProcessRef, FrameId> {
    let of_row = |row: &views::GilRow| Some(((row.process, row.holder_frame?), row.times, row.sampled));
    let mut worst = BTreeMap::new();
    for ((process, frame), _, sampled) in summed(rows.iter().filter_map(of_row)) {
        if sampled.is_enough() {
            worst.entry(process).or_insert(frame);
        }
    }
    worst
}

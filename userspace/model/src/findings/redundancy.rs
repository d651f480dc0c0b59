//! Lines whose native code does redundant work.
//!
//! What equal values mean depends on what the address holds (docs/families/redundancy.md). Loads of objects are nearly
//! always equal, and equal loads of arrays are operands in repeated use. Equal stores into arrays write results that
//! were already there.

mod chatty;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::advice::{self, About};
use super::{Cost, Evidence, Finding, Severity, Target, place};
use crate::families::redundancy::{Accesses, CallOf, CallSum, Depth, Line, PairSum, Verdict};
use crate::number::size;
use crate::views::{self, RedundancyView};
use crate::{FrameId, Model, PairKind, ProcessRef, Selection, Touched, package};

/// The minimum share of its process's CPU time that a line's native code must have.
const LEAST: f64 = 0.01;
const RECOMPUTED: &str = "redundancy/recomputed";
/// The share of samples from which dispatch is serious.
const SERIOUS: f64 = 0.25;

pub(super) fn find(model: &Model, selection: &Selection) -> Vec<Finding> {
    let mut found = Vec::new();
    let view = views::redundancy(model, selection);
    let at = |line| At::of(model, &view, line);
    let mut lines: Vec<_> = view.lines.iter().map(|(line, sum)| (*line, &sum.accesses)).collect();
    lines.sort_by_key(|(_, sum)| Reverse(sum.weight));
    lines.retain(|(line, _)| view.share(*line) >= LEAST);
    let rate_hz = model.meta().rate_hz;
    let chatty = view.chatty.iter();
    found
        .extend(chatty.filter_map(|(line, of)| chatty::finding(&at(*line), of, view.share_of_library(*line, rate_hz))));
    let lines = lines.into_iter().filter(|(line, _)| !is_part_of_chatty(model, &view, *line));
    found.extend(lines.filter_map(|(line, sum)| dispatch(&at(line), sum, view.share(line))));
    let repeated: BTreeSet<(Line, &str)> = view
        .calls
        .iter()
        .filter(|(call, sum)| call.depth == Depth::Program && sum.repetition_verdict() == Verdict::Found)
        .map(|(call, _)| (call.line, &*call.callee))
        .collect();
    // What a repeated call does below it repeats, too.
    let is_part = |call: &CallOf| match call.depth {
        Depth::Line => repeated.contains(&(call.line, &*call.callee)),
        Depth::Below => repeated.iter().any(|(line, _)| *line == call.line),
        Depth::Program => false,
    };
    let copying: BTreeSet<Line> = view
        .calls
        .iter()
        .filter(|(call, sum)| call.depth == Depth::Program && sum.is_copying())
        .map(|(call, _)| call.line)
        .collect();
    let is_copied_there = |call: &CallOf| {
        let caller = Line { frame: view.caller(call.line).0, ..call.line };
        call.depth != Depth::Program && (copying.contains(&call.line) || copying.contains(&caller))
    };
    // A line may have many calls that take little time each.
    for (call, sum) in &view.calls {
        if view.share_around(call) >= LEAST && view.counts_for_line(call, sum) {
            let at = at(call.line);
            if !is_part(call) {
                found.extend(again(&at, call, sum, view.share_of_call(call, sum.compared)));
            }
            if !is_copied_there(call) {
                found.extend(copied(&at, call, sum, view.share_of_call(call, sum.joins)));
            }
        }
    }
    let mut sums: BTreeMap<(Line, PairKind), Sums> = BTreeMap::new();
    let mut unread: BTreeMap<Line, (Sums, BTreeMap<Line, u64>)> = BTreeMap::new();
    for (pair, sum) in &view.pairs {
        let line = |stack| view.line(model, pair.process, stack);
        let (Touched::Array(shape), Some(second)) = (&pair.touched, line(pair.second)) else {
            continue;
        };
        let add = |shapes: &mut Sums| shapes.entry(shape.to_string()).or_default().add(sum);
        add(sums.entry((second, pair.kind)).or_default());
        // A store that nobody reads is the fault of its own line, not of the line that overwrites it.
        if let Some(first) = line(pair.first).filter(|_| sum.looked > 0) {
            let (stored, over) = unread.entry(first).or_default();
            add(stored);
            *over.entry(second).or_default() += sum.unread;
        }
    }
    let of = |line, shapes: &Sums| {
        let shape = shapes.iter().max_by_key(|(_, sum)| sum.compared).map_or("", |(shape, _)| shape).to_owned();
        let mut sum = PairSum::default();
        shapes.values().for_each(|of_shape| sum.add(of_shape));
        Of { at: at(line), sum, shape }
    };
    for ((line, kind), mut sums) in sums {
        found.extend(match kind {
            PairKind::Load => {
                // One operand may stay the same while others change.
                sums.retain(|_, of_shape| of_shape.equality_verdict() == Verdict::Found);
                of(line, &sums).reread()
            }
            PairKind::Store => of(line, &sums).recomputed(),
        });
    }
    for (line, (sums, over)) in &unread {
        let over = over.iter().max_by_key(|(_, count)| **count).map(|(line, _)| line.frame);
        found.extend(of(*line, sums).dead(over));
    }
    found
}

/// Whether the dispatch at a line is that of a library which the program calls too often.
fn is_part_of_chatty(model: &Model, view: &RedundancyView, line: Line) -> bool {
    if view.chatty.contains_key(&line) {
        return view.share(line) <= view.share_of_library(line, model.meta().rate_hz);
    }
    let package = model.frame(line.frame).and_then(|frame| frame.package.as_deref());
    let caller = Line { frame: view.caller(line).0, ..line };
    package.is_some_and(package::is_of_arrays) && view.chatty.contains_key(&caller)
}

/// The process that would gain most from fixing these findings, and its gain as a share of its CPU time. Several findings at
/// one line are about the same time, so only the largest counts.
pub fn gain(found: &[Finding]) -> Option<(ProcessRef, f64)> {
    let mut lines: BTreeMap<(ProcessRef, FrameId), f64> = BTreeMap::new();
    for finding in found.iter().filter(|finding| finding.id.starts_with("redundancy/")) {
        if let (Some(process), Some(Target::Line(frame))) = (finding.process, finding.target) {
            let gain = lines.entry((process, frame)).or_default();
            *gain = finding.cost.time.max(*gain);
        }
    }
    let mut processes: BTreeMap<ProcessRef, f64> = BTreeMap::new();
    for ((process, _), gain) in lines {
        *processes.entry(process).or_default() += gain;
    }
    let most = processes.into_iter().max_by(|one, other| one.1.total_cmp(&other.1));
    most.map(|(process, gain)| (process, gain.min(1.0))).filter(|(_, gain)| *gain > 0.0)
}

/// The line that a finding blames, and the line of the program that led there.
struct At<'a> {
    model: &'a Model,
    line: Line,
    place: String,
    caller: String,
    caller_share: f64,
}

impl<'a> At<'a> {
    fn of(model: &'a Model, view: &RedundancyView, line: Line) -> Self {
        let (caller, caller_share) = view.caller(line);
        let name = |frame| place(model, Some(frame));
        Self { model, line, place: name(line.frame), caller: name(caller), caller_share }
    }

    /// As a summary names it: the line, and its caller if that is another one.
    fn name(&self) -> String {
        if self.caller == self.place { self.place.clone() } else { format!("{}, from {},", self.place, self.caller) }
    }

    fn finding(
        &self,
        id: &'static str,
        severity: Severity,
        (summary, detail, advice): (String, String, &str),
        evidence: impl IntoIterator<Item = (&'static str, Evidence)>,
        cost: Cost,
    ) -> Finding {
        let own = [
            ("line", Evidence::Text(self.place.clone())),
            ("caller", Evidence::Text(self.caller.clone())),
            ("caller_share", Evidence::Number(self.caller_share)),
        ];
        Finding {
            id,
            severity,
            summary,
            detail,
            advice: advice.to_owned(),
            process: Some(self.line.process),
            pid: self.model.process(self.line.process).map(|state| state.process.pid),
            evidence: own.into_iter().chain(evidence).collect(),
            cost,
            target: Some(Target::Line(self.line.frame)),
        }
    }
}

/// `native` is these samples' share of the process's CPU time.
fn dispatch(at: &At<'_>, sum: &Accesses, native: f64) -> Option<Finding> {
    if sum.dispatch_verdict() != Verdict::Found {
        return None;
    }
    let metadata = sum.metadata_share()?;
    let names: Vec<&str> = sum.names.commonest(3).into_iter().map(|(name, _)| name).collect();
    let detail = format!(
        "{} samples ({:.0}% of the process) were in native code that this line called. Of the {} whose address is known, {} \
         ({:.0}%) accessed objects, their types and other data of libraries, and only {} the data of arrays: the time goes into \
         calls, not into data. {}{}Likely the reason is {}.",
        sum.samples,
        native * 100.0,
        sum.known(),
        sum.objects(),
        metadata * 100.0,
        sum.array,
        if names.is_empty() { String::new() } else { format!("Most often accessed: {}. ", names.join(", ")) },
        sum.elements_of.first().map_or_else(String::new, |array| {
            format!("{} took or set a single element of an array, most often of {array}. ", sum.elements)
        }),
        if sum.takes_elements() {
            "an element loop"
        } else {
            "very small arrays, or a function of arrays used on single numbers"
        },
    );
    let advice = "Work on whole arrays, by slices or one call for all elements: it has the same result in fewer calls.";
    let summary = format!(
        "{} spends {:.0}% of the run in native calls, {:.0}% of which touch only objects, not data",
        at.name(),
        native * 100.0,
        metadata * 100.0
    );
    let evidence = [
        ("samples", Evidence::Count(sum.samples)),
        ("native_share", Evidence::Number(native)),
        ("accesses", Evidence::Count(sum.known())),
        ("metadata", Evidence::Count(sum.metadata)),
        ("static", Evidence::Count(sum.fixed)),
        ("array", Evidence::Count(sum.array)),
        ("elements", Evidence::Count(sum.elements)),
        ("metadata_share", Evidence::Number(metadata)),
    ];
    let (severity, cost) = (severity(native), Cost::time(native * metadata));
    Some(at.finding("redundancy/dispatch", severity, (summary, detail, advice), evidence, cost))
}

/// `native` is the share of the process's CPU time.
fn severity(native: f64) -> Severity {
    if native >= SERIOUS { Severity::Serious } else { Severity::Warning }
}

/// A call that repeats the arguments and the result of an earlier one.
fn again(at: &At<'_>, call: &CallOf, sum: &CallSum, native: f64) -> Option<Finding> {
    if sum.repetition_verdict() != Verdict::Found {
        return None;
    }
    let CallSum { compared, same, results, same_results, .. } = *sum;
    let callee = &call.callee;
    let detail = format!(
        "Of {compared} samples in this call, {same} had the arguments of the sample before, and of {results} results that were \
         looked at {same_results} were the one before. Likely it computes the same each time. Of large arrays parts \
         are compared, which change every four seconds."
    );
    let summary = format!("{} calls {callee} again with the same arguments, {same} of {compared} times", at.name());
    let evidence = [
        ("callee", Evidence::Text(callee.to_string())),
        ("native_share", Evidence::Number(native)),
        ("compared", Evidence::Count(compared)),
        ("same_arguments", Evidence::Count(same)),
        ("results", Evidence::Count(results)),
        ("same_results", Evidence::Count(same_results)),
    ];
    let cost = Cost::time(native * same as f64 / compared.max(1) as f64);
    let words = (summary, detail, advice::about(About::Recomputed, None, callee));
    Some(at.finding(RECOMPUTED, severity(native), words, evidence, cost))
}

/// Calls that copy a large array, table or text to append a little to it.
fn copied(at: &At<'_>, call: &CallOf, sum: &CallSum, native: f64) -> Option<Finding> {
    if !sum.is_copying() {
        return None;
    }
    let CallSum { joins, copies, copied, added, .. } = *sum;
    let (each, more) = (size(copied / copies.max(1)), size(added / copies.max(1)));
    let callee = &call.callee;
    let detail = format!(
        "In {copies} of {joins} samples of this call, little was appended to a large object: on average {more} to \
         {each}. Each such call copies the whole object, so the time grows with the square of the number of calls."
    );
    let advice = advice::about(About::Copied, None, callee);
    let when = if callee.starts_with('+') { callee.to_string() } else { format!("call of {callee}") };
    let summary = format!("{} copies {each} to add {more} at each {when}", at.name());
    let evidence = [
        ("callee", Evidence::Text(callee.to_string())),
        ("native_share", Evidence::Number(native)),
        ("joins", Evidence::Count(joins)),
        ("copies", Evidence::Count(copies)),
        ("copied_bytes", Evidence::Count(copied / copies.max(1))),
        ("added_bytes", Evidence::Count(added / copies.max(1))),
    ];
    let cost = Cost::time(native * copied as f64 / copied.saturating_add(added).max(1) as f64);
    Some(at.finding("redundancy/copied", severity(native), (summary, detail, advice), evidence, cost))
}

/// The pairs of one line, by the shape of the array.
type Sums = BTreeMap<String, PairSum>;

/// Pairs of one kind at one line.
struct Of<'a> {
    at: At<'a>,
    sum: PairSum,
    shape: String,
}

impl Of<'_> {
    fn recomputed(&self) -> Option<Finding> {
        let PairSum { equal, compared, .. } = self.sum;
        if self.sum.equality_verdict() != Verdict::Found {
            return None;
        }
        let detail = format!(
            "Of {compared} stores into an array ({}) that were followed to the next call, {equal} left the value that was there \
             already. Likely the same call is made again with the same arguments.",
            self.shape
        );
        let summary = format!("{} stored the same values {equal} of {compared} times", self.at.name());
        let advice = advice::about(About::Recomputed, None, "");
        Some(self.finding(RECOMPUTED, Severity::Warning, (summary, detail, advice), equal))
    }

    /// `over` is the line that overwrites most of the stored values.
    fn dead(&self, over: Option<FrameId>) -> Option<Finding> {
        let PairSum { looked, unread, .. } = self.sum;
        if self.sum.unread_verdict() != Verdict::Found {
            return None;
        }
        let over = place(self.at.model, over);
        let detail = format!(
            "Of {looked} stores into an array ({}) whose reads were watched as well, {unread} were overwritten by a later call \
             (mostly at {over}) before this thread read them. Likely nobody needs the values.",
            self.shape
        );
        let advice = "Leave out what computes the values, or compute them only once they are read.";
        let summary = format!("{} stores values that nobody reads, {unread} of {looked} times", self.at.name());
        let mut finding = self.finding("redundancy/dead-store", Severity::Warning, (summary, detail, advice), unread);
        finding.evidence.insert("over", Evidence::Text(over));
        Some(finding)
    }

    fn reread(&self) -> Option<Finding> {
        let PairSum { equal, compared, .. } = self.sum;
        if self.sum.equality_verdict() != Verdict::Found {
            return None;
        }
        let detail = format!(
            "Of {compared} loads from an array ({}) that were followed to the next call, {equal} found the same value again. Most \
             programs use their operands more than once: this is no waste by itself.",
            self.shape
        );
        let advice = "Nothing, unless that line is hot: then use each piece of the array for all that is computed of \
                      it before the next one is loaded.";
        let summary =
            format!("{} reads operands again that have not changed, {equal} of {compared} times", self.at.name());
        Some(self.finding("redundancy/reread", Severity::Info, (summary, detail, advice), equal))
    }

    fn finding(&self, id: &'static str, severity: Severity, words: (String, String, &str), count: u64) -> Finding {
        let PairSum { compared, equal, looked, unread, .. } = self.sum;
        let evidence = [
            ("array", Evidence::Text(self.shape.clone())),
            ("count", Evidence::Count(count)),
            ("compared", Evidence::Count(compared)),
            ("equal", Evidence::Count(equal)),
            ("looked", Evidence::Count(looked)),
            ("unread", Evidence::Count(unread)),
        ];
        self.at.finding(id, severity, words, evidence, Cost::default())
    }
}

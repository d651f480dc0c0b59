//! Lines whose native code does redundant work.
//!
//! What equal values mean depends on what the address holds (docs/families/redundancy.md). Loads of objects are nearly
//! always equal, and equal loads of arrays are operands in repeated use. Equal stores into arrays write results that
//! were already there.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{Cost, Evidence, Finding, Severity, Target, place};
use crate::families::redundancy::{Accesses, CallOf, CallSum, EQUAL, Line, PairSum, least_share};
use crate::views::{self, own_line};
use crate::{FrameId, Model, PairKind, ProcessRef, Selection, Touched};

/// The minimum share of its process's CPU time that a line's native code must have.
const LEAST: f64 = 0.01;
const RECOMPUTED: &str = "redundancy/recomputed";
/// The advice.
const KEEP: &str = "Make the call once before the loop, or keep its result.";
/// The minimum share of Python objects in what a line accesses, after allowing for chance. Dispatch has three in ten or
/// more. Static data alone are the constants of a computation.
const OBJECTS: f64 = 0.05;
/// Prefix of the type names of NumPy's arrays and scalars.
const NUMPY: &str = "numpy.";
/// The share of samples from which dispatch is serious.
const SERIOUS: f64 = 0.25;

pub(super) fn find(model: &Model, selection: &Selection) -> Vec<Finding> {
    let mut found = Vec::new();
    let view = views::redundancy(model, selection);
    let mut lines: Vec<(&Line, &Accesses)> = view.lines.iter().collect();
    lines.sort_by_key(|(_, sum)| Reverse(sum.weight));
    lines.retain(|(line, _)| view.share(**line) >= LEAST);
    let hot: BTreeSet<Line> = lines.iter().map(|(line, _)| **line).collect();
    let lines = lines.into_iter();
    found.extend(lines.filter_map(|(line, sum)| dispatch(model, *line, sum, view.share(*line))));
    // A line may have many calls that take little time each.
    let calls = view.calls.iter().filter(|(call, _)| hot.contains(&call.line));
    found.extend(calls.filter_map(|(call, sum)| again(model, call, sum, view.share_of_call(call, sum.compared))));
    let mut sums: BTreeMap<(ProcessRef, PairKind, FrameId), Sums> = BTreeMap::new();
    let mut unread: BTreeMap<(ProcessRef, FrameId), (Sums, BTreeMap<FrameId, u64>)> = BTreeMap::new();
    for (pair, sum) in &view.pairs {
        let (Touched::Array(shape), Some(second)) = (&pair.touched, own_line(model, pair.second)) else {
            continue;
        };
        let add = |shapes: &mut Sums| shapes.entry(shape.to_string()).or_default().add(sum);
        add(sums.entry((pair.process, pair.kind, second)).or_default());
        // A store that nobody reads is the fault of its own line, not of the line that overwrites it.
        if let Some(first) = own_line(model, pair.first).filter(|_| sum.looked > 0) {
            let (stored, over) = unread.entry((pair.process, first)).or_default();
            add(stored);
            *over.entry(second).or_default() += sum.unread;
        }
    }
    let of = |process, frame, shapes: &Sums| {
        let shape = shapes.iter().max_by_key(|(_, sum)| sum.compared).map_or("", |(shape, _)| shape).to_owned();
        let mut sum = PairSum::default();
        shapes.values().for_each(|of_shape| sum.add(of_shape));
        Of { model, process, frame, sum, shape }
    };
    for ((process, kind, frame), mut sums) in sums {
        found.extend(match kind {
            PairKind::Load => {
                // One operand may stay the same while others change.
                sums.retain(|_, of_shape| least_share(of_shape.equal, of_shape.compared) > EQUAL);
                of(process, frame, &sums).reread()
            }
            PairKind::Store => of(process, frame, &sums).recomputed(),
        });
    }
    for ((process, frame), (sums, over)) in &unread {
        let over = over.iter().max_by_key(|(_, count)| **count).map(|(frame, _)| *frame);
        found.extend(of(*process, *frame, sums).dead(over));
    }
    found
}

/// `native` is these samples' share of the process's CPU time.
fn dispatch(model: &Model, line: Line, sum: &Accesses, native: f64) -> Option<Finding> {
    let has_objects = sum.least_metadata() > OBJECTS;
    let has_arrays = sum.array > 0 || sum.names.iter().any(|name| name.starts_with(NUMPY));
    if !(has_objects && has_arrays && sum.is_dispatch()) {
        return None;
    }
    let metadata = sum.metadata_share()?;
    let at = place(model, Some(line.frame));
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
            format!("{} took a single element out of an array, most often of {array}. ", sum.elements)
        }),
        if sum.takes_elements() {
            "an element loop"
        } else {
            "very small arrays, or a function of arrays used on single numbers"
        },
    );
    let advice = "Work on whole arrays, by slices or one call for all elements: it has the same result in fewer calls.";
    Some(Finding {
        id: "redundancy/dispatch",
        severity: if native >= SERIOUS { Severity::Serious } else { Severity::Warning },
        summary: format!(
            "{at} spends {:.0}% of the run in native calls, {:.0}% of which touch only objects, not data",
            native * 100.0,
            metadata * 100.0
        ),
        detail,
        advice: advice.to_owned(),
        process: Some(line.process),
        pid: model.process(line.process).map(|state| state.process.pid),
        evidence: BTreeMap::from([
            ("line", Evidence::Text(at)),
            ("samples", Evidence::Count(sum.samples)),
            ("native_share", Evidence::Number(native)),
            ("accesses", Evidence::Count(sum.known())),
            ("metadata", Evidence::Count(sum.metadata)),
            ("static", Evidence::Count(sum.fixed)),
            ("array", Evidence::Count(sum.array)),
            ("elements", Evidence::Count(sum.elements)),
            ("metadata_share", Evidence::Number(metadata)),
        ]),
        cost: Cost::time(native * metadata),
        target: Some(Target::Line(line.frame)),
    })
}

/// A call that repeats the arguments and the result of an earlier one.
fn again(model: &Model, call: &CallOf, sum: &CallSum, native: f64) -> Option<Finding> {
    if !sum.is_again(EQUAL) {
        return None;
    }
    let CallSum { compared, same, results, same_results, .. } = *sum;
    let (at, callee) = (place(model, Some(call.line.frame)), &call.callee);
    let detail = format!(
        "Of {compared} samples in this call, {same} had the arguments of the sample before, and of {results} results that were \
         looked at {same_results} were the one before. Likely it computes the same each time. Of large arrays parts \
         are compared, which change every four seconds."
    );
    Some(Finding {
        id: RECOMPUTED,
        severity: if native >= SERIOUS { Severity::Serious } else { Severity::Warning },
        summary: format!("{at} calls {callee} again with the same arguments, {same} of {compared} times"),
        detail,
        advice: KEEP.to_owned(),
        process: Some(call.line.process),
        pid: model.process(call.line.process).map(|state| state.process.pid),
        evidence: BTreeMap::from([
            ("line", Evidence::Text(at)),
            ("callee", Evidence::Text(callee.to_string())),
            ("native_share", Evidence::Number(native)),
            ("compared", Evidence::Count(compared)),
            ("same_arguments", Evidence::Count(same)),
            ("results", Evidence::Count(results)),
            ("same_results", Evidence::Count(same_results)),
        ]),
        cost: Cost::time(native * same as f64 / compared.max(1) as f64),
        target: Some(Target::Line(call.line.frame)),
    })
}

/// The pairs of one line, by the shape of the array.
type Sums = BTreeMap<String, PairSum>;

/// Pairs of one kind at one line.
struct Of<'a> {
    model: &'a Model,
    process: ProcessRef,
    frame: FrameId,
    sum: PairSum,
    shape: String,
}

impl Of<'_> {
    fn recomputed(&self) -> Option<Finding> {
        let PairSum { equal, compared, .. } = self.sum;
        if least_share(equal, compared) <= EQUAL {
            return None;
        }
        let at = place(self.model, Some(self.frame));
        let detail = format!(
            "Of {compared} stores into an array ({}) that were followed to the next call, {equal} left the value that was there \
             already. Likely the same call is made again with the same arguments.",
            self.shape
        );
        let summary = format!("{at} stored the same values {equal} of {compared} times");
        Some(self.finding(RECOMPUTED, Severity::Warning, (summary, detail, KEEP), equal))
    }

    /// `over` is the line that overwrites most of the stored values.
    fn dead(&self, over: Option<FrameId>) -> Option<Finding> {
        let PairSum { looked, unread, .. } = self.sum;
        if least_share(unread, looked) <= EQUAL {
            return None;
        }
        let (at, over) = (place(self.model, Some(self.frame)), place(self.model, over));
        let detail = format!(
            "Of {looked} stores into an array ({}) whose reads were watched as well, {unread} were stored over by a later call \
             (mostly at {over}) without having been read by this thread. Likely nobody needs the values.",
            self.shape
        );
        let advice = "Leave out what computes the values, or compute them only once they are read.";
        let summary = format!("{at} stores values that nobody reads, {unread} of {looked} times");
        let mut finding = self.finding("redundancy/dead-store", Severity::Warning, (summary, detail, advice), unread);
        finding.evidence.insert("over", Evidence::Text(over));
        Some(finding)
    }

    fn reread(&self) -> Option<Finding> {
        let PairSum { equal, compared, .. } = self.sum;
        if least_share(equal, compared) <= EQUAL {
            return None;
        }
        let at = place(self.model, Some(self.frame));
        let detail = format!(
            "Of {compared} loads from an array ({}) that were followed to the next call, {equal} found the same value again. Most \
             programs use their operands more than once: this is no waste by itself.",
            self.shape
        );
        let advice = "Nothing, unless that line is hot: then use each piece of the array for all that is computed of \
                      it before the next one is loaded.";
        let summary = format!("{at} reads operands again that have not changed, {equal} of {compared} times");
        Some(self.finding("redundancy/reread", Severity::Info, (summary, detail, advice), equal))
    }

    fn finding(
        &self,
        id: &'static str,
        severity: Severity,
        (summary, detail, advice): (String, String, &str),
        count: u64,
    ) -> Finding {
        Finding {
            id,
            severity,
            summary,
            detail,
            advice: advice.to_owned(),
            process: Some(self.process),
            pid: self.model.process(self.process).map(|state| state.process.pid),
            evidence: BTreeMap::from([
                ("line", Evidence::Text(place(self.model, Some(self.frame)))),
                ("array", Evidence::Text(self.shape.clone())),
                ("count", Evidence::Count(count)),
                ("compared", Evidence::Count(self.sum.compared)),
                ("equal", Evidence::Count(self.sum.equal)),
                ("looked", Evidence::Count(self.sum.looked)),
                ("unread", Evidence::Count(self.sum.unread)),
            ]),
            cost: Cost::default(),
            target: Some(Target::Line(self.frame)),
        }
    }
}

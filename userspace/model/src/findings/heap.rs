//! Lines whose memory grows throughout.

use std::collections::BTreeMap;

use super::{Cost, Evidence, Finding, Severity, Target, place, seconds};
use crate::families::heap::{HeapKind, HeapTime};
use crate::number::size;
use crate::views::{self, HeapLine, HeapUse};
use crate::{Model, Nanos, Selection};

/// The shortest growth that is reported, and the longest history that is examined.
const LENGTH_MIN: Nanos = Nanos(12_000_000_000);
const LENGTH_MAX: Nanos = Nanos(600_000_000_000);
/// The history is divided into equal parts. A line grows throughout if its minimum rises from part to part, each time by
/// at least `PART_MIN` of the whole growth. Minima ignore memory that is allocated and released again.
const PARTS: u64 = 4;
const PART_MIN: f64 = 0.08;
/// Thresholds of a finding, in bytes and in bytes per second.
const GROWTH_MIN: u64 = 4 << 20;
const RATE_MIN: f64 = 16.0 * 1024.0;
/// From this many bytes per hour on, the finding is a warning.
const MUCH_AN_HOUR: f64 = (256_u64 << 20) as f64;

/// How a line has grown.
struct Growth {
    length: Nanos,
    before: u64,
    bytes: u64,
}

impl Growth {
    /// Bytes a second.
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.length.as_secs_f64().max(1.0)
    }
}

pub(super) fn find(model: &Model, selection: &Selection) -> Vec<Finding> {
    let now = Selection { memory: Some(HeapTime::End), ..selection.lasting() };
    let lines = views::heap_lines(model, &now).into_iter().filter(|line| line.bytes >= GROWTH_MIN);
    lines.filter_map(|line| growing(model, &line, &growth(model, &line)?)).collect()
}

/// `None` unless the line has grown all the time.
fn growth(model: &Model, line: &HeapLine) -> Option<Growth> {
    let to = model.now();
    let from = line.since.max(to.saturating_sub(LENGTH_MAX));
    let length = to.saturating_sub(from);
    if length < LENGTH_MIN {
        return None;
    }
    let course = views::heap_course(model, line);
    let live = |at: Nanos| course.iter().take_while(|(time, _)| *time <= at).last().map_or(0, |(_, live)| *live);
    let edge = |part: u64| Nanos(from.0 + length.0 / PARTS * part);
    let least = |part: u64| {
        let within = course.iter().filter(|(at, _)| (edge(part)..edge(part + 1)).contains(at)).map(|(_, live)| *live);
        within.chain([live(edge(part))]).min().unwrap_or(0)
    };
    let least: Vec<u64> = (0..PARTS).map(least).collect();
    // From the beginning of the first part to that of the last.
    let known = least[PARTS as usize - 1].saturating_sub(least[0]);
    let bytes = (known as f64 / (PARTS - 1) as f64 * PARTS as f64) as u64;
    let step = ((bytes as f64 * PART_MIN) as u64).max(1);
    let growth = Growth { length, before: least[0], bytes };
    let grows = least.windows(2).all(|pair| pair[1] >= pair[0].saturating_add(step));
    (grows && bytes >= GROWTH_MIN && growth.rate() >= RATE_MIN).then_some(growth)
}

fn growing(model: &Model, line: &HeapLine, growth: &Growth) -> Option<Finding> {
    let state = model.process(line.process).filter(|state| state.ended.is_none())?;
    let at = place(model, line.frame);
    let (rate, length) = (growth.rate(), seconds(growth.length));
    let an_hour = rate * 3600.0;
    let (grown, a_second) = (size(growth.bytes), size(rate as u64));
    let who = match line.used_for {
        HeapUse::Sampled(HeapKind::Block) => "mapped",
        _ => "first used",
    };
    let detail = format!(
        "The memory that was {who} at {at} grew from {} to {} in {length:.0} s, in every quarter of that time. At this rate \
         it will be {} larger in an hour. Memory that one line gave back to the allocator and another reuses still counts \
         for the first one.",
        size(growth.before),
        size(growth.before.saturating_add(growth.bytes)),
        size(an_hour as u64),
    );
    Some(Finding {
        id: "heap/growing",
        severity: if an_hour >= MUCH_AN_HOUR { Severity::Warning } else { Severity::Info },
        summary: format!("the memory {who} at {at} grows by {a_second} a second: {grown} in {length:.0} s"),
        detail,
        advice: "Look for what keeps what this line makes: a list, dict or cache without a bound, or a closure."
            .to_owned(),
        process: Some(line.process),
        pid: Some(state.process.pid),
        evidence: BTreeMap::from([
            ("bytes", Evidence::Count(line.bytes)),
            ("grown_bytes", Evidence::Count(growth.bytes)),
            ("bytes_per_s", Evidence::Number(rate)),
            ("line", Evidence::Text(at)),
        ]),
        cost: Cost::bytes(growth.bytes),
        target: Some(Target::Memory(line.used_for, line.frame)),
    })
}

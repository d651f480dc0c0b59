//! What changed between two recordings.
//!
//! A difference that chance can explain is not a change; [`noise`] defines the test. Process numbers differ between
//! recordings, so all processes of a recording are merged, and functions, waits and births are matched by name.

mod cpu;
mod memory;
pub mod noise;
mod redundancy;
mod transfers;
mod waits;

use crate::Family;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

pub use self::cpu::{FrameChange, Totals};
pub use self::memory::{ArenaDiff, SegmentDiff};
pub use self::noise::{Delta, Verdict};
pub use self::redundancy::PairChange;
pub use self::transfers::StageChange;
pub use self::waits::{GilChange, SleepChange};

use crate::{FrameId, FrameKind, Model, Selection, StackId, findings, views};

/// Version of the JSON schema.
pub const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    pub version: u32,
    /// Whether anything is more, less, new or gone.
    pub changed: bool,
    pub before: About,
    pub after: About,
    pub totals: Totals,
    /// `None` if the family was off in either recording; the same holds for the fields below.
    pub frames: Option<Changes<FrameChange>>,
    pub offcpu: Option<Changes<SleepChange>>,
    pub gil: Option<Changes<GilChange>>,
    pub arenas: Option<Changes<ArenaDiff>>,
    pub segments: Option<Changes<SegmentDiff>>,
    pub transfers: Option<Changes<StageChange>>,
    pub redundancy: Option<Changes<PairChange>>,
    /// Findings in only one of the two. Findings have their own thresholds, so these do not count as changes.
    pub findings: Findings,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct About {
    pub started: String,
    pub host: String,
    pub duration_s: f64,
    pub rate_hz: u32,
    pub samples: u64,
}

/// The rows of a list that changed, largest change first. `compared` is the length of the whole list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changes<T> {
    pub compared: usize,
    pub changed: Vec<T>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Findings {
    pub new: Vec<String>,
    pub gone: Vec<String>,
}

/// A function, regardless of process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Function {
    pub kind: FrameKind,
    pub function: Arc<str>,
    /// For a Python function. Without its folder, which may differ in the other recording.
    pub file: Option<Arc<str>>,
    pub module: Option<Arc<str>>,
}

impl Function {
    fn of(model: &Model, frame: FrameId) -> Option<Self> {
        let frame = model.frame(frame)?;
        Some(Self {
            kind: frame.kind,
            function: Arc::clone(&frame.function),
            file: frame.file.as_deref().map(|file| file.rsplit('/').next().unwrap_or(file).into()),
            module: frame.module.clone(),
        })
    }

    /// The innermost Python function of a stack, or its leaf if it has none.
    fn of_stack(model: &Model, stack: Option<StackId>) -> Option<Self> {
        let leaf = || model.stack(stack?).last().copied();
        views::birthplace(model, stack).or_else(leaf).and_then(|frame| Self::of(model, frame))
    }
}

impl Diff {
    pub fn new(before: &Model, after: &Model) -> Self {
        let both = |family| before.is_on(family) && after.is_on(family);
        let totals = cpu::totals(before, after);
        let mut diff = Self {
            version: VERSION,
            changed: totals.cpu_per_s.as_ref().is_some_and(|delta| delta.verdict.is_some()),
            before: About::of(before),
            after: About::of(after),
            totals,
            frames: both(Family::Cpu).then(|| cpu::frames(before, after)),
            offcpu: both(Family::OffCpu).then(|| waits::sleeps(before, after)),
            gil: both(Family::Gil).then(|| waits::gil(before, after)),
            arenas: both(Family::Arena).then(|| memory::arenas(before, after)),
            segments: both(Family::Shm).then(|| memory::segments(before, after)),
            transfers: both(Family::Ucx).then(|| transfers::stages(before, after)),
            redundancy: both(Family::Redundancy).then(|| redundancy::pairs(before, after)),
            findings: Findings::of(before, after),
        };
        diff.changed |= diff.has_changed_rows();
        diff
    }

    fn has_changed_rows(&self) -> bool {
        fn any<T>(rows: Option<&Changes<T>>) -> bool {
            rows.is_some_and(|rows| !rows.changed.is_empty())
        }
        any(self.frames.as_ref())
            || any(self.offcpu.as_ref())
            || any(self.gil.as_ref())
            || any(self.arenas.as_ref())
            || any(self.segments.as_ref())
            || any(self.transfers.as_ref())
            || any(self.redundancy.as_ref())
    }
}

impl About {
    fn of(model: &Model) -> Self {
        let meta = model.meta();
        Self {
            started: meta.started.clone(),
            host: meta.host.clone(),
            duration_s: model.now().as_secs_f64(),
            rate_hz: meta.rate_hz,
            samples: model.cpu().total(),
        }
    }
}

impl Findings {
    fn of(before: &Model, after: &Model) -> Self {
        let ids = |model| -> BTreeSet<&'static str> {
            findings::find(model, &Selection::default()).into_iter().map(|finding| finding.id).collect()
        };
        let (before, after) = (ids(before), ids(after));
        let only = |these: &BTreeSet<&'static str>, those| these.difference(those).map(ToString::to_string).collect();
        Self { new: only(&after, &before), gone: only(&before, &after) }
    }
}

/// Pairs the values that both sides have for a key. A missing value is the default.
fn join<K: Ord + Clone, V: Clone + Default>(before: &BTreeMap<K, V>, after: &BTreeMap<K, V>) -> Vec<(K, V, V)> {
    let keys: BTreeSet<&K> = before.keys().chain(after.keys()).collect();
    let value = |side: &BTreeMap<K, V>, key: &K| side.get(key).cloned().unwrap_or_default();
    keys.into_iter().map(|key| (key.clone(), value(before, key), value(after, key))).collect()
}

/// Keeps the rows that changed, the largest change first.
fn changed<T>(rows: Vec<T>, deltas: impl Fn(&T) -> Vec<Delta>) -> Changes<T> {
    let compared = rows.len();
    let largest = |row: &T| {
        let changes = deltas(row).into_iter().filter(|delta| delta.verdict.is_some());
        changes
            .map(|delta| delta.weight())
            .fold(None, |most: Option<f64>, next| Some(most.map_or(next, |most| most.max(next))))
    };
    let mut rows: Vec<(f64, T)> = rows.into_iter().filter_map(|row| Some((largest(&row)?, row))).collect();
    rows.sort_by(|one, other| other.0.total_cmp(&one.0));
    Changes { compared, changed: rows.into_iter().map(|(_, row)| row).collect() }
}

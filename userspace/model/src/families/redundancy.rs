//! Work between Python and native code that changes nothing: what the native code below a line accesses, and what pairs of
//! accesses of one address came to.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::past::{Past, Timed};
use crate::{
    Access, Compared, FrameId, History, Nanos, NativeCall, Pair, PairKind, Place, ProcessRef, Selection, StackId, Tid,
    Touched, Watchpoints,
};

/// More places than this no program has that is worth looking at; what comes after is not added up.
const PAIRS_MAX: usize = 50_000;
const CALLS_MAX: usize = 50_000;
const NAMES_MAX: usize = 64;

/// Calls are dispatch when more than this share of their accesses is to objects, with what is likely taken off for chance: of a
/// line that takes single elements out of arrays, and of one that does not. Whole arrays may be so small that little else than
/// objects is accessed, and nothing would be won by larger ones.
pub const DISPATCH: f64 = 0.7;
const DISPATCH_OF_WHOLE: f64 = 0.92;
/// And so much less where what is unknown counts against it.
const UNKNOWN: f64 = 0.1;
/// A line takes elements when more than this share of its accesses is in instructions that do, for it may do so beside its work.
const ELEMENTS: f64 = 0.05;
/// Of accesses to an array, those that found or left what was there; of calls, those that were made before.
pub const EQUAL: f64 = 0.7;

/// A Python line that native code ran below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    pub process: ProcessRef,
    pub frame: FrameId,
}

/// Samples in native code below a line, by what they accessed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    pub samples: u64,
    /// The samples that these stand for.
    pub weight: u64,
    pub metadata: u64,
    pub array: u64,
    pub fixed: u64,
    pub unknown: u64,
    /// Of these, those in instructions that take a single element out of an array.
    pub elements: u64,
    /// Of metadata the types, of arrays what they are.
    pub names: BTreeMap<Arc<str>, u64>,
}

impl Accesses {
    /// Samples whose address is known.
    pub fn known(&self) -> u64 {
        self.metadata + self.array + self.fixed + self.unknown
    }

    /// Those of objects, their types, and other data that files bring along: what dispatch looks at.
    pub fn objects(&self) -> u64 {
        self.metadata + self.fixed
    }

    /// Their share; `None` where too little is known to tell dispatch by it.
    pub fn metadata_share(&self) -> Option<f64> {
        self.is_enough().then(|| self.objects() as f64 / self.known() as f64)
    }

    pub fn is_enough(&self) -> bool {
        self.known() >= least_trials(DISPATCH)
    }

    pub fn takes_elements(&self) -> bool {
        least_share(self.elements, self.known()) > ELEMENTS
    }

    /// Whether native code looks at objects, not at data. Unknown memory may be either: a library's own tables, or data that
    /// nobody refers to any more.
    pub fn is_dispatch(&self) -> bool {
        let bound = if self.takes_elements() { DISPATCH } else { DISPATCH_OF_WHOLE };
        let objects = self.objects();
        least_share(objects, objects + self.array) > bound && least_share(objects, self.known()) > bound - UNKNOWN
    }
}

/// Two accesses, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PairOf {
    pub process: ProcessRef,
    pub kind: PairKind,
    pub touched: Touched,
    pub tid: Tid,
    pub first: StackId,
    pub second: StackId,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairSum {
    pub compared: u64,
    pub equal: u64,
    pub total_bytes: u64,
    pub redundant_bytes: u64,
    /// Of stores whose loads were watched, too.
    pub looked: u64,
    pub unread: u64,
}

impl PairSum {
    /// Whether there are so many that they could prove anything.
    pub fn is_enough(&self) -> bool {
        self.compared >= least_trials(EQUAL)
    }

    pub fn add(&mut self, other: &Self) {
        self.compared += other.compared;
        self.equal += other.equal;
        self.total_bytes += other.total_bytes;
        self.redundant_bytes += other.redundant_bytes;
        self.looked += other.looked;
        self.unread += other.unread;
    }
}

/// Calls of one thing at a line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallOf {
    pub line: Line,
    pub callee: Arc<str>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallSum {
    /// Calls whose arguments were compared with those of the last one seen.
    pub compared: u64,
    /// Of these, those that had the same.
    pub same: u64,
    /// A bit for each argument that was ever another, as in [`Compared::Arguments`].
    pub varying: u16,
    /// Results that were compared with the last one seen, and those that were the same.
    pub results: u64,
    pub same_results: u64,
}

impl CallSum {
    /// Whether there are so many that they could prove anything.
    pub fn is_enough(&self) -> bool {
        self.compared >= least_trials(EQUAL)
    }

    /// The arguments that were ever another, from 1 on; 0 is what is called.
    pub fn varying(&self) -> impl Iterator<Item = u32> + use<> {
        let bits = self.varying;
        (0..u16::BITS).filter(move |bit| bits >> bit & 1 == 1)
    }

    pub fn add(&mut self, other: &Self) {
        self.compared += other.compared;
        self.same += other.same;
        self.varying |= other.varying;
        self.results += other.results;
        self.same_results += other.same_results;
    }

    /// Whether most are made again: with the same arguments, and what they return is the same, too. Functions that return
    /// something else for the same arguments are none of these, and of those whose results nobody saw it is not known.
    pub fn is_again(&self, share: f64) -> bool {
        least_share(self.same, self.compared) > share && least_share(self.same_results, self.results) > share
    }
}

/// A sample in native code that may have changed nothing.
#[derive(Clone, Copy, Debug)]
struct Idle {
    at: Nanos,
    place: Place,
    line: Line,
    weight: u32,
    /// It was storing into an array; else it accessed what dispatch looks at.
    stores: bool,
}

impl Timed for Idle {
    fn at(&self) -> Nanos {
        self.at
    }
}

#[derive(Debug)]
pub struct Redundancy {
    lines: BTreeMap<Line, Accesses>,
    calls: BTreeMap<CallOf, CallSum>,
    idle: Past<Idle>,
    pairs: BTreeMap<PairOf, PairSum>,
    counts: Watchpoints,
}

impl Redundancy {
    pub fn new(history: History) -> Self {
        Self {
            lines: BTreeMap::new(),
            calls: BTreeMap::new(),
            idle: Past::new(history),
            pairs: BTreeMap::new(),
            counts: Watchpoints::default(),
        }
    }

    /// `frame` is the line that its stack belongs to.
    pub fn add_access(&mut self, access: &Access, frame: Option<FrameId>) {
        let Some(frame) = frame else { return };
        self.add_idle(access, Line { process: access.process, frame });
        let sum = self.lines.entry(Line { process: access.process, frame }).or_default();
        sum.samples += 1;
        sum.weight += u64::from(access.weight);
        let Some(touched) = &access.touched else { return };
        match touched {
            Touched::Metadata(_) => sum.metadata += 1,
            Touched::Array(_) => sum.array += 1,
            Touched::Static => sum.fixed += 1,
            Touched::Unknown => sum.unknown += 1,
        }
        sum.elements += u64::from(access.element);
        if let Some(name) = touched.detail()
            && (sum.names.len() < NAMES_MAX || sum.names.contains_key(name))
        {
            *sum.names.entry(Arc::clone(name)).or_default() += 1;
        }
    }

    pub fn add_pair(&mut self, pair: &Pair) {
        let key = PairOf {
            process: pair.process,
            kind: pair.kind,
            touched: pair.touched.clone(),
            tid: pair.tid,
            first: pair.first,
            second: pair.second,
        };
        if self.pairs.len() >= PAIRS_MAX && !self.pairs.contains_key(&key) {
            return;
        }
        let equal = u64::from(pair.equal);
        self.pairs.entry(key).or_default().add(&PairSum {
            compared: 1,
            equal,
            total_bytes: pair.bytes,
            redundant_bytes: equal * pair.bytes,
            looked: u64::from(pair.unread.is_some()),
            unread: u64::from(pair.unread == Some(true)),
        });
    }

    fn add_idle(&mut self, access: &Access, line: Line) {
        let stores = match access.touched {
            Some(Touched::Metadata(_) | Touched::Static) => false,
            Some(Touched::Array(_)) if access.stores => true,
            _ => return,
        };
        let (at, weight) = (access.at, access.weight);
        let place = Place { process: access.process, tid: access.tid, stack: access.stack };
        self.idle.push(Idle { at, place, line, weight, stores });
        while self.idle.expire(at).is_some() {}
    }

    /// `frame` is the line that its stack belongs to.
    pub fn add_call(&mut self, call: &NativeCall, frame: Option<FrameId>) {
        let Some(frame) = frame else { return };
        let line = Line { process: call.process, frame };
        let key = CallOf { line, callee: Arc::clone(&call.callee) };
        if self.calls.len() >= CALLS_MAX && !self.calls.contains_key(&key) {
            return;
        }
        let sum = self.calls.entry(key).or_default();
        match call.compared {
            Compared::Arguments { varying } => {
                sum.compared += 1;
                sum.same += u64::from(varying == 0);
                sum.varying |= varying;
            }
            Compared::Result { same } => {
                sum.results += 1;
                sum.same_results += u64::from(same);
            }
        }
    }

    pub fn set_counts(&mut self, counts: Watchpoints) {
        self.counts = counts;
    }

    pub fn counts(&self) -> Watchpoints {
        self.counts
    }

    pub fn lines(&self) -> impl Iterator<Item = (Line, &Accesses)> + '_ {
        self.lines.iter().map(|(line, sum)| (*line, sum))
    }

    pub fn calls(&self) -> impl Iterator<Item = (&CallOf, &CallSum)> + '_ {
        self.calls.iter()
    }

    /// Samples in native code that went into dispatch, and those that store into arrays at lines where most stores left what
    /// was there; `line` tells the line that a stack belongs to.
    pub fn redundant<'a>(
        &'a self,
        selection: &'a Selection,
        line: impl Fn(StackId) -> Option<FrameId>,
    ) -> impl Iterator<Item = (Nanos, Place, u64)> + 'a {
        let mut stores: BTreeMap<Line, (u64, u64)> = BTreeMap::new();
        let pairs = self
            .pairs
            .iter()
            .filter(|(pair, _)| pair.kind == PairKind::Store && matches!(pair.touched, Touched::Array(_)));
        for (pair, sum) in pairs {
            let Some(frame) = line(pair.second) else { continue };
            let (equal, compared) = stores.entry(Line { process: pair.process, frame }).or_default();
            (*equal, *compared) = (*equal + sum.equal, *compared + sum.compared);
        }
        let selected = self
            .idle
            .since_then(selection.from)
            .filter(|idle| selection.has(idle.place.process, idle.place.tid, idle.at));
        selected
            .filter(move |idle| {
                let (equal, compared) = stores.get(&idle.line).copied().unwrap_or_default();
                !idle.stores || compared > 0 && equal * 2 > compared
            })
            .map(|idle| (idle.at, idle.place, u64::from(idle.weight)))
    }

    pub fn pairs(&self) -> impl Iterator<Item = (&PairOf, &PairSum)> + '_ {
        self.pairs.iter()
    }
}

/// The normal distribution's 95th percentile.
const Z: f64 = 1.645;

/// How many trials it takes for [`least_share`] to be above `share` if all of them are successes: of fewer, whatever they come
/// to, nothing can be said. All of `n` being successes, Wilson's lower end is n / (n + z²).
pub fn least_trials(share: f64) -> u64 {
    (share * Z * Z / (1.0 - share)).floor() as u64 + 1
}

/// The share that is behind `of` successes among `all` trials at least, with a certainty of 95 %: the lower end of Wilson's
/// interval.
pub fn least_share(of: u64, all: u64) -> f64 {
    if all == 0 {
        return 0.0;
    }
    let (n, p) = (all as f64, of as f64 / all as f64);
    let centre = p + Z * Z / (2.0 * n);
    let spread = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    ((centre - spread) / (1.0 + Z * Z / n)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_trials_prove_little() {
        assert_eq!(least_share(0, 0), 0.0);
        assert!(least_share(3, 3) < 0.6 && least_share(30, 30) > 0.85);
        assert!(least_share(85, 100) < 0.8 && least_share(850, 1000) > 0.8);
    }

    #[test]
    fn the_least_number_of_trials_is_the_first_that_can_prove() {
        for share in [0.0, 0.1, 0.5, EQUAL, DISPATCH, 0.99] {
            let least = least_trials(share);
            assert!(least_share(least, least) > share, "{share}: {least}");
            assert!(least_share(least - 1, least - 1) <= share, "{share}: {least}");
        }
        assert_eq!((least_trials(DISPATCH), least_trials(DISPATCH_OF_WHOLE)), (7, 32));
    }
}

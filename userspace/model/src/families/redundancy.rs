//! Native work below Python lines that changes nothing: what memory it accesses, and whether repeated accesses to an
//! address or repeated calls were equal.

mod accesses;
mod folded;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

pub use self::accesses::{Accesses, DISPATCH, Names};
use self::folded::{Folded, Suspect};
use super::past::{Past, Timed};
use crate::{
    Access, Compared, FrameId, History, Nanos, NativeCall, Pair, PairKind, Place, ProcessRef, RegionId, Selection,
    StackId, Tid, Touched, Watchpoints,
};

/// How many type, array and function names are interned.
const NAMES_KEPT: usize = 50_000;

/// The share above which equal accesses to an array, or repeated calls, are redundant.
pub const EQUAL: f64 = 0.7;

/// The least number of bytes that are copied for each byte added if arrays grow by copies.
const COPIED_PER_ADDED: u64 = 8;

/// A Python line with native code below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    pub process: ProcessRef,
    pub frame: FrameId,
}

/// Where native code was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    pub line: Line,
    /// The line of the program that led there, which is often the same.
    pub caller: FrameId,
}

impl Origin {
    /// The line of the program.
    pub fn outer(&self) -> Line {
        Line { frame: self.caller, ..self.line }
    }
}

/// Two successive accesses to one address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PairOf {
    pub process: ProcessRef,
    pub kind: PairKind,
    pub touched: Touched,
    pub tid: Tid,
    pub first: StackId,
    pub second: StackId,
    /// The arena or segment that contains the address.
    pub region: Option<RegionId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairSum {
    pub compared: u64,
    pub equal: u64,
    pub total_bytes: u64,
    pub redundant_bytes: u64,
    /// Stores whose loads were watched too.
    pub looked: u64,
    pub unread: u64,
}

impl PairOf {
    fn of(pair: &Pair, region: Option<RegionId>) -> Self {
        let Pair { process, tid, first, second, kind, .. } = *pair;
        Self { process, kind, touched: pair.touched.clone(), tid, first, second, region }
    }

    pub fn is_array_store(&self) -> bool {
        is_array_store(self.kind, &self.touched)
    }
}

impl PairSum {
    pub fn of(pair: &Pair) -> Self {
        Self {
            compared: 1,
            equal: u64::from(pair.equal),
            total_bytes: pair.bytes,
            redundant_bytes: if pair.equal { pair.bytes } else { 0 },
            looked: u64::from(pair.unread.is_some()),
            unread: u64::from(pair.unread == Some(true)),
        }
    }

    /// Whether there are enough pairs to prove redundancy.
    pub fn is_enough(&self) -> bool {
        self.compared >= least_trials(EQUAL)
    }

    /// Whether most accesses find or leave an equal value.
    pub fn are_equal(&self) -> Verdict {
        Verdict::of(self.equal, self.compared, EQUAL)
    }

    /// Whether most stores are never read.
    pub fn are_unread(&self) -> Verdict {
        Verdict::of(self.unread, self.looked, EQUAL)
    }

    pub fn add(&mut self, other: &Self) {
        self.compared += other.compared;
        self.equal += other.equal;
        self.total_bytes = self.total_bytes.saturating_add(other.total_bytes);
        self.redundant_bytes = self.redundant_bytes.saturating_add(other.redundant_bytes);
        self.looked += other.looked;
        self.unread += other.unread;
    }
}

/// What is known about a kind of waste at a line, with a certainty of 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Found,
    /// There is too little data, or what there is lies between the two others.
    Undecided,
    /// There is none: it would have been found.
    Clear,
}

impl Verdict {
    /// The name in JSON and on screens.
    pub fn name(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Undecided => "undecided",
            Self::Clear => "clear",
        }
    }

    /// Whether more than `share` of the trials succeed.
    fn of(successes: u64, trials: u64, share: f64) -> Self {
        if least_share(successes, trials) > share {
            Self::Found
        } else if trials >= least_trials(share) && 1.0 - least_share(trials - successes, trials) < share {
            Self::Clear
        } else {
            Self::Undecided
        }
    }
}

/// Calls of one function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallFrom {
    pub origin: Origin,
    pub callee: Arc<str>,
    /// The Python code of a package below the line makes the calls.
    pub is_inner: bool,
}

/// The same at the line that they belong to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallOf {
    pub line: Line,
    pub callee: Arc<str>,
    pub is_inner: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallSum {
    /// Calls whose arguments were compared with the last call seen.
    pub compared: u64,
    /// Those with the same arguments.
    pub same: u64,
    /// A bit for each argument that ever differed, as in [`Compared::Arguments`].
    pub varying: u16,
    /// Results that were compared with the last one seen, and those that were equal.
    pub results: u64,
    pub same_results: u64,
    /// Calls that join arrays, those among them that copy much to add little, and how much these copy and add.
    pub joins: u64,
    pub copies: u64,
    pub copied: u64,
    pub added: u64,
}

impl CallSum {
    fn of(compared: Compared) -> Self {
        match compared {
            Compared::Arguments { varying } => {
                Self { compared: 1, same: u64::from(varying == 0), varying, ..Self::default() }
            }
            Compared::Result { same } => Self { results: 1, same_results: u64::from(same), ..Self::default() },
            Compared::Copied { copied, added } if copied >= added.saturating_mul(COPIED_PER_ADDED) => {
                Self { joins: 1, copies: 1, copied, added, ..Self::default() }
            }
            Compared::Copied { .. } => Self { joins: 1, ..Self::default() },
        }
    }

    /// Whether there are enough calls to prove redundancy.
    pub fn is_enough(&self) -> bool {
        self.compared >= least_trials(EQUAL)
    }

    /// The arguments that ever differed, counted from 1; 0 is the callee.
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
        self.joins += other.joins;
        self.copies += other.copies;
        self.copied = self.copied.saturating_add(other.copied);
        self.added = self.added.saturating_add(other.added);
    }

    /// Whether most of the calls copy much to add little.
    pub fn is_copying(&self) -> bool {
        Verdict::of(self.copies, self.joins, EQUAL) == Verdict::Found
    }

    /// Whether most calls repeat: the same arguments and the same result. A function that returns different results for
    /// the same arguments does not qualify, and neither does one whose results were not seen.
    pub fn are_repeated(&self) -> Verdict {
        let arguments = Verdict::of(self.same, self.compared, EQUAL);
        arguments.max(Verdict::of(self.same_results, self.results, EQUAL))
    }
}

/// An access or a call, with what its stack tells.
#[derive(Clone, Debug)]
struct At<T> {
    origin: Origin,
    event: T,
}

impl<T: Timed> Timed for At<T> {
    fn at(&self) -> Nanos {
        self.event.at()
    }
}

impl Timed for Access {
    fn at(&self) -> Nanos {
        self.at
    }
}

impl Timed for (NativeCall, bool) {
    fn at(&self) -> Nanos {
        self.0.at
    }
}

impl Timed for (Pair, Option<RegionId>) {
    fn at(&self) -> Nanos {
        self.0.at
    }
}

#[derive(Debug)]
pub struct Redundancy {
    accesses: Past<At<Access>>,
    /// With [`CallFrom::is_inner`].
    calls: Past<At<(NativeCall, bool)>>,
    pairs: Past<(Pair, Option<RegionId>)>,
    folded: Folded,
    /// Interned names of types, arrays and functions.
    names: HashSet<Arc<str>>,
    counts: Watchpoints,
}

impl Redundancy {
    pub fn new(history: History) -> Self {
        Self {
            accesses: Past::new(history),
            calls: Past::new(history),
            pairs: Past::new(history),
            folded: Folded::default(),
            names: HashSet::new(),
            counts: Watchpoints::default(),
        }
    }

    pub fn add_access(&mut self, access: &Access, origin: Option<Origin>) {
        let Some(origin) = origin else { return };
        let touched = access.touched.as_ref().map(|touched| self.known(touched));
        let element_of = access.element_of.as_ref().map(|array| self.name(array));
        let access = At { origin, event: Access { touched, element_of, ..access.clone() } };
        if let Some(oldest) = self.accesses.push(access).filter(|_| self.accesses.has_sums()) {
            self.folded.access(oldest.origin, &oldest.event);
        }
    }

    /// `region` is the arena or segment that contains its address, `line` the one that the second access belongs to.
    pub fn add_pair(&mut self, pair: &Pair, region: Option<RegionId>, line: Option<Line>) {
        if !self.pairs.covered().has_time(pair.at) {
            if let Some(line) = line.filter(|_| is_array_store(pair.kind, &pair.touched)) {
                self.folded.store(line, &PairSum::of(pair));
            }
            return;
        }
        let touched = self.known(&pair.touched);
        let oldest = self.pairs.push((Pair { touched, ..pair.clone() }, region));
        if let Some((pair, region)) = oldest.filter(|_| self.pairs.has_sums()) {
            self.folded.pair(PairOf::of(&pair, region), &PairSum::of(&pair));
        }
    }

    /// `innermost` is the Python line that makes the call.
    pub fn add_call(&mut self, call: &NativeCall, origin: Option<Origin>, innermost: Option<FrameId>) {
        let Some(origin) = origin else { return };
        let callee = self.name(&call.callee);
        let is_inner = innermost != Some(origin.line.frame);
        let event = (NativeCall { callee, ..call.clone() }, is_inner);
        let oldest = self.calls.push(At { origin, event });
        if let Some(At { origin, event: (call, is_inner) }) = oldest.filter(|_| self.calls.has_sums()) {
            self.folded.call(CallFrom { origin, callee: call.callee, is_inner }, &CallSum::of(call.compared));
        }
    }

    fn known(&mut self, touched: &Touched) -> Touched {
        match touched {
            Touched::Metadata(name) => Touched::Metadata(name.as_ref().map(|name| self.name(name))),
            Touched::Array(name) => Touched::Array(self.name(name)),
            Touched::Static | Touched::Unknown => touched.clone(),
        }
    }

    fn name(&mut self, name: &Arc<str>) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        if self.names.len() < NAMES_KEPT {
            self.names.insert(Arc::clone(name));
        }
        Arc::clone(name)
    }

    /// Forgets events older than the window ending at `now`.
    pub fn expire(&mut self, now: Nanos) {
        while self.accesses.expire(now).is_some() {}
        while self.calls.expire(now).is_some() {}
        while self.pairs.expire(now).is_some() {}
    }

    /// The time from which on accesses of `selection` are known, one by one or in sums.
    pub fn since(&self, selection: &Selection) -> Nanos {
        self.accesses.since(selection)
    }

    pub fn set_counts(&mut self, counts: Watchpoints) {
        self.counts = counts;
    }

    /// Totals since the recording began.
    pub fn counts(&self) -> Watchpoints {
        self.counts
    }

    /// The sums of the accesses in `selection`.
    pub fn accesses(&self, selection: &Selection) -> BTreeMap<Origin, Accesses> {
        let mut sums = self.summed_in(selection).map(|folded| folded.accesses(selection)).unwrap_or_default();
        for At { origin, event } in self.selected(selection) {
            sums.entry(*origin).or_default().add(event);
        }
        sums
    }

    /// The sums of events that are not kept one by one, if they cover the time of `selection`.
    fn summed_in(&self, selection: &Selection) -> Option<&Folded> {
        self.accesses.is_summed(selection).then_some(&self.folded)
    }

    fn selected<'a>(&'a self, selection: &'a Selection) -> impl Iterator<Item = &'a At<Access>> + 'a {
        let all = self.accesses.since_then(selection.from);
        all.filter(|access| selection.has(access.event.process, access.event.tid, access.event.at))
    }

    /// The times of samples in native code below a line of a library or of the program.
    pub fn seen_at<'a>(&'a self, selection: &'a Selection, line: Line) -> impl Iterator<Item = Nanos> + 'a {
        let is_there = move |of: &&At<Access>| of.origin.line == line || of.origin.outer() == line;
        self.selected(selection).filter(is_there).map(|of| of.event.at)
    }

    /// The sums of the calls in `selection`.
    pub fn calls(&self, selection: &Selection) -> BTreeMap<CallFrom, CallSum> {
        let mut sums = self.summed_in(selection).map(|folded| folded.calls(selection)).unwrap_or_default();
        for At { origin, event: (call, is_inner) } in self.calls.since_then(selection.from) {
            if selection.has(call.process, call.tid, call.at) {
                let (callee, is_inner) = (Arc::clone(&call.callee), *is_inner);
                let key = CallFrom { origin: *origin, callee, is_inner };
                sums.entry(key).or_default().add(&CallSum::of(call.compared));
            }
        }
        sums
    }

    /// Returns the number of accesses, pairs and calls that are in sums only, of places that are only in the sums of their
    /// threads, and of events that are in no sum.
    pub fn summed(&self) -> (u64, u64, u64) {
        let gone = self.accesses.gone() + self.pairs.gone() + self.calls.gone();
        (if self.accesses.has_sums() { gone } else { 0 }, self.folded.places_gone(), self.folded.left_out())
    }

    /// Accesses that are kept in sums only.
    pub fn accesses_summed(&self) -> u64 {
        if self.accesses.has_sums() { self.accesses.gone() } else { 0 }
    }

    /// The time from which on accesses are kept one by one.
    pub fn kept_since(&self) -> Nanos {
        self.accesses.kept_since()
    }

    /// Pairs whose second access is in `selection`.
    pub fn pairs<'a>(&'a self, selection: &'a Selection) -> impl Iterator<Item = &'a (Pair, Option<RegionId>)> + 'a {
        self.pairs.since_then(selection.from).filter(|(pair, _)| selection.has(pair.process, pair.tid, pair.at))
    }

    pub fn pair_sums(&self, selection: &Selection) -> BTreeMap<PairOf, PairSum> {
        let mut sums = self.summed_in(selection).map(|folded| folded.pairs(selection)).unwrap_or_default();
        for (pair, region) in self.pairs(selection) {
            sums.entry(PairOf::of(pair, *region)).or_default().add(&PairSum::of(pair));
        }
        sums
    }

    /// Redundant samples that are kept one by one: those in dispatch, and stores into arrays at lines where most stores left
    /// the value unchanged. Such lines are found over all time, not just the selected one. `line` maps a stack to the line
    /// that called its native code.
    pub fn redundant<'a>(
        &'a self,
        selection: &'a Selection,
        line: impl Fn(StackId) -> Option<FrameId> + 'a,
    ) -> impl Iterator<Item = (Nanos, Place, u64)> + 'a {
        let stores = self.redundant_stores(&line);
        let event = move |At { event, .. }: &'a At<Access>| {
            let suspect = Suspect::of(event).filter(|suspect| is_redundant(suspect, &stores, &line))?;
            Some((event.at, suspect.place, u64::from(event.weight)))
        };
        self.selected(selection).filter_map(event)
    }

    /// The weight of redundant samples that are kept in sums only, by place.
    pub fn redundant_sums(
        &self,
        selection: &Selection,
        line: impl Fn(StackId) -> Option<FrameId>,
    ) -> impl Iterator<Item = (Place, u64)> {
        let stores = self.redundant_stores(&line);
        let suspects = self.summed_in(selection).into_iter().flat_map(Folded::suspects);
        let meant = suspects.filter(move |(Suspect { place, .. }, _)| selection.has_thread(place.process, place.tid));
        meant
            .filter(move |(suspect, _)| is_redundant(suspect, &stores, &line))
            .map(|(suspect, sum)| (suspect.place, sum))
    }

    /// The lines where most stores into arrays left the value unchanged.
    fn redundant_stores(&self, line: impl Fn(StackId) -> Option<FrameId>) -> BTreeSet<Line> {
        let mut stores = self.folded.stores().clone();
        for (pair, sum) in self.pair_sums(self.pairs.covered()) {
            if let Some(frame) = line(pair.second).filter(|_| is_array_store(pair.kind, &pair.touched)) {
                stores.entry(Line { process: pair.process, frame }).or_default().add(&sum);
            }
        }
        stores.into_iter().filter(|(_, sum)| sum.equal * 2 > sum.compared).map(|(line, _)| line).collect()
    }
}

fn is_array_store(kind: PairKind, touched: &Touched) -> bool {
    kind == PairKind::Store && matches!(touched, Touched::Array(_))
}

fn is_redundant(suspect: &Suspect, stores: &BTreeSet<Line>, line: impl Fn(StackId) -> Option<FrameId>) -> bool {
    let Suspect { place, stores: is_store } = suspect;
    let is_redundant_line = |frame| stores.contains(&Line { process: place.process, frame });
    !is_store || line(place.stack).is_some_and(is_redundant_line)
}

/// The normal distribution's 95th percentile.
const Z: f64 = 1.645;

/// The fewest trials for which [`least_share`] can exceed `share`, reached if all of them succeed. With `n` successes
/// in `n` trials, Wilson's lower bound is n / (n + z²).
pub fn least_trials(share: f64) -> u64 {
    (share * Z * Z / (1.0 - share)).floor() as u64 + 1
}

/// The lower bound, with a certainty of 95 %, of the share behind `of` successes in `all` trials (Wilson's interval).
pub fn least_share(of: u64, all: u64) -> f64 {
    least(of as f64, all as f64)
}

fn least(of: f64, n: f64) -> f64 {
    if n <= 0.0 {
        return 0.0;
    }
    let p = of / n;
    let centre = p + Z * Z / (2.0 * n);
    let spread = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    ((centre - spread) / (1.0 + Z * Z / n)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::accesses::DISPATCH_OF_WHOLE;
    use super::*;

    #[test]
    fn few_trials_prove_little() {
        assert_eq!(least_share(0, 0), 0.0);
        assert!(least_share(3, 3) < 0.6 && least_share(30, 30) > 0.85);
        assert!(least_share(85, 100) < 0.8 && least_share(850, 1000) > 0.8);
    }

    #[test]
    fn least_trials_is_the_smallest_number_that_can_prove_a_share() {
        for share in [0.0, 0.1, 0.5, EQUAL, DISPATCH, 0.99] {
            let least = least_trials(share);
            assert!(least_share(least, least) > share, "{share}: {least}");
            assert!(least_share(least - 1, least - 1) <= share, "{share}: {least}");
        }
        assert_eq!((least_trials(DISPATCH), least_trials(DISPATCH_OF_WHOLE)), (7, 32));
    }
}

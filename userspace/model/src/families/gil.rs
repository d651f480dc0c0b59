//! Who waits for the GIL, who holds it meanwhile, and for how long.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::clip::{Clipped, Spell, clip};
use super::places::{OfProcess, OfThread, Placed};
use super::{LengthSum, Past, Places, Sampled, Summed, Timed, Times};
use crate::{GilHolder, GilWait, History, Nanos, Place, ProcessRef, Selection, Tid};

/// The key of wait sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GilKey {
    /// Where the thread asked for the GIL.
    pub waiter: Place,
    pub holder: Option<GilHolder>,
}

impl Placed for GilKey {
    fn of_thread(&self) -> Self {
        Self { waiter: self.waiter.of_thread(), holder: None }
    }

    fn of_process(&self) -> Self {
        Self { waiter: self.waiter.of_process(), holder: None }
    }
}

impl OfProcess for GilKey {
    fn process(&self) -> ProcessRef {
        self.waiter.process
    }

    fn of_others(&self) -> Self {
        Self { waiter: self.waiter.of_others(), holder: self.holder }
    }
}

impl OfThread for GilKey {
    fn thread(&self) -> (ProcessRef, Tid) {
        (self.waiter.process, self.waiter.tid)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GilSum {
    pub times: Times,
    pub sampled: Sampled,
}

impl GilSum {
    pub fn add(&mut self, other: Self) {
        self.times.add(other.times);
        self.sampled.add(other.sampled);
    }
}

impl GilWait {
    /// The part within the selected time.
    pub fn clipped(&self, selection: &Selection) -> Option<Self> {
        Some(Spell::from(self).clipped(selection)?.of_wait(self))
    }
}

impl Spell {
    fn of_wait(self, wait: &GilWait) -> GilWait {
        let Self { from, at, count, total, length, stacks } = self;
        GilWait { from, at, count, total, length, stacks, ..*wait }
    }
}

impl From<&GilWait> for Spell {
    fn from(wait: &GilWait) -> Self {
        let &GilWait { from, at, count, total, length, stacks, .. } = wait;
        Self { from, at, count, total, length, stacks }
    }
}

impl Timed for GilWait {
    fn at(&self) -> Nanos {
        self.at
    }

    fn is_within(&self, selection: &Selection) -> bool {
        Spell::from(self).clipped(selection).is_some()
    }
}

#[derive(Clone, Copy, Debug)]
struct Held {
    at: Nanos,
    process: ProcessRef,
    tid: Tid,
    length: Nanos,
}

impl Timed for Held {
    fn at(&self) -> Nanos {
        self.at
    }
}

/// A wait that may have more pieces, and the sums that its pieces were added to.
#[derive(Clone, Debug, Default)]
struct Open {
    length: Nanos,
    keys: BTreeSet<GilKey>,
}

/// Pieces of waits that are in sums only.
#[derive(Clone, Debug, Default)]
pub struct GilFolded {
    pub sum: GilSum,
    pub lengths: LengthSum,
}

impl Summed for GilFolded {
    fn weight(&self) -> u64 {
        self.sum.times.total.0
    }

    fn take(&mut self, other: Self) {
        self.sum.add(other.sum);
        self.lengths.join(&other.lengths);
    }
}

/// Each thread's wait that may have more pieces.
type Waits = HashMap<(ProcessRef, Tid), Open>;

/// How many threads have an open wait, whose folded pieces are joined with kept ones. Beyond that, open waits are closed, so such
/// a wait counts as two when its maximum is taken.
const OPEN_MAX: usize = 1 << 14;

impl GilKey {
    fn of(wait: &GilWait) -> Self {
        Self { waiter: wait.place(), holder: wait.holder }
    }
}

/// Adds a piece: `sum` gives the sum of a key.
fn add_piece(wait: &GilWait, open: &mut Waits, mut sum: impl FnMut(GilKey, GilSum)) {
    let key = GilKey::of(wait);
    let spell = Spell::from(wait);
    sum(key, GilSum { times: Times { max: Nanos(0), ..spell.times() }, sampled: spell.sampled() });
    let whole = open.entry((wait.process, wait.tid)).or_default();
    if wait.count > 0 {
        close(whole, &mut sum);
    }
    whole.length = whole.length.saturating_add(wait.length);
    whole.keys.insert(key);
}

fn close(whole: &mut Open, sum: &mut impl FnMut(GilKey, GilSum)) {
    for key in std::mem::take(&mut whole.keys) {
        sum(key, GilSum { times: Times { max: whole.length, ..Times::default() }, ..GilSum::default() });
    }
    whole.length = Nanos(0);
}

#[derive(Debug)]
pub struct Gil {
    waits: Past<GilWait>,
    folded: Places<GilKey, GilFolded>,
    /// The time of folded pieces that were cut in proportion to the covered time. `folded` does not have it.
    cut: Places<GilKey, Nanos>,
    /// Waits whose first pieces are folded.
    open: Waits,
    held: Past<Held>,
    /// How long threads held it, from events that are no longer kept.
    held_before: Places<Place, Nanos>,
}

impl Gil {
    pub fn new(history: History) -> Self {
        let (waits, held) = (Past::new(history), Past::new(history));
        Self {
            waits,
            folded: Places::default(),
            cut: Places::default(),
            open: Waits::new(),
            held,
            held_before: Places::default(),
        }
    }

    pub fn add_wait(&mut self, wait: GilWait) {
        let Some(oldest) = self.waits.push(wait).filter(|_| self.waits.has_sums()) else { return };
        let whole = Spell::from(&oldest);
        let Some(part) = whole.clipped(self.waits.covered()) else { return };
        let mut piece = part.of_wait(&oldest);
        let key = GilKey::of(&piece);
        self.folded.of(key).lengths.add(piece.at, piece.count, piece.total);
        if whole.is_cut_to(part) {
            self.cut.of(key).take(std::mem::take(&mut piece.total));
        }
        if self.open.len() >= OPEN_MAX && !self.open.contains_key(&(oldest.process, oldest.tid)) {
            for mut open in std::mem::take(&mut self.open).into_values() {
                close(&mut open, &mut |key, sum| self.folded.of(key).sum.add(sum));
            }
        }
        add_piece(&piece, &mut self.open, |key, sum| self.folded.of(key).sum.add(sum));
    }

    pub fn add_held(&mut self, at: Nanos, process: ProcessRef, tid: Tid, length: Nanos) {
        let oldest = self.held.push(Held { at, process, tid, length });
        if let Some(oldest) = oldest.filter(|_| self.held.has_sums()) {
            self.held_before.of(Place::of_all(oldest.process, oldest.tid)).take(oldest.length);
        }
    }

    /// Reassigns the waits and holds of evicted processes.
    pub(crate) fn reassign(&mut self, resolve: impl Fn(ProcessRef) -> ProcessRef) {
        self.waits.iter_mut().for_each(|wait| wait.process = resolve(wait.process));
        self.held.iter_mut().for_each(|held| held.process = resolve(held.process));
        self.folded.reassign(&resolve);
        self.cut.reassign(&resolve);
        self.held_before.reassign(&resolve);
        let ended = self.open.extract_if(|(process, _), _| resolve(*process) != *process);
        for (_, mut open) in ended.collect::<Vec<_>>() {
            close(&mut open, &mut |key, sum| self.folded.of(key.of_others()).sum.add(sum));
        }
    }

    /// Forgets waits and holds older than the window ending at `now`.
    pub fn expire(&mut self, now: Nanos) {
        while self.waits.expire(now).is_some() {}
        while self.held.expire(now).is_some() {}
    }

    /// The time from which on waits and holds of `selection` are known, one by one or in sums.
    pub fn since(&self, selection: &Selection) -> Nanos {
        self.waits.since(selection).max(self.held.since(selection))
    }

    /// The time from which on waits are kept one by one.
    pub fn kept_since(&self) -> Nanos {
        self.waits.kept_since()
    }

    /// Waits of the threads in `selection` that are in sums only; none unless the sums cover its time.
    pub fn folded<'a, 's>(
        &'a self,
        selection: &'s Selection,
    ) -> impl Iterator<Item = (&'a GilKey, &'a GilFolded)> + use<'a, 's> {
        self.waits.of_threads(&self.folded, selection)
    }

    /// Returns the number of pieces of waits that are in sums only, and of places that are only in the sums of their
    /// threads.
    pub fn summed(&self) -> (u64, u64) {
        (if self.waits.has_sums() { self.waits.gone() } else { 0 }, self.folded.gone())
    }

    /// Kept pieces of waits that overlap the time of `selection`, in the order of their ends, clipped to that time.
    pub fn waits<'a>(&'a self, selection: &'a Selection) -> impl Iterator<Item = GilWait> + 'a {
        self.clipped_with_cut(selection).0.into_iter().map(|(wait, spell)| spell.of_wait(wait))
    }

    /// Also returns the sums of folded pieces that were cut in proportion.
    fn clipped_with_cut<'a>(&'a self, selection: &Selection) -> (Clipped<'a, GilWait>, Vec<(GilKey, Nanos)>) {
        let folded = self.folded(selection).map(|(key, folded)| (*key, folded.sum.times.total));
        let cut = self.waits.of_threads(&self.cut, selection).map(|(key, total)| (*key, *total)).collect();
        let spell = |wait: &GilWait| (wait.process, wait.tid, Spell::from(wait));
        clip(self.waits.since_then(selection.from), folded, cut, selection, spell)
    }

    /// The same as [`Self::waits`], by thread.
    pub fn waits_by_thread(&self, selection: &Selection) -> HashMap<(ProcessRef, Tid), Vec<GilWait>> {
        let mut waits: HashMap<_, Vec<_>> = HashMap::new();
        for wait in self.waits(selection) {
            waits.entry((wait.process, wait.tid)).or_default().push(wait);
        }
        waits
    }

    /// A wait counts at its first piece, and its time counts at each piece. The maximum is the longest whole wait with
    /// a piece under that key.
    pub fn sums(&self, selection: &Selection) -> BTreeMap<GilKey, GilSum> {
        let mut sums: BTreeMap<GilKey, GilSum> =
            self.folded(selection).map(|(key, folded)| (*key, folded.sum)).collect();
        let mut open = if self.waits.is_summed(selection) { self.open.clone() } else { Waits::new() };
        open.retain(|(process, tid), _| selection.has_thread(*process, *tid));
        let mut add = |key, sum| sums.entry(key).or_default().add(sum);
        let (clipped, cut) = self.clipped_with_cut(selection);
        for (key, total) in cut {
            add(key, GilSum { times: Times { total, ..Times::default() }, ..GilSum::default() });
        }
        for (wait, spell) in clipped {
            add_piece(&spell.of_wait(wait), &mut open, &mut add);
        }
        for whole in open.values_mut() {
            close(whole, &mut add);
        }
        for sum in sums.values_mut() {
            sum.times = sum.times.settled();
        }
        sums
    }

    /// How long each thread in `selection` held the GIL.
    pub fn held(&self, selection: &Selection) -> BTreeMap<(ProcessRef, Tid), Nanos> {
        let mut sums: BTreeMap<(ProcessRef, Tid), Nanos> = BTreeMap::new();
        let before = self.held_before.iter().filter(|_| self.held.is_summed(selection));
        let before = before.map(|(place, held)| ((place.process, place.tid), *held));
        sums.extend(before.filter(|((process, tid), _)| selection.has_thread(*process, *tid)));
        for held in self.held.since_then(selection.from).filter(|held| selection.has(held.process, held.tid, held.at)) {
            let sum = sums.entry((held.process, held.tid)).or_default();
            *sum = sum.saturating_add(held.length);
        }
        sums
    }
}

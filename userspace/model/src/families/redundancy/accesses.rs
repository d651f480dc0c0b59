//! What the samples in native code below a line accessed.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{least, least_trials};
use crate::{Access, Touched};

/// Names of one line that are counted.
const NAMES_MAX: usize = 64;

/// Calls are dispatch when more than this share of their accesses is to objects, with what is likely taken off for chance: of a
/// line that takes single elements out of arrays, and of one that does not. Whole arrays may be so small that little else than
/// objects is accessed, and nothing would be won by larger ones.
pub const DISPATCH: f64 = 0.7;
pub(super) const DISPATCH_OF_WHOLE: f64 = 0.92;
/// And so much less where what is unknown counts against it.
const UNKNOWN: f64 = 0.1;
/// A line takes elements when more than this share of its accesses is in instructions that do, for it may do so beside its work.
const ELEMENTS: f64 = 0.05;

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
    /// Of which arrays.
    pub elements_of: Names,
    /// Of metadata the types, of arrays what they are.
    pub names: Names,
    weights: Weights,
}

/// The samples that those of each kind stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Weights {
    metadata: u64,
    array: u64,
    fixed: u64,
    known: u64,
    elements: u64,
    /// The squares of the weights of those whose address is known.
    squares: u64,
}

/// How often each was named, of as many as are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(BTreeMap<Arc<str>, u64>);

impl Names {
    fn count(&mut self, name: &Arc<str>) {
        if self.0.len() < NAMES_MAX || self.0.contains_key(name) {
            *self.0.entry(Arc::clone(name)).or_default() += 1;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|name| &**name)
    }

    /// The most frequent ones, and how often each was named.
    pub fn commonest(&self, count: usize) -> Vec<(&str, u64)> {
        let mut names: Vec<_> = self.0.iter().map(|(name, count)| (&**name, *count)).collect();
        names.sort_by_key(|(name, count)| (Reverse(*count), *name));
        names.truncate(count);
        names
    }

    pub fn first(&self) -> Option<&str> {
        self.commonest(1).first().map(|(name, _)| *name)
    }
}

impl Accesses {
    pub(super) fn add(&mut self, access: &Access) {
        self.samples += 1;
        self.weight += u64::from(access.weight);
        let Some(touched) = &access.touched else { return };
        let weight = u64::from(access.weight);
        self.weights.known += weight;
        self.weights.squares = self.weights.squares.saturating_add(weight * weight);
        let (count, weights) = match touched {
            Touched::Metadata(_) => (&mut self.metadata, Some(&mut self.weights.metadata)),
            Touched::Array(_) => (&mut self.array, Some(&mut self.weights.array)),
            Touched::Static => (&mut self.fixed, Some(&mut self.weights.fixed)),
            Touched::Unknown => (&mut self.unknown, None),
        };
        *count += 1;
        if let Some(weights) = weights {
            *weights += weight;
        }
        if let Some(array) = &access.element_of {
            self.elements += 1;
            self.weights.elements += weight;
            self.elements_of.count(array);
        }
        if let Some(name) = touched.detail() {
            self.names.count(name);
        }
    }

    /// Samples whose address is known.
    pub fn known(&self) -> u64 {
        self.metadata + self.array + self.fixed + self.unknown
    }

    /// Those of objects, their types, and other data that files bring along: what dispatch looks at.
    pub fn objects(&self) -> u64 {
        self.metadata + self.fixed
    }

    /// Their share of what those whose address is known stand for; 0 without any.
    pub fn objects_share(&self) -> f64 {
        self.share_of_known(self.weights.metadata + self.weights.fixed)
    }

    pub fn array_share(&self) -> f64 {
        self.share_of_known(self.weights.array)
    }

    fn share_of_known(&self, weight: u64) -> f64 {
        weight as f64 / self.weights.known.max(1) as f64
    }

    /// The share of objects; `None` if too little is known to tell dispatch by it.
    pub fn metadata_share(&self) -> Option<f64> {
        self.is_enough().then(|| self.objects_share())
    }

    /// The share that Python objects are at least of what dispatch looks at.
    pub fn least_metadata(&self) -> f64 {
        self.least_share(self.weights.metadata, self.weights.metadata + self.weights.fixed)
    }

    /// [`super::least_share`] of weights, as of as many samples of equal weights that say as much (Kish's effective sample size).
    fn least_share(&self, of: u64, all: u64) -> f64 {
        let samples = self.weights.known as f64 / self.weights.squares.max(1) as f64;
        least(of as f64 * samples, all as f64 * samples)
    }

    pub fn is_enough(&self) -> bool {
        self.known() >= least_trials(DISPATCH)
    }

    pub fn takes_elements(&self) -> bool {
        self.least_share(self.weights.elements, self.weights.known) > ELEMENTS
    }

    /// Whether native code looks at objects, not at data. Unknown memory may be either: a library's own tables, or data that
    /// nobody refers to any more.
    pub fn is_dispatch(&self) -> bool {
        let bound = if self.takes_elements() { DISPATCH } else { DISPATCH_OF_WHOLE };
        let Weights { metadata, fixed, array, known, .. } = self.weights;
        let objects = metadata + fixed;
        self.least_share(objects, objects + array) > bound && self.least_share(objects, known) > bound - UNKNOWN
    }
}

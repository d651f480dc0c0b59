//! What the native code below a line accessed, from its samples.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::verdict::{Verdict, least, least_trials};
use crate::{Access, Touched};

/// How many names are counted per line.
const NAMES_MAX: usize = 64;

/// Native code is dispatch if more than this share of its accesses is to objects, after allowing for chance:
/// [`DISPATCH`] for a line that reads or writes single elements of arrays, `DISPATCH_OF_WHOLE` for any other. Whole arrays
/// may be so small that little besides objects is accessed, and larger ones would not help.
pub const DISPATCH: f64 = 0.7;
pub(super) const DISPATCH_OF_WHOLE: f64 = 0.92;
/// Dispatch must access Python objects, not only static data, which may be the constants of a computation. This is their
/// minimum share of both together, after allowing for chance; dispatch has 30 % or more.
const OBJECTS: f64 = 0.05;
/// Prefix of the type names of NumPy's arrays and scalars.
const NUMPY: &str = "numpy.";
/// How much lower the threshold of dispatch is if accesses to unknown memory count as accesses to data.
const UNKNOWN: f64 = 0.1;
/// The share of accesses in element instructions above which a line counts as taking elements. Below it, the elements
/// are incidental.
const ELEMENTS: f64 = 0.05;

/// Samples in native code below a line, by what they accessed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    pub samples: u64,
    /// The number of samples that these represent.
    pub weight: u64,
    pub metadata: u64,
    pub array: u64,
    pub fixed: u64,
    pub unknown: u64,
    /// Samples inside an instruction that reads or writes a single element of an array.
    pub elements: u64,
    /// The arrays of those elements.
    pub elements_of: Names,
    /// Names of types for metadata, and shapes for arrays.
    pub names: Names,
    weights: Weights,
}

/// Weights of the samples, by kind of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Weights {
    metadata: u64,
    array: u64,
    fixed: u64,
    known: u64,
    elements: u64,
    /// The sum of the squared weights of samples with a known address.
    squares: u64,
}

impl Weights {
    fn add(&mut self, other: Self) {
        self.metadata += other.metadata;
        self.array += other.array;
        self.fixed += other.fixed;
        self.known += other.known;
        self.elements += other.elements;
        self.squares = self.squares.saturating_add(other.squares);
    }
}

/// How often each name occurred, up to a limit of distinct names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(BTreeMap<Arc<str>, u64>);

impl Names {
    fn count(&mut self, name: &Arc<str>, count: u64) {
        if self.0.len() < NAMES_MAX || self.0.contains_key(name) {
            *self.0.entry(Arc::clone(name)).or_default() += count;
        }
    }

    fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(name, count)| self.count(name, *count));
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|name| &**name)
    }

    /// The most frequent names, with their counts.
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
            self.elements_of.count(array, 1);
        }
        if let Some(name) = touched.detail() {
            self.names.count(name, 1);
        }
    }

    /// Adds the samples of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.samples += other.samples;
        self.weight += other.weight;
        self.metadata += other.metadata;
        self.array += other.array;
        self.fixed += other.fixed;
        self.unknown += other.unknown;
        self.elements += other.elements;
        self.elements_of.merge(&other.elements_of);
        self.names.merge(&other.names);
        self.weights.add(other.weights);
    }

    /// The number of samples with a known address.
    pub fn known(&self) -> u64 {
        self.metadata + self.array + self.fixed + self.unknown
    }

    /// Samples of objects, their types and static data, which dispatching an operation reads.
    pub fn objects(&self) -> u64 {
        self.metadata + self.fixed
    }

    /// Their share of the samples with a known address; 0 without any.
    pub fn objects_share(&self) -> f64 {
        self.share_of_known(self.weights.metadata + self.weights.fixed)
    }

    pub fn array_share(&self) -> f64 {
        self.share_of_known(self.weights.array)
    }

    fn share_of_known(&self, weight: u64) -> f64 {
        weight as f64 / self.weights.known.max(1) as f64
    }

    /// The share of objects; `None` if too little is known to judge dispatch.
    pub fn metadata_share(&self) -> Option<f64> {
        self.is_enough().then(|| self.objects_share())
    }

    /// [`super::least_share`] for weighted samples, with Kish's effective sample size.
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

    /// Whether the native code works on arrays but looks at objects rather than data.
    pub fn dispatch_verdict(&self) -> Verdict {
        if !self.is_enough() {
            return Verdict::Undecided;
        }
        // Unknown memory may be a library's internal tables, or data that nothing refers to any more.
        let bound = if self.takes_elements() { DISPATCH } else { DISPATCH_OF_WHOLE };
        let Weights { metadata, fixed, array, known, .. } = self.weights;
        let objects = metadata + fixed;
        let shares = [(objects, objects + array, bound), (objects, known, bound - UNKNOWN)];
        if shares.iter().all(|(of, all, bound)| self.least_share(*of, *all) > *bound) {
            let has_objects = self.least_share(metadata, objects) > OBJECTS;
            let has_arrays = self.array > 0 || self.names.iter().any(|name| name.starts_with(NUMPY));
            return if has_objects && has_arrays { Verdict::Found } else { Verdict::Clear };
        }
        let is_below = |(of, all, bound): &(u64, u64, f64)| *all > 0 && 1.0 - self.least_share(all - of, *all) < *bound;
        if shares.iter().any(is_below) { Verdict::Clear } else { Verdict::Undecided }
    }
}

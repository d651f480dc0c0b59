//! A lazy list of a report.

use std::cell::OnceCell;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use serde::{Serialize, Serializer};

/// The rows of a list. JSON output makes them one at a time, because together they may not fit in memory. A slice of them is made
/// once and kept.
#[derive(Clone)]
pub struct Rows<'m, T> {
    make: Rc<dyn Fn() -> Made<'m, T> + 'm>,
    made: OnceCell<Vec<T>>,
}

/// An iterator over rows.
pub type Made<'m, T> = Box<dyn Iterator<Item = T> + 'm>;

impl<'m, T> Rows<'m, T> {
    pub(super) fn new<I: Iterator<Item = T> + 'm>(make: impl Fn() -> I + 'm) -> Self {
        Self { make: Rc::new(move || Box::new(make())), made: OnceCell::new() }
    }
}

impl<T> Deref for Rows<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.made.get_or_init(|| (self.make)().collect())
    }
}

impl<'m, T> IntoIterator for Rows<'m, T> {
    type Item = T;
    type IntoIter = Made<'m, T>;

    fn into_iter(self) -> Self::IntoIter {
        (self.make)()
    }
}

impl<'a, T> IntoIterator for &'a Rows<'_, T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: PartialEq> PartialEq for Rows<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: fmt::Debug> fmt::Debug for Rows<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: Serialize> Serialize for Rows<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.make)())
    }
}

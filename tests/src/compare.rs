//! Assertions whose messages show both values.

use std::fmt::Debug;

/// `|left - right|` is at most `tolerance`.
#[track_caller]
pub fn close(what: &str, left: f64, right: f64, tolerance: f64) {
    let difference = (left - right).abs();
    assert!(difference <= tolerance, "{what}: {left} and {right} differ by {difference}, more than {tolerance}");
}

/// The two differ by at most `share` of the larger one.
#[track_caller]
pub fn within(what: &str, left: f64, right: f64, share: f64) {
    let difference = (left - right).abs() / left.abs().max(right.abs()).max(f64::MIN_POSITIVE);
    assert!(
        difference <= share,
        "{what}: {left} and {right} differ by {:.1} %, more than {:.1} %",
        difference * 100.0,
        share * 100.0
    );
}

#[track_caller]
pub fn at_least(what: &str, value: f64, least: f64) {
    assert!(value >= least, "{what}: {value} is less than {least}");
}

/// Asserts that `actual` holds every item of `expected`, and names the missing ones.
#[track_caller]
pub fn contains_all<T: PartialEq + Debug>(what: &str, actual: &[T], expected: &[T]) {
    let missing: Vec<&T> = expected.iter().filter(|item| !actual.contains(item)).collect();
    assert!(
        missing.is_empty(),
        "{what}: {} of {} are missing: {missing:#?}\nactual: {actual:#?}",
        missing.len(),
        expected.len()
    );
}

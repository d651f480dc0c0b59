//! Lifetimes as bars of text.

use pyobs_model::Nanos;

/// A bar for the time from `begun` to `ended` within the span from `from` to `to`, which is `width` cells wide.
pub(super) fn life(begun: Nanos, ended: Option<Nanos>, from: Nanos, to: Nanos, width: usize) -> String {
    let span = to.saturating_sub(from).0.max(1) as f64;
    let cell = |at: Nanos| {
        let share = at.saturating_sub(from).0 as f64 / span;
        ((share.min(1.0) * width as f64) as usize).min(width.saturating_sub(1))
    };
    let (first, last) = (cell(begun), cell(ended.unwrap_or(to)));
    (0..width).map(|at| if (first..=last).contains(&at) { '━' } else { '·' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_a_bar_within_its_width() {
        let bar = |begun, ended: Option<u64>| life(Nanos(begun), ended.map(Nanos), Nanos(10), Nanos(20), 5);
        assert_eq!(bar(10, None), "━━━━━");
        assert_eq!(bar(0, Some(12)), "━━···");
        assert_eq!(bar(16, Some(16)), "···━·");
        assert_eq!(bar(99, Some(200)), "····━");
        assert_eq!(life(Nanos(0), None, Nanos(0), Nanos(0), 0), "");
    }
}

//! How much samples and counts vary by chance.
//!
//! A difference is a change if it exceeds chance plus a margin. Chance is the standard error times the normal
//! distribution's bound for the number of comparisons in the list (Bonferroni), so that a list without changes reports
//! none with a certainty of 99 %. The margin is a tenth of the larger value, because two runs of one program differ by
//! more than sampling explains.
//!
//! Standard errors: a share of samples is binomial, √(p (1 − p) (1/n₁ + 1/n₂)) with p from both together; a count is
//! Poisson, √(k₁ + k₂); a sum of lengths is compound Poisson, √(Σ length²), where lengths that end in the same tenth of
//! a second count as one because waits come in clusters; a percentile lies between the ranks q n ± z √(n q (1 − q)).

use serde::Serialize;

use crate::Nanos;
pub use crate::families::LengthSum;

/// Probability that a list without changes reports none.
const CERTAINTY: f64 = 0.99;
/// How much two runs of one program may differ, as a share of the larger value.
const RUNS: f64 = 0.1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    More,
    Less,
    New,
    Gone,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Self::More => "more",
            Self::Less => "less",
            Self::New => "new",
            Self::Gone => "gone",
        }
    }
}

/// A value before and after.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Delta {
    pub before: f64,
    pub after: f64,
    /// Smaller differences are noise.
    pub noise: f64,
    /// `None` if the difference is within the noise.
    pub verdict: Option<Verdict>,
}

impl Delta {
    /// `error` is the standard error of the difference.
    fn new(before: f64, after: f64, error: f64, bound: f64) -> Self {
        let noise = bound * error + RUNS * before.max(after);
        let verdict = ((after - before).abs() > noise).then(|| verdict(before, after));
        Self { before, after, noise, verdict }
    }

    /// How large the difference is.
    pub fn weight(&self) -> f64 {
        (self.after - self.before).abs()
    }
}

fn verdict(before: f64, after: f64) -> Verdict {
    match (before > 0.0, after > 0.0) {
        (false, true) => Verdict::New,
        (true, false) => Verdict::Gone,
        _ if after > before => Verdict::More,
        _ => Verdict::Less,
    }
}

/// The number of standard errors that no difference out of this many exceeds by chance.
pub fn bound(comparisons: usize) -> f64 {
    normal_tail((1.0 - CERTAINTY) / (2.0 * comparisons.max(1) as f64))
}

/// The x beyond which the normal distribution has probability `p`, for p below 0.02 (P. Acklam's approximation,
/// accurate to 1e-9).
fn normal_tail(p: f64) -> f64 {
    const C: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 5] =
        [7.784_695_709_041_462e-3, 3.224_671_290_700_398e-1, 2.445_134_137_142_996, 3.754_408_661_907_416, 1.0];
    let q = (-2.0 * p.ln()).sqrt();
    let of = |polynomial: &[f64]| polynomial.iter().fold(0.0, |sum, factor| sum * q + factor);
    -of(&C) / of(&D)
}

/// Compares shares. Each side is (samples with the property, all samples).
pub fn shares(before: (u64, u64), after: (u64, u64), bound: f64) -> Delta {
    let share = |(of, all): (u64, u64)| of as f64 / all.max(1) as f64;
    let (all_before, all_after) = (before.1.max(1) as f64, after.1.max(1) as f64);
    let p = ((before.0 as f64 + after.0 as f64) / (all_before + all_after)).min(1.0);
    let error = (p * (1.0 - p) * (1.0 / all_before + 1.0 / all_after)).sqrt();
    Delta::new(share(before), share(after), error, bound)
}

/// Compares counts of independent events.
pub fn counts(before: u64, after: u64, bound: f64) -> Delta {
    let (before, after) = (before as f64, after as f64);
    Delta::new(before, after, (before + after).sqrt(), bound)
}

/// Compares events per second. Each side is (events, seconds).
pub fn rates(before: (u64, f64), after: (u64, f64), bound: f64) -> Delta {
    let each = |(count, seconds): (u64, f64)| (count as f64 / seconds, count as f64 / (seconds * seconds));
    let ((before, squared_before), (after, squared_after)) = (each(before), each(after));
    Delta::new(before, after, (squared_before + squared_after).sqrt(), bound)
}

/// Compares sums per second. Each side is (sum, seconds).
pub fn sums(before: (&LengthSum, f64), after: (&LengthSum, f64), bound: f64) -> Delta {
    let each = |(sum, seconds): (&LengthSum, f64)| (sum.total_s / seconds, sum.squares() / (seconds * seconds));
    let ((before, squared_before), (after, squared_after)) = (each(before), each(after));
    Delta::new(before, after, (squared_before + squared_after).sqrt(), bound)
}

/// Compares a percentile of sorted lengths, in seconds. `None` if there are too few to estimate it.
pub fn percentile(before: &[Nanos], after: &[Nanos], share: f64, bound: f64) -> Option<Delta> {
    // Two confidence intervals overlap more often than their difference is insignificant, so each is narrowed by √2.
    let bound = bound / std::f64::consts::SQRT_2;
    let (low, at, high) = span(before, share, bound)?;
    let (after_low, after_at, after_high) = span(after, share, bound)?;
    let noise = if after_at > at { (high - at) + (after_at - after_low) } else { (at - low) + (after_high - after_at) };
    Some(Delta::new(at, after_at, noise, 1.0))
}

/// Confidence interval of a percentile: its lower end, its estimate, its upper end.
fn span(lengths: &[Nanos], share: f64, bound: f64) -> Option<(f64, f64, f64)> {
    let count = lengths.len() as f64;
    let (rank, error) = (count * share, bound * (count * share * (1.0 - share)).sqrt());
    let at = |rank: f64| lengths.get((rank.ceil() as usize).max(1) - 1).map(|length| length.as_secs_f64());
    if rank - error < 1.0 {
        return None;
    }
    Some((at(rank - error)?, at(rank)?, at(rank + error)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_matches_tables_of_the_normal_distribution() {
        // Tables: 2.5758 for 1 % on both sides, 3.2905 for 0.1 %, 3.8906 for 0.01 %.
        for (comparisons, expected) in [(1, 2.5758), (10, 3.2905), (100, 3.8906)] {
            assert!((bound(comparisons) - expected).abs() < 1e-4, "{comparisons}: {}", bound(comparisons));
        }
        assert_eq!(bound(0), bound(1));
    }

    #[test]
    fn few_samples_prove_little() {
        assert_eq!(shares((10, 100), (20, 100), bound(1)).verdict, None);
        assert_eq!(shares((1000, 10_000), (2000, 10_000), bound(100)).verdict, Some(Verdict::More));
        assert_eq!(shares((2000, 10_000), (1000, 10_000), bound(100)).verdict, Some(Verdict::Less));
        assert_eq!(shares((0, 10_000), (1000, 10_000), bound(100)).verdict, Some(Verdict::New));
        assert_eq!(shares((30, 100), (0, 100), bound(1)).verdict, Some(Verdict::Gone));
        assert_eq!(shares((0, 0), (0, 0), bound(0)).verdict, None);
        assert_eq!(shares((u64::MAX, u64::MAX), (0, u64::MAX), bound(1)).verdict, Some(Verdict::Gone));
    }

    #[test]
    fn random_draws_of_one_share_are_no_change() {
        // A thousand pairs of binomial draws from one share. The generator is our own (splitmix64).
        let mut state = 7_u64;
        let mut random = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        };
        let mut draw = || (0..1000).filter(|_| random().is_multiple_of(5)).count() as u64;
        let called = (0..1000).filter(|_| shares((draw(), 1000), (draw(), 1000), bound(1000)).verdict.is_some());
        assert_eq!(called.count(), 0);
    }

    #[test]
    fn sums_of_many_parts_prove_more_than_sums_of_few() {
        let sum = |count, total| {
            let mut sum = LengthSum::default();
            (0..count).for_each(|at| sum.add(Nanos(at * 100_000_000), 1, Nanos(total)));
            sum
        };
        let verdict = |before: &LengthSum, after: &LengthSum| sums((before, 10.0), (after, 10.0), bound(10)).verdict;
        assert_eq!(verdict(&sum(1, 1_000_000_000), &sum(1, 9_000_000_000)), None, "one wait is no proof");
        assert_eq!(verdict(&sum(100, 1_000_000), &sum(100, 9_000_000)), Some(Verdict::More));
        assert_eq!(verdict(&LengthSum::default(), &sum(100, 1_000_000)), Some(Verdict::New));
        let mut cluster = LengthSum::default();
        (0..100).for_each(|_| cluster.add(Nanos(5), 1, Nanos(1_000_000)));
        assert_eq!(verdict(&LengthSum::default(), &cluster), None, "a hundred waits at once are one event");
        let mut told_as_one = LengthSum::default();
        told_as_one.add(Nanos(0), 1000, Nanos(5_000_000_000));
        assert_eq!(verdict(&LengthSum::default(), &told_as_one), Some(Verdict::New));
    }

    #[test]
    fn percentiles_need_enough_values_beyond_them() {
        let lengths = |from: u64, count: u64| (0..count).map(|at| Nanos((from + at) * 1000)).collect::<Vec<_>>();
        let (fast, slow) = (lengths(1000, 1000), lengths(5000, 1000));
        assert_eq!(percentile(&fast, &slow, 0.5, bound(3)).unwrap().verdict, Some(Verdict::More));
        assert_eq!(percentile(&fast, &lengths(1010, 1000), 0.5, bound(3)).unwrap().verdict, None);
        assert!(percentile(&fast, &slow[..50], 0.99, bound(3)).is_none());
        assert!(percentile(&[], &[], 0.5, bound(3)).is_none());
    }
}

//! What a number of trials proves about the share behind them.

/// The share above which equal accesses to an array, or repeated calls, are redundant.
pub const EQUAL: f64 = 0.7;

/// What is known about a kind of waste at a line, with a certainty of 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Found,
    /// Too little data, or the bounds lie on both sides of the threshold.
    Undecided,
    /// No waste of this kind: it would have been found.
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
    pub(crate) fn of(successes: u64, trials: u64, share: f64) -> Self {
        if least_share(successes, trials) > share {
            Self::Found
        } else if trials >= least_trials(share) && 1.0 - least_share(trials - successes, trials) < share {
            Self::Clear
        } else {
            Self::Undecided
        }
    }
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

pub(super) fn least(of: f64, n: f64) -> f64 {
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
    use super::super::accesses::{DISPATCH, DISPATCH_OF_WHOLE};
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

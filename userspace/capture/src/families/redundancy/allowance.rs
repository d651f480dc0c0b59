//! How many traps may come: a share of what the watched threads run, so that one that runs seldom is slowed down no more than
//! one that runs all the time.

/// For each sample in native code that Python called, and in a second at the most, of all threads: with its exception and its
/// program a trap costs some 30 microseconds. What is saved up at the most.
pub const PER_SAMPLE: f64 = 4.0;
pub const PER_SECOND: f64 = 800.0;
pub const AT_ONCE: f64 = 100.0;
/// To set a watchpoint and take it off costs as much as so many traps, for the thread's CPU is interrupted each time.
pub const SETTING: u64 = 3;

/// Traps that may still come. What came beyond is paid back first.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    left: f64,
    /// When the last sample was taken, in nanoseconds.
    earned_at: u64,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { left: AT_ONCE, earned_at: 0 }
    }
}

impl Allowance {
    /// A sample was taken. Those of several CPUs may come out of their order.
    pub fn earn(&mut self, at: u64) {
        let since = at.saturating_sub(self.earned_at) as f64 / 1e9;
        self.earned_at = self.earned_at.max(at);
        self.left = (self.left + PER_SAMPLE.min(since * PER_SECOND)).min(AT_ONCE);
    }

    pub fn spend(&mut self, traps: u64) {
        self.left -= traps as f64;
    }

    pub fn is_spent(self) -> bool {
        self.left <= 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many a second can be spent while samples come `per_second` times for `busy` of each second.
    fn spent_a_second(per_second: u64, busy: f64) -> f64 {
        const SECONDS: u64 = 20;
        let (mut allowance, mut spent) = (Allowance::default(), 0);
        for number in 0..SECONDS * per_second {
            let within = (number % per_second) as f64 / per_second as f64;
            if within < busy {
                allowance.earn(number * 1_000_000_000 / per_second);
                while !allowance.is_spent() {
                    allowance.spend(1);
                    spent += 1;
                }
            }
        }
        (spent as f64 - AT_ONCE) / SECONDS as f64
    }

    #[test]
    fn it_is_for_each_sample_and_bounded_in_time() {
        assert!((spent_a_second(100, 1.0) - 100.0 * PER_SAMPLE).abs() < 5.0);
        assert!((spent_a_second(1000, 1.0) - PER_SECOND).abs() < 5.0);
    }

    #[test]
    fn a_program_that_runs_a_tenth_of_the_time_gets_a_tenth() {
        for rate in [100, 1000] {
            let (all, some) = (spent_a_second(rate, 1.0), spent_a_second(rate, 0.1));
            assert!((some - all / 10.0).abs() < 5.0, "{some} of {all}");
        }
    }

    #[test]
    fn what_came_beyond_is_paid_back() {
        let mut allowance = Allowance::default();
        allowance.spend(AT_ONCE as u64 + 8);
        allowance.earn(1_000_000_000);
        assert!(allowance.is_spent());
        allowance.earn(2_000_000_000);
        allowance.earn(3_000_000_000);
        assert!(!allowance.is_spent());
    }

    #[test]
    fn samples_that_come_late_earn_nothing_twice() {
        let mut allowance = Allowance::default();
        allowance.earn(5_000_000_000);
        allowance.spend(AT_ONCE as u64);
        allowance.earn(4_000_000_000);
        assert!(allowance.is_spent());
    }
}

//! Tests of the arbiter on a simulated machine.

#![expect(clippy::float_cmp, reason = "shares are powers of two")]

use super::*;

const ALL: Binds = Binds { samples: true, sleeps: true, named: true };
const DEFAULT: Binds = Binds { samples: true, sleeps: true, named: false };

/// What families would cost if nothing were given up, as shares of a core.
#[derive(Clone, Copy)]
struct Load {
    samples: f64,
    sleeps: f64,
    /// The part of the sleeps' cost that no measure reduces.
    fixed: f64,
    watchpoints: f64,
    calls: f64,
    mem_infos: f64,
    transfers: f64,
    rest: f64,
    /// The part of the cost in user space that no measure reduces.
    user: f64,
}

/// A machine with one CPU, simulated second by second.
struct Bench {
    arbiter: Arbiter,
    second: u32,
    kernel: [f64; SPENDERS],
    user: f64,
    /// Shares of a core in each second.
    costs_seen: Vec<f64>,
    changes: Vec<(u32, Change)>,
}

impl Bench {
    fn new(percent: f64, cpus: usize, binds: Binds) -> Self {
        let (costs_seen, changes) = (Vec::new(), Vec::new());
        let arbiter = Arbiter::new(percent, cpus, 99_999, binds);
        let mut bench = Self { arbiter, second: 0, kernel: [0.0; SPENDERS], user: 0.0, costs_seen, changes };
        bench.inspect();
        bench
    }

    fn inspect(&mut self) {
        const KNOWN: [Spender; 7] = [
            Spender::Samples,
            Spender::Sleeps,
            Spender::Watchpoints,
            Spender::Calls,
            Spender::MemInfos,
            Spender::Transfers,
            Spender::Rest,
        ];
        let cost = |family| Cost { family, kernel: Nanos::from_secs_f64(self.kernel[family as usize]) };
        let (at, user) = (Nanos::from_secs_f64(self.second.into()), Nanos::from_secs_f64(self.user));
        let new = self.arbiter.observe(at, &KNOWN.map(cost), user);
        self.changes.extend(new.into_iter().map(|change| (self.second, change)));
    }

    fn run(&mut self, load: Load, seconds: u32) -> &mut Self {
        for _ in 0..seconds {
            let keeps = |family| self.arbiter.level(family);
            let costs = [
                (Spender::Samples, load.samples * keeps(Spender::Samples)),
                (Spender::Sleeps, load.sleeps * keeps(Spender::Sleeps) + load.fixed),
                (Spender::Watchpoints, load.watchpoints * keeps(Spender::Watchpoints)),
                (Spender::Calls, load.calls),
                (Spender::MemInfos, load.mem_infos * keeps(Spender::MemInfos)),
                (Spender::Transfers, load.transfers * keeps(Spender::Transfers)),
                (Spender::Rest, load.rest),
            ];
            for (family, cost) in costs {
                self.kernel[family as usize] += cost;
            }
            self.user += load.user;
            self.costs_seen.push(costs.iter().map(|(_, cost)| cost).sum::<f64>() + load.user);
            self.second += 1;
            self.inspect();
        }
        self
    }

    fn keeps(&self) -> [f64; 3] {
        [Spender::Samples, Spender::Sleeps, Spender::Watchpoints].map(|family| self.arbiter.level(family))
    }
}

const NOTHING: Load = Load {
    samples: 0.0,
    sleeps: 0.0,
    fixed: 0.0,
    watchpoints: 0.0,
    calls: 0.0,
    mem_infos: 0.0,
    transfers: 0.0,
    rest: 0.0,
    user: 0.0,
};
const QUIET_LOAD: Load = Load { samples: 0.002, sleeps: 0.001, ..NOTHING };

#[test]
fn a_load_that_fits_is_left_alone() {
    let mut bench = Bench::new(1.0, 1, ALL);
    bench.run(QUIET_LOAD, 3600);
    assert!(bench.changes.is_empty(), "{:?}", bench.changes);
}

#[test]
fn a_flood_is_inside_the_budget_within_two_seconds_and_stays_there() {
    for load in [
        Load { samples: 0.3, ..QUIET_LOAD },
        Load { sleeps: 0.4, ..QUIET_LOAD },
        Load { watchpoints: 0.1, ..QUIET_LOAD },
        Load { samples: 0.05, sleeps: 0.2, watchpoints: 0.1, ..QUIET_LOAD },
    ] {
        let mut bench = Bench::new(1.0, 1, ALL);
        bench.run(QUIET_LOAD, 10).run(load, 60);
        assert!(bench.costs_seen[11..14].iter().all(|cost| *cost <= 0.01), "{:?}", bench.costs_seen);
        let above = bench.costs_seen[11..].iter().filter(|cost| **cost > 0.01).count();
        assert!(above <= 6, "{above} trials of a minute fail: {:?}", bench.costs_seen);
    }
}

#[test]
fn everything_is_back_five_seconds_after_the_load_has_gone() {
    for load in [
        Load { samples: 0.3, ..QUIET_LOAD },
        Load { sleeps: 0.4, ..QUIET_LOAD },
        Load { watchpoints: 0.1, ..QUIET_LOAD },
        Load { samples: 0.05, sleeps: 0.2, watchpoints: 0.1, rest: 0.03, ..QUIET_LOAD },
    ] {
        let mut bench = Bench::new(1.0, 1, ALL);
        bench.run(QUIET_LOAD, 10).run(load, 20);
        assert_ne!(bench.keeps(), [1.0; 3]);
        bench.run(QUIET_LOAD, 5);
        assert_eq!(bench.keeps(), [1.0; 3], "{:?}", bench.changes);
        let open = bench
            .changes
            .iter()
            .fold(0, |open, (_, change)| open + i32::from(change.after.is_some()) - i32::from(change.before.is_some()));
        assert_eq!(open, 0, "each measure that began has ended");
    }
}

#[test]
fn a_little_above_is_judged_over_three_seconds() {
    let mut bench = Bench::new(1.0, 1, ALL);
    let above = Load { samples: 0.012, ..NOTHING };
    bench.run(QUIET_LOAD, 10).run(above, 1).run(QUIET_LOAD, 10);
    assert!(bench.changes.is_empty(), "{:?}", bench.changes);
    bench.run(above, 4);
    assert_eq!(bench.keeps(), [0.5, 1.0, 1.0]);
}

#[test]
fn stacks_of_sleeps_go_before_samples() {
    let mut bench = Bench::new(1.0, 1, ALL);
    bench.run(Load { samples: 0.006, sleeps: 0.05, ..NOTHING }, 3);
    assert_eq!(bench.keeps(), [1.0, 1.0 / 64.0, 1.0]);
    assert_eq!(bench.changes[0].1.family, "offcpu");
    assert_eq!((bench.changes[0].1.before, bench.changes[0].1.after), (None, Some("stacks 1/64")));
}

#[test]
fn samples_are_not_given_up_for_what_they_do_not_cost() {
    let mut bench = Bench::new(1.0, 1, ALL);
    bench.run(Load { samples: 0.004, rest: 0.03, ..NOTHING }, 3600);
    assert_eq!(bench.keeps(), [1.0; 3], "half of the budget is theirs");
    bench.run(Load { samples: 0.07, rest: 0.03, ..NOTHING }, 60);
    assert_eq!(bench.keeps()[0], 1.0 / 16.0);
}

#[test]
fn families_that_were_named_are_bound_only_by_a_typed_budget() {
    let load = Load { watchpoints: 0.5, mem_infos: 0.5, ..QUIET_LOAD };
    let mut bench = Bench::new(1.0, 1, DEFAULT);
    bench.run(load, 60);
    assert!(bench.changes.is_empty(), "{:?}", bench.changes);
    let typed_rate = Binds { samples: false, sleeps: true, named: false };
    let mut bench = Bench::new(1.0, 1, typed_rate);
    bench.run(Load { samples: 0.5, sleeps: 0.5, ..NOTHING }, 60);
    assert_eq!(bench.keeps(), [1.0, 1.0 / 64.0, 1.0]);
}

#[test]
fn the_budget_is_a_share_of_all_cpus() {
    let load = Load { samples: 0.3, ..NOTHING };
    let mut bench = Bench::new(1.0, 64, ALL);
    bench.run(load, 60);
    assert!(bench.changes.is_empty(), "{:?}", bench.changes);
    let mut bench = Bench::new(1.0, 2, ALL);
    bench.run(load, 60);
    assert!(bench.costs_seen[1..].iter().all(|cost| *cost <= 0.02), "{:?}", bench.costs_seen);
    let sentence = bench.changes[0].1.sentence.as_deref().unwrap();
    assert!(sentence.contains("used 15.00 % of the machine with a budget of 1.00 %: one sample in 32"), "{sentence}");
}

#[test]
fn a_cost_that_measures_do_not_lower_is_tried_again_and_ever_less_often() {
    let mut bench = Bench::new(1.0, 1, ALL);
    let quiet = Load { sleeps: 0.0, fixed: 0.004, ..NOTHING };
    bench.run(Load { sleeps: 0.2, ..quiet }, 20);
    let shed = bench.keeps()[1];
    assert!(shed < 1.0);
    bench.run(quiet, 5);
    assert_eq!(bench.keeps()[1], 1.0, "the prediction says eight times as much, and a trial says otherwise");
    let mut bench = Bench::new(1.0, 1, ALL);
    bench.run(Load { sleeps: 0.2, fixed: 0.001, ..NOTHING }, 3600);
    let above = bench.costs_seen.iter().filter(|cost| **cost > 0.01).count();
    assert!(above < 20, "{above} seconds in an hour above the budget");
}

#[test]
fn user_space_counts_after_the_start_and_is_divided_as_the_kernel_s_time() {
    let load = Load { samples: 0.004, rest: 0.004, user: 0.03, ..NOTHING };
    let mut bench = Bench::new(1.0, 1, ALL);
    bench.run(load, 3);
    assert!(bench.changes.is_empty());
    bench.run(load, 1);
    let shares = bench.changes.len();
    assert_eq!(shares, 1, "{:?}", bench.changes);
    assert!(bench.keeps()[0] < 1.0);
}

#[test]
fn calls_may_cost_what_the_others_leave() {
    let mut bench = Bench::new(1.0, 1, ALL);
    assert!((bench.arbiter.allowed_share() - 1.0).abs() < 1e-9);
    bench.run(Load { samples: 0.004, calls: 0.002, ..NOTHING }, 5);
    assert!((bench.arbiter.allowed_share() - 0.6).abs() < 1e-3);
    bench.run(Load { rest: 0.03, ..NOTHING }, 5);
    assert!((bench.arbiter.allowed_share() - 0.25).abs() < 1e-3);
}

#[test]
fn probes_go_for_good_and_only_where_they_cost_too_much_for_three_seconds() {
    let mut bench = Bench::new(1.0, 1, ALL);
    let quiet = Load { samples: 0.002, ..NOTHING };
    let above = Load { mem_infos: 0.05, ..quiet };
    for _ in 0..5 {
        bench.run(above, 2).run(quiet, 5);
    }
    assert!(bench.changes.is_empty(), "{:?}", bench.changes);
    bench.run(above, 3);
    assert_eq!(bench.arbiter.level(Spender::MemInfos), 0.0);
    assert_eq!(bench.keeps(), [1.0; 3], "nothing else would have helped");
    bench.run(quiet, 3600);
    assert_eq!(bench.arbiter.level(Spender::MemInfos), 0.0);
    let [(_, change)] = &bench.changes[..] else { panic!("{:?}", bench.changes) };
    assert_eq!((change.family, change.after), ("nrt", Some("probes off")));
    let mut bench = Bench::new(1.0, 1, ALL);
    bench.run(Load { mem_infos: 0.002, rest: 0.03, ..NOTHING }, 60);
    assert!(bench.changes.is_empty(), "they cost little: {:?}", bench.changes);
}

#[test]
fn transfers_are_counted_before_their_probes_go_and_are_followed_again() {
    let mut bench = Bench::new(1.0, 1, ALL);
    bench.run(Load { transfers: 0.05, ..QUIET_LOAD }, 60);
    assert_eq!(bench.arbiter.level(Spender::Transfers), 0.125);
    bench.run(QUIET_LOAD, 5);
    assert_eq!(bench.arbiter.level(Spender::Transfers), 1.0);
    bench.run(Load { transfers: 0.5, ..QUIET_LOAD }, 8);
    assert_eq!(bench.arbiter.level(Spender::Transfers), 0.0);
}

#[test]
fn a_few_samples_are_always_taken() {
    let least = |rate_hz| samples(rate_hz).last().map(|measure| measure.name);
    assert_eq!(
        [99, 999, 20_000, 5].map(least),
        [Some("samples 1/32"), Some("samples 1/256"), Some("samples 1/1024"), None]
    );
}

#[test]
fn a_cost_over_a_moment_says_nothing() {
    let mut arbiter = Arbiter::new(1.0, 2, 99, ALL);
    let cost = |ms| [Cost { family: Spender::Samples, kernel: Nanos(ms * 1_000_000) }];
    for second in 0..=9 {
        let at = Nanos(second * 1_000_000_000);
        assert!(arbiter.observe(at, &cost(second), Nanos(0)).is_empty(), "{second}");
    }
    // 20 ms of CPU time, a thousandth of a second later.
    assert!(arbiter.observe(Nanos(9_001_000_000), &cost(29), Nanos(0)).is_empty());
    assert_eq!(arbiter.level(Spender::Samples), 1.0);
    // Over the whole second it is above the budget of 20 ms.
    assert!(!arbiter.observe(Nanos(10_000_000_000), &cost(60), Nanos(0)).is_empty());
}

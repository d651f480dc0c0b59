//! Splits the sums of sleeps over the stacks taken.

use std::collections::VecDeque;

use foldhash::HashMap;
use pyobs_model::{GilHolder, Nanos, StackId, Waker};

/// What sleeps have in common that become one event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    pub stack: StackId,
    pub holder: Option<GilHolder>,
    pub waker: Option<Waker>,
    pub holds_gil: bool,
}

/// A sleep whose stack was taken.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    pub group: Group,
    pub length: Nanos,
    /// How many sleeps it represents: the inverse of its probability of being drawn.
    pub weight: f64,
}

/// A group's share of the sums.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    pub group: Group,
    pub count: u64,
    pub total: Nanos,
    pub longest: Nanos,
    /// The effective number of stacks behind this estimate, as if each represented the same time.
    pub stacks: u64,
}

#[derive(Default)]
struct Share {
    stacks: u64,
    time: u64,
    longest: u64,
    /// What the pool's drawn sleeps represent in all, and without themselves.
    all: f64,
    all_time: f64,
    unseen: f64,
    unseen_time: f64,
}

/// Sleeps kept per pool. A ratio estimator of few samples is biased: with 128 sleeps, one in eleven ten times
/// as long, by one percentage point.
const POOL: usize = 128;
/// A pool grows only to this size by sleeps that were emitted by themselves: most threads never need it.
const KEPT: usize = 16;
/// Older sleeps say nothing about the present and are dropped.
const AGE: Nanos = Nanos(15_000_000_000);

/// The latest drawn sleeps of a slot.
#[derive(Debug, Default)]
pub(super) struct Pool(VecDeque<(Nanos, Drawn)>);

impl Pool {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps a sleep that was emitted by itself, in place of the oldest if there are enough.
    pub(super) fn keep(&mut self, at: Nanos, one: Drawn) {
        if self.0.len() >= KEPT {
            self.0.pop_front();
        }
        self.0.push_back((at, one));
    }

    /// Splits the count and time of sleeps over the groups of drawn sleeps: the `new` ones, plus as many
    /// earlier ones as needed. Drawn sleeps keep their own lengths. The rest is split in proportion to what
    /// each represents besides itself, because the probabilities depend on the past only (a ratio estimator
    /// over a Horvitz-Thompson estimate). The parts add up to the sums. Without drawn sleeps there are no
    /// parts.
    pub(super) fn split(&mut self, now: Nanos, new: Vec<Drawn>, count: u64, total: Nanos, longest: Nanos) -> Vec<Part> {
        let effective = effective(&new);
        let old = self.0.len().min(POOL.saturating_sub(new.len()));
        self.0.drain(..self.0.len() - old);
        while self.0.len() > usize::from(new.is_empty())
            && self.0.front().is_some_and(|(at, _)| now.saturating_sub(*at) > AGE)
        {
            self.0.pop_front();
        }
        let old = self.0.len();
        self.0.extend(new.into_iter().map(|one| (now, one)));
        let mut order: Vec<&Group> = Vec::new();
        let mut shares: HashMap<&Group, Share> = HashMap::default();
        for (number, (_, one)) in self.0.iter().enumerate() {
            let share = shares.entry(&one.group).or_insert_with(|| {
                order.push(&one.group);
                Share::default()
            });
            if number >= old {
                share.stacks += 1;
                share.time += one.length.0;
                share.longest = share.longest.max(one.length.0);
            }
            share.all_time += one.length.0 as f64 * one.weight;
            share.all += one.weight;
            share.unseen += one.weight - 1.0;
            share.unseen_time += (one.weight - 1.0) * one.length.0 as f64;
        }
        let ordered = || order.iter().map(|group| &shares[*group]);
        let mut counts = apportion(count, &ordered().map(|it| (it.stacks, it.unseen, it.all)).collect::<Vec<_>>());
        let times = apportion(total.0, &ordered().map(|it| (it.time, it.unseen_time, it.all_time)).collect::<Vec<_>>());
        // A group with time gets at least one sleep.
        for number in 0..counts.len() {
            let largest = (0..counts.len()).max_by_key(|other| counts[*other]).filter(|largest| counts[*largest] > 1);
            if let Some(largest) = largest.filter(|_| counts[number] == 0 && times[number] > 0) {
                (counts[number], counts[largest]) = (1, counts[largest] - 1);
            }
        }
        let mut parts: Vec<Part> = order
            .iter()
            .zip(counts.into_iter().zip(times))
            .map(|(group, (count, time))| {
                let share = &shares[*group];
                let mean = time.div_ceil(count.max(1));
                let stacks = (share.stacks as f64 * effective).round() as u64;
                Part {
                    group: (*group).clone(),
                    count,
                    total: Nanos(time),
                    longest: Nanos(share.longest.max(mean)),
                    stacks: stacks.max(share.stacks.min(1)),
                }
            })
            .filter(|part| part.count > 0 || part.total > Nanos(0))
            .collect();
        // The stack of the longest sleep is unknown unless it was drawn; the largest part is the best guess.
        if let Some(largest) = parts.iter_mut().max_by_key(|part| part.total) {
            largest.longest = largest.longest.max(longest);
        }
        parts
    }
}

/// Weight of the drawn sleeps: 1 if all represent the same time, less if the split rests on a few that
/// represent much more (Kish's effective sample size, as a share).
fn effective(drawn: &[Drawn]) -> f64 {
    let times = || drawn.iter().map(|one| one.weight * one.length.0 as f64);
    let (sum, squares) = (times().sum::<f64>(), times().map(|time| time * time).sum::<f64>());
    if drawn.iter().all(|one| one.weight == 1.0) || squares == 0.0 {
        return 1.0;
    }
    (sum * sum / squares / drawn.len() as f64).min(1.0)
}

/// Splits `whole` into parts. Each part gets its first number, and the rest is split in proportion to the
/// second numbers. If nothing is left, the whole is split in proportion to the third numbers.
fn apportion(whole: u64, parts: &[(u64, f64, f64)]) -> Vec<u64> {
    let known: u64 = parts.iter().map(|(known, ..)| known).sum();
    let rest = whole.checked_sub(known).filter(|_| parts.iter().any(|(_, rest, _)| *rest > 0.0));
    let weights: Vec<f64> =
        parts.iter().map(|(_, of_rest, of_all)| if rest.is_some() { *of_rest } else { *of_all }).collect();
    let (amount, all) = (rest.unwrap_or(whole), weights.iter().sum::<f64>());
    let (mut sum, mut given) = (0.0, 0);
    let mut split = Vec::with_capacity(parts.len());
    for (number, ((known, ..), weight)) in parts.iter().zip(weights).enumerate() {
        sum += weight;
        let is_last = number + 1 == parts.len();
        let until = if is_last { amount } else { ((sum / all * amount as f64) as u64).clamp(given, amount) };
        split.push(until - given + if rest.is_some() { *known } else { 0 });
        given = until;
    }
    split
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(stack: u32, length: u64, weight: f64) -> Drawn {
        let group = Group { stack: StackId(stack), holder: None, waker: None, holds_gil: false };
        Drawn { group, length: Nanos(length), weight }
    }

    fn sums(parts: &[Part]) -> Vec<(u32, u64, u64, u64, u64)> {
        parts.iter().map(|it| (it.group.stack.0, it.count, it.total.0, it.longest.0, it.stacks)).collect()
    }

    #[test]
    fn the_drawn_keep_their_lengths_and_stand_for_the_rest() {
        let all = vec![drawn(1, 10, 2.0), drawn(1, 10, 4.0), drawn(2, 30, 5.0)];
        // Eight sleeps with 160 ns in total were not drawn.
        let mut pool = Pool::default();
        assert_eq!(
            sums(&pool.split(Nanos(0), all, 11, Nanos(210), Nanos(70))),
            [(1, 6, 60, 10, 1), (2, 5, 150, 70, 1)]
        );
        // Earlier sleeps count only for the rest, and only until they are too old.
        let new = || vec![drawn(2, 30, 5.0)];
        assert_eq!(
            sums(&pool.split(Nanos(1), new(), 13, Nanos(310), Nanos(0))),
            [(1, 4, 40, 10, 0), (2, 9, 270, 30, 1)]
        );
        assert_eq!(sums(&pool.split(Nanos(2 * AGE.0), new(), 10, Nanos(300), Nanos(0))), [(2, 10, 300, 30, 1)]);
        // Without new draws for long, the split stays as it was.
        assert_eq!(sums(&pool.split(Nanos(9 * AGE.0), vec![], 2, Nanos(9), Nanos(0))), [(2, 2, 9, 5, 0)]);
    }

    #[test]
    fn parts_add_up_whatever_was_drawn() {
        let cases: [&[Drawn]; 4] = [
            &[drawn(1, 10, 1.0), drawn(2, 30, 1.0)],
            &[drawn(1, 0, 1.0), drawn(2, 0, 7.0)],
            &[drawn(1, u64::from(u32::MAX), 1e9), drawn(2, 3, 4e9)],
            &[drawn(1, 1, 1.5)],
        ];
        for drawn in cases {
            for (count, total) in [(0, 0), (1, 5), (7, 1_000_003), (1_000_000, u64::MAX >> 12)] {
                let parts = Pool::default().split(Nanos(0), drawn.to_vec(), count, Nanos(total), Nanos(0));
                let sum = parts.iter().fold((0, 0), |sum, it| (sum.0 + it.count, sum.1 + it.total.0));
                assert_eq!(sum, (count, total), "{drawn:?}");
                assert!(parts.iter().all(|it| it.longest.0 >= it.total.0 / it.count.max(1)), "{parts:?}");
            }
        }
    }

    /// Two call sites take equal time, one in short sleeps and one in long ones. The probability of a draw
    /// follows the mean length so far.
    #[test]
    fn there_is_no_bias() {
        let (mut mean, mut random) = (1000.0, 0x2545_f491_u32);
        let (mut pool, mut new, mut reported) = (Pool::default(), Vec::new(), [0.0; 2]);
        let (mut count, mut total, mut longest) = (0, 0, 0);
        for number in 0..2_000_000 {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            // Ten short ones, then a long one: the most regular pattern there is.
            let (stack, length) = if number % 11 == 10 { (1, 10_000) } else { (0, 1_000) };
            let chance = (mean / 500_000.0_f64).min(1.0);
            if f64::from(random) < chance * f64::from(u32::MAX) {
                new.push(drawn(stack, length, 1.0 / chance));
            }
            mean += (length as f64 - mean) / 8.0;
            (count, total, longest) = (count + 1, total + length, longest.max(length));
            if new.len() >= 16 {
                for part in pool.split(Nanos(0), std::mem::take(&mut new), count, Nanos(total), Nanos(longest)) {
                    reported[part.group.stack.0 as usize] += part.total.0 as f64;
                }
                (count, total, longest) = (0, 0, 0);
            }
        }
        let share = reported[1] / (reported[0] + reported[1]);
        // About 7000 drawn sleeps.
        assert!((share - 0.5).abs() < 0.025, "{share}");
    }
}

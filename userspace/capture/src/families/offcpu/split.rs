//! How the sums of sleeps are split over the stacks that were taken.

use std::collections::HashMap;

use pyobs_model::{GilHolder, Nanos, StackId, Waker};

/// What sleeps that become one event have in common.
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
    /// How many sleeps it stands for: the inverse of its chance.
    pub weight: f64,
}

/// The part of a group.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    pub group: Group,
    pub count: u64,
    pub total: Nanos,
    pub longest: Nanos,
    /// The stacks that this rests on, as if each stood for the same time.
    pub stacks: u64,
}

#[derive(Default)]
struct Share {
    stacks: u64,
    time: u64,
    longest: u64,
    /// What the drawn sleeps stand for beside themselves.
    unseen: f64,
    unseen_time: f64,
}

/// Splits the count and the time of sleeps over the groups of those that were drawn, which must not be empty. Drawn sleeps keep
/// their own lengths. The rest is split in proportion to what each stands for beside itself, which is without bias, as the
/// chances depend on the past only (a ratio estimator over a Horvitz-Thompson estimate). The parts add up to the sums.
pub(super) fn split(drawn: &[Drawn], count: u64, total: Nanos, longest: Nanos) -> Vec<Part> {
    let effective = effective(drawn);
    let mut order: Vec<&Group> = Vec::new();
    let mut shares: HashMap<&Group, Share> = HashMap::new();
    for one in drawn {
        let share = shares.entry(&one.group).or_insert_with(|| {
            order.push(&one.group);
            Share::default()
        });
        share.stacks += 1;
        share.time += one.length.0;
        share.longest = share.longest.max(one.length.0);
        share.unseen += one.weight - 1.0;
        share.unseen_time += (one.weight - 1.0) * one.length.0 as f64;
    }
    let ordered = || order.iter().map(|group| &shares[*group]);
    let counts = apportion(count, &ordered().map(|it| (it.stacks, it.unseen)).collect::<Vec<_>>());
    let times = apportion(total.0, &ordered().map(|it| (it.time, it.unseen_time)).collect::<Vec<_>>());
    let mut parts: Vec<Part> = order
        .iter()
        .zip(counts.into_iter().zip(times))
        .map(|(group, (count, time))| {
            let share = &shares[*group];
            let mean = time.div_ceil(count.max(1));
            Part {
                group: (*group).clone(),
                count,
                total: Nanos(time),
                longest: Nanos(share.longest.max(mean)),
                stacks: ((share.stacks as f64 * effective).round() as u64).max(1),
            }
        })
        .collect();
    // Which stack the longest sleep of all had is not known, unless it was drawn.
    if let Some(largest) = parts.iter_mut().max_by_key(|part| part.total) {
        largest.longest = largest.longest.max(longest);
    }
    parts
}

/// How much each drawn sleep counts: 1 if all stand for the same time, and less if some stand for much more than others, so that
/// the split rests on these alone (Kish's effective sample size, as a share).
fn effective(drawn: &[Drawn]) -> f64 {
    let times = || drawn.iter().map(|one| one.weight * one.length.0 as f64);
    let (sum, squares) = (times().sum::<f64>(), times().map(|time| time * time).sum::<f64>());
    if drawn.iter().all(|one| one.weight == 1.0) || squares == 0.0 {
        return 1.0;
    }
    (sum * sum / squares / drawn.len() as f64).min(1.0)
}

/// Splits `whole` into parts of which a piece is known; the rest goes by the second numbers.
fn apportion(whole: u64, parts: &[(u64, f64)]) -> Vec<u64> {
    let known: u64 = parts.iter().map(|(known, _)| known).sum();
    let rests: f64 = parts.iter().map(|(_, rest)| rest).sum();
    let rest = whole.checked_sub(known);
    let by_rest = rest.is_some() && rests > 0.0;
    // Sleeps that are over in the next interval, or whose records were lost.
    let all: f64 = if by_rest { rests } else { known.max(1) as f64 };
    let (base, amount) = if by_rest { (true, rest.unwrap_or(0)) } else { (false, whole) };
    let (mut sum, mut given) = (0.0, 0);
    let mut split = Vec::with_capacity(parts.len());
    for (number, (known, rest)) in parts.iter().enumerate() {
        sum += if by_rest { *rest } else { *known as f64 };
        let is_last = number + 1 == parts.len();
        let until = if is_last { amount } else { ((sum / all * amount as f64) as u64).clamp(given, amount) };
        split.push(until - given + if base { *known } else { 0 });
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
        let all = [drawn(1, 10, 1.0), drawn(1, 10, 5.0), drawn(2, 30, 5.0)];
        // 8 sleeps with 160 ns were not drawn.
        assert_eq!(sums(&split(&all, 11, Nanos(210), Nanos(70))), [(1, 6, 60, 10, 2), (2, 5, 150, 70, 1)]);
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
                let parts = split(drawn, count, Nanos(total), Nanos(0));
                let sum = parts.iter().fold((0, 0), |sum, it| (sum.0 + it.count, sum.1 + it.total.0));
                assert_eq!(sum, (count, total), "{drawn:?}");
                assert!(parts.iter().all(|it| it.longest.0 >= it.total.0 / it.count.max(1)), "{parts:?}");
            }
        }
    }

    /// Two places of equal time, of which one has short sleeps and the other long ones, drawn with chances that go by the mean
    /// of those before.
    #[test]
    fn there_is_no_bias() {
        let (mut mean, mut random) = (1000.0, 0x2545_f491_u32);
        let (mut pool, mut told) = (Vec::new(), [0.0; 2]);
        let (mut count, mut total, mut longest) = (0, 0, 0);
        for number in 0..2_000_000 {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            // Ten short ones, then a long one: as regular as a program may be.
            let (stack, length) = if number % 11 == 10 { (1, 10_000) } else { (0, 1_000) };
            let chance = (mean / 500_000.0_f64).min(1.0);
            if f64::from(random) < chance * f64::from(u32::MAX) {
                pool.push(drawn(stack, length, 1.0 / chance));
            }
            mean += (length as f64 - mean) / 8.0;
            (count, total, longest) = (count + 1, total + length, longest.max(length));
            if pool.len() >= 16 {
                for part in split(&pool, count, Nanos(total), Nanos(longest)) {
                    told[part.group.stack.0 as usize] += part.total.0 as f64;
                }
                (count, total, longest) = (0, 0, 0);
                pool.clear();
            }
        }
        let share = told[1] / (told[0] + told[1]);
        // Some 7000 drawn sleeps.
        assert!((share - 0.5).abs() < 0.025, "{share}");
    }
}

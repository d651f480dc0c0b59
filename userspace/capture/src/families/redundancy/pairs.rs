//! What the traps of one watchpoint amount to: two accesses in different native calls, and whether the second
//! changed anything.

use pyobs_model::PairKind;

use super::code::Did;

/// A trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub did: Did,
    /// Identifies the native call.
    pub call: u64,
    /// `None` if it could not be read.
    pub value: Option<u64>,
    /// The number of the trap whose stack is that of this call.
    pub stack: u32,
}

/// Two accesses that form a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub kind: PairKind,
    pub equal: bool,
    /// Whether the first store was never read before the second.
    pub unread: Option<bool>,
    pub first: u32,
    pub second: u32,
}

/// Applies `of` after skipping `passed` calls. If the watchpoint did not see all it was set for and nothing
/// is found, skips fewer.
pub fn found(traps: &[Seen], passed: u32, is_used_up: bool, of: impl Fn(&[Seen]) -> Option<Found>) -> Option<Found> {
    let mut calls: Vec<usize> = vec![0];
    calls.extend(traps.chunk_by(|one, other| one.call == other.call).scan(0, |end, call| {
        *end += call.len();
        Some(*end)
    }));
    let last = calls.len().min(passed as usize + 1);
    let tried = if is_used_up { 1 } else { last };
    calls[..last].iter().rev().take(tried).find_map(|start| of(&traps[*start..]))
}

/// For a watch on stores: compares the last store of the first call with the last store of the second,
/// because memory is often cleared before it is filled. Only a trap in a third call proves that the second is
/// over.
pub fn of_stores(traps: &[Seen]) -> Option<Found> {
    let mut calls = traps.chunk_by(|one, other| one.call == other.call);
    let (first, second, _) = (calls.next()?, calls.next()?, calls.next()?);
    let (first, second) = (first.last()?, second.last()?);
    Some(Found {
        kind: PairKind::Store,
        equal: first.value? == second.value?,
        unread: None,
        first: first.stack,
        second: second.stack,
    })
}

/// For a watch on loads and stores: the last access of the first call, and what later calls make of it. A
/// load is paired with the next load, across stores only if the memory is known to stay the same object
/// (`outlives`), because an object freed in between is a different one. A store is paired with the next
/// store; it was read if a load came between.
pub fn of_accesses(traps: &[Seen], outlives: bool) -> Option<Found> {
    let call = traps.first()?.call;
    let end = traps.iter().position(|seen| seen.call != call)?;
    let (first, later) = traps.split_at(end);
    let before = first.last()?;
    let stored = first.iter().rposition(|seen| seen.did == Did::Store);
    let next = later.iter().position(|seen| seen.did == Did::Store);
    let read = later.iter().position(|seen| seen.did == Did::Load);
    let pair = |kind, one: &Seen, other: &Seen, unread| {
        let equal = one.value? == other.value?;
        Some(Found { kind, equal, unread, first: one.stack, second: other.stack })
    };
    let only_plain = |seen: &[Seen]| seen.iter().all(|seen| matches!(seen.did, Did::Load | Did::Store));
    if let (Some(stored), Some(next)) = (stored, next) {
        let between = first[stored + 1..].iter().chain(&later[..next]);
        let unread = between.clone().all(|seen| seen.did == Did::Store);
        if only_plain(&later[..=next]) && only_plain(&first[stored..]) {
            return pair(PairKind::Store, &first[stored], &later[next], Some(unread));
        }
    }
    let read = read?;
    let is_pair = before.did == Did::Load
        && only_plain(&later[..=read])
        && (outlives || later[..read].iter().all(|seen| seen.did == Did::Load));
    if is_pair { pair(PairKind::Load, before, &later[read], None) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(did: Did, call: u64, value: u64) -> Seen {
        Seen { did, call, value: Some(value), stack: call as u32 }
    }

    #[test]
    fn last_stores_of_calls_are_compared() {
        let store = |call, value| seen(Did::Store, call, value);
        let traps = [store(1, 0), store(1, 7), store(2, 0), store(2, 7), store(3, 0)];
        let found = of_stores(&traps).unwrap();
        assert_eq!((found.equal, found.first, found.second), (true, 1, 2));
        assert!(!of_stores(&[store(1, 7), store(2, 8), store(3, 0)]).unwrap().equal);
        assert_eq!(of_stores(&traps[..4]), None, "the second call may go on");
        let unreadable = Seen { value: None, ..store(2, 7) };
        assert_eq!(of_stores(&[store(1, 7), unreadable, store(3, 0)]), None);
    }

    #[test]
    fn calls_are_skipped_while_others_remain() {
        let traps = [(1, 7), (2, 7), (3, 8), (3, 9), (4, 9), (5, 0)].map(|(call, value)| seen(Did::Store, call, value));
        let equal = |passed| found(&traps, passed, false, of_stores).map(|found| (found.equal, found.first));
        assert_eq!([0, 1, 2].map(equal), [Some((true, 1)), Some((false, 2)), Some((true, 3))]);
        assert_eq!(equal(5), equal(2), "there is no other");
        assert_eq!(found(&traps, 5, true, of_stores), None, "what is there is behind it");
        assert_eq!(found(&traps[..2], 3, false, of_stores), None);
        assert_eq!(found(&[], 3, false, of_stores), None);
    }

    #[test]
    fn accesses_are_paired_with_the_next_of_their_kind() {
        let (load, store) = (|call, value| seen(Did::Load, call, value), |call, value| seen(Did::Store, call, value));
        let found = of_accesses(&[load(1, 5), load(2, 5)], false).unwrap();
        assert_eq!((found.kind, found.equal, found.unread), (PairKind::Load, true, None));
        assert_eq!(of_accesses(&[load(1, 5), store(2, 6), load(3, 6)], false), None, "it may be another object");
        assert!(!of_accesses(&[load(1, 5), store(2, 6), load(3, 6)], true).unwrap().equal);
        assert_eq!(of_accesses(&[load(1, 5), load(1, 5)], true), None, "one call");
        assert_eq!(of_accesses(&[load(1, 5), seen(Did::Unknown, 2, 5), load(3, 5)], true), None);
        let dead = of_accesses(&[store(1, 5), store(2, 6)], false).unwrap();
        assert_eq!((dead.kind, dead.equal, dead.unread), (PairKind::Store, false, Some(true)));
        for traps in [[store(1, 5), load(1, 5), store(2, 5)], [store(1, 5), load(2, 5), store(3, 5)]] {
            let read = of_accesses(&traps, false).unwrap();
            assert_eq!((read.kind, read.equal, read.unread), (PairKind::Store, true, Some(false)));
        }
    }
}

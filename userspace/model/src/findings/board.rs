//! Findings as people can read them while they change: those alike are one, and none flickers.

use std::collections::BTreeMap;

use super::{Cost, Evidence, Finding, Severity, UNKNOWN_PLACE};
use crate::{Nanos, ProcessRef};

/// What is not serious is shown once it was found for so long.
const RISE: Nanos = Nanos(1_000_000_000);
/// What is found no more stays for so long.
const FADE: Nanos = Nanos(10_000_000_000);
/// Who has not looked for so long looks anew.
const LAPSE: Nanos = Nanos(5_000_000_000);
/// A cost moves its finding when it is so many times what it was.
const STEP: f64 = 1.5;
/// Findings that are kept.
const MOST: usize = 256;

/// Findings that say the same of one line, in whatever process, or of one process where no line is known.
pub type Key = (&'static str, Option<ProcessRef>, String);

#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Of those alike the one that costs most.
    pub finding: Finding,
    /// How many others are alike.
    pub others: usize,
    /// Of all of them.
    pub cost: Cost,
    /// When it was found first.
    pub since: Nanos,
    /// When it was found last.
    pub seen: Nanos,
    /// The weight by which it stands where it stands.
    rank: f64,
    is_shown: bool,
}

impl Entry {
    fn new(finding: Finding, at: Nanos) -> Self {
        let cost = finding.cost;
        Self { finding, others: 0, cost, since: at, seen: at, rank: cost.weight(), is_shown: false }
    }

    fn add(&mut self, other: Finding) {
        self.others += 1;
        self.cost.add(other.cost);
        let order = |finding: &Finding| (finding.severity, finding.cost.weight());
        if order(&other) > order(&self.finding) {
            self.finding = other;
        }
        self.rank = self.cost.weight();
    }

    /// Takes the news of one that is known.
    fn renew(&mut self, news: Self) {
        let (was, is) = (self.rank.max(f64::MIN_POSITIVE), news.rank);
        let moves = news.finding.severity != self.finding.severity || is > was * STEP || is * STEP < was;
        let rank = if moves { is } else { self.rank };
        *self = Self { since: self.since, is_shown: self.is_shown, rank, ..news };
    }

    /// Whether it was found when somebody looked last.
    pub fn is_current(&self, board: &Board) -> bool {
        self.seen == board.looked
    }
}

/// The most serious first, and of these the one that costs most.
#[derive(Clone, Debug, Default)]
pub struct Board {
    entries: BTreeMap<Key, Entry>,
    order: Vec<Key>,
    looked: Nanos,
    has_looked: bool,
}

impl Board {
    /// Takes what was found at a time; what was found long before, or is told of a time before the last one, is forgotten.
    pub fn update(&mut self, now: Nanos, found: Vec<Finding>) {
        let is_anew = !self.has_looked || now < self.looked || now.saturating_sub(self.looked) > LAPSE;
        if is_anew {
            self.entries.clear();
        }
        (self.looked, self.has_looked) = (now, true);
        for (key, news) in gather(found, now) {
            let has_room = self.entries.len() < MOST;
            match self.entries.get_mut(&key) {
                Some(entry) => entry.renew(news),
                None if has_room => {
                    self.entries.insert(key, news);
                }
                None => {}
            }
        }
        self.entries.retain(|_, entry| {
            let is_old = now.saturating_sub(entry.since) >= RISE && entry.seen == now;
            entry.is_shown |= is_anew || is_old || entry.finding.severity == Severity::Serious;
            // What was never shown need not fade.
            entry.seen == now || (entry.is_shown && now.saturating_sub(entry.seen) < FADE)
        });
        let mut order: Vec<(&Key, &Entry)> = self.entries.iter().filter(|(_, entry)| entry.is_shown).collect();
        order.sort_by(|(_, a), (_, b)| {
            b.finding.severity.cmp(&a.finding.severity).then_with(|| b.rank.total_cmp(&a.rank))
        });
        self.order = order.into_iter().map(|(key, _)| key.clone()).collect();
    }

    pub fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> + '_ {
        self.order.iter().map(|key| &self.entries[key])
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub fn key(&self, index: usize) -> Option<&Key> {
        self.order.get(index)
    }

    pub fn get(&self, index: usize) -> Option<&Entry> {
        self.entries.get(self.order.get(index)?)
    }
}

fn gather(found: Vec<Finding>, now: Nanos) -> BTreeMap<Key, Entry> {
    let mut gathered: BTreeMap<Key, Entry> = BTreeMap::new();
    for finding in found {
        let lines = ["holder_line", "line"].iter().filter_map(|name| finding.evidence.get(name));
        let line = lines.filter_map(|evidence| match evidence {
            Evidence::Text(line) => Some(line.clone()),
            Evidence::Count(_) | Evidence::Number(_) => None,
        });
        let line: String = line.take(1).filter(|line| line != UNKNOWN_PLACE).collect();
        let key = (finding.id, finding.process.filter(|_| line.is_empty()), line);
        match gathered.get_mut(&key) {
            Some(entry) => entry.add(finding),
            None => {
                gathered.insert(key, Entry::new(finding, now));
            }
        }
    }
    gathered
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn finding(line: &str, severity: Severity, time: f64) -> Finding {
        Finding {
            id: "gil/convoy",
            severity,
            summary: line.to_owned(),
            detail: String::new(),
            advice: String::new(),
            process: Some(ProcessRef(0)),
            pid: None,
            evidence: BTreeMap::from([("line", Evidence::Text(line.to_owned()))]),
            cost: Cost::time(time),
            target: None,
        }
    }

    fn warning(line: &str, time: f64) -> Finding {
        finding(line, Severity::Warning, time)
    }

    fn lines(board: &Board) -> Vec<&str> {
        board.entries().map(|entry| entry.finding.summary.as_str()).collect()
    }

    /// At each of these tenths of a second.
    fn board(tenths: &[(u64, &[(&str, f64)])]) -> Board {
        let mut board = Board::default();
        for (at, found) in tenths {
            let found = found.iter().map(|(line, time)| warning(line, *time)).collect();
            board.update(Nanos(at * SECOND / 10), found);
        }
        board
    }

    #[test]
    fn one_line_is_one_whatever_the_process_unless_it_is_not_known() {
        let of = |process, line: &str| Finding { process: Some(ProcessRef(process)), ..warning(line, 0.1) };
        let mut board = Board::default();
        let found = vec![of(0, "a:1"), of(1, "a:1"), of(1, "b:2"), of(0, UNKNOWN_PLACE), of(1, UNKNOWN_PLACE)];
        board.update(Nanos(0), found);
        let mut told: Vec<_> = board.entries().map(|entry| (entry.finding.summary.as_str(), entry.others)).collect();
        told.sort_unstable();
        assert_eq!(told, [("a:1", 1), (UNKNOWN_PLACE, 0), (UNKNOWN_PLACE, 0), ("b:2", 0)]);
    }

    #[test]
    fn those_alike_are_one_that_costs_what_all_cost() {
        let mut board = Board::default();
        board.update(Nanos(0), vec![warning("a", 0.1), warning("b", 0.2), warning("a", 0.15)]);
        let first = board.get(0).unwrap();
        assert_eq!((first.finding.summary.as_str(), first.others, first.finding.cost.time), ("a", 1, 0.15));
        assert_eq!((first.cost.time, lines(&board)), (0.25, vec!["a", "b"]));
    }

    #[test]
    fn serious_ones_are_first_whatever_they_cost() {
        let mut board = Board::default();
        board.update(Nanos(0), vec![warning("a", 3.0), finding("b", Severity::Serious, 0.0)]);
        assert_eq!(lines(&board), ["b", "a"]);
    }

    #[test]
    fn what_is_there_from_the_first_is_shown_and_what_comes_has_to_stay_for_a_second() {
        assert_eq!(lines(&board(&[(0, &[("a", 0.1)])])), ["a"]);
        assert_eq!(lines(&board(&[(0, &[]), (5, &[("a", 0.1)])])), [""; 0]);
        assert_eq!(lines(&board(&[(0, &[]), (5, &[("a", 0.1)]), (15, &[("a", 0.1)])])), ["a"]);
        // One that comes and goes is never shown.
        let hovering: &[(u64, &[(&str, f64)])] =
            &[(0, &[]), (5, &[("a", 0.1)]), (10, &[]), (15, &[("a", 0.1)]), (20, &[])];
        assert_eq!(lines(&board(hovering)), [""; 0]);
        let mut board = Board::default();
        board.update(Nanos(0), Vec::new());
        board.update(Nanos(1), vec![finding("a", Severity::Serious, 0.0)]);
        assert_eq!(lines(&board), ["a"]);
    }

    #[test]
    fn what_goes_stays_for_a_while_and_comes_back_as_what_it_was() {
        let mut fading = board(&[(0, &[("a", 0.1)]), (5, &[])]);
        assert_eq!(lines(&fading), ["a"]);
        assert!(!fading.get(0).unwrap().is_current(&fading));
        fading.update(Nanos(SECOND), vec![warning("a", 0.1)]);
        let back = fading.get(0).unwrap();
        assert!(back.is_current(&fading));
        assert_eq!(back.since, Nanos(0));
        let empty: Vec<(u64, &[(&str, f64)])> = (1..12).map(|second| (second * 10, &[][..])).collect();
        let all = [vec![(0, &[("a", 0.1)][..])], empty].concat();
        assert_eq!(lines(&board(&all)), [""; 0]);
    }

    #[test]
    fn order_follows_a_cost_only_when_it_is_another_one() {
        let close = board(&[(0, &[("a", 0.3), ("b", 0.29)]), (5, &[("a", 0.28), ("b", 0.31)])]);
        assert_eq!(lines(&close), ["a", "b"]);
        assert_eq!(close.get(1).unwrap().cost.time, 0.31, "what is shown is what was found");
        let far = board(&[(0, &[("a", 0.3), ("b", 0.29)]), (5, &[("a", 0.28), ("b", 0.6)])]);
        assert_eq!(lines(&far), ["b", "a"]);
    }

    #[test]
    fn time_that_goes_back_or_leaps_begins_anew() {
        for now in [Nanos(SECOND), Nanos(60 * SECOND)] {
            let mut board = board(&[(100, &[("a", 0.1)])]);
            board.update(now, vec![warning("b", 0.1)]);
            assert_eq!(lines(&board), ["b"]);
        }
    }

    #[test]
    fn there_are_never_more_than_can_be_kept() {
        let mut board = Board::default();
        board.update(Nanos(0), (0..10_000).map(|n| warning(&n.to_string(), 0.1)).collect());
        assert_eq!(board.entries().len(), MOST);
    }
}

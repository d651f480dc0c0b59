//! A board of findings that stays readable while they change: it merges equal ones and never flickers.

use std::collections::BTreeMap;

use super::{Cost, Evidence, Finding, Severity, UNKNOWN_PLACE};
use crate::{Nanos, ProcessRef};

/// How long a finding that is not serious must hold before it is shown.
const RISE: Nanos = Nanos(1_000_000_000);
/// How long a finding stays after it no longer holds.
const FADE: Nanos = Nanos(10_000_000_000);
/// If the board was not updated for this long, it starts afresh.
const LAPSE: Nanos = Nanos(5_000_000_000);
/// A finding moves only if its cost has changed by this factor.
const STEP: f64 = 1.5;
/// Limits the findings kept.
const MOST: usize = 256;

/// Findings with the same id and line are one entry, whatever their process. If the line is unknown, the process
/// distinguishes them.
pub type Key = (&'static str, Option<ProcessRef>, String);

#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The most serious of the merged findings, and of those the most costly.
    pub finding: Finding,
    /// How many others were merged into it.
    pub others: usize,
    /// The cost of all of them together.
    pub cost: Cost,
    /// When it was first found.
    pub since: Nanos,
    /// When it was last found.
    pub seen: Nanos,
    /// The weight that determined its place in the order.
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

    /// Updates a known entry.
    fn renew(&mut self, news: Self) {
        let (was, is) = (self.rank.max(f64::MIN_POSITIVE), news.rank);
        let moves = news.finding.severity != self.finding.severity || is > was * STEP || is * STEP < was;
        let rank = if moves { is } else { self.rank };
        *self = Self { since: self.since, is_shown: self.is_shown, rank, ..news };
    }

    /// Whether the last update still found it.
    pub fn is_current(&self, board: &Board) -> bool {
        self.seen == board.looked
    }
}

/// The most serious first; within a severity, the most costly first.
#[derive(Clone, Debug, Default)]
pub struct Board {
    entries: BTreeMap<Key, Entry>,
    order: Vec<Key>,
    looked: Nanos,
    has_looked: bool,
}

impl Board {
    /// Updates the board with the findings at a time. If time goes backwards or jumps ahead, the board starts afresh.
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
            // An entry that was never shown disappears at once.
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

    /// Updates a board at each of these tenths of a second.
    fn board(tenths: &[(u64, &[(&str, f64)])]) -> Board {
        let mut board = Board::default();
        for (at, found) in tenths {
            let found = found.iter().map(|(line, time)| warning(line, *time)).collect();
            board.update(Nanos(at * SECOND / 10), found);
        }
        board
    }

    #[test]
    fn findings_of_one_line_merge_across_processes_unless_the_line_is_unknown() {
        let of = |process, line: &str| Finding { process: Some(ProcessRef(process)), ..warning(line, 0.1) };
        let mut board = Board::default();
        let found = vec![of(0, "a:1"), of(1, "a:1"), of(1, "b:2"), of(0, UNKNOWN_PLACE), of(1, UNKNOWN_PLACE)];
        board.update(Nanos(0), found);
        let mut told: Vec<_> = board.entries().map(|entry| (entry.finding.summary.as_str(), entry.others)).collect();
        told.sort_unstable();
        assert_eq!(told, [("a:1", 1), (UNKNOWN_PLACE, 0), (UNKNOWN_PLACE, 0), ("b:2", 0)]);
    }

    #[test]
    fn merged_findings_add_up_their_costs() {
        let mut board = Board::default();
        board.update(Nanos(0), vec![warning("a", 0.1), warning("b", 0.2), warning("a", 0.15)]);
        let first = board.get(0).unwrap();
        assert_eq!((first.finding.summary.as_str(), first.others, first.finding.cost.time), ("a", 1, 0.15));
        assert_eq!((first.cost.time, lines(&board)), (0.25, vec!["a", "b"]));
    }

    #[test]
    fn serious_findings_come_first_whatever_they_cost() {
        let mut board = Board::default();
        board.update(Nanos(0), vec![warning("a", 3.0), finding("b", Severity::Serious, 0.0)]);
        assert_eq!(lines(&board), ["b", "a"]);
    }

    #[test]
    fn initial_findings_show_at_once_and_later_ones_after_a_second() {
        assert_eq!(lines(&board(&[(0, &[("a", 0.1)])])), ["a"]);
        assert_eq!(lines(&board(&[(0, &[]), (5, &[("a", 0.1)])])), [""; 0]);
        assert_eq!(lines(&board(&[(0, &[]), (5, &[("a", 0.1)]), (15, &[("a", 0.1)])])), ["a"]);
        // A finding that comes and goes is never shown.
        let hovering: &[(u64, &[(&str, f64)])] =
            &[(0, &[]), (5, &[("a", 0.1)]), (10, &[]), (15, &[("a", 0.1)]), (20, &[])];
        assert_eq!(lines(&board(hovering)), [""; 0]);
        let mut board = Board::default();
        board.update(Nanos(0), Vec::new());
        board.update(Nanos(1), vec![finding("a", Severity::Serious, 0.0)]);
        assert_eq!(lines(&board), ["a"]);
    }

    #[test]
    fn a_finding_fades_and_keeps_its_place_if_it_returns() {
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
    fn order_changes_only_when_a_cost_changes_much() {
        let close = board(&[(0, &[("a", 0.3), ("b", 0.29)]), (5, &[("a", 0.28), ("b", 0.31)])]);
        assert_eq!(lines(&close), ["a", "b"]);
        assert_eq!(close.get(1).unwrap().cost.time, 0.31, "what is shown is what was found");
        let far = board(&[(0, &[("a", 0.3), ("b", 0.29)]), (5, &[("a", 0.28), ("b", 0.6)])]);
        assert_eq!(lines(&far), ["b", "a"]);
    }

    #[test]
    fn time_that_goes_back_or_jumps_clears_the_board() {
        for now in [Nanos(SECOND), Nanos(60 * SECOND)] {
            let mut board = board(&[(100, &[("a", 0.1)])]);
            board.update(now, vec![warning("b", 0.1)]);
            assert_eq!(lines(&board), ["b"]);
        }
    }

    #[test]
    fn the_board_is_bounded() {
        let mut board = Board::default();
        board.update(Nanos(0), (0..10_000).map(|n| warning(&n.to_string(), 0.1)).collect());
        assert_eq!(board.entries().len(), MOST);
    }
}

//! Findings: the most important ones in full, the rest in a line each.

use pyobs_model::findings::{self, Board, Cost, Entry, Evidence, Finding};
use pyobs_model::number::{grouped, size};
use pyobs_model::{Family, Selection};

use super::{ReportText, share};
use crate::names;

/// The number of findings that get a paragraph. The others get one line.
const IN_FULL: usize = 3;

impl ReportText<'_> {
    pub(super) fn findings(&mut self) {
        let mut board = Board::default();
        board.update(self.model.now(), findings::find(self.model, &Selection::default()));
        if board.is_empty() {
            return self.nothing_found();
        }
        self.section("What matters first", "");
        for (entry, number) in board.entries().take(self.limit.min(IN_FULL)).zip(1..) {
            self.paragraph(number, entry);
        }
        if self.limit > IN_FULL && board.entries().len() > IN_FULL {
            self.section("Also found", "");
            for entry in board.entries().take(self.limit).skip(IN_FULL) {
                let finding = &entry.finding;
                let place = self.place(finding).filter(|place| !finding.summary.contains(place));
                let place = place.map(|place| format!(", at {place}")).unwrap_or_default();
                let alike = alike(entry).map(|alike| format!(" ({alike})")).unwrap_or_default();
                self.wrapped_at(4, "  ", &format!("{}{place}{alike}", self.headline(finding)));
            }
        }
        self.rest(board.entries().len());
    }

    fn nothing_found(&mut self) {
        let off = Family::ALL.into_iter().filter(|family| !self.model.is_on(*family)).map(Family::name);
        let off: Vec<_> = off.collect();
        let off = if off.is_empty() { String::new() } else { format!(" (not watched: {})", off.join(", ")) };
        self.line("");
        self.wrapped_at(0, "", &format!("Nothing of what was watched looks wrong{off}."));
    }

    fn paragraph(&mut self, number: usize, entry: &Entry) {
        let finding = &entry.finding;
        self.wrapped_at(5, &format!("  {number}. "), &self.headline(finding));
        for (label, text) in [
            ("Where", self.place_with_caller(finding)),
            ("Costs", costs(entry.cost)),
            ("Alike", alike(entry)),
            ("Seen", Some(finding.detail.clone())),
            ("Try", Some(finding.advice.clone())),
        ] {
            if let Some(text) = text {
                self.wrapped(&format!("     {:<7}", format!("{label}:")), &text);
            }
        }
    }

    fn headline(&self, finding: &Finding) -> String {
        let process = finding.process.and_then(|process| self.model.process(process));
        let process = process.map(|state| format!(", {}", names::process(&state.process))).unwrap_or_default();
        format!("{} {}{process}: {}", finding.severity.name(), finding.id, finding.summary)
    }

    /// The line to change, and the line of the program that led there if the first is a library's.
    fn place_with_caller(&self, finding: &Finding) -> Option<String> {
        let place = self.place(finding)?;
        let (caller, share) = match (finding.evidence.get("caller"), finding.evidence.get("caller_share")) {
            (Some(Evidence::Text(caller)), Some(Evidence::Number(part))) if caller != place => (caller, share(*part)),
            _ => return Some(place.to_owned()),
        };
        Some(format!("{place}, {share} of it from {caller}"))
    }

    /// The line to change, if it is known.
    fn place<'finding>(&self, finding: &'finding Finding) -> Option<&'finding str> {
        let unknown = findings::place(self.model, None);
        let evidence = ["holder_line", "line"].into_iter().find_map(|name| finding.evidence.get(name))?;
        match evidence {
            Evidence::Text(place) if *place != unknown => Some(place),
            _ => None,
        }
    }
}

fn costs(cost: Cost) -> Option<String> {
    if cost.time > 0.0 {
        Some(format!("{} of one thread's time", share(cost.time)))
    } else {
        (cost.bytes > 0).then(|| format!("{} of memory that is held, or sent, in vain", size(cost.bytes)))
    }
}

fn alike(entry: &Entry) -> Option<String> {
    (entry.others > 0).then(|| format!("and {} more like it", grouped(entry.others as u64)))
}

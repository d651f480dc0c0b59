//! How findings are drawn, on any screen.

use pyobs_model::findings::{Cost, Evidence, Finding, Severity};
use ratatui::style::Style;

use crate::jump::{Destination, Effect, Jump};
use crate::theme::Theme;
use crate::{number, text};

pub(super) fn severity(theme: Theme, severity: Severity) -> Style {
    match severity {
        Severity::Info => theme.text(),
        Severity::Warning | Severity::Serious => theme.warning(),
    }
}

pub(super) fn mark(theme: Theme, severity: Severity) -> (&'static str, Style) {
    match severity {
        Severity::Serious => ("!!", theme.warning()),
        Severity::Warning => ("! ", theme.warning()),
        Severity::Info => ("i ", theme.dim()),
    }
}

/// The advice, in lines of at most `width` cells. The first line has a label.
pub(super) fn advice(finding: &Finding, width: usize) -> impl ExactSizeIterator<Item = (&'static str, String)> {
    let lines = text::wrap(&finding.advice, width).into_iter().enumerate();
    lines.map(|(at, line)| (if at == 0 { "try" } else { "" }, line))
}

/// A jump to the evidence of a finding.
pub(super) fn evidence(finding: &Finding) -> Effect {
    let jump = |target| Jump { process: finding.process, destination: Destination::Row(target), why: finding.id };
    finding.target.map_or(Effect::Nothing, |target| Effect::Jump(jump(target)))
}

/// The cost in at most nine characters: a share of a thread's time, or memory.
pub(super) fn cost(cost: Cost) -> String {
    if cost.time > 0.0 {
        format!("{} %", number::percent(cost.time * 100.0))
    } else if cost.bytes > 0 {
        number::size(cost.bytes)
    } else {
        "–".to_owned()
    }
}

/// A finding's summary. If it is too long, shortens the paths in it, or else leaves out the functions.
pub(super) fn summary(finding: &Finding, width: usize) -> String {
    let whole = &finding.summary;
    if text::width(whole, width + 1) <= width {
        return whole.clone();
    }
    let (mut shorter, mut shortest) = (whole.clone(), whole.clone());
    for place in ["line", "caller"].into_iter().filter_map(|name| finding.evidence.get(name)) {
        let Evidence::Text(place) = place else { continue };
        let parts = place.strip_suffix(')').and_then(|place| place.split_once(" ("));
        let Some((function, path)) = parts else { continue };
        let end = text::base_name(path);
        shorter = shorter.replacen(place, &format!("{function} ({end})"), 1);
        shortest = shortest.replacen(place, end, 1);
    }
    if text::width(&shorter, width + 1) <= width { shorter } else { shortest }
}

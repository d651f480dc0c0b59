//! The table of kernels and families, for a terminal.

use std::fmt::Write;

use super::checks;
use super::results::{Outcome, Status};

/// The check for whether a family could be recorded at all.
const RECORD: &str = "record";

pub(super) fn shown(outcomes: &[Outcome]) -> String {
    let mut text = format!("{:8}", "kernel");
    for family in checks::ALL {
        let _ = write!(text, " {family:10}");
    }
    text.push('\n');
    for outcome in outcomes {
        let _ = write!(text, "{:8}", outcome.kernel);
        for family in checks::ALL {
            let _ = write!(text, " {:10}", word(outcome, family));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    for outcome in outcomes {
        for reason in reasons(outcome) {
            let _ = writeln!(text, "{}: {reason}", outcome.kernel);
        }
    }
    text
}

/// A family only loads if it was recorded but differs from what its program knows.
pub(crate) fn word(outcome: &Outcome, family: &str) -> &'static str {
    let (status, wrong) = outcome.status(family);
    match status {
        Status::Skipped => "-",
        Status::Works => "works",
        Status::Refused => "refused",
        Status::Failed if wrong.iter().all(|check| check.check != RECORD) => "loads only",
        Status::Failed => "FAILED",
    }
}

/// Each reason once, with its families.
pub(crate) fn reasons(outcome: &Outcome) -> Vec<String> {
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for family in checks::ALL {
        for check in outcome.status(family).1 {
            let refused = check.status == Status::Refused;
            let reason = if refused { check.detail.clone() } else { format!("{}: {}", check.check, check.detail) };
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, families)) => families.push(family),
                None => reasons.push((reason, vec![family])),
            }
        }
    }
    let of_kernel = [&outcome.skipped, &outcome.broken].into_iter().flatten().cloned();
    of_kernel
        .chain(reasons.into_iter().map(|(reason, families)| format!("{}: {reason}", families.join(", "))))
        .collect()
}

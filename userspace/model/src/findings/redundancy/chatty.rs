//! Lines of the program that call a library of arrays in a loop, each time for little work.

use super::{At, severity};
use crate::findings::advice::{self, About};
use crate::findings::{Cost, Evidence, Finding};
use crate::number::{grouped, size, time};
use crate::views::{Chatty, LibraryFunction};

/// `share` of the process's CPU time is spent in the library.
pub(super) fn finding(at: &At<'_>, chatty: &Chatty, share: f64) -> Option<Finding> {
    let Chatty { library, callback, overhead, turns, turn, bytes } = chatty;
    let callee = library.callee()?;
    let LibraryFunction { package, name } = callee;
    let per_second = chatty.per_second(share);
    let rate = round(per_second);
    let turn_text = time(*turn);
    let data = bytes.map_or_else(String::new, |bytes| format!(", for {} of data", size(bytes)));
    let (loops, calling) = match callback {
        Some(callback) => (
            format!("It calls {callback} in a loop, a turn of which takes {turn_text}"),
            format!(", which calls {callback} about {rate} times a second, for at most {turn_text} each"),
        ),
        None => (
            format!("A turn of the loop takes {turn_text}"),
            format!(": about {rate} calls a second of at most {turn_text} each{data}"),
        ),
    };
    let detail = format!(
        "{} samples ({:.0}% of the process) were in {package} below this line, mostly in {name}, and {:.0}% of them in the \
         interpreter or in native code that accessed only objects. {loops} ({turns} turns were timed): the time goes into \
         calls, not into data.",
        library.samples,
        share * 100.0,
        overhead * 100.0,
    );
    let summary = format!("{} spends {:.0}% of the run in {name} of {package}{calling}", at.name(), share * 100.0);
    let callback = callback.as_ref().map(|name| ("called_back", Evidence::Text(name.to_string())));
    let evidence = [
        ("package", Evidence::Text(package.to_string())),
        ("callee", Evidence::Text(name.to_string())),
        ("samples", Evidence::Count(library.samples)),
        ("share", Evidence::Number(share)),
        ("overhead_share", Evidence::Number(*overhead)),
        ("turns", Evidence::Count(*turns)),
        ("turn_s", Evidence::Number(turn.as_secs_f64())),
        ("calls_per_s", Evidence::Number(per_second)),
    ];
    let words = (summary, detail, advice::about(About::Chatty, Some(&**package), name));
    let bytes = bytes.map(|bytes| ("result_bytes", Evidence::Count(bytes)));
    let evidence = evidence.into_iter().chain(callback).chain(bytes);
    Some(at.finding("redundancy/chatty", severity(share), words, evidence, Cost::time(share * overhead)))
}

/// Two digits of a rate, which is not known better.
fn round(rate: f64) -> String {
    let unit = 10_f64.powf((rate.max(1.0).log10().floor() - 1.0).max(0.0));
    grouped(((rate / unit).round() * unit) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_two_digits() {
        assert_eq!([31_234.0, 987.0, 4.2].map(round), ["31,000", "990", "4"]);
    }
}

//! Lines of the program that call a library of arrays in a loop, each time for little work.

use super::{At, severity};
use crate::findings::{Cost, Evidence, Finding};
use crate::number::{grouped, time};
use crate::views::{Chatty, LibraryFunction};

/// What to do instead of calling a function in a loop: its package, its name, or any, and the advice.
const ADVICE: [(&str, Option<&str>, &str); 9] = [
    ("numpy", None, "Call it once for the whole array."),
    (
        "pandas",
        Some("iterrows"),
        "Work on whole columns. Where each row is needed, itertuples() is faster: it makes no Series of a row.",
    ),
    ("pandas", Some("itertuples"), "Work on whole columns, or loop over to_numpy() of those that are needed."),
    ("pandas", Some("concat"), "Collect the parts in a list, and call concat once."),
    (
        "pandas",
        None,
        "Work on whole columns. In a loop that has to stay, take to_numpy() of a column before it, and use .at for single elements.",
    ),
    (
        "scipy",
        Some("__getitem__"),
        "Take whole rows or blocks of a sparse matrix, or loop over the row, col and data of its COO form.",
    ),
    (
        "scipy",
        Some("__setitem__"),
        "Collect rows, columns and values in lists, and make the sparse matrix of them once, in COO form.",
    ),
    ("sklearn", None, "Pass all samples in one call: predict and transform take a matrix with one row for each."),
    ("torch", None, "Work on whole tensors; item() and tolist() once for all elements."),
];
const ANY: &str = "Call it once for a whole array or column.";

/// `share` of the process's CPU time is spent in the library.
pub(super) fn finding(at: &At<'_>, chatty: &Chatty, share: f64) -> Option<Finding> {
    let Chatty { library, overhead, turns, turn } = chatty;
    let callee = library.callee()?;
    let LibraryFunction { package, name } = callee;
    let per_second = round(1.0 / turn.as_secs_f64().max(1e-9));
    let turn_text = time(*turn);
    let detail = format!(
        "{} samples ({:.0}% of the process) were in {package} below this line, mostly in {name}, and {:.0}% of them in the \
         interpreter or in native code that accessed only objects. A turn of the loop takes {turn_text} ({turns} turns were \
         timed): the time goes into calls, not into data.",
        library.samples,
        share * 100.0,
        overhead * 100.0,
    );
    let summary = format!(
        "{} spends {:.0}% of the run in {name} of {package}: about {per_second} calls a second of at most {turn_text} each",
        at.name(),
        share * 100.0
    );
    let evidence = [
        ("package", Evidence::Text(package.to_string())),
        ("callee", Evidence::Text(name.to_string())),
        ("samples", Evidence::Count(library.samples)),
        ("share", Evidence::Number(share)),
        ("overhead_share", Evidence::Number(*overhead)),
        ("turns", Evidence::Count(*turns)),
        ("turn_s", Evidence::Number(turn.as_secs_f64())),
    ];
    let words = (summary, detail, advice(callee));
    Some(at.finding("redundancy/chatty", severity(share), words, evidence, Cost::time(share * overhead)))
}

fn advice(callee: &LibraryFunction) -> &'static str {
    let name = callee.name.rsplit('.').next().unwrap_or_default();
    let fits = |of: &&(&str, Option<&str>, &str)| of.0 == &*callee.package && of.1.is_none_or(|of| of == name);
    ADVICE.iter().find(fits).map_or(ANY, |(_, _, advice)| advice)
}

/// Two digits of a rate, which is not known better.
fn round(rate: f64) -> String {
    let unit = 10_f64.powf((rate.max(1.0).log10().floor() - 1.0).max(0.0));
    grouped(((rate / unit).round() * unit) as u64)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn advice_is_that_of_the_function_or_of_its_package() {
        let of = |package, name| advice(&LibraryFunction { package: Arc::from(package), name: Arc::from(name) });
        assert!(of("pandas", "DataFrame.iterrows").contains("itertuples"));
        assert!(of("pandas", "_LocationIndexer.__getitem__").contains(".at"));
        assert!(of("scipy", "IndexMixin.__getitem__").contains("COO"));
        assert_eq!(of("xarray", "DataArray.item"), ANY);
    }

    #[test]
    fn a_rate_has_two_digits() {
        assert_eq!([31_234.0, 987.0, 4.2].map(round), ["31,000", "990", "4"]);
    }
}

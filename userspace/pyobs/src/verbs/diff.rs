//! `pyobs diff`: compares two recordings, in words, as JSON or as a flame graph.

use pyobs_export::{Options, diff};
use pyobs_model::History;
use pyobs_model::views::Weight;

use super::export::put;
use super::{in_memory, load};
use crate::cli::Diff;
use crate::exit::Failure;

const DEFAULT_ROWS: usize = 20;

pub(super) fn run(arguments: &Diff) -> Result<(), Failure> {
    let history = history(arguments);
    let (before, after) = (load(&arguments.before, |_| history)?, load(&arguments.after, |_| history)?);
    let text = in_memory(|out| {
        if arguments.format.is_some() {
            let (weight, native) = (arguments.weight.unwrap_or_default(), arguments.native.unwrap_or_default());
            let options = Options { weight, native, ..Options::default() };
            diff::picture(&before, &after, &options, out)
        } else if arguments.json {
            diff::json(&before, &after, out)
        } else {
            diff::words(&before, &after, arguments.limit.unwrap_or(DEFAULT_ROWS), out)
        }
    })?;
    put(&text, arguments.output.as_deref(), &[&arguments.before, &arguments.after])
}

/// A picture of redundant work looks at each access.
fn history(arguments: &Diff) -> History {
    let is_redundant = arguments.format.is_some() && arguments.weight == Some(Weight::Redundant);
    if is_redundant { History::All } else { History::Sums }
}

//! `pyobs diff`: compares two recordings, in words, as JSON or as a flame graph.

use pyobs_export::{Options, diff};
use pyobs_model::{History, Selection};

use super::export::put;
use super::{in_memory, load_at};
use crate::cli::Diff;
use crate::exit::Failure;

const DEFAULT_ROWS: usize = 20;

pub(super) fn run(arguments: &Diff) -> Result<(), Failure> {
    let load = |file| load_at(file, History::REPORT, arguments.memory);
    let (before, after) = (load(&arguments.before)?, load(&arguments.after)?);
    let selection = Selection { memory: arguments.memory.moment(), ..Selection::default() };
    let text = in_memory(|out| {
        if arguments.format.is_some() {
            let (weight, native) = (arguments.weight.unwrap_or_default(), arguments.native.unwrap_or_default());
            let options = Options { weight, native, selection, ..Options::default() };
            diff::picture(&before, &after, &options, out)
        } else if arguments.json {
            diff::json(&before, &after, out)
        } else {
            diff::words(&before, &after, arguments.limit.unwrap_or(DEFAULT_ROWS), out)
        }
    })?;
    put(&text, arguments.output.as_deref(), &[&arguments.before, &arguments.after])
}

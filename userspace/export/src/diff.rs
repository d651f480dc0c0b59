//! `pyobs diff`: what changed between two recordings, as text, JSON and a flame graph.

mod words;

use std::io::Write;

use inferno::differential;
use inferno::flamegraph;
use pyobs_model::Model;
use pyobs_model::diff::Diff;

use crate::folded::FoldedStacks;
use crate::names::{empty_selection, metadata};
use crate::{Error, Options, json, svg};

pub use self::words::words;

pub fn json(before: &Model, after: &Model, out: &mut dyn Write) -> Result<(), Error> {
    json::put(&Diff::new(before, after), out)
}

/// Widths are those of `after`. Frames whose own share grew are red, those whose own share shrank are blue. Processes of a
/// program merge, because pids differ between recordings.
pub fn picture(before: &Model, after: &Model, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    for model in [before, after] {
        if !options.weight.is_known(model) {
            return Err(Error::NoData(options.weight));
        }
    }
    let (folded_before, folded_after) = (folded(before, options)?, folded(after, options)?);
    if folded_before.is_empty() || folded_after.is_empty() {
        return svg::write_message(empty_selection(options.weight), out);
    }
    let mut both = Vec::new();
    let of_both = differential::Options { normalize: true, ..differential::Options::default() };
    differential::from_readers(of_both, folded_before.as_slice(), folded_after.as_slice(), &mut both)?;
    let both = String::from_utf8_lossy(&both);
    // inferno emits them in the order of a hash map.
    let mut lines: Vec<&str> = both.lines().collect();
    lines.sort_unstable();
    let side = |model: &Model| format!("{} {}", metadata(&model.meta().host), metadata(&model.meta().started));
    let title = format!("What changed ({})", options.weight);
    let subtitle = format!("{} → {} · red: itself more than before, blue: less", side(before), side(after));
    flamegraph::from_lines(&mut svg::flame_options(title, subtitle, options.weight), lines, out)?;
    Ok(())
}

fn folded(model: &Model, options: &Options) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    FoldedStacks::of_programs(model, options).lines(0, |stack, count| writeln!(text, "{stack} {count}"))?;
    Ok(text)
}

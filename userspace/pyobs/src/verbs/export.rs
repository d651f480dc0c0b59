//! `pyobs export`: writes a recording in the format of another tool.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use pyobs_export::{Format, Options};
use pyobs_model::views::Weight;
use pyobs_model::{Family, History, Meta, Model, Nanos, Pid, Selection, Tid};

use super::{in_memory, load};
use crate::cli::Export;
use crate::exit::{Failure, output};

pub(super) fn run(arguments: &Export) -> Result<(), Failure> {
    let model = load(&arguments.file, |meta| history(arguments, meta))?;
    let options = options(arguments, &model)?;
    let format = arguments.format;
    if format.is_binary() && arguments.output.is_none() && io::stdout().is_terminal() {
        return Err(Failure::Usage(format!("{format} is not text for a terminal; give it a file with -o OUT")));
    }
    let text = in_memory(|out| pyobs_export::export(&model, format, &options, out))?;
    put(&text, arguments.output.as_deref(), &[&arguments.file])
}

/// Writes to `file`, which must not be one of `sources`, or to standard output.
pub(super) fn put(text: &[u8], file: Option<&Path>, sources: &[&Path]) -> Result<(), Failure> {
    let Some(path) = file else { return output(io::stdout().lock().write_all(text)) };
    if sources.iter().any(|source| is_same(path, source)) {
        return Err(Failure::Usage(format!("{} is the recording itself; give another place with -o", path.display())));
    }
    fs::write(path, text).map_err(|error| {
        Failure::Failed(format!("{} cannot be written: {error}; give another place with -o", path.display()))
    })
}

fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

fn options(arguments: &Export, model: &Model) -> Result<Options, Failure> {
    let selection = selection(arguments, model)?;
    Ok(Options {
        selection,
        weight: arguments.weight,
        lines: arguments.lines,
        native: arguments.native,
        ..Options::default()
    })
}

/// What shows events one by one, or of some time only, needs all of them. Else sums do.
fn history(arguments: &Export, meta: &Meta) -> History {
    let is_summed = match arguments.format {
        Format::Folded | Format::Svg => arguments.weight != Weight::Redundant,
        // It has every weight, and accesses count one by one.
        Format::Pprof => !meta.probes.iter().any(|probe| probe == Family::Redundancy.name()),
        Format::Json => true,
        // All events are enough for any format.
        _ => false,
    };
    let is_timed = arguments.from.is_some() || arguments.to.is_some();
    if is_summed && !is_timed { History::Sums } else { History::All }
}

fn selection(arguments: &Export, model: &Model) -> Result<Selection, Failure> {
    let processes = match arguments.pid {
        None => None,
        Some(pid) => {
            let found: BTreeSet<_> =
                model.processes().filter(|(_, state)| state.process.pid == Pid(pid)).map(|(id, _)| id).collect();
            if found.is_empty() {
                let file = arguments.file.display();
                return Err(Failure::Failed(format!(
                    "there is no process {pid} in {file}; `pyobs report {file}` lists those that there are"
                )));
            }
            Some(found)
        }
    };
    Ok(Selection {
        processes,
        tid: arguments.tid.map(Tid),
        from: arguments.from.map(Nanos::from_secs_f64),
        to: arguments.to.map(Nanos::from_secs_f64),
        is_moving: false,
    })
}

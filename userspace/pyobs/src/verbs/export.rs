//! `pyobs export`: writes a recording in the format of another tool.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use pyobs_export::Options;
use pyobs_model::{EVENTS_KEPT, EVENTS_SHOWN, History, Model, Nanos, Pid, Selection, Tid};

use super::{in_memory, load_at};
use crate::cli::Export;
use crate::exit::{self, Failure, output};

pub(super) fn run(arguments: &Export) -> Result<(), Failure> {
    let model = load_at(&arguments.file, history(arguments), arguments.memory)?;
    let options = options(arguments, &model)?;
    let format = arguments.format;
    if format.is_binary() && arguments.output.is_none() && io::stdout().is_terminal() {
        return Err(Failure::Usage(format!("{format} is not text for a terminal; give it a file with -o OUT")));
    }
    let text = in_memory(|out| pyobs_export::export(&model, format, &options, out))?;
    put(&text, arguments.output.as_deref(), &[&arguments.file])?;
    if let Some(sentence) = pyobs_export::left_out(&model, format, &options) {
        exit::say(&sentence);
    }
    Ok(())
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

/// Sums of the selected time, and as many single events as the format needs.
fn history(arguments: &Export) -> History {
    let events = if arguments.format.shows_events() { EVENTS_SHOWN } else { EVENTS_KEPT };
    let [from, to] = [arguments.from, arguments.to].map(|at| at.map(Nanos::from_secs_f64));
    History::Sums { events, from, to }
}

fn selection(arguments: &Export, model: &Model) -> Result<Selection, Failure> {
    let processes = match arguments.pid {
        None => None,
        Some(pid) => {
            let found: BTreeSet<_> =
                model.processes().filter(|(_, state)| state.process.pid == Pid(pid)).map(|(id, _)| id).collect();
            if found.is_empty() {
                let file = arguments.file.display();
                let others = model.summed().get("processes").copied().unwrap_or(0);
                let but = if others == 0 { String::new() } else { format!(" besides {others} that are only in sums") };
                return Err(Failure::Failed(format!(
                    "{file} has no process {pid}{but}; `pyobs report {file}` lists its processes"
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
        memory: arguments.memory.moment(),
    })
}

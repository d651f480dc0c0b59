use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use pyobs_export::Options;
use pyobs_model::{Model, Nanos, Pid, Selection, Tid};

use super::{in_memory, load};
use crate::cli::{Export, Format};
use crate::exit::{Failure, output};

pub(super) fn run(arguments: &Export) -> Result<(), Failure> {
    let model = load(&arguments.file)?;
    let options = options(arguments, &model)?;
    let format = match arguments.format {
        Format::Folded => pyobs_export::Format::Folded,
        Format::Svg => pyobs_export::Format::Svg,
        Format::Speedscope => pyobs_export::Format::Speedscope,
        Format::Perfetto => pyobs_export::Format::Perfetto,
        Format::Json => pyobs_export::Format::Json,
    };
    let text = in_memory(|out| pyobs_export::export(&model, format, &options, out))?;
    match &arguments.output {
        None => output(io::stdout().lock().write_all(&text)),
        Some(path) if is_same(path, &arguments.file) => {
            Err(Failure::Usage(format!("{} is the recording itself; give another place with -o", path.display())))
        }
        Some(path) => fs::write(path, text).map_err(|error| {
            Failure::Failed(format!("{} cannot be written: {error}; give another place with -o", path.display()))
        }),
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

fn options(arguments: &Export, model: &Model) -> Result<Options, Failure> {
    let selection = selection(arguments, model)?;
    Ok(Options { selection, weight: arguments.weight, lines: arguments.lines, ..Options::default() })
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
    })
}

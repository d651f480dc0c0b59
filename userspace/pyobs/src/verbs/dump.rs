//! `pyobs dump`: prints what every thread does right now, in words or as JSON.

use std::io::{self, BufWriter, Write};

use pyobs_capture::dump;
use pyobs_capture::privileges::{self, Keep};
use pyobs_export::escape;

use super::drop_privileges;
use crate::cli::Dump;
use crate::exit::{Failure, output};

pub(super) fn run(arguments: &Dump) -> Result<(), Failure> {
    // On a busy machine, what was read first would be out of date before the rest is read.
    privileges::go_first();
    // Needs rights that are dropped next.
    let iterator = dump::TaskIterator::load();
    drop_privileges(Keep::Reading)?;
    let options = dump::Options {
        pids: arguments.pids.clone(),
        containers: arguments.containers.clone(),
        tasks: arguments.tasks,
        native: arguments.native,
    };
    let dump = dump::take(&options, iterator).map_err(|error| match error {
        dump::DumpError::NoRights(..) => Failure::Lacking(error.to_string()),
        _ => Failure::failed(error),
    })?;
    let text = if arguments.json {
        let text = serde_json::to_string_pretty(&dump).map_err(Failure::failed)?;
        format!("{}\n", escape::json(&text))
    } else {
        pyobs_export::dump::text(&dump)
    };
    let mut out = BufWriter::new(io::stdout().lock());
    output(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

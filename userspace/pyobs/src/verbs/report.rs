//! `pyobs report`: prints what happened in a recording, in words or as JSON.

use std::io::{self, BufWriter, Write};

use pyobs_export::{Error, Format, Options};
use pyobs_model::{History, Selection};

use super::load_at;
use crate::cli::Report;
use crate::exit::{Failure, output};

const DEFAULT_ROWS: usize = 20;

pub(super) fn run(arguments: &Report) -> Result<(), Failure> {
    let model = load_at(&arguments.file, History::REPORT, arguments.memory)?;
    let selection = Selection { memory: arguments.memory.moment(), ..Selection::default() };
    // Written directly, because the report of a long recording may not fit in memory.
    let mut out = BufWriter::new(io::stdout().lock());
    let written = if arguments.json {
        let options = Options { limit: arguments.limit, selection, ..Options::default() };
        pyobs_export::export(&model, Format::Json, &options, &mut out)
    } else {
        pyobs_export::words(&model, selection, arguments.limit.unwrap_or(DEFAULT_ROWS), &mut out)
    };
    match written {
        Ok(()) => output(out.flush()),
        Err(Error::Write(error)) => output(Err(error)),
        Err(error) => Err(Failure::failed(error)),
    }
}

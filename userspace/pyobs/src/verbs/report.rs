use std::io::{self, Write};

use pyobs_export::{Format, Options};

use super::{in_memory, load};
use crate::cli::Report;
use crate::exit::{Failure, output};

const DEFAULT_ROWS: usize = 20;

pub(super) fn run(arguments: &Report) -> Result<(), Failure> {
    let model = load(&arguments.file)?;
    let text = in_memory(|out| {
        if arguments.json {
            let options = Options { limit: arguments.limit, ..Options::default() };
            pyobs_export::export(&model, Format::Json, &options, out)
        } else {
            pyobs_export::words(&model, arguments.limit.unwrap_or(DEFAULT_ROWS), out)
        }
    })?;
    output(io::stdout().lock().write_all(&text))
}

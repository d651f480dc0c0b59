//! The JSON of `pyobs report --json` and `pyobs diff --json`.

use std::io::{self, Write};

use pyobs_model::Model;
use pyobs_model::report::Report;
use serde::Serialize;

use crate::{Error, Options, escape};

pub(crate) fn write(model: &Model, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    put(&Report::new(model, &options.selection, options.limit), out)
}

/// Streams the document, because it may be large. It is indented for people and safe to show in a terminal.
pub(crate) fn put(value: &impl Serialize, out: &mut dyn Write) -> Result<(), Error> {
    serde_json::to_writer_pretty(Escaped(out), value)?;
    Ok(out.write_all(b"\n")?)
}

/// Escapes each piece by itself: serde_json never splits a character between writes.
struct Escaped<'out>(&'out mut dyn Write);

impl Write for Escaped<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = str::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        self.0.write_all(escape::json(text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

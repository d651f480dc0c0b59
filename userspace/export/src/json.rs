//! What `report --json` prints.

use std::io::Write;

use pyobs_model::Model;
use pyobs_model::report::Report;

use crate::{Error, Options, escape};

pub(crate) fn write(model: &Model, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let report = Report::new(model, &options.selection, options.limit);
    let text = serde_json::to_string_pretty(&report)?;
    out.write_all(escape::json(&text).as_bytes())?;
    Ok(out.write_all(b"\n")?)
}

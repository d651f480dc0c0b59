use std::io;

use clap::CommandFactory;

use crate::cli::{Cli, Completions};
use crate::exit::{Failure, output};

pub(super) fn run(arguments: &Completions) -> Result<(), Failure> {
    // Into memory first: clap_complete panics when the output is closed.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "pyobs", &mut script);
    output(io::Write::write_all(&mut io::stdout().lock(), &script))
}

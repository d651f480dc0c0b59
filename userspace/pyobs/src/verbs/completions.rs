//! `pyobs completions`: prints completions for a shell.

use std::io;

use clap::CommandFactory;

use crate::cli::{Cli, Completions};
use crate::exit::{Failure, output};

pub(super) fn run(arguments: &Completions) -> Result<(), Failure> {
    // Written to memory first, because clap_complete panics if the output is closed.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "pyobs", &mut script);
    output(io::Write::write_all(&mut io::stdout().lock(), &script))
}

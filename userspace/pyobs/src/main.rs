//! The command `pyobs`: parses arguments, wires the crates together, and returns an exit code.

mod advice;
mod cli;
mod exit;
mod logger;
mod names;
mod ownership;
mod probes;
mod progress;
mod saver;
mod signals;
mod verbs;

use std::process::ExitCode;

fn main() -> ExitCode {
    pyobs_capture::launch::run_if_launcher();
    exit::say_panics_in_one_sentence();
    exit::code(cli::parse(std::env::args_os()).and_then(|verb| {
        logger::install(verb.as_ref());
        verbs::run(verb)
    }))
}

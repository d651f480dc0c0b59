//! Everything a developer or a newcomer runs; `cargo xtask` lists the verbs.

mod bench;
mod build;
mod debian;
mod demo;
mod errors;
mod fuzz;
mod install;
mod interpreters;
mod kernels;
mod linker;
mod offsets;
mod opcodes;
mod process;
mod pythons;
mod readers;
mod repo;
mod root;
mod setup;
mod soak;
mod test;
mod toolchain;
mod top;
mod venvs;

use std::process::ExitCode;

use anyhow::Result;

const HELP: &str = "\
cargo xtask VERB [ARG]...

  top [ARG]...              set everything up, build, and run `pyobs top` (through sudo when not root)
  demo [ARG]...             the same beside a Python pipeline with planted faults
  test [--all] [FILTER]...  the whole test suite on every CPython found; --all adds the slow matrices
  build                     leave the release binary in target/release/pyobs
  install [--prefix DIR]    put pyobs, its man page and its shell completions where sudo and the shells find them
                            (default: /usr/local)
  kernels [VERSION]...      boot Debian's kernels under QEMU and check every family of probes in each; all without VERSION
  fuzz [TARGET] [SECONDS]   look for inputs that break the decoders of foreign bytes, ten minutes each without SECONDS; inputs
                            found are kept as tests in tests/fuzz/corpus
  bench [NAME]...           measure speed, memory and accuracy, and write docs/BENCHMARKS.md; without NAME the short ones,
                            half an hour in all
  soak [MINUTES] [CYCLES]   see whether pyobs grows in an hour on a busy machine, what is left when it is killed at random
                            moments, and whether programs survive a thousand attachments; only that with 0 MINUTES
  offsets [ARG]...          generate CPython's structure offsets from the debug information of interpreters
  opcodes                   generate the numbers of CPython's instructions from the interpreters at hand
  pythons [--all]           find every CPython, equip it for the tests, and list it in target/pythons.json
  setup                     only the set-up: rust-src, a bpf-linker that fits rustc, and QEMU for `kernels`
  help                      this list
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => errors::report(&error),
    }
}

fn run(args: &[String]) -> Result<()> {
    let (verb, rest) = match args.split_first() {
        Some((verb, rest)) => (verb.as_str(), rest),
        None => ("help", [].as_slice()),
    };
    match verb {
        "top" => top::run(rest),
        "demo" => demo::run(rest),
        "test" => test::run(rest),
        "build" => build::run(rest),
        "install" => install::run(rest),
        "kernels" => kernels::run(rest),
        "fuzz" => fuzz::run(rest),
        "bench" => bench::run(rest),
        "soak" => soak::run(rest),
        "offsets" => offsets::run(rest),
        "opcodes" => opcodes::run(rest),
        "pythons" => interpreters::run(rest),
        "setup" => setup::run(rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        unknown => errors::usage(format!("there is no verb {unknown:?}; `cargo xtask help` lists them")),
    }
}

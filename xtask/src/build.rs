//! `cargo xtask build`: runs the set-up, then builds the release binary.

use anyhow::Result;

use crate::{
    errors::usage,
    process::{cargo, run as run_command},
    setup,
    toolchain::STATIC,
};

pub(crate) fn run(args: &[String]) -> Result<()> {
    if let Some(argument) = args.first() {
        return usage(format!("`cargo xtask build` takes no argument, got {argument:?}"));
    }
    release()
}

/// Builds a fresh, static `target/release/pyobs`.
pub(crate) fn release() -> Result<()> {
    setup::ensure()?;
    run_command(cargo().args(["rustc", "--release", "--package", "pyobs", "--bin", "pyobs", "--"]).args(STATIC))
}

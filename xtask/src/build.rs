//! `cargo xtask build`: the set-up, then the release binary.

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

/// Leaves a fresh, static `target/release/pyobs`.
pub(crate) fn release() -> Result<()> {
    setup::ensure()?;
    run_command(cargo().args(["rustc", "--release", "--package", "pyobs", "--bin", "pyobs", "--"]).args(STATIC))
}

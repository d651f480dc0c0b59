//! `cargo xtask build`: the set-up, then the release binary.

use anyhow::Result;

use crate::{
    errors::usage,
    process::{cargo, run as run_command},
    setup,
};

pub(crate) fn run(args: &[String]) -> Result<()> {
    if let Some(argument) = args.first() {
        return usage(format!("`cargo xtask build` takes no argument, got {argument:?}"));
    }
    release()
}

/// The C library becomes part of the binary, which then needs no file beside it and no version of glibc. As an option of the
/// last crate alone, unlike in `RUSTFLAGS`: the crates below it are the same for a static and for a dynamic program, and are
/// compiled once for both.
pub(crate) const STATIC: [&str; 2] = ["-C", "target-feature=+crt-static"];

/// Leaves a fresh, static `target/release/pyobs`.
pub(crate) fn release() -> Result<()> {
    setup::ensure()?;
    run_command(cargo().args(["rustc", "--release", "--package", "pyobs", "--bin", "pyobs", "--"]).args(STATIC))
}

//! The Rust toolchain that builds pyobs.

use std::{path::PathBuf, process::Command};

use anyhow::Result;

use crate::{errors::lacking, process::output};

/// Makes the C library part of the binary, which then needs no other file and no particular glibc. Unlike in
/// `RUSTFLAGS`, this option applies to the last crate only: the crates below it are the same for static and dynamic
/// programs, and are compiled once for both.
pub(crate) const STATIC: [&str; 2] = ["-C", "target-feature=+crt-static"];

/// The rustc that cargo uses.
pub(crate) struct Toolchain {
    /// The output of `rustc -vV`, which identifies it.
    pub(crate) version: String,
    pub(crate) sysroot: PathBuf,
    pub(crate) llvm_major: u32,
}

impl Toolchain {
    pub(crate) fn ask(version: String) -> Result<Self> {
        let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?.trim().into();
        let llvm_major = version
            .lines()
            .find_map(|line| line.strip_prefix("LLVM version: "))
            .and_then(|llvm| llvm.split('.').next()?.parse().ok())
            .ok_or_else(|| lacking("this rustc does not say which LLVM it holds; install Rust with rustup"))?;
        Ok(Self { version, sysroot, llvm_major })
    }
}

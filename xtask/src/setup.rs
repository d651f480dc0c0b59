//! Prepares the toolchain on a machine with only rustup's Rust and a C compiler, for BPF builds and static links.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, anyhow};

use crate::{
    errors::{lacking, usage},
    kernels::programs,
    linker,
    process::{find, output, progress, run as run_command},
    repo,
    toolchain::{STATIC, Toolchain},
};

pub(crate) fn run(args: &[String]) -> Result<()> {
    if let Some(argument) = args.first() {
        return usage(format!("`cargo xtask setup` takes no argument, got {argument:?}"));
    }
    ensure()?;
    progress("the toolchain is complete");
    match programs::ensure() {
        Ok(()) => progress("what `cargo xtask kernels` needs is here"),
        Err(error) => progress(format!("`cargo xtask kernels` cannot run: {error:#}")),
    }
    Ok(())
}

/// Sets up what is missing. Does next to nothing while the last run's stamp is valid.
pub(crate) fn ensure() -> Result<()> {
    require_platform()?;
    let version = output(Command::new("rustc").arg("-vV"))
        .map_err(|error| lacking(format!("{error:#}; install Rust with rustup")))?;
    let stamp = repo::tools().join("setup.stamp");
    if stamp_holds(&stamp, &version) {
        return Ok(());
    }
    let toolchain = Toolchain::ask(version)?;
    ensure_rust_src(&toolchain)?;
    let trial = ensure_static_link()?;
    let linker = linker::ensure(&toolchain)?;
    write_stamp(&stamp, &toolchain, &[rust_src(&toolchain.sysroot), linker, trial])
}

fn require_platform() -> Result<()> {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    if (os, arch) == ("linux", "x86_64") {
        return Ok(());
    }
    Err(lacking(format!("pyobs runs on Linux on x86-64, and this is {os} on {arch}; run it on another machine")))
}

fn rust_src(sysroot: &Path) -> PathBuf {
    sysroot.join("lib/rustlib/src/rust/library/Cargo.lock")
}

fn ensure_rust_src(toolchain: &Toolchain) -> Result<()> {
    let source = rust_src(&toolchain.sysroot);
    if source.exists() {
        return Ok(());
    }
    if find("rustup").is_none() {
        return Err(lacking(format!(
            "the standard library's source is missing at {} and there is no rustup to add it; \
             install Rust with rustup, or your distribution's rust-src of the same version",
            source.display()
        )));
    }
    progress("adding the standard library's source (rustup component add rust-src)");
    run_command(Command::new("rustup").args(["component", "add", "rust-src"])).map_err(|_| {
        anyhow!(
            "rustup could not add rust-src (see its message above); with a network, `rustup component add rust-src` does it"
        )
    })
}

/// Links an empty program as `build` links pyobs, and returns its path. Missing libraries are not installed: on Debian
/// and its derivatives they come with every C compiler that can link.
fn ensure_static_link() -> Result<PathBuf> {
    let tools = repo::tools();
    let (source, trial) = (tools.join("static-trial.rs"), tools.join("static-trial"));
    fs::create_dir_all(&tools)
        .and_then(|()| fs::write(&source, "fn main() {}\n"))
        .with_context(|| format!("cannot write {}", source.display()))?;
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition", "2024"]).args(STATIC).arg("-o").arg(&trial).arg(&source);
    run_command(&mut rustc).map_err(|_| {
        lacking(
            "rustc and the C compiler cannot link a static program here (see their messages above); install glibc's static \
             library: libc6-dev on Debian and Ubuntu, glibc-static on Fedora, glibc-devel-static on openSUSE",
        )
    })?;
    Ok(trial)
}

/// How many files a stamp names.
const STAMPED: usize = 3;

/// The stamp's lines are files that must still be there, then rustc's identity.
fn stamp_holds(stamp: &Path, version: &str) -> bool {
    let Ok(text) = fs::read_to_string(stamp) else { return false };
    let mut lines = text.splitn(STAMPED + 1, '\n');
    let files_exist = lines.by_ref().take(STAMPED).all(|file| Path::new(file).exists());
    files_exist && lines.next() == Some(version)
}

fn write_stamp(stamp: &Path, toolchain: &Toolchain, files: &[PathBuf; STAMPED]) -> Result<()> {
    let files: String = files.iter().map(|file| format!("{}\n", file.display())).collect();
    fs::create_dir_all(repo::tools())
        .and_then(|()| fs::write(stamp, files + &toolchain.version))
        .with_context(|| format!("cannot write {}", stamp.display()))
}

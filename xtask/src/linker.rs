//! Finds or builds bpf-linker, which must use the LLVM version of rustc in order to read its output.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, anyhow};

use crate::{
    errors::lacking,
    process::{cargo, find, output, path_folders, path_with, progress, run},
    repo,
    toolchain::Toolchain,
};

const VERSION: &str = "0.13.0";
/// The first version with the command line that rustc's target specification expects.
const OLDEST: (u32, u32) = (0, 10);

/// Finds or builds a bpf-linker that fits.
pub(crate) fn ensure(toolchain: &Toolchain) -> Result<PathBuf> {
    let own = repo::tools().join("bin/bpf-linker");
    if fits(&own, toolchain.llvm_major) {
        return Ok(own);
    }
    // Ours comes first on the build's PATH, so one built for another rustc must be removed.
    if own.symlink_metadata().is_ok() {
        fs::remove_file(&own).with_context(|| format!("cannot remove {}, which does not fit rustc", own.display()))?;
    }
    let cargo_bin = env::var_os("CARGO_HOME").map(|home| PathBuf::from(home).join("bin"));
    let found = path_folders().chain(cargo_bin).map(|dir| dir.join("bpf-linker")).find(|path| path.is_file());
    if let Some(path) = found.filter(|path| fits(path, toolchain.llvm_major)) {
        return adopt(&path, &own);
    }
    build(toolchain, &own)?;
    Ok(own)
}

/// Whether it starts, is new enough, and contains (or loads) this LLVM. bpf-linker has no option that shows the last.
fn fits(linker: &Path, llvm_major: u32) -> bool {
    let Ok(bytes) = fs::read(linker) else { return false };
    let Ok(version) = output(Command::new(linker).arg("--version")) else { return false };
    new_enough(&version) && holds_llvm(&bytes, llvm_major)
}

fn new_enough(version: &str) -> bool {
    let Some(number) = version.split_whitespace().nth(1) else { return false };
    let mut parts = number.split('.').map_while(|part| part.parse::<u32>().ok());
    matches!((parts.next(), parts.next()), (Some(major), Some(minor)) if (major, minor) >= OLDEST)
}

/// A dynamic one names the library that it needs; a static one contains the producer string of LLVM's bitcode writer.
fn holds_llvm(bytes: &[u8], major: u32) -> bool {
    let names = [format!("libLLVM.so.{major}."), format!("libLLVM-{major}.so"), format!("LLVM{major}.")];
    names.iter().any(|name| bytes.windows(name.len()).any(|window| window == name.as_bytes()))
}

/// Links to the found one from the folder that comes first on the build's PATH.
fn adopt(found: &Path, own: &Path) -> Result<PathBuf> {
    let bin = repo::tools().join("bin");
    fs::create_dir_all(&bin)
        .and_then(|()| symlink(found, own))
        .with_context(|| format!("cannot make the link {} to {}", own.display(), found.display()))?;
    Ok(own.to_path_buf())
}

fn build(toolchain: &Toolchain, own: &Path) -> Result<()> {
    let major = toolchain.llvm_major;
    if find("cc").is_none() {
        return Err(lacking(
            "there is no C compiler `cc`, which bpf-linker's build needs; install your distribution's gcc or clang",
        ));
    }
    let tools = repo::tools();
    let prefix = llvm_prefix(toolchain, &tools)?;
    progress(format!("building bpf-linker {VERSION} against rustc's own LLVM {major} (once; about two minutes)"));
    let libraries = toolchain.sysroot.join("lib");
    let mut install = cargo();
    install
        .args(["install", "bpf-linker", "--locked", "--force", "--version", VERSION, "--no-default-features"])
        .args(["--features", &format!("llvm-{major}")])
        .arg("--root")
        .arg(&tools)
        .arg("--target-dir")
        .arg(tools.join("build"))
        .env("LLVM_PREFIX", &prefix)
        // Otherwise cargo ends with advice to change the PATH, which is not needed.
        .env("PATH", path_with(&tools.join("bin"))?)
        .env("RUSTFLAGS", format!("-C link-arg=-Wl,-rpath,{}", libraries.display()))
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    run(&mut install).map_err(|_| {
        anyhow!(
            "bpf-linker {VERSION} could not be built (cargo says why above); it needs the network once; \
             a bpf-linker on the PATH that was built for LLVM {major} does as well"
        )
    })?;
    if fits(own, major) {
        return Ok(());
    }
    Err(anyhow!("{} was built but does not run with LLVM {major}; remove {} and retry", own.display(), tools.display()))
}

/// A folder laid out like an LLVM installation, with the library that rustc itself uses.
fn llvm_prefix(toolchain: &Toolchain, tools: &Path) -> Result<PathBuf> {
    let library = rustc_llvm(&toolchain.sysroot, toolchain.llvm_major).ok_or_else(|| {
        lacking(format!(
            "{} holds no libLLVM.so.{}, so this Rust was not installed by rustup; install Rust with rustup, \
             or put a bpf-linker built for LLVM {1} on the PATH",
            toolchain.sysroot.join("lib").display(),
            toolchain.llvm_major
        ))
    })?;
    let prefix = tools.join("llvm");
    let link = prefix.join("lib/libLLVM.so");
    let make = || {
        fs::create_dir_all(prefix.join("lib"))?;
        if link.symlink_metadata().is_ok() {
            fs::remove_file(&link)?;
        }
        symlink(&library, &link)
    };
    make().with_context(|| format!("cannot make the link {} to {}", link.display(), library.display()))?;
    Ok(prefix)
}

fn rustc_llvm(sysroot: &Path, major: u32) -> Option<PathBuf> {
    let start = format!("libLLVM.so.{major}.");
    let entries = fs::read_dir(sysroot.join("lib")).ok()?;
    entries.flatten().find(|entry| entry.file_name().to_string_lossy().starts_with(&start)).map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_linker_that_is_new_enough_fits() {
        assert!(new_enough("bpf-linker 0.13.0\n"));
        assert!(new_enough("bpf-linker 0.10.1"));
        assert!(new_enough("bpf-linker 1.0.0"));
        assert!(!new_enough("bpf-linker 0.9.15"));
        assert!(!new_enough("bpf-linker"));
        assert!(!new_enough(""));
    }

    #[test]
    fn the_llvm_of_a_linker_is_read_from_its_bytes() {
        assert!(holds_llvm(b"\0libLLVM.so.22.1-rust-1.95.0-stable\0", 22));
        assert!(holds_llvm(b"\0LLVM22.1.2\0", 22));
        assert!(holds_llvm(b"libLLVM-19.so.1", 19));
        assert!(!holds_llvm(b"\0libLLVM.so.22.1-rust-1.95.0-stable\0", 2));
        assert!(!holds_llvm(b"\0libLLVM.so.21.1\0", 22));
    }
}

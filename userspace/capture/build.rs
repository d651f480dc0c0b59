//! Builds the BPF programs with a nested cargo and hands the objects' paths to the crate: that of `pyobs dump` as
//! `PYOBS_BPF_DUMP_OBJECT`, and that of everything else as `PYOBS_BPF_OBJECT`.
//!
//! They are no ordinary dependency because they compile for another target, with another standard library
//! (`-Z build-std`) and another profile.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio, exit},
};

const TARGET: &str = "bpfel-unknown-none";
const NEXT_STEP: &str = "run `cargo xtask build` once, which sets it up";

fn main() {
    match build() {
        Ok([object, dump]) => {
            println!("cargo::rustc-env=PYOBS_BPF_OBJECT={}", object.display());
            println!("cargo::rustc-env=PYOBS_BPF_DUMP_OBJECT={}", dump.display());
        }
        // Ending well keeps cargo from burying the sentence under what the script printed.
        Err(sentence) => println!("cargo::error={sentence}"),
    }
}

fn build() -> Result<[PathBuf; 2], String> {
    let out_dir = PathBuf::from(variable("OUT_DIR")?);
    let repo = repository()?;
    let programs = repo.join("ebpf/programs");
    for input in ["src", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", programs.join(input).display());
    }
    println!("cargo::rerun-if-changed={}", repo.join("ebpf/abi").display());

    let target_dir = target_dir(&out_dir, &repo);
    let search = search_path(&[target_dir.join("tools/bin"), repo.join("target/tools/bin")])?;
    let linker = find_linker(&search)?;
    println!("cargo::rerun-if-changed={}", linker.display());
    require_rust_src()?;

    let bpf_dir = target_dir.join("bpf");
    run_cargo(&programs, &bpf_dir, &search)?;
    let copied = |name: &str| {
        let built = bpf_dir.join(TARGET).join("release").join(name);
        let object = out_dir.join(format!("{name}.bpf.o"));
        let copied = fs::copy(&built, &object);
        copied.map_err(|e| format!("cannot copy {} to {}: {e}", built.display(), object.display()))?;
        Ok::<_, String>(object)
    };
    Ok([copied("pyobs")?, copied("pyobs-dump")?])
}

fn variable(name: &str) -> Result<OsString, String> {
    env::var_os(name).ok_or_else(|| format!("{name} is not set; this build script is run by cargo"))
}

fn repository() -> Result<PathBuf, String> {
    let manifest_dir = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let repo = manifest_dir.ancestors().nth(2).map(Path::to_path_buf);
    repo.ok_or_else(|| format!("{} is not userspace/capture of the pyobs repository", manifest_dir.display()))
}

/// Cargo tells a build script only its own folder, but marks the top of every target folder.
fn target_dir(out_dir: &Path, repo: &Path) -> PathBuf {
    out_dir
        .ancestors()
        .find(|dir| dir.join("CACHEDIR.TAG").exists())
        .map_or_else(|| repo.join("target"), Path::to_path_buf)
}

fn search_path(first: &[PathBuf]) -> Result<OsString, String> {
    let inherited = env::var_os("PATH").unwrap_or_default();
    let folders = first.iter().cloned().chain(env::split_paths(&inherited));
    env::join_paths(folders).map_err(|e| format!("the target folder cannot be put on the PATH: {e}; move the checkout"))
}

fn find_linker(search: &OsString) -> Result<PathBuf, String> {
    env::split_paths(search)
        .map(|dir| dir.join("bpf-linker"))
        .find(|path| path.is_file())
        .ok_or_else(|| format!("there is no bpf-linker, which links the BPF programs; {NEXT_STEP}"))
}

fn require_rust_src() -> Result<(), String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "sysroot"]).stderr(Stdio::inherit()).output();
    let output = output.map_err(|e| format!("rustc does not run: {e}; install Rust with rustup"))?;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    if sysroot.join("lib/rustlib/src/rust/library/Cargo.lock").exists() {
        return Ok(());
    }
    Err(format!("rust-src, the standard library's source, is not in {}; {NEXT_STEP}", sysroot.display()))
}

fn run_cargo(programs: &Path, bpf_dir: &Path, search: &OsString) -> Result<(), String> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(confuses_nested_cargo) {
            cargo.env_remove(name);
        }
    }
    cargo
        .current_dir(programs)
        .args(["build", "--release", "--target", TARGET, "-Z", "build-std=core", "--target-dir"])
        .arg(bpf_dir)
        // The two unstable things, a tier 3 target and build-std, on a stable compiler.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "-C debuginfo=2 -C link-arg=--btf")
        // An incremental build inlines less, and then the programs need more stack than the kernel allows.
        .env("CARGO_INCREMENTAL", "0")
        .env("PATH", search)
        .stdout(Stdio::null());
    let status = cargo.status().map_err(|e| format!("cargo does not run: {e}"))?;
    if !status.success() {
        println!(
            "cargo::error=the BPF programs in {} do not build; the compiler's messages follow",
            programs.display()
        );
        // Ending badly makes cargo show them.
        exit(1);
    }
    Ok(())
}

/// What the outer cargo, clippy or rustdoc sets for this crate must not reach a build of another crate for another
/// target. The user's own settings (`CARGO_HOME`, `CARGO_NET_*`, `CARGO_HTTP_*`, …) stay, and so does the job server.
fn confuses_nested_cargo(name: &str) -> bool {
    const PREFIXES: [&str; 10] = [
        "CARGO_PKG_",
        "CARGO_CFG_",
        "CARGO_FEATURE_",
        "CARGO_MANIFEST_",
        "CARGO_ENCODED_",
        "CARGO_BUILD_",
        "CARGO_TARGET_",
        "CARGO_PROFILE_",
        "RUSTC",
        "RUSTDOC",
    ];
    const NAMES: [&str; 4] = ["RUSTFLAGS", "CLIPPY_ARGS", "CARGO_PRIMARY_PACKAGE", "OUT_DIR"];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&name)
}

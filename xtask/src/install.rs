//! `cargo xtask install`: installs pyobs where sudo finds it, with its man page and shell completions.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{
    build,
    errors::usage,
    process::{as_root, find, is_root, output, progress, run as run_command},
    repo,
};

/// Arguments of `pyobs`, and the file below the prefix for what it prints with them.
const GENERATED: [(&[&str], &str); 4] = [
    (&["man"], "share/man/man1/pyobs.1"),
    (&["completions", "bash"], "share/bash-completion/completions/pyobs"),
    (&["completions", "zsh"], "share/zsh/site-functions/_pyobs"),
    (&["completions", "fish"], "share/fish/vendor_completions.d/pyobs.fish"),
];

pub(crate) fn run(args: &[String]) -> Result<()> {
    let prefix = parse(args)?;
    build::release()?;
    let staged = stage()?;
    let as_user = is_root() || is_writable(&prefix);
    install(&repo::pyobs(), &prefix.join("bin/pyobs"), "755", as_user)?;
    for ((_, place), file) in GENERATED.iter().zip(&staged) {
        install(file, &prefix.join(place), "644", as_user)?;
    }
    print_next_step(&prefix);
    Ok(())
}

fn parse(args: &[String]) -> Result<PathBuf> {
    match args {
        [] => Ok("/usr/local".into()),
        [flag, folder] if flag == "--prefix" && !folder.is_empty() => {
            std::path::absolute(folder).with_context(|| format!("{folder:?} is not a folder's name"))
        }
        _ => usage(format!("`cargo xtask install` takes [--prefix DIR], got {args:?}")),
    }
}

/// Writes the binary's output to files in `target/install`, in the order of `GENERATED`.
fn stage() -> Result<Vec<PathBuf>> {
    let folder = repo::target().join("install");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let write = |(args, place): &(&[&str], &str)| {
        let text = output(Command::new(repo::pyobs()).args(*args))?;
        let file = folder.join(Path::new(place).file_name().unwrap_or(place.as_ref()));
        let file = if args.len() > 1 { file.with_extension(args[1]) } else { file };
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(file)
    };
    GENERATED.iter().map(write).collect()
}

/// Whether this user may create files below the folder, which may not exist yet.
fn is_writable(folder: &Path) -> bool {
    let Some(existing) = folder.ancestors().find(|ancestor| ancestor.exists()) else { return false };
    let probe = existing.join(format!(".pyobs-install-{}", std::process::id()));
    let writable = fs::File::create(&probe).is_ok();
    if writable {
        // The file is empty, so nothing is lost if it remains.
        let _ = fs::remove_file(&probe);
    }
    writable
}

/// `install` replaces the name and not the bytes, so a running pyobs is not disturbed.
fn install(from: &Path, to: &Path, mode: &str, as_user: bool) -> Result<()> {
    let mut command = if as_user { Command::new("install") } else { as_root("install")? };
    run_command(command.args(["-D", "-m", mode]).arg(from).arg(to))?;
    progress(format!("installed {}", to.display()));
    Ok(())
}

fn print_next_step(prefix: &Path) {
    let installed = prefix.join("bin/pyobs");
    if find("sudo").is_none() {
        println!("`{} top` as root shows what runs", installed.display());
        return;
    }
    let found = output(Command::new("sudo").args(["-n", "sh", "-c", "command -v pyobs"])).unwrap_or_default();
    if Path::new(found.trim()) == installed {
        println!("`sudo pyobs top` shows what runs");
    } else {
        println!(
            "sudo does not look in {} (secure_path in /etc/sudoers): call it as `sudo {} top`, or install with --prefix /usr/local",
            prefix.join("bin").display(),
            installed.display()
        );
    }
}

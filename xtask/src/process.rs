//! Runs other programs.

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::errors::{lacking, reported};

/// Prints a line of progress, for what takes longer than a second.
pub(crate) fn progress(line: impl AsRef<str>) {
    eprintln!("xtask: {}", line.as_ref());
}

pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// The cargo that runs this xtask.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(crate::repo::root());
    command
}

/// `program` as root: directly, or through sudo.
pub(crate) fn as_root(program: impl AsRef<OsStr>) -> Result<Command> {
    if is_root() {
        return Ok(Command::new(program));
    }
    let program = program.as_ref();
    let sudo = find("sudo").ok_or_else(|| {
        lacking(format!(
            "{} needs root, and there is no sudo here; run this command as root",
            Path::new(program).display()
        ))
    })?;
    let mut command = Command::new(sudo);
    command.arg(program);
    Ok(command)
}

/// The system's programs, which a user's PATH may leave out.
const SYSTEM: [&str; 2] = ["/usr/sbin", "/sbin"];

/// The first executable file of this name on the PATH.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let folders = path_folders().chain(SYSTEM.map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|path| is_executable(path))
}

pub(crate) fn path_folders() -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).collect::<Vec<_>>().into_iter()
}

/// `PATH` with this folder in front.
pub(crate) fn path_with(first: &Path) -> Result<OsString> {
    let folders = std::iter::once(first.to_path_buf()).chain(path_folders());
    env::join_paths(folders)
        .with_context(|| format!("{} cannot be put on the PATH; move the checkout", first.display()))
}

pub(crate) fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Runs a command with our own streams. If it fails, so do we, with its own message.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{} does not run", name(command)))?;
    if status.success() { Ok(()) } else { Err(reported(status.code())) }
}

/// The command's stdout. An error has the last line of its stderr.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{} does not run", name(command)))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
    bail!("{} failed ({}): {}", name(command), output.status, last.trim())
}

fn name(command: &Command) -> String {
    Path::new(command.get_program()).display().to_string()
}

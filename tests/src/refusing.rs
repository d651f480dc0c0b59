//! Simulates a kernel that lacks a feature: a supervisor makes system calls fail before the kernel carries them out.

use std::fmt::Display;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::{Folder, command, executable, places};

/// A rule that makes one thing fail with an error; tests/workloads/fault_kernel.c lists the kinds.
pub fn rule(kind: &str, what: impl Display, error: libc::c_int) -> String {
    format!(";{kind} {what} {error}")
}

/// Wraps a command so that it runs under these rules. Its program, arguments, environment and folder are taken over.
/// Needs the program `cc`.
#[track_caller]
pub fn refusing(rules: &str, refused: &Command) -> Command {
    static SUPERVISOR: OnceLock<(Folder, PathBuf)> = OnceLock::new();
    let (_, supervisor) = SUPERVISOR.get_or_init(|| {
        let folder = Folder::new();
        let program = executable(&places::workload("fault_kernel.c"), &folder);
        (folder, program)
    });
    let mut supervised = command(supervisor);
    supervised.arg(rules).arg(refused.get_program()).args(refused.get_args());
    for (name, value) in refused.get_envs() {
        match value {
            Some(value) => supervised.env(name, value),
            None => supervised.env_remove(name),
        };
    }
    if let Some(folder) = refused.get_current_dir() {
        supervised.current_dir(folder);
    }
    supervised
}

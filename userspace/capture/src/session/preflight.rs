//! Checks for what stops every family, before anything is attached, so that the error names the cause.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::StartError;
use crate::rights::{self, Namespace};

/// Descriptors that all families need on a machine with two CPUs (120 by `ls /proc/PID/fd`; the default
/// families 84), plus some for files being read.
const FILES: u64 = 128;
/// One or two perf events per CPU.
const FILES_PER_CPU: u64 = 4;

pub(super) fn check() -> Result<(), StartError> {
    if !Namespace::User.may_be_first() {
        return Err(StartError::UserNamespace);
    }
    if !Namespace::Pid.may_be_first() {
        return Err(StartError::PidNamespace);
    }
    let lacking = rights::lacking_needed();
    if !lacking.is_empty() {
        return Err(StartError::NoRights { lack: rights::lack(&lacking), todo: rights::todo() });
    }
    if rights::is_locked_down() {
        return Err(StartError::Lockdown);
    }
    raise_file_limit()
}

/// Raises the limit on open files as far as the user may.
fn raise_file_limit() -> Result<(), StartError> {
    let limits = getrlimit(Resource::Nofile);
    let highest = Rlimit { current: limits.maximum, maximum: limits.maximum };
    // If this is refused too, the limit stays as it is.
    let _ = setrlimit(Resource::Nofile, highest);
    let needed = FILES + FILES_PER_CPU * aya::util::online_cpus().map_or(1, |cpus| cpus.len() as u64);
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < needed => Err(StartError::TooFewFiles { limit, needed }),
        _ => Ok(()),
    }
}

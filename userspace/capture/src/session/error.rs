//! Why a capture cannot start or continue.

use crate::kernel::object::ObjectError;
use crate::kernel::sideband::SidebandError;
use crate::machine::NoTarget;
use crate::rights;

/// Why a capture could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error(transparent)]
    Sideband(#[from] SidebandError),
    #[error(transparent)]
    Target(#[from] NoTarget),
    #[error(
        "this is a pid namespace, as in a container, where processes have other numbers than the kernel's; run pyobs on the host, or start the container with `{}`",
        rights::CONTAINER
    )]
    PidNamespace,
    #[error(
        "this is a user namespace, as in a rootless container, where root has no rights over the machine; run pyobs on the host with sudo"
    )]
    UserNamespace,
    #[error("{lack}; {todo}")]
    NoRights { lack: String, todo: String },
    #[error(
        "the kernel is locked down (mode confidentiality), so BPF programs may not read memory; start it with lockdown=integrity or lockdown=none"
    )]
    Lockdown,
    #[error(
        "the limit of open files is {limit}, and pyobs needs {needed}; raise it with `ulimit -Hn {needed}` as root before starting pyobs"
    )]
    TooFewFiles { limit: u64, needed: u64 },
    /// Every requested family was refused; this is the first one's reason.
    #[error("{0}")]
    Refused(String),
    #[error("cannot list the machine's processes: {0}")]
    Scan(std::io::Error),
    #[error("cannot find the machine's CPUs: {0}")]
    Cpus(String),
    #[error(
        "calls cannot be counted, nor MemInfos followed: no probe can be put on a program ({0}); that takes root or CAP_SYS_ADMIN, and a kernel built with CONFIG_UPROBE_EVENTS"
    )]
    Uprobes(std::io::Error),
    #[error("cannot wait for the kernel's records: {0}")]
    Wait(std::io::Error),
    #[error("cannot start a thread: {0}")]
    Helper(std::io::Error),
}

impl StartError {
    /// Whether the machine or the user's privileges lack something, as opposed to a request that cannot be
    /// met.
    pub fn needs(&self) -> bool {
        !matches!(self, Self::Target(_))
    }
}

/// Why a running capture cannot continue.
#[derive(Debug, thiserror::Error)]
#[error("waiting for the kernel's records failed: {0}")]
pub struct CaptureError(#[from] std::io::Error);

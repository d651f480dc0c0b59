//! Where a process runs: as which user, and in which container.

use std::sync::Arc;

use serde::Serialize;

/// Text comes unmodified from control groups and the files of container engines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    pub uid: Option<u32>,
    /// The name of that user on this machine.
    pub user: Option<Arc<str>>,
    /// Its control group, from the root of the hierarchy.
    pub cgroup: Option<Arc<str>>,
    pub container: Option<Arc<Container>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Container {
    /// `docker`, `podman`, `containerd` or `cri-o`.
    pub engine: Option<String>,
    pub id: String,
    pub name: Option<String>,
    pub image: Option<String>,
    /// In Kubernetes: the unique id and the name of the pod, and its namespace.
    pub pod_uid: Option<String>,
    pub pod: Option<String>,
    pub namespace: Option<String>,
}

impl Container {
    /// The name, else the pod's, else the first digits of the id.
    pub fn short_name(&self) -> &str {
        const SHORT: usize = 12;
        let name = self.name.as_deref().or(self.pod.as_deref());
        name.unwrap_or_else(|| self.id.get(..SHORT).unwrap_or(&self.id))
    }
}

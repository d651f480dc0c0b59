//! Which container a process runs in, judged by its control group.
//!
//! Engines name a container's control group after its id, a number of 64 hexadecimal digits:
//! - Docker: `docker-ID.scope` (systemd), `/docker/ID`;
//! - podman: `libpod-ID.scope`;
//! - containerd and CRI-O under Kubernetes: `…/kubepods…/pod<UID>/cri-containerd-ID.scope`, `crio-ID.scope`, or `ID`.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::machine::living_thread;

/// Digits of an id.
const ID: usize = 64;
/// Bounds what is read of a file in /proc or of an engine.
const FILE_MAX: u64 = 1 << 20;
/// Bounds the pods that are searched for a container's name.
const PODS_MAX: usize = 10_000;

/// Programs that run containers, by the prefix of a container's control group.
const ENGINES: [(&str, &str); 4] =
    [("docker-", "docker"), ("libpod-", "podman"), ("cri-containerd-", "containerd"), ("crio-", "cri-o")];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// `docker`, `podman`, `containerd` or `cri-o`, if the control group says.
    pub engine: Option<&'static str>,
    pub id: String,
    /// The pod's unique id in Kubernetes.
    pub pod: Option<String>,
}

/// The control group of a process: of version 2, or that of the CPU controller of version 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// From the root of the hierarchy.
    pub path: String,
    /// Whether it is of version 1.
    pub is_old: bool,
}

impl Group {
    pub fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{}/cgroup", living_thread(pid))).ok()?)
    }

    /// `number:controllers:path` in each line. Version 2 has the number 0 and no controllers.
    pub fn parse(text: &str) -> Option<Self> {
        let lines: Vec<(&str, &str)> =
            text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':')).collect();
        let find = |is_it: fn(&str) -> bool| lines.iter().find(|(controllers, _)| is_it(controllers));
        let has_cpu = |controllers: &str| controllers.split(',').any(|controller| controller == "cpu");
        let (group, is_old) = match (find(has_cpu), find(str::is_empty)) {
            (Some((_, path)), _) => (path, true),
            (None, Some((_, path))) => (path, false),
            (None, None) => (&lines.first()?.1, true),
        };
        Some(Self { path: (*group).to_owned(), is_old })
    }

    /// The container that the group, or one above it, belongs to.
    pub fn container(&self) -> Option<Named> {
        let parts: Vec<&str> = self.path.split('/').collect();
        let (index, (engine, id)) =
            parts.iter().enumerate().rev().find_map(|(index, part)| Some((index, id(part)?)))?;
        let above = index.checked_sub(1).map(|above| parts[above]);
        let engine = engine.or_else(|| (above == Some("docker")).then_some("docker"));
        let pod = parts[..index].iter().rev().find_map(|part| pod(part));
        Some(Named { engine, id: id.to_owned(), pod })
    }
}

/// The engine and the id of the container that a part of a group's path names.
fn id(part: &str) -> Option<(Option<&'static str>, &str)> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    let found = ENGINES.iter().find_map(|(prefix, engine)| Some((Some(*engine), name.strip_prefix(prefix)?)));
    let (engine, id) = found.unwrap_or((None, name));
    (id.len() == ID && id.bytes().all(|digit| digit.is_ascii_hexdigit())).then_some((engine, id))
}

/// `pod<UID>` or `kubepods-burstable-pod<UID>.slice`, where systemd has `_` for `-`.
fn pod(part: &str) -> Option<String> {
    let name = part.strip_suffix(".slice").unwrap_or(part);
    let uid = name.rsplit_once("pod").filter(|(before, _)| before.is_empty() || before.ends_with('-'))?.1;
    let is_uid = uid.len() >= 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'-' | b'_'));
    is_uid.then(|| uid.replace('_', "-"))
}

/// A container's names, from the files of its engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    pub name: Option<String>,
    pub image: Option<String>,
    /// Of the pod in Kubernetes.
    pub pod_name: Option<String>,
    pub namespace: Option<String>,
}

/// Where the engines' files are: the root folder, and that of the host if pyobs runs in a container with the host's pids.
const ROOTS: [&str; 2] = ["/", "/proc/1/root"];

impl Named {
    /// Looks the names up in the engines' files.
    pub fn names(&self) -> Names {
        ROOTS.into_iter().find_map(|root| self.names_below(Path::new(root))).unwrap_or_default()
    }

    fn names_below(&self, root: &Path) -> Option<Names> {
        match &self.pod {
            Some(uid) => pod_names(root, uid),
            None => docker(root, &self.id).or_else(|| podman(root, &self.id)),
        }
    }
}

fn read(path: &Path) -> Option<String> {
    let bytes = crate::files::read_text(path, FILE_MAX)?;
    String::from_utf8(bytes).ok()
}

/// `/var/log/pods/<namespace>_<pod>_<uid>/<container>`.
fn pod_names(root: &Path, uid: &str) -> Option<Names> {
    let folder = root.join("var/log/pods");
    let entries = fs::read_dir(folder).ok()?.flatten().take(PODS_MAX);
    entries.into_iter().find_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let (rest, of) = name.rsplit_once('_')?;
        let (namespace, pod) = rest.split_once('_')?;
        if of != uid {
            return None;
        }
        let mut containers = fs::read_dir(entry.path()).into_iter().flatten().flatten();
        // Of several containers of a pod it is not known here which one this is.
        let only = containers.next().filter(|_| containers.next().is_none());
        Some(Names {
            name: only.and_then(|only| only.file_name().into_string().ok()),
            image: None,
            pod_name: Some(pod.to_owned()),
            namespace: Some(namespace.to_owned()),
        })
    })
}

fn docker(root: &Path, id: &str) -> Option<Names> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct File {
        name: String,
        config: Config,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Config {
        image: Option<String>,
    }
    let text = read(&root.join("var/lib/docker/containers").join(id).join("config.v2.json"))?;
    let file: File = serde_json::from_str(&text).ok()?;
    Some(Names {
        name: Some(file.name.trim_start_matches('/').to_owned()),
        image: file.config.image,
        ..Names::default()
    })
}

fn podman(root: &Path, id: &str) -> Option<Names> {
    #[derive(Deserialize)]
    struct Entry {
        id: String,
        names: Option<Vec<String>>,
    }
    let text = read(&root.join("var/lib/containers/storage/overlay-containers/containers.json"))?;
    let entries: Vec<Entry> = serde_json::from_str(&text).ok()?;
    let entry = entries.into_iter().find(|entry| entry.id == id)?;
    Some(Names { name: entry.names?.into_iter().next(), ..Names::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "3f4a9c0e5d7b1286af90c3e4d5b6a7f8091a2b3c4d5e6f708192a3b4c5d6e7f8";
    const UID: &str = "8f1c2d3e-4b5a-6978-8796-a5b4c3d2e1f0";

    fn container(path: &str) -> Option<(Option<&'static str>, Option<String>)> {
        let group = Group { path: path.replace("HEX", HEX).replace("UID", UID), is_old: false };
        let found = group.container()?;
        assert_eq!(found.id, HEX);
        Some((found.engine, found.pod))
    }

    #[test]
    fn engines_name_groups_after_their_containers() {
        let uid = || Some(UID.to_owned());
        for (path, expected) in [
            ("/system.slice/docker-HEX.scope", Some((Some("docker"), None))),
            ("/docker/HEX", Some((Some("docker"), None))),
            ("/docker/HEX/init.scope", Some((Some("docker"), None))),
            ("/machine.slice/libpod-HEX.scope/container", Some((Some("podman"), None))),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-HEX.scope",
                Some((Some("containerd"), uid())),
            ),
            ("/kubepods/besteffort/podUID/HEX", Some((None, uid()))),
            ("/kubepods.slice/kubepods-podUID.slice/crio-HEX.scope", Some((Some("cri-o"), uid()))),
            ("/user.slice/user-1000.slice/session-3.scope", None),
            ("/system.slice/tripod-HEX.service", None),
            ("/", None),
        ] {
            assert_eq!(container(path), expected, "{path}");
        }
        let systemd = format!("/kubepods.slice/kubepods-pod{}.slice/crio-HEX.scope", UID.replace('-', "_"));
        assert_eq!(container(&systemd), Some((Some("cri-o"), uid())));
    }

    #[test]
    fn the_cpu_controller_of_version_1_comes_first() {
        let both = "5:memory:/m\n4:cpu,cpuacct:/a:b\n0::/unified\n";
        assert_eq!(Group::parse(both), Some(Group { path: "/a:b".to_owned(), is_old: true }));
        assert_eq!(Group::parse("0::/c\n"), Some(Group { path: "/c".to_owned(), is_old: false }));
        assert_eq!(Group::parse("no colon"), None);
    }

    #[test]
    fn names_come_from_the_engines_files() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let of = |pod: Option<&str>| Named { engine: None, id: HEX.to_owned(), pod: pod.map(str::to_owned) };
        assert_eq!(of(None).names_below(root.path()), None);
        write(
            "var/lib/containers/storage/overlay-containers/containers.json",
            &format!(r#"[{{"id":"{HEX}","names":["web"]}}]"#),
        );
        assert_eq!(of(None).names_below(root.path()).unwrap().name.as_deref(), Some("web"));
        write(
            &format!("var/lib/docker/containers/{HEX}/config.v2.json"),
            r#"{"Name":"/brave_curie","Config":{"Image":"python:3.12","Env":[]}}"#,
        );
        let names = of(None).names_below(root.path()).unwrap();
        assert_eq!((names.name.as_deref(), names.image.as_deref()), (Some("brave_curie"), Some("python:3.12")));
        write(&format!("var/log/pods/prod_api-7d9f_{UID}/server/0.log"), "");
        let names = of(Some(UID)).names_below(root.path()).unwrap();
        let words = [names.namespace, names.pod_name, names.name].map(Option::unwrap_or_default);
        assert_eq!(words, ["prod", "api-7d9f", "server"]);
    }
}

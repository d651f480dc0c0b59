//! The user, control group and container of each process, and selecting processes by them.

use std::fs;
use std::sync::Arc;

use foldhash::HashMap;
use pyobs_model::{Container, Placement};

use crate::containers::{Group, Named};
use crate::machine;

/// Minimum length of an abbreviated container id.
const ID_LEAST: usize = 4;
/// Cached control groups. When full, the cache is cleared.
const GROUPS_MAX: usize = 4096;
/// Maximum number of lines read from /etc/passwd.
const USERS_MAX: usize = 65_536;
/// Where the hierarchy of control groups usually is, which users may type before a group.
const ROOT: &str = "/sys/fs/cgroup";

/// The container that a control group belongs to, with its names.
pub fn container(group: &Group) -> Option<Container> {
    let named = group.container()?;
    let names = named.names();
    let Named { engine, id, pod } = named;
    Some(Container {
        engine: engine.map(str::to_owned),
        id,
        name: names.name,
        image: names.image,
        pod_uid: pod,
        pod: names.pod_name,
        namespace: names.namespace,
    })
}

/// Whether a container has this name, is in this pod, or has an id that begins like this.
pub fn is_called(container: &Container, wanted: &str) -> bool {
    let names = [&container.name, &container.pod, &container.pod_uid];
    names.into_iter().flatten().any(|name| name == wanted)
        || wanted.len() >= ID_LEAST && container.id.starts_with(wanted)
}

/// What was found out, by control group and user.
#[derive(Default)]
pub struct Placements {
    containers: HashMap<String, Option<Arc<Container>>>,
    users: Option<HashMap<u32, Arc<str>>>,
}

impl Placements {
    pub fn of(&mut self, pid: u32) -> Placement {
        let uid = machine::user(pid).map(|(uid, _)| uid);
        let user = uid.and_then(|uid| self.users.get_or_insert_with(users).get(&uid).cloned());
        let group = Group::of(pid);
        let container = group.as_ref().and_then(|group| self.container(group));
        Placement { uid, user, cgroup: group.map(|group| Arc::from(group.path)), container }
    }

    fn container(&mut self, group: &Group) -> Option<Arc<Container>> {
        if let Some(known) = self.containers.get(&group.path) {
            return known.clone();
        }
        if self.containers.len() >= GROUPS_MAX {
            self.containers.clear();
        }
        let found = container(group).map(Arc::new);
        self.containers.insert(group.path.clone(), found.clone());
        found
    }
}

/// The names of the users in this machine's /etc/passwd. The static binary loads no other source of users.
fn users() -> HashMap<u32, Arc<str>> {
    let text = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = |line: &str| {
        let mut fields = line.split(':');
        let (name, uid) = (fields.next()?, fields.nth(1)?);
        Some((uid.parse().ok()?, Arc::from(name)))
    };
    text.lines().take(USERS_MAX).filter_map(user).collect()
}

/// Which processes are watched, by where they run. Of each kind one has to match; a kind without any matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matching {
    /// Names of containers or pods, or the beginnings of containers' ids.
    pub containers: Vec<String>,
    /// Control groups, each with those below it.
    pub cgroups: Vec<String>,
    /// The kernel's names of processes (`comm`).
    pub comms: Vec<String>,
    /// Users by name or number.
    pub users: Vec<String>,
}

impl Matching {
    pub fn is_empty(&self) -> bool {
        [&self.containers, &self.cgroups, &self.comms, &self.users].iter().all(|wanted| wanted.is_empty())
    }

    /// Whether a process with this name runs where it was wanted.
    pub fn has(&self, comm: &str, placement: &Placement) -> bool {
        let any = |wanted: &[String], is_it: &dyn Fn(&str) -> bool| {
            wanted.is_empty() || wanted.iter().any(|wanted| is_it(wanted))
        };
        let Placement { uid, user, cgroup, container } = placement;
        any(&self.comms, &|wanted| wanted == comm)
            && any(&self.users, &|wanted| {
                user.as_deref() == Some(wanted) || wanted.parse().ok() == *uid && uid.is_some()
            })
            && any(&self.cgroups, &|wanted| cgroup.as_deref().is_some_and(|group| is_below(group, wanted)))
            && any(&self.containers, &|wanted| container.as_ref().is_some_and(|it| is_called(it, wanted)))
    }
}

/// Whether a control group is this one, or below it.
fn is_below(group: &str, wanted: &str) -> bool {
    let wanted = wanted.strip_prefix(ROOT).unwrap_or(wanted).trim_matches('/');
    let rest = group.trim_start_matches('/').strip_prefix(wanted);
    wanted.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement() -> Placement {
        let container = Container {
            id: "4f".repeat(32),
            name: Some("web".to_owned()),
            pod: Some("shop-7".to_owned()),
            ..Container::default()
        };
        Placement {
            uid: Some(33),
            user: Some("www-data".into()),
            cgroup: Some("/system.slice/docker-4f.scope".into()),
            container: Some(Arc::new(container)),
        }
    }

    #[test]
    fn each_kind_has_to_match() {
        let (placement, owned) = (placement(), |texts: &[&str]| texts.iter().map(ToString::to_string).collect());
        let has = |matching: &Matching| matching.has("gunicorn", &placement);
        assert!(has(&Matching::default()));
        for (wanted, is_it) in [("web", true), ("shop-7", true), ("4f4f", true), ("4f4", false), ("we", false)] {
            let matching = Matching { containers: owned(&[wanted]), ..Matching::default() };
            assert_eq!(has(&matching), is_it, "{wanted}");
        }
        for (wanted, is_it) in [("www-data", true), ("33", true), ("3", false), ("root", false)] {
            assert_eq!(has(&Matching { users: owned(&["nobody", wanted]), ..Matching::default() }), is_it, "{wanted}");
        }
        for (wanted, is_it) in [
            ("/system.slice", true),
            ("system.slice/docker-4f.scope/", true),
            ("/sys/fs/cgroup/system.slice", true),
            ("/system", false),
            ("/", true),
        ] {
            assert_eq!(has(&Matching { cgroups: owned(&[wanted]), ..Matching::default() }), is_it, "{wanted}");
        }
        let both = Matching { comms: owned(&["gunicorn"]), users: owned(&["root"]), ..Matching::default() };
        assert!(!has(&both) && has(&Matching { users: Vec::new(), ..both }));
    }

    #[test]
    fn a_process_without_a_user_or_a_container_is_not_chosen_by_one() {
        let nowhere = Placement::default();
        let users = Matching { users: vec!["x".to_owned()], ..Matching::default() };
        let containers = Matching { containers: vec!["web".to_owned()], ..Matching::default() };
        assert!(!users.has("python", &nowhere) && !containers.has("python", &nowhere));
    }
}

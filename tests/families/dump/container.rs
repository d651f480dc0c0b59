//! Containers and their limits.

use std::time::Duration;

use pyobs_tests::control_group::ControlGroup;
use pyobs_tests::{Python, Workload, command, json, pyobs};

use super::{dump_with, start, thread};

pub fn container(python: &Python) {
    let id = format!("{:064x}", std::process::id());
    let group = ControlGroup::limited(&format!("docker-{id}.scope"));
    let (program, facts) = start(python, &["burn"]);
    group.add(program.pid());
    while group.throttled()[0] < 20 {
        std::thread::sleep(Duration::from_millis(50));
    }
    let before = group.throttled();
    let dump = dump_with(program.pid(), &["--container", &id[..63]]);
    let [process] = json::list(&dump, "/processes") else { panic!("{dump:#}") };
    assert_eq!(process["pid"], facts["pid"]);
    assert_eq!(json::text(process, "/container/id"), id);
    assert_eq!(json::text(process, "/container/engine"), "docker");
    assert_eq!(json::number(process, "/limit/cpus"), 0.2);
    let said = ["/limit/throttled_periods", "/limit/periods"].map(|field| json::count(process, field));
    let after = group.throttled();
    assert!((0..2).all(|index| (before[index]..=after[index]).contains(&said[index])), "{before:?} {said:?} {after:?}");
    let [finding] = json::list(&dump, "/findings") else { panic!("{dump:#}") };
    assert_eq!(json::text(finding, "/id"), "container/throttled");
    assert!(json::text(finding, "/summary").contains(" is limited to 0.2 CPUs "), "{finding:#}");
    // It may run for a fifth of the time.
    let states = (0..20).map(|_| {
        let dump = dump_with(program.pid(), &[]);
        let pid = program.pid().into();
        json::text(thread(&dump, pid, pid), "/state").to_owned()
    });
    let throttled = states.collect::<Vec<_>>().iter().filter(|state| *state == "throttled").count();
    assert!((10..=19).contains(&throttled), "{throttled} of 20");
    let mut other = command(pyobs());
    other.args(["dump", "--container", "no-such-name"]);
    let ended = Workload::start(other).wait();
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("no Python process runs in a container called no-such-name"), "{}", ended.stderr);
    drop(program);
}

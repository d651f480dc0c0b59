//! What works on this machine, and why not: asks the kernel for every capability that a probe family needs.
//!
//! A check is a real attempt wherever one is cheap: it creates a map, loads a program, opens an event or sets
//! a breakpoint, each for microseconds. If the process dies meanwhile, the kernel closes them.

mod bpf;
mod breakpoints;
mod interpreters;
mod kernel;
mod memory;
mod perf;
mod programs;
mod rights;
pub mod sys;
mod tracepoints;
mod uprobes;

use std::io;

use pyobs_model::Family;
use serde::Serialize;

/// The running kernel's version as (major, minor).
pub use crate::kernel::release::version as kernel_version;
pub use programs::Program;

/// Names of probe families.
type Families = &'static [Family];

/// One capability that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub area: &'static str,
    pub name: &'static str,
    /// The probe families that need it; empty if none does.
    pub families: Families,
    pub status: Status,
    /// What was tried, and the result.
    pub why: String,
    /// The next step, if there is one.
    pub todo: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Works,
    /// pyobs works, with less data or in another way.
    Degraded,
    Missing,
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Degraded => "degraded",
            Self::Missing => "missing",
        }
    }
}

/// Every family (docs/cli.md).
const ALL: Families = &Family::ALL;

/// The result of an examination.
pub struct Examination {
    pub checks: Vec<Check>,
    /// The verifier's verdict on every program. Empty if the user may not load programs.
    pub programs: Vec<Program>,
}

/// Examines the machine with the process's privileges. Takes some tenths of a second, mostly in the verifier.
///
/// Without the privileges that pyobs needs, only the kernel, the privileges and running interpreters are
/// examined, because every other answer would be a refusal that says nothing about the machine.
pub fn examine() -> Examination {
    let mut checks = Vec::new();
    kernel::examine(&mut checks);
    rights::examine(&mut checks);
    if !rights::is_privileged() {
        interpreters::examine(&mut checks);
        return Examination { checks, programs: Vec::new() };
    }
    let programs = programs::examine(&mut checks);
    bpf::examine(&mut checks);
    perf::examine(&mut checks);
    tracepoints::examine(&mut checks);
    uprobes::examine(&mut checks);
    breakpoints::examine(&mut checks);
    memory::examine(&mut checks);
    interpreters::examine(&mut checks);
    Examination { checks, programs }
}

/// Whether everything that `families` need is available.
pub fn suffices(checks: &[Check], families: &[Family]) -> bool {
    let concerns = |check: &Check| check.families.iter().any(|family| families.contains(family));
    !checks.iter().any(|check| check.status == Status::Missing && concerns(check))
}

/// The checks of one area.
struct Area<'a> {
    name: &'static str,
    checks: &'a mut Vec<Check>,
}

impl<'a> Area<'a> {
    fn new(name: &'static str, checks: &'a mut Vec<Check>) -> Self {
        Self { name, checks }
    }

    fn works(&mut self, name: &'static str, families: Families, why: impl Into<String>) {
        self.add(name, families, Status::Works, why.into(), None);
    }

    fn lacks(
        &mut self,
        name: &'static str,
        families: Families,
        status: Status,
        why: impl Into<String>,
        todo: impl Into<String>,
    ) {
        self.add(name, families, status, why.into(), Some(todo.into()));
    }

    /// A capability without which the families do not work.
    fn tried<T>(&mut self, name: &'static str, families: Families, result: io::Result<T>, works: &str, todo: &str) {
        self.works_or(Status::Missing, name, families, result.err(), works, todo);
    }

    /// A capability without which the families work less well.
    fn preferred<T>(&mut self, name: &'static str, families: Families, result: io::Result<T>, works: &str, todo: &str) {
        self.works_or(Status::Degraded, name, families, result.err(), works, todo);
    }

    fn works_or(
        &mut self,
        otherwise: Status,
        name: &'static str,
        families: Families,
        error: Option<io::Error>,
        works: &str,
        todo: &str,
    ) {
        match error {
            None => self.works(name, families, works),
            Some(error) => self.lacks(name, families, otherwise, refusal(&error), todo),
        }
    }

    fn add(&mut self, name: &'static str, families: Families, status: Status, why: String, todo: Option<String>) {
        self.checks.push(Check { area: self.name, name, families, status, why, todo });
    }
}

fn refusal(error: &io::Error) -> String {
    format!("the kernel refused: {}", plain(error))
}

/// The system's error text, without the number that the standard library appends.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(families: Families, status: Status) -> Check {
        Check { area: "a", name: "n", families, status, why: String::new(), todo: None }
    }

    #[test]
    fn only_what_is_missing_for_the_asked_families_fails() {
        let checks = [
            check(&[Family::Cpu], Status::Degraded),
            check(&[Family::Shm], Status::Missing),
            check(&[], Status::Missing),
        ];
        assert!(suffices(&checks, &[Family::Cpu]));
        assert!(!suffices(&checks, &[Family::Cpu, Family::Shm]));
    }

    #[test]
    fn every_check_says_why_and_every_lack_says_what_to_do() {
        let checks = examine().checks;
        assert!(checks.len() > 30 || !rights::is_privileged(), "{} checks", checks.len());
        for check in &checks {
            assert!(!check.why.is_empty(), "{}", check.name);
            assert_eq!(check.todo.is_some(), check.status != Status::Works, "{}", check.name);
            assert!(check.families.iter().all(|family| ALL.contains(family)), "{}", check.name);
        }
    }

    #[test]
    fn names_are_unique() {
        let checks = examine().checks;
        let names: std::collections::BTreeSet<_> = checks.iter().map(|check| (check.area, check.name)).collect();
        assert_eq!(names.len(), checks.len());
    }

    #[test]
    fn nothing_stays_open() {
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        examine();
        let before = open();
        examine();
        // Other tests of this process open and close files at the same time.
        assert!(open() < before + 20, "{before} descriptors became {}", open());
    }
}

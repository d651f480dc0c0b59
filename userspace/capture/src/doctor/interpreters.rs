//! Running Python programs, found as a recording finds them, and those that pyobs cannot read.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use super::{ALL, Area, Check, Status};
use crate::files::Files;
use crate::process_maps::Mappings;

/// Kinds of interpreters that are listed; more are summed up.
const LISTED: usize = 10;

pub(super) fn examine(checks: &mut Vec<Check>) {
    let mut area = Area::new("python", checks);
    let Running { found, refused, unseen } = running();
    let why = match (found.is_empty(), unseen) {
        (true, 0) => "no process runs one now; one that starts later is found".to_owned(),
        (true, unseen) => format!("none that this user may look at; {unseen} processes are others'"),
        _ => list(&found, ", "),
    };
    area.works("running interpreters", ALL, why);
    if !refused.is_empty() {
        let todo =
            "run these programs on CPython 3.6 to 3.15 to see their Python frames; their native frames are seen anyway";
        area.lacks("interpreters that are not read", &[], Status::Degraded, list(&refused, "; "), todo);
    }
}

/// The names with their numbers of processes.
fn list(names: &BTreeMap<String, usize>, separator: &str) -> String {
    let mut listed: Vec<String> = names.iter().take(LISTED).map(|(name, count)| format!("{count} × {name}")).collect();
    if names.len() > LISTED {
        listed.push(format!("{} others", names.len() - LISTED));
    }
    listed.join(separator)
}

#[derive(Default)]
struct Running {
    /// Numbers of processes, by interpreter.
    found: BTreeMap<String, usize>,
    refused: BTreeMap<String, usize>,
    /// Processes that this user may not inspect.
    unseen: usize,
}

fn running() -> Running {
    let mut running = Running::default();
    let Ok(entries) = fs::read_dir("/proc") else { return running };
    let mut files = Files::default();
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for pid in pids {
        match Mappings::of(pid) {
            Ok(mappings) => running.examine(pid, &mappings, &mut files),
            Err(error) => running.unseen += usize::from(error.kind() == io::ErrorKind::PermissionDenied),
        }
    }
    running
}

impl Running {
    fn examine(&mut self, pid: u32, mappings: &Mappings, files: &mut Files) {
        for mapping in mappings.iter().filter(|mapping| mapping.file.is_some()) {
            let Ok(facts) = files.facts(pid, mapping) else { continue };
            if let Some(refusal) = &facts.refused {
                *self.refused.entry(format!("{}: {}", mapping.name, refusal.sentence)).or_default() += 1;
                return;
            }
            if let Some(found) = &facts.interpreter {
                let of = format!("CPython {} ({})", found.facts.version, mapping.name);
                *self.found.entry(of).or_default() += 1;
                return;
            }
        }
    }
}

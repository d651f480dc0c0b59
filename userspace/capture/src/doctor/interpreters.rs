//! Which Python programs run now, found as a recording finds them, and which of them it cannot read.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use super::{ALL, Area, Check, Status};
use crate::files::Files;
use crate::process_maps::Mappings;

/// Interpreters that are not read are named up to here.
const REFUSED_MAX: usize = 10;

pub(super) fn examine(checks: &mut Vec<Check>) {
    let mut area = Area::new("python", checks);
    let Running { found, refused, unseen } = running();
    let listed = |names: &BTreeMap<String, usize>| {
        names.iter().map(|(name, count)| format!("{count} × {name}")).collect::<Vec<_>>().join(", ")
    };
    let why = match (found.is_empty(), unseen) {
        (true, 0) => "no process runs one now; one that starts later is found".to_owned(),
        (true, unseen) => format!("none that this user may look at; {unseen} processes are others'"),
        _ => listed(&found),
    };
    area.works("running interpreters", ALL, why);
    if !refused.is_empty() {
        let why: Vec<_> =
            refused.iter().take(REFUSED_MAX).map(|(sentence, count)| format!("{count} × {sentence}")).collect();
        let todo =
            "run the programs by CPython 3.6 to 3.15 to see their Python frames; native frames are seen as it is";
        area.lacks("interpreters that are not read", &[], Status::Degraded, why.join("; "), todo);
    }
}

#[derive(Default)]
struct Running {
    /// How many processes run which.
    found: BTreeMap<String, usize>,
    refused: BTreeMap<String, usize>,
    /// How many processes do not show what they run.
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

//! Ends of calls that submit transfers. A probe on a return instruction costs ten times as much as one on a beginning, for the
//! kernel steps over a copy of it; where a call's end is told of by UCXX, it has none.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::OwnedFd;

use super::sites::Of;
use crate::families::extension::attach_to;
use crate::files::FileId;
use crate::kernel::uprobes::{Uprobes, close_later};

/// A library's, which are on where it has any.
struct Places {
    file: File,
    offsets: Vec<u64>,
    probes: Vec<OwnedFd>,
}

pub(super) struct Ends {
    program: OwnedFd,
    uprobes: Uprobes,
    libraries: HashMap<FileId, Places>,
    /// UCXX's that tell of ends.
    publishing: HashSet<FileId>,
}

impl Ends {
    pub(super) fn new(program: OwnedFd, uprobes: Uprobes) -> Self {
        Self { program, uprobes, libraries: HashMap::new(), publishing: HashSet::new() }
    }

    pub(super) fn place(&mut self, id: FileId, file: File, offsets: Vec<u64>) {
        self.libraries.insert(id, Places { file, offsets, probes: Vec::new() });
    }

    pub(super) fn publishes(&mut self, id: FileId) {
        self.publishing.insert(id);
    }

    /// Who has which libraries: those get probes on ends that a process has without such a UCXX, and the others lose them.
    /// Returns why where that cannot be, once.
    pub(super) fn hold(&mut self, mapped: &[(Of, u32, FileId)]) -> Option<String> {
        let told = mapped.iter().filter(|(_, _, file)| self.publishing.contains(file)).map(|(_, pid, _)| *pid);
        let told: HashSet<u32> = told.collect();
        let by_themselves = mapped.iter().filter(|(of, pid, _)| *of == Of::Ucp && !told.contains(pid));
        let wanted: HashSet<FileId> = by_themselves.map(|(_, _, file)| *file).collect();
        let mut failure = None;
        for (id, places) in &mut self.libraries {
            match (wanted.contains(id), places.probes.is_empty()) {
                (true, true) => {
                    let put = |offset: &u64| attach_to(&places.file, self.uprobes, &self.program, *offset, 0);
                    match places.offsets.iter().map(put).collect() {
                        Ok(probes) => places.probes = probes,
                        Err(why) => {
                            places.offsets.clear();
                            failure = Some(why);
                        }
                    }
                }
                (false, false) => close_later(std::mem::take(&mut places.probes)),
                _ => {}
            }
        }
        failure
    }

    /// For good.
    pub(super) fn close(&mut self) {
        close_later(self.libraries.drain().flat_map(|(_, places)| places.probes).collect());
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.close();
    }
}

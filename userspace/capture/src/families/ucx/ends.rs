//! The probes that follow transfers to their ends, which are not always attached. They are removed when there
//! are too many transfers to follow. A probe on a return instruction costs ten times as much as one on an
//! entry, because the kernel single-steps a copy of the instruction. So where UCXX reports the end of a call,
//! that call's returns have no probe.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Programs;
use super::sites::{Of, Program};
use crate::families::extension::attach_to;
use crate::files::FileId;
use crate::kernel::probed_files::{Probe, ProbedFile};
use crate::kernel::uprobes::{Uprobes, close_later};

/// Where to attach a probe in a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) program: Program,
    pub(super) offset: u64,
    pub(super) cookie: u64,
}

/// Probes that are attached and removed together.
#[derive(Default)]
struct Group {
    places: Vec<At>,
    /// One per place, or none.
    probes: Vec<Probe>,
}

impl Group {
    fn new(places: Vec<At>) -> Self {
        Self { places, probes: Vec::new() }
    }

    /// Attaches the missing probes. If one cannot be attached, the whole group is given up.
    fn attach(&mut self, file: &ProbedFile, uprobes: Uprobes, programs: &Programs) -> Result<(), String> {
        let put = |at: &At| attach_to(file, uprobes, at.program.of(programs), at.offset, at.cookie);
        let new: Result<Vec<_>, _> = self.places[self.probes.len()..].iter().map(put).collect();
        match new {
            Ok(new) => self.probes.extend(new),
            Err(why) => {
                self.places.truncate(self.probes.len());
                return Err(why);
            }
        }
        Ok(())
    }
}

struct Followed {
    file: ProbedFile,
    /// Ends of calls, which a UCXX may report instead.
    calls: Group,
    /// Other ends of transfers.
    rest: Group,
}

pub(super) struct Ends {
    programs: Arc<Programs>,
    uprobes: Uprobes,
    files: HashMap<FileId, Followed>,
    /// UCXX files that report ends.
    publishing: HashSet<FileId>,
    /// Files of libucp that some process uses without a UCXX that reports ends.
    alone: HashSet<FileId>,
    is_on: bool,
}

impl Ends {
    pub(super) fn new(programs: Arc<Programs>, uprobes: Uprobes) -> Self {
        let (publishing, alone) = (HashSet::new(), HashSet::new());
        Self { programs, uprobes, files: HashMap::new(), publishing, alone, is_on: true }
    }

    /// Records where a library has ends of calls, and attaches probes to its other ends.
    pub(super) fn place(&mut self, id: FileId, file: ProbedFile, calls: Vec<At>, rest: Vec<At>) -> Result<(), String> {
        let mut followed = Followed { file, calls: Group::new(calls), rest: Group::new(rest) };
        if self.is_on {
            followed.rest.attach(&followed.file, self.uprobes, &self.programs)?;
        }
        self.files.insert(id, followed);
        Ok(())
    }

    /// Handles the first sight of a completion callback, in a file that `open` opens.
    pub(super) fn called_back(&mut self, id: FileId, at: At, open: impl FnOnce() -> Option<ProbedFile>) {
        let followed = match self.files.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let Some(file) = open() else { return };
                new.insert(Followed { file, calls: Group::default(), rest: Group::default() })
            }
        };
        followed.rest.places.push(at);
        if self.is_on {
            // Without this probe a transfer's end is seen when its request is freed.
            let _ = followed.rest.attach(&followed.file, self.uprobes, &self.programs);
        }
    }

    /// The probes of this file are gone.
    pub(super) fn rewritten(&mut self, id: FileId) {
        self.files.remove(&id);
        self.publishing.remove(&id);
    }

    pub(super) fn publishes(&mut self, id: FileId) {
        self.publishing.insert(id);
    }

    /// Updates which process maps which libraries. A libucp that some process uses without a UCXX that reports
    /// ends gets probes on the ends of calls; any other loses them. Returns why attaching failed, once.
    pub(super) fn hold(&mut self, mapped: &[(Of, u32, FileId)]) -> Option<String> {
        let publishers = mapped.iter().filter(|(_, _, file)| self.publishing.contains(file)).map(|(_, pid, _)| *pid);
        let publishers: HashSet<u32> = publishers.collect();
        let by_themselves = mapped.iter().filter(|(of, pid, _)| *of == Of::Ucp && !publishers.contains(pid));
        self.alone = by_themselves.map(|(_, _, file)| *file).collect();
        self.attach()
    }

    fn attach(&mut self) -> Option<String> {
        if !self.is_on {
            return None;
        }
        let mut failure = None;
        for (id, followed) in &mut self.files {
            if !self.alone.contains(id) {
                close_later(std::mem::take(&mut followed.calls.probes));
            } else if let Err(why) = followed.calls.attach(&followed.file, self.uprobes, &self.programs) {
                failure = Some(why);
            }
            if let Err(why) = followed.rest.attach(&followed.file, self.uprobes, &self.programs) {
                failure = Some(why);
            }
        }
        failure
    }

    /// Attaches the probes again. Returns why that failed.
    pub(super) fn resume(&mut self) -> Option<String> {
        self.is_on = true;
        self.attach()
    }

    /// Removes the probes for now.
    pub(super) fn suspend(&mut self) {
        self.is_on = false;
        let groups = self.files.values_mut().flat_map(|followed| [&mut followed.calls, &mut followed.rest]);
        close_later(groups.flat_map(|group| std::mem::take(&mut group.probes)).collect());
    }

    /// Removes the probes for good.
    pub(super) fn close(&mut self) {
        self.suspend();
        self.files.clear();
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.close();
    }
}

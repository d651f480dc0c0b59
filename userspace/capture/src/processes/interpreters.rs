//! Which processes run CPython.

use std::sync::Arc;
use std::time::Instant;

use pyobs_abi::process;
use pyobs_model::{Event, Reason};

use super::{Pending, Processes, RETRY_AFTER, TRIES, TRIES_A_STEP};
use crate::cpython::attached::{self, Attachment, NotAttached};
use crate::files::{ElfInterpreter, FileFacts, FileId};
use crate::kernel::object::Object;
use crate::machine;
use crate::memory::ProcessMemory;
use crate::process_maps::{Mapping, Mappings};

/// Executable mappings of interpreters in one process that are looked at.
const INTERPRETERS_MAX: usize = 16;

/// Threads of a process that are named when it is attached to; later ones are named when they are seen.
const THREADS_MAX: usize = 1024;

/// At most this many refused interpreters are reported.
const REFUSED_MAX: usize = 100;

impl Processes {
    /// Looks for an interpreter in a process and sets the kernel side on it.
    pub(super) fn attach(&mut self, pid: u32, tries: u32, object: &mut Object, events: &mut Vec<Event>) {
        // A process that has ended, or whose map we may not read, holds nothing for us.
        let Ok(mappings) = self.read_map(pid) else { return };
        let found = self.examine(pid, &mappings, tries);
        self.forget_changed();
        let found = match found {
            Ok(Some(found)) => found,
            Ok(None) => {
                self.has_run_no_python(pid);
                return;
            }
            Err(NotAttached::NotYet) => {
                self.has_run_no_python(pid);
                if tries < TRIES {
                    let due = Instant::now() + RETRY_AFTER * (1 + tries / TRIES_A_STEP);
                    self.pending.insert(pid, Pending { due, tries: tries + 1 });
                } else {
                    events.push(self.lost(Reason::ThreadStateUnknown, 1));
                }
                return;
            }
            Err(NotAttached::Never(reason)) => {
                events.push(self.lost(reason, 1));
                return;
            }
        };
        let Attachment { attached, mut process, layout, may_have_run } = found;
        if !may_have_run {
            self.has_run_no_python(pid);
        }
        let layout = match self.number(layout, object) {
            Some(number) => number,
            None => return events.push(self.lost(Reason::TableFull, 1)),
        };
        process.layout = layout;
        // First the events, so that samples find their process: they come through the ring later.
        self.report_unattached(pid, events);
        let process = self.add(pid, None, Some(attached), process, mappings, events);
        self.set(pid, process, object, events);
        if let Some(watched) = self.watched.get_mut(&pid) {
            // A thread that sleeps would not be known until it wakes.
            for (tid, comm) in machine::threads(pid).take(THREADS_MAX) {
                watched.see_thread(tid, comm, events);
            }
        }
        // Those that it forked before that: nothing else will tell of them.
        for child in machine::children(pid) {
            if !self.watched.contains_key(&child) {
                self.visit(child);
            }
        }
    }

    /// The samples of a process so far had no Python frames to lose.
    fn has_run_no_python(&mut self, pid: u32) {
        if let Some(watched) = self.watched.get_mut(&pid) {
            watched.unattached = 0;
        }
    }

    fn examine(&mut self, pid: u32, mappings: &Mappings, tries: u32) -> Result<Option<Attachment>, NotAttached> {
        let (mut interpreters, mut libc) = (Vec::new(), None);
        for mapping in mappings.iter().filter(|mapping| mapping.file.is_some()) {
            // Unreadable is a file that went away with its process, or one on a file system that root may not read.
            let Ok(facts) = self.files.facts(pid, mapping) else { continue };
            if libc.is_none() {
                libc = facts.libc;
            }
            if let Some(refusal) = &facts.refused {
                self.refuse(&mapping.name, &refusal.sentence);
                return Err(NotAttached::Never(refusal.reason));
            }
            if facts.interpreter.is_some() && interpreters.len() < INTERPRETERS_MAX {
                interpreters.extend(mapping.file.map(|file| (mapping, file, facts)));
            }
        }
        let memory = ProcessMemory::new(pid);
        // Of several, the one that runs.
        let rank = |(mapping, _, facts): &&(&Mapping, FileId, Arc<FileFacts>)| {
            let is = |test: fn(&ElfInterpreter, &Mapping, &ProcessMemory) -> bool| {
                facts.interpreter.as_ref().is_some_and(|found| test(found, mapping, &memory))
            };
            is(ElfInterpreter::is_loaded_at).then(|| is(ElfInterpreter::is_started))
        };
        let chosen = match &interpreters[..] {
            [only] => Some(only),
            several => several.iter().rev().max_by_key(rank),
        };
        let Some((mapping, file, facts)) = chosen else { return Ok(None) };
        let Some(found) = &facts.interpreter else { return Ok(None) };
        if libc.is_none() && tries < TRIES_A_STEP {
            // The C library comes later than what needs it, if it is one that we know.
            return Err(NotAttached::NotYet);
        }
        attached::attach(pid, *file, found, mapping, libc.as_ref()).map(Some)
    }

    /// Tells the user of an interpreter that is not watched, once for all of its processes.
    fn refuse(&mut self, name: &str, sentence: &str) {
        let note = format!("{name}: {sentence}; of its processes only native and kernel frames are seen");
        if self.refused.len() < REFUSED_MAX && self.refused.insert(note.clone()) {
            self.notes.push(note);
        }
    }

    /// The layout's place in the kernel side's array.
    fn number(&mut self, layout: process::Layout, object: &mut Object) -> Option<u32> {
        if let Some(number) = self.layouts.get(&layout) {
            return Some(*number);
        }
        let number = self.layouts.len() as u32;
        object.layouts.set(number, layout, 0).ok()?;
        self.layouts.insert(layout, number);
        Some(number)
    }
}

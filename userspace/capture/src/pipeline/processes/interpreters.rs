//! Finds which processes run CPython.

use std::time::Instant;

use pyobs_abi::process;
use pyobs_model::{Event, Reason};

use super::{Pending, Processes, RETRY_AFTER, TRIES, TRIES_A_STEP};
use crate::cpython::attached::{Attachment, NotAttached, Progress};
use crate::cpython::mapped::Mapped;
use crate::kernel::object::Object;
use crate::machine;
use crate::process_maps::Mappings;

/// Threads named when a process is attached; later ones are named when they are seen.
const THREADS_MAX: usize = 1024;

/// Refused interpreters reported; further ones are not mentioned.
const REFUSED_MAX: usize = 100;

impl Processes {
    /// Looks for an interpreter in a process and passes it to the kernel side.
    pub(super) fn attach(&mut self, pid: u32, tries: u32, object: &mut Object, events: &mut Vec<Event>) {
        if !self.is_wanted(pid) {
            return;
        }
        // The process has ended, or we may not read its map.
        let Ok(mappings) = self.read_map(pid) else { return };
        let found = self.examine(pid, &mappings, tries, events);
        self.forget_changed();
        let found = match found {
            Ok(Some(found)) => found,
            Ok(None) => {
                self.reset_unattached(pid);
                return;
            }
            Err(NotAttached::NotYet) => {
                self.reset_unattached(pid);
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
        let Attachment { attached, mut process, layout, progress } = found;
        if progress != Progress::MayHaveRun {
            self.reset_unattached(pid);
        }
        let layout = match self.number(layout, object) {
            Some(number) => number,
            None => return events.push(self.lost(Reason::TableFull, 1)),
        };
        process.layout = layout;
        // Emit the process first, so that it is known to samples, which arrive through the ring buffer later.
        self.report_unattached(pid, events);
        let process = self.add(pid, None, Some(attached), process, mappings, events);
        self.set(pid, process, object, events);
        if let Some(watched) = self.watched.get_mut(&pid) {
            // A sleeping thread would otherwise be unknown until it wakes.
            for (tid, comm) in machine::threads(pid).take(THREADS_MAX) {
                watched.see_thread(tid, comm, events);
            }
        }
        // Children forked before that produce no other notice.
        for child in machine::children(pid) {
            if !self.watched.contains_key(&child) {
                self.visit(child);
            }
        }
    }

    /// The samples so far had no Python frames to lose.
    fn reset_unattached(&mut self, pid: u32) {
        if let Some(watched) = self.watched.get_mut(&pid) {
            watched.unattached = 0;
        }
    }

    fn examine(
        &mut self,
        pid: u32,
        mappings: &Mappings,
        tries: u32,
        events: &mut Vec<Event>,
    ) -> Result<Option<Attachment>, NotAttached> {
        let mapped = match Mapped::of(pid, mappings, &mut self.files) {
            Ok(mapped) if mapped.is_empty() => return Ok(None),
            Ok(mapped) => mapped,
            Err((name, refusal)) => {
                self.refuse(name, &refusal.sentence);
                return Err(NotAttached::Never(refusal.reason));
            }
        };
        if mapped.libc.is_none() && tries < TRIES_A_STEP {
            // The loader maps a known C library after what needs it.
            return Err(NotAttached::NotYet);
        }
        let Some(attached) = mapped.attach() else { return Ok(None) };
        let attached = attached?;
        // Whether the threads of a free-threaded build use a GIL is decided when it makes its first interpreter.
        if attached.attached.layout.free_threaded && attached.progress == Progress::Loaded && tries < TRIES_A_STEP {
            return Err(NotAttached::NotYet);
        }
        let (others, chosen) = mapped.left_out();
        for name in others {
            events.push(self.lost(Reason::InterpreterLeftOut, 1));
            let chosen = chosen.unwrap_or_default();
            self.note_once(format!(
                "{name}: a second CPython in process {pid}; only the Python frames of {chosen} are seen there"
            ));
        }
        Ok(Some(attached))
    }

    /// Tells the user about an interpreter that is not watched, once for all of its processes.
    fn refuse(&mut self, name: &str, sentence: &str) {
        self.note_once(format!("{name}: {sentence}; of its processes only native and kernel frames are seen"));
    }

    fn note_once(&mut self, note: String) {
        if self.refused.len() < REFUSED_MAX && self.refused.insert(note.clone()) {
            self.notes.push(note);
        }
    }

    /// The layout's index in the kernel side's array.
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

//! Handles forks, execs and exits.

use std::rc::Rc;

use foldhash::HashMap;
use pyobs_abi::record::Header;
use pyobs_model::{Event, Nanos, Pid, Process, ProcessRef, Reason};

use super::{Processes, Watched};
use crate::kernel::object::Object;
use crate::pipeline::decode::Lifecycle;

impl Processes {
    /// Returns the process that ended because of it.
    pub fn notice(&mut self, notice: &Lifecycle, object: &mut Object, events: &mut Vec<Event>) -> Option<ProcessRef> {
        match notice {
            Lifecycle::Fork { parent, child } => {
                self.forked(parent, *child, object, events);
                None
            }
            Lifecycle::Exec(header) => {
                let ended = self.end(header, events);
                self.expected = self.expected.filter(|pid| *pid != header.pid);
                if self.everything {
                    // The kernel side keeps sampling it until told that it is not Python.
                    let _ = object.processes.remove(&header.pid);
                } else {
                    self.watch(header.pid, Some(self.since_start(header)), object, events);
                }
                self.visit(header.pid);
                ended
            }
            Lifecycle::Exit(header) => {
                let ended = self.end(header, events);
                self.expected = self.expected.filter(|pid| *pid != header.pid);
                self.pending.remove(&header.pid);
                self.changed.remove(&header.pid);
                ended
            }
        }
    }

    fn since_start(&self, header: &Header) -> Nanos {
        Nanos(header.time).saturating_sub(self.start)
    }

    /// Emits the number of samples taken before the interpreter was known.
    pub(super) fn report_unattached(&mut self, pid: u32, events: &mut Vec<Event>) {
        if let Some(count) = self.watched.get_mut(&pid).map(|watched| std::mem::take(&mut watched.unattached))
            && count > 0
        {
            events.push(self.lost(Reason::NotAttachedYet, count));
        }
    }

    fn end(&mut self, header: &Header, events: &mut Vec<Event>) -> Option<ProcessRef> {
        if self.pending.contains_key(&header.pid) {
            self.report_unattached(header.pid, events);
        }
        let watched = self.watched.remove(&header.pid)?;
        events.push(Event::ProcessEnd { id: watched.id, at: self.since_start(header) });
        Some(watched.id)
    }

    /// The kernel side watches the child from its first instruction on.
    fn forked(&mut self, parent: &Header, child: u32, object: &mut Object, events: &mut Vec<Event>) {
        let at = self.since_start(parent);
        let id = ProcessRef(self.next);
        let Some(parent) = self.watched.get(&parent.pid) else { return };
        let is_pending = self.pending.contains_key(&parent.pid);
        let facts = Process { pid: Pid(child), ppid: Pid(parent.pid), started: Some(at), ..parent.facts.clone() };
        events.push(Event::Process { id, process: facts.clone() });
        let placement = parent.placement.clone();
        events.push(Event::Placement { process: id, placement: placement.clone() });
        let watched = Watched {
            id,
            pid: child,
            parent: Some(parent.pid),
            python: parent.python.clone(),
            names: parent.names.fork(at),
            facts,
            placement,
            mappings: Rc::clone(&parent.mappings),
            placed: parent.placed.clone(),
            threads: HashMap::default(),
            entry: parent.entry,
            unattached: 0,
        };
        self.next += 1;
        let entry = watched.entry;
        self.watched.insert(child, watched);
        // The kernel side copied the parent's entry at the fork. The interpreter may have been found since.
        if object.processes.get(&child, 0).is_ok_and(|copied| copied != entry) {
            self.set(child, entry, object, events);
        }
        if is_pending {
            self.visit(child);
        }
    }
}

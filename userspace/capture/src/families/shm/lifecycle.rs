//! What forks, execs and exits change about the segments that processes hold.

use pyobs_abi::process::Fork;
use pyobs_abi::record::Header;
use pyobs_model::{Event, Pid, SegmentChange};

use super::Shm;

impl Shm {
    /// Handles the fork of any watched process. If the parent holds something, a record of its fork comes as well.
    pub fn child_of(&mut self, parent: u32, child: u32) {
        if self.scanned.contains(&parent) {
            self.scanned.insert(child);
        }
    }

    pub(super) fn forked(&mut self, fork: &Fork, events: &mut Vec<Event>) {
        let at = self.at(&fork.header);
        self.scanned.insert(fork.child);
        let Some(parent) = self.holders.get(&fork.header.pid) else { return };
        let child = parent.fork();
        let touched = child.held();
        self.holders.insert(fork.child, child);
        self.versions.insert(fork.child, 0);
        self.note(touched, fork.child, at, events);
    }

    pub(super) fn execed(&mut self, header: &Header, events: &mut Vec<Event>) {
        let at = self.at(header);
        *self.versions.entry(header.pid).or_default() += 1;
        let Some(holder) = self.holders.get_mut(&header.pid) else { return };
        let touched = holder.exec();
        self.note(touched, header.pid, at, events);
    }

    pub(super) fn exited(&mut self, header: &Header, events: &mut Vec<Event>) {
        let (at, pid) = (self.at(header), header.pid);
        self.scanned.remove(&pid);
        self.versions.remove(&pid);
        self.reconciliation.ended(pid);
        self.snapshots.remove(&pid);
        self.unreported.remove(&pid);
        let Some(holder) = self.holders.remove(&pid) else { return };
        for id in holder.known() {
            let Some(live) = self.live.get_mut(&id) else { continue };
            live.holders.remove(&pid);
            live.met.remove(&pid);
            live.rest();
            self.changed.remove(&(id, pid));
            events.push(Event::Segment { at, id, change: SegmentChange::Ended { pid: Pid(pid) } });
        }
    }
}

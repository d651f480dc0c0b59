//! The family `shm`: what the records of shared memory segments mean, and which process holds which
//! descriptors and mappings.

mod collector;
mod holder;
mod lifecycle;
mod offsets;
mod programs;
mod repair;
mod reporting;
pub mod resident;
mod scan;
mod snapshots;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aya::maps::{HashMap as BpfMap, MapData};
use pyobs_abi::calls::{SHM_BEGIN, SHM_END};
use pyobs_abi::control;
use pyobs_abi::record::{self, Header};
use pyobs_abi::shm::{Bounds, Change, Facts, Inode, Known, MAPPED_AT, Segment as SegmentRecord, Unlink, flags, what};
use pyobs_abi::stack::Sample;
use pyobs_model::{Event, Family, Nanos, Pid, Reason, Segment, SegmentChange, SegmentId, SegmentKind};

use self::holder::Holder;
use self::repair::Reconciliation;
use self::resident::Account;
use self::scan::{Folder, Found};
use crate::family::{AtMappings, FamilySpec};
use crate::pipeline::decode::Plain;
use crate::pipeline::processes::token_bucket::TokenBuckets;

pub const SPEC: FamilySpec = FamilySpec {
    is_on_by_default: true,
    stacks: &[record::SHM_BIRTH],
    records: &[
        record::SHM_SEGMENT,
        record::SHM_CHANGE,
        record::SHM_UNLINK,
        record::SHM_FORK,
        record::SHM_EXEC,
        record::SHM_EXIT,
    ],
    start: collector::start,
    programs: &programs::PROGRAMS,
    offsets: Some(offsets::of),
    system_calls: [&SHM_BEGIN, &SHM_END],
    at_mappings: AtMappings::FirstSign,
    control_bit: control::FAMILY_SHM,
    ..FamilySpec::new(Family::Shm, "shared memory, and who holds it")
};

/// Segments tracked at a time; further ones are counted as lost. The kernel side's table is half as large.
const SEGMENTS_MAX: usize = 65_536;
const DEPARTED_MAX: usize = 1024;
/// Forget a segment this long after its last holder is gone.
const QUIET: Duration = Duration::from_secs(1);

/// `TMPFS_MAGIC` (<https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/magic.h>).
const TMPFS: u32 = 0x0102_1994;
/// Snapshots tried of a process that changes each time; after that, reconciliation corrects it.
const SNAPSHOTS_MAX: u32 = 100;
const FOLDER: &str = "/dev/shm";

/// The maps shared with the BPF programs.
pub struct Maps {
    pub segments: BpfMap<MapData, Inode, Known>,
    pub holders: BpfMap<MapData, u32, Bounds>,
    /// Mappings found in `/proc`, which the kernel side did not see being made.
    pub found: BpfMap<MapData, u32, Bounds>,
}

/// A segment that has not ended.
struct Live {
    inode: Inode,
    generation: u32,
    kind: SegmentKind,
    /// The file system's name, without the kernel's prefix and suffix.
    name: Vec<u8>,
    linked: bool,
    bytes: u64,
    /// Pids that sent a descriptor not yet received.
    sent: Vec<u32>,
    /// By pid: the most descriptors and mappings reported so far.
    holders: HashMap<u32, (u32, u32)>,
    /// Processes that hold or held it.
    met: BTreeSet<u32>,
    /// Since when it has had no holder and no name.
    quiet: Option<Instant>,
}

/// What a process was found to hold, and its record count at that time.
struct Snapshot {
    version: u64,
    tries: u32,
    found: Vec<Found>,
}

pub struct Shm {
    start: Nanos,
    latest: Nanos,
    maps: Maps,
    devices: scan::Devices,
    ids: HashMap<Inode, SegmentId>,
    live: HashMap<SegmentId, Live>,
    /// The latest segment of each name.
    names: HashMap<Vec<u8>, SegmentId>,
    /// The latest segments that ended before the removal of their names was seen.
    departed: VecDeque<(SegmentId, Vec<u8>)>,
    holders: HashMap<u32, Holder>,
    /// Processes whose descriptors and mappings were scanned, and their children, which hold only what they inherit or what
    /// records show.
    scanned: HashSet<u32>,
    /// What has changed since the last report.
    changed: HashMap<(SegmentId, u32), Nanos>,
    next: u32,
    /// Number of records of each process.
    versions: HashMap<u32, u64>,
    reconciliation: Reconciliation,
    snapshots: HashMap<u32, Snapshot>,
    /// Mappings reported since the last tick, and processes with more to report.
    reported: usize,
    unreported: BTreeSet<u32>,
    account: Account,
    map_reads: TokenBuckets,
    folder: Folder,
}

impl Shm {
    /// Sets the time on the kernel's clock at which the recording begins.
    pub fn starts_at(&mut self, start: Nanos) {
        self.start = start;
        self.latest = Nanos(0);
    }

    pub fn new(start: Nanos, maps: Maps) -> Self {
        Self {
            start,
            latest: Nanos(0),
            maps,
            devices: scan::Devices::of_this_machine(),
            ids: HashMap::new(),
            live: HashMap::new(),
            names: HashMap::new(),
            departed: VecDeque::new(),
            holders: HashMap::new(),
            scanned: HashSet::new(),
            changed: HashMap::new(),
            next: 0,
            versions: HashMap::new(),
            reconciliation: Reconciliation::default(),
            snapshots: HashMap::new(),
            reported: 0,
            unreported: BTreeSet::new(),
            account: Account::default(),
            map_reads: TokenBuckets::default(),
            folder: Folder::new(),
        }
    }

    /// Event time of a record. Records of different CPUs can be slightly out of order; event times must not
    /// go back.
    fn at(&mut self, header: &Header) -> Nanos {
        self.latest = self.latest.max(Nanos(header.time).saturating_sub(self.start));
        self.latest
    }

    /// Whether a watched process holds a segment, or may have made one. Semaphores do not count: process pools have some,
    /// and share no memory otherwise.
    pub fn has_begun(&mut self) -> bool {
        let is_memory = |live: &Live| !live.kind.is_semaphore(&live.name, live.bytes);
        self.live.values().any(|live| !live.holders.is_empty() && is_memory(live)) || self.folder.has_new_segment()
    }

    /// Records tell everything from now on, and have told little so far.
    pub fn scan_again(&mut self) {
        self.scanned.clear();
        let versions: Vec<_> = self.holders.keys().map(|pid| (*pid, self.version(*pid))).collect();
        self.reconciliation.starts(versions);
    }

    /// `None` if the record's contents do not match its kind.
    pub fn take(&mut self, record: &Plain, events: &mut Vec<Event>) -> Option<()> {
        match record.header.kind {
            record::SHM_SEGMENT => self.segment(&record.read()?, events),
            record::SHM_CHANGE => self.change(&record.read()?, events),
            record::SHM_UNLINK => self.unlink(&record.read()?, events),
            record::SHM_FORK => self.forked(&record.read()?, events),
            record::SHM_EXEC => self.execed(&record.header, events),
            _ => self.exited(&record.header, events),
        }
        Some(())
    }

    /// Handles the first sight of a segment.
    fn segment(&mut self, record: &SegmentRecord, events: &mut Vec<Event>) {
        let at = self.at(&record.header);
        let name = until_nul(&record.name);
        let in_folder = record.flags & flags::IN_FOLDER != 0;
        let (kind, name) = self.devices.kind(record.facts.inode.dev, record.magic == TMPFS, in_folder, name);
        let creator = (record.flags & flags::CREATED != 0).then_some(record.header.pid);
        self.begin(at, &record.facts, kind, name, creator, events);
    }

    fn begin(
        &mut self,
        at: Nanos,
        facts: &Facts,
        kind: SegmentKind,
        name: &[u8],
        creator: Option<u32>,
        events: &mut Vec<Event>,
    ) -> Option<SegmentId> {
        let before = self.ids.get(&facts.inode).copied();
        let found = before.filter(|id| self.live.get(id).is_some_and(|live| live.generation == 0));
        if let (Some(before), None) = (before, found) {
            // The inode number is in use again.
            self.gone(before, at, SegmentChange::Gone, events);
        }
        if self.live.len() >= SEGMENTS_MAX {
            events.push(Event::Loss { at, reason: Reason::SegmentTableFull, count: 1 });
            return None;
        }
        // A segment found in `/proc` before its first record was read keeps its number.
        let id = found.unwrap_or(SegmentId(self.next));
        self.next += u32::from(found.is_none());
        let linked = facts.links > 0;
        self.ids.insert(facts.inode, id);
        if linked {
            self.names.insert(name.to_vec(), id);
        }
        let (holders, met) = self.live.remove(&id).map(|live| (live.holders, live.met)).unwrap_or_default();
        let live = Live {
            inode: facts.inode,
            generation: facts.generation,
            kind,
            name: name.to_vec(),
            linked,
            bytes: facts.size,
            sent: Vec::new(),
            holders,
            met,
            quiet: None,
        };
        self.live.insert(id, live);
        let segment = Segment {
            dev: device(facts.inode.dev),
            ino: facts.inode.ino,
            generation: facts.generation,
            kind,
            name: (!name.is_empty()).then(|| Arc::from(&*String::from_utf8_lossy(name))),
            linked,
            bytes: facts.size,
            creator: creator.map(Pid),
        };
        events.push(Event::Segment { at, id, change: SegmentChange::Begun(segment) });
        Some(id)
    }

    /// The segment created by the call with this stack.
    pub fn born(&self, sample: &Sample) -> Option<SegmentId> {
        let [ino, dev] = sample.detail;
        if dev == u64::from(MAPPED_AT) {
            return self.holders.get(&sample.header.pid)?.mapped_at(ino);
        }
        self.ids.get(&Inode { ino, dev: dev as u32, padding: 0 }).copied()
    }

    fn change(&mut self, change: &Change, events: &mut Vec<Event>) {
        let (at, pid) = (self.at(&change.header), change.header.pid);
        *self.versions.entry(pid).or_default() += 1;
        let range = change.start..change.end;
        match change.what {
            what::CLOSED_RANGE => {
                let touched = self.holder(pid).close_range(range);
                return self.note(touched, pid, at, events);
            }
            what::MARKED if change.facts == Facts::default() => return self.holder(pid).mark_range(range),
            what::UNMAPPED => {
                let touched = self.holder(pid).unmap(range);
                return self.note(touched, pid, at, events);
            }
            what::MADE => return self.made(pid, change.start, at, events),
            what::MOVED => {
                let touched = self.holder(pid).remap(range, change.to_start..change.to_end);
                return self.note(touched, pid, at, events);
            }
            _ => {}
        }
        let Some(id) = self.find(&change.facts) else { return };
        self.update(id, at, &change.facts, events);
        let marked = change.close_on_exec != 0;
        match change.what {
            what::OPENED => {
                let touched = self.holder(pid).open(change.fd, id, marked);
                self.note(touched, pid, at, events);
            }
            what::CLOSED => {
                let touched = self.holder(pid).close(change.fd);
                self.note(touched, pid, at, events);
            }
            what::MARKED => self.holder(pid).mark(change.fd, marked),
            what::MAPPED => {
                let touched = self.holder(pid).map(range, id, change.to_start);
                self.note(touched, pid, at, events);
            }
            what::SENT => {
                if let Some(live) = self.live.get_mut(&id) {
                    live.sent.push(pid);
                    live.quiet = None;
                    events.push(Event::Segment { at, id, change: SegmentChange::Sent { from: Pid(pid) } });
                }
            }
            what::RECEIVED | what::TAKEN => {
                let from = match change.what {
                    what::RECEIVED => self.live.get_mut(&id).and_then(|live| live.take_sent(pid)),
                    // The pidfd's process may have ended and its pid may be reused, so the process must hold
                    // the segment.
                    _ => scan::behind_pidfd(pid, change.start)
                        .filter(|from| self.holders.get(from).is_some_and(|holder| holder.count(id) != (0, 0))),
                };
                let touched = self.holder(pid).open(change.fd, id, marked);
                self.note(touched, pid, at, events);
                if from != Some(pid) || change.what == what::TAKEN {
                    let change = SegmentChange::Passed { from: from.map(Pid), to: Pid(pid) };
                    events.push(Event::Segment { at, id, change });
                }
            }
            what::RELEASED => self.gone(id, at, SegmentChange::Released, events),
            _ => {}
        }
    }

    fn find(&self, facts: &Facts) -> Option<SegmentId> {
        self.ids.get(&facts.inode).copied()
    }

    /// Takes over a record's facts about the segment itself.
    fn update(&mut self, id: SegmentId, at: Nanos, facts: &Facts, events: &mut Vec<Event>) {
        let Some(live) = self.live.get_mut(&id) else { return };
        live.generation = facts.generation;
        // A segment being released has size 0.
        if live.bytes != facts.size && facts.size > 0 {
            live.bytes = facts.size;
            events.push(Event::Segment { at, id, change: SegmentChange::Resized(facts.size) });
        }
        if live.linked && facts.links == 0 {
            live.linked = false;
            events.push(Event::Segment { at, id, change: SegmentChange::Unlinked { by: None } });
        }
    }

    fn holder(&mut self, pid: u32) -> &mut Holder {
        self.holders.entry(pid).or_default()
    }

    /// Emits what a process holds now: at once if it is more than ever before or nothing, else with the next
    /// tick.
    fn note(&mut self, touched: Vec<SegmentId>, pid: u32, at: Nanos, events: &mut Vec<Event>) {
        self.report_pieces(pid, at, events);
        for id in touched {
            let (fds, mappings) = self.holders.get(&pid).map_or((0, 0), |holder| holder.count(id));
            let Some(live) = self.live.get_mut(&id) else { continue };
            let is_news = if fds == 0 && mappings == 0 {
                live.holders.remove(&pid).is_some()
            } else {
                live.met.insert(pid);
                let (most_fds, most_mappings) = live.holders.entry(pid).or_default();
                let is_more = fds > *most_fds || mappings > *most_mappings;
                (*most_fds, *most_mappings) = (fds.max(*most_fds), mappings.max(*most_mappings));
                is_more
            };
            live.rest();
            if is_news {
                self.changed.remove(&(id, pid));
                let change = SegmentChange::Holds { pid: Pid(pid), fds, mappings };
                events.push(Event::Segment { at, id, change });
            } else {
                self.changed.insert((id, pid), at);
            }
        }
    }

    /// Handles the removal of a name.
    fn unlink(&mut self, record: &Unlink, events: &mut Vec<Event>) {
        let at = self.at(&record.header);
        let path = until_nul(&record.path);
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let by = Some(Pid(record.header.pid));
        let Some(id) = self.names.get(name).copied() else {
            // The call itself dropped the last reference, so the segment has already ended.
            if let Some(number) = self.departed.iter().position(|(_, departed)| departed == name)
                && let Some((id, _)) = self.departed.remove(number)
            {
                events.push(Event::Segment { at, id, change: SegmentChange::Unlinked { by } });
            }
            return;
        };
        let Some(live) = self.live.get_mut(&id) else { return };
        if live.kind == SegmentKind::Shm && scan::is_in_folder(live.inode, name) {
            return;
        }
        self.names.remove(name);
        live.linked = false;
        live.rest();
        events.push(Event::Segment { at, id, change: SegmentChange::Unlinked { by } });
    }

    /// Forgets a segment that has ended.
    fn gone(&mut self, id: SegmentId, at: Nanos, change: SegmentChange, events: &mut Vec<Event>) {
        let Some(live) = self.live.remove(&id) else { return };
        if self.ids.get(&live.inode) == Some(&id) {
            self.ids.remove(&live.inode);
        }
        if self.names.get(&live.name) == Some(&id) {
            self.names.remove(&live.name);
            self.departed.push_back((id, live.name));
            if self.departed.len() > DEPARTED_MAX {
                self.departed.pop_front();
            }
        }
        for pid in live.holders.keys() {
            self.changed.remove(&(id, *pid));
        }
        for pid in &live.met {
            if let Some(holder) = self.holders.get_mut(pid) {
                holder.forget(id);
            }
        }
        events.push(Event::Segment { at, id, change });
    }

    /// Call regularly: scans processes not seen before, emits changes, and forgets segments that nobody can
    /// reach any more.
    pub fn tick(&mut self, now: Nanos, running: impl Iterator<Item = u32>, events: &mut Vec<Event>) {
        for (pid, snapshot) in std::mem::take(&mut self.snapshots) {
            if self.version(pid) == snapshot.version {
                for found in snapshot.found {
                    self.take_in(pid, found, now, events);
                }
            } else if self.is_spent(pid) {
                // Keep it, although it is stale: its version shows that.
                self.snapshots.insert(pid, snapshot);
            } else if snapshot.tries < SNAPSHOTS_MAX {
                self.take_snapshot(pid, snapshot.tries + 1, now, events);
            }
        }
        let running: HashSet<u32> = running.collect();
        let holders = &self.holders;
        self.scanned.retain(|pid| running.contains(pid) || holders.contains_key(pid));
        for pid in running {
            if self.scanned.contains(&pid) {
                continue;
            }
            self.scanned.insert(pid);
            self.take_snapshot(pid, 0, now, events);
        }
        self.report(now, events);
        let quiet = self.live.iter().filter(|(_, live)| live.quiet.is_some_and(|since| since.elapsed() >= QUIET));
        let quiet: Vec<SegmentId> = quiet.map(|(id, _)| *id).collect();
        for id in quiet {
            let inode = self.live.get(&id).map(|live| live.inode);
            self.gone(id, now, SegmentChange::Gone, events);
            if let Some(inode) = inode {
                // The kernel side may have removed it already.
                let _ = self.maps.segments.remove(&inode);
            }
        }
    }
}

impl Live {
    fn rest(&mut self) {
        let is_quiet = !self.linked && self.holders.is_empty() && self.sent.is_empty();
        self.quiet = if is_quiet { self.quiet.or_else(|| Some(Instant::now())) } else { None };
    }

    /// The sender of the descriptor that `to` received, preferably another process.
    fn take_sent(&mut self, to: u32) -> Option<u32> {
        let number =
            self.sent.iter().position(|from| *from != to).or(if self.sent.is_empty() { None } else { Some(0) });
        number.map(|number| self.sent.remove(number))
    }
}

fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or(text)
}

/// Converts the kernel's `dev_t` to that of stat(2).
fn device(dev: u32) -> u64 {
    rustix::fs::makedev(dev >> 20, dev & 0x000f_ffff)
}

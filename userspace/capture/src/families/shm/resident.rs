//! How much memory segments use, and how much of it each process has resident.
//!
//! A page of a segment counts in the resident size of each process that maps it. For each mapping,
//! `/proc/PID/smaps` shows the resident part (`Rss`), and the same with each page divided by the number of
//! processes that map it (`Pss`), so that the sum over all processes counts each page once
//! (<https://github.com/torvalds/linux/blob/v6.1/Documentation/filesystems/proc.rst>). The memory of a whole
//! segment is in its inode's block count, which tmpfs updates page by page, including pages in swap
//! (<https://github.com/torvalds/linux/blob/v6.1/mm/shmem.c>).

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::time::{Duration, Instant};

use pyobs_abi::shm::Inode;
use pyobs_model::{Event, Nanos, Pid, ProcessRef, Reason, Resident, SegmentChange, SegmentId};

use super::holder::Holder;
use super::{Live, Shm};
use crate::files::status;
use crate::kernel::cost;
use crate::machine;

/// How often each process is read.
const EVERY: Duration = Duration::from_secs(5);
/// How often `smaps` is read of a process that maps less than this of segments, such as the semaphores of a process pool:
/// the file has all mappings of the process, so reading it costs the same however little it says.
const SMALL: u64 = 1 << 20;
const SMALL_EVERY: Duration = Duration::from_secs(60);
/// Time limits for a tick and for the end of a recording.
const AT_ONCE: Duration = Duration::from_millis(2);
const AT_THE_END: Duration = Duration::from_millis(300);
/// Share of one CPU that reading `smaps` may use, plus saved time. With few processes each is read every
/// [`EVERY`], with many less often.
const SHARE: f64 = 0.0003;
const SAVED_MAX: Duration = Duration::from_millis(20);
/// Reading a process with very many mappings takes long. It then pauses for this many times as long, and at
/// most `CHARGE_MAX` of it counts against `SHARE`, so that other processes do not wait for it.
const PAUSE: u32 = 2000;
const CHARGE_MAX: Duration = Duration::from_millis(5);
/// Bytes read of one process's `smaps`, about 20,000 mappings. Sizes leave out the rest, and that is counted.
const SMAPS_MAX: u64 = 16 << 20;
/// Unit of `st_blocks` on every file system (stat(2)).
const BLOCK: u64 = 512;

/// Which process is read next.
pub struct Account {
    begun: Option<Instant>,
    /// Pids, with the process's number if it is watched.
    due: VecDeque<(u32, Option<ProcessRef>)>,
    /// When each pausing process may be read again.
    pausing: BTreeMap<u32, Instant>,
    /// When the `smaps` of each process was last read, and how much it mapped.
    smaps: BTreeMap<u32, (Instant, u64)>,
    time: cost::Bucket,
    /// When there is time for the next process.
    next: Instant,
    /// The values last reported, so that only changes are emitted.
    processes: BTreeMap<u32, Resident>,
    shown: BTreeMap<(u32, SegmentId), Shown>,
    allocated: BTreeMap<SegmentId, u64>,
}

impl Default for Account {
    fn default() -> Self {
        Self {
            begun: None,
            due: VecDeque::new(),
            pausing: BTreeMap::new(),
            smaps: BTreeMap::new(),
            time: cost::Bucket::new(SHARE, SAVED_MAX),
            next: Instant::now(),
            processes: BTreeMap::new(),
            shown: BTreeMap::new(),
            allocated: BTreeMap::new(),
        }
    }
}

/// The resident memory in a process's mappings of one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shown {
    resident: u64,
    share: u64,
}

impl Account {
    fn shown_in(&self, pid: u32) -> impl Iterator<Item = (SegmentId, &Shown)> {
        self.shown.range((pid, SegmentId(0))..=(pid, SegmentId(u32::MAX))).map(|((_, id), shown)| (*id, shown))
    }

    /// Forgets what a process had of all segments but these.
    fn forget(&mut self, pid: u32, but: impl Fn(&SegmentId) -> bool) {
        let gone: Vec<SegmentId> = self.shown_in(pid).map(|(id, _)| id).filter(|id| !but(id)).collect();
        for id in gone {
            self.shown.remove(&(pid, id));
        }
    }
}

impl Shm {
    /// Reads the processes that are due; at the end, all.
    pub fn inspect_memory(
        &mut self,
        now: Nanos,
        running: impl Iterator<Item = (u32, ProcessRef)>,
        at_the_end: bool,
        events: &mut Vec<Event>,
    ) {
        let is_due = self.account.due.is_empty() && self.account.begun.is_none_or(|begun| begun.elapsed() >= EVERY);
        if is_due || at_the_end {
            let mut due: BTreeMap<u32, Option<ProcessRef>> = running.map(|(pid, id)| (pid, Some(id))).collect();
            for (pid, _) in self.holders.iter().filter(|(_, holder)| holder.has_mappings()) {
                due.entry(*pid).or_default();
            }
            self.account.processes.retain(|pid, _| due.contains_key(pid));
            self.account.pausing.retain(|pid, _| due.contains_key(pid));
            self.account.smaps.retain(|pid, _| due.contains_key(pid));
            let (holders, live) = (&self.holders, &self.live);
            self.account.shown.retain(|(pid, id), _| holders.contains_key(pid) && live.contains_key(id));
            self.account.allocated.retain(|id, _| live.contains_key(id));
            self.account.due = due.into_iter().collect();
            self.account.begun = Some(Instant::now());
        }
        let (since, limit) = (Instant::now(), if at_the_end { AT_THE_END } else { AT_ONCE });
        while since.elapsed() < limit && (at_the_end || self.account.next <= Instant::now()) {
            let Some((pid, process)) = self.account.due.pop_front() else { return };
            let (begun, before) = (Instant::now(), cost::thread_time());
            if !at_the_end && self.account.pausing.get(&pid).is_some_and(|until| *until > begun) {
                continue;
            }
            self.inspect_process(pid, process, now, at_the_end, events);
            let (spent, ended) = (cost::thread_time().saturating_sub(before), Instant::now());
            self.account.pausing.insert(pid, ended + spent * PAUSE);
            self.account.next = ended + self.account.time.spend(spent.min(CHARGE_MAX), ended);
        }
    }

    fn inspect_process(
        &mut self,
        pid: u32,
        process: Option<ProcessRef>,
        now: Nanos,
        at_the_end: bool,
        events: &mut Vec<Event>,
    ) {
        if self.are_smaps_due(pid, at_the_end) && self.inspect_smaps(pid, now, events).is_none() {
            // A process that has just ended has no memory to report.
            if fs::exists(format!("/proc/{pid}/smaps")).unwrap_or(false) {
                events.push(Event::Loss { at: now, reason: Reason::ResidentUnreadable, count: 1 });
            }
            return;
        }
        let shown = self.account.shown_in(pid);
        let (segments, share) =
            shown.fold((0, 0), |(all, shares), (_, of_one)| (all + of_one.resident, shares + of_one.share));
        if let Some(process) = process
            && let Some(resident) = machine::resident(pid)
        {
            let resident = Resident { segments, share, ..resident };
            if self.account.processes.insert(pid, resident) != Some(resident) {
                events.push(Event::Resident { at: now, process, resident });
            }
        }
    }

    fn are_smaps_due(&mut self, pid: u32, at_the_end: bool) -> bool {
        let mapped = self.holders.get(&pid).map_or(0, Holder::mapped_bytes);
        if mapped == 0 {
            self.account.smaps.remove(&pid);
            self.account.forget(pid, |_| false);
            return false;
        }
        let now = Instant::now();
        let is_due = at_the_end
            || mapped >= SMALL
            || self.account.smaps.get(&pid).is_none_or(|(read, of)| *of != mapped || now - *read >= SMALL_EVERY);
        if is_due {
            self.account.smaps.insert(pid, (now, mapped));
        }
        is_due
    }

    /// Emits how much each segment has resident in a process, where that has changed.
    fn inspect_smaps(&mut self, pid: u32, now: Nanos, events: &mut Vec<Event>) -> Option<()> {
        let shown = self.shown(pid, now, events)?;
        self.account.forget(pid, |id| shown.contains_key(id));
        for (id, what) in shown {
            if self.account.shown.insert((pid, id), what) != Some(what) {
                let change = SegmentChange::Shown { pid: Pid(pid), resident: what.resident, share: what.share };
                events.push(Event::Segment { at: now, id, change });
            }
        }
        Some(())
    }

    /// The resident memory of a process by segment. Also emits how much memory these segments use.
    fn shown(&mut self, pid: u32, now: Nanos, events: &mut Vec<Event>) -> Option<BTreeMap<SegmentId, Shown>> {
        let thread = machine::living_thread(pid);
        let mut smaps = BufReader::new(File::open(format!("/proc/{thread}/smaps")).ok()?.take(SMAPS_MAX));
        let mut shown: BTreeMap<SegmentId, Shown> = BTreeMap::new();
        let mut ranges: BTreeMap<SegmentId, Range<u64>> = BTreeMap::new();
        let mut mapping = None;
        for line in smaps.by_ref().split(b'\n') {
            let line = line.ok()?;
            let line = String::from_utf8_lossy(&line);
            if let Some((range, inode)) = head(&line) {
                mapping = self.ids.get(&inode).copied();
                if let Some(id) = mapping {
                    ranges.insert(id, range);
                }
                continue;
            }
            let Some(id) = mapping else { continue };
            let kib = |name: &str| line.strip_prefix(name)?.trim_start().split(' ').next()?.parse::<u64>().ok();
            let entry = shown.entry(id).or_default();
            entry.resident += kib("Rss:").unwrap_or(0) << 10;
            entry.share += kib("Pss:").unwrap_or(0) << 10;
        }
        if smaps.get_ref().limit() == 0 {
            events.push(Event::Loss { at: now, reason: Reason::ResidentUnreadable, count: 1 });
        }
        for (id, range) in ranges {
            let link = format!("/proc/{thread}/map_files/{:x}-{:x}", range.start, range.end);
            let Ok(found) = status(link) else { continue };
            let bytes = found.stx_blocks.saturating_mul(BLOCK);
            let is_it = self.live.get(&id).is_some_and(|live: &Live| live.inode.ino == found.stx_ino);
            if is_it && self.account.allocated.insert(id, bytes) != Some(bytes) {
                events.push(Event::Segment { at: now, id, change: SegmentChange::Allocated(bytes) });
            }
        }
        Some(shown)
    }
}

/// Parses the first line of a mapping in `/proc/PID/smaps`: its range and its file's inode.
pub fn head(line: &str) -> Option<(Range<u64>, Inode)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    let range = hexadecimal(start)?..hexadecimal(end)?;
    let (major, minor) = words.nth(2)?.split_once(':')?;
    let dev = (hexadecimal(major)? as u32) << 20 | hexadecimal(minor)? as u32;
    Some((range, Inode { ino: words.next()?.parse().ok()?, dev, padding: 0 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_mapping_has_its_range_and_its_inode() {
        let line = "7f12-7f34 rw-s 00000000 00:1b 559                        /dev/shm/psm a (deleted)";
        let (range, inode) = head(line).unwrap();
        assert_eq!((range, inode.ino, inode.dev), (0x7f12..0x7f34, 559, 0x1b));
        for line in
            ["Rss:                  48 kB", "VmFlags: rd wr sh", "", "7f12-7f34", "zz-7f rw-s 0 00:1b 1", "a-b r 0 0 1"]
        {
            assert_eq!(head(line), None, "{line}");
        }
    }
}

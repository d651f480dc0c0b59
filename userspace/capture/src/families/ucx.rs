//! The family `ucx`: transfers of UCX and UCXX.
//!
//! Probes are on the entries and returns of the libucp calls that submit a transfer, on what completes one,
//! and with UCXX on its own steps before and after. A completion callback gets its probe when it is first
//! seen. Return probes (uretprobes) are avoided, because they replace return addresses on the program's
//! stack. `ucp_worker_progress` has no permanent probe, because it is called millions of times a second.

mod collector;
mod convert;
mod ends;
mod layout;
mod programs;
mod progress;
mod rate_controller;
mod sites;
mod threads;

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aya::maps::{Array, HashMap as KernelMap, MapData};
use pyobs_abi::control;
use pyobs_abi::record;
use pyobs_abi::ucx::{
    Callback, Done, Early, Key, Kind, OF_UCXX, Thread, Total, Transfer, Woken, callback, flags, operation,
};
use pyobs_model::{Event, Family, Library, Nanos, ProcessRef, Reason, Tid, TransferChange, Transfers};

use self::convert::number;
use self::convert::operation_of;
use self::ends::{At, Ends};
use self::progress::Progress;
use self::rate_controller::{Rate, RateController};
use self::sites::{Of, Program, Site};
use self::threads::Threads;
use super::extension::{Extension, Hits, Meter, Probes, attach_to};
use crate::family::FamilySpec;
use crate::files::FileId;
use crate::kernel::probed_files::Probe;
use crate::kernel::uprobes::Uprobes;
use crate::process_maps::{Mapping, Mappings};

pub const SPEC: FamilySpec = FamilySpec {
    puts_probes: true,
    stacks: &[record::UCX_STACK],
    records: &[record::UCX_TRANSFER, record::UCX_WOKEN, record::UCX_CALLBACK],
    start: collector::start,
    programs: &programs::PROGRAMS,
    maps: &programs::MAPS,
    ..FamilySpec::new(Family::Ucx, "transfers of UCX and UCXX")
};

/// Callbacks that get a probe; completions by further ones are not seen.
const CALLBACKS_MAX: usize = 256;
/// How often sums are emitted, and when an unfinished transfer is reported as slow.
const REPORT_EVERY: Duration = Duration::from_millis(250);
const SLOW: u64 = 1_000_000_000;
/// With more transfers a second than the first value, only about as many as the second are reported one by
/// one: a stack costs about 50 µs.
const RATE_MAX: f64 = 5000.0;
const REPORTED_PER_SECOND: f64 = 1000.0;

pub struct Programs {
    pub submit_enter: OwnedFd,
    pub submit_exit: OwnedFd,
    pub complete: OwnedFd,
    pub free: OwnedFd,
    pub message: OwnedFd,
    pub handler: OwnedFd,
    pub rendezvous: OwnedFd,
    pub ucxx: OwnedFd,
    pub progress: OwnedFd,
}

pub struct Maps {
    pub open: KernelMap<MapData, Key, Transfer>,
    pub early: KernelMap<MapData, Key, Early>,
    pub requests: KernelMap<MapData, Key, Transfer>,
    pub threads: KernelMap<MapData, u64, Thread>,
    pub totals: KernelMap<MapData, Kind, Total>,
}

/// Transfers since the last call.
#[derive(Default)]
struct New {
    all: u64,
    ucxx: u64,
}

pub struct Ucx {
    programs: Arc<Programs>,
    maps: Maps,
    uprobes: Uprobes,
    meter: Meter,
    probes: Probes,
    ends: Ends,
    rate_controller: RateController,
    /// Until this time on `CLOCK_MONOTONIC`, in nanoseconds, a completion without a known beginning may belong to
    /// a transfer that was counted when it was submitted, so it is not a loss.
    stray_until: u64,
    /// Whether, in all libraries, the kernel emulates the instructions at the probes that every transfer passes,
    /// except those on ends.
    is_cheap: bool,
    seen: HashSet<FileId>,
    /// Callbacks with a probe.
    callbacks: HashSet<(FileId, u64)>,
    start: Nanos,
    processes: HashMap<u32, ProcessRef>,
    totals: HashMap<Kind, Total>,
    threads: Threads,
    /// `None` with a binding budget: an open window costs more than most budgets allow.
    progress: Option<Progress>,
    /// Transfers reported as unfinished, and their processes.
    slow: HashMap<u64, u32>,
    reported_at: Instant,
    /// Whether the user was told that transfers are only counted, and whether they are now.
    has_counted: bool,
    is_counted: bool,
    every: u32,
    every_max: u32,
}

impl Ucx {
    /// Sets the time on the kernel's clock at which the recording begins.
    pub fn starts_at(&mut self, start: Nanos) {
        self.start = start;
    }

    pub fn new(programs: Programs, maps: Maps, is_bound: bool, start: Nanos) -> io::Result<Self> {
        let uprobes = Uprobes::of_this_kernel()?;
        let progress = if is_bound { None } else { Some(Progress::new(programs.progress.try_clone()?, uprobes)) };
        let programs = Arc::new(programs);
        Ok(Self {
            progress,
            ends: Ends::new(Arc::clone(&programs), uprobes),
            rate_controller: RateController::default(),
            stray_until: 0,
            is_cheap: true,
            programs,
            maps,
            meter: Meter::new(uprobes)?,
            uprobes,
            probes: Probes::default(),
            seen: HashSet::new(),
            callbacks: HashSet::new(),
            start,
            processes: HashMap::new(),
            totals: HashMap::new(),
            threads: Threads::default(),
            slow: HashMap::new(),
            reported_at: Instant::now(),
            has_counted: false,
            is_counted: false,
            every: 1,
            every_max: 1,
        })
    }

    /// Attaches probes to the libraries of each process. Returns failures in words.
    pub fn follow<'a>(&mut self, mappings: impl Iterator<Item = (u32, &'a Mapping)>) -> Vec<String> {
        let mut notes = Vec::new();
        if self.probes.is_closed() {
            return notes;
        }
        let known =
            mappings.filter_map(|(pid, mapping)| Some((Of::named(&mapping.name)?, pid, mapping, mapping.file?)));
        let mut libraries: Vec<(Of, u32, &Mapping, FileId)> = known.collect();
        libraries.sort_by_key(|(of, ..)| *of);
        for (of, pid, mapping, file) in libraries.iter().copied() {
            if self.probes.has_room() && self.seen.insert(file) {
                match self.put(of, pid, (mapping, file)) {
                    Ok(probes) => self.probes.add(probes),
                    Err(why) => notes.push(format!("transfers of {} are not seen: {why}", mapping.name)),
                }
            }
            if let Some(progress) = self.progress.as_mut().filter(|_| of == Of::Ucp) {
                progress.has(pid, file);
            }
        }
        let mapped: Vec<(Of, u32, FileId)> = libraries.iter().map(|(of, pid, _, file)| (*of, *pid, *file)).collect();
        let failure = self.ends.hold(&mapped);
        notes.extend(failure.map(|why| format!("the results of calls that submit transfers are not seen: {why}")));
        notes
    }

    /// A file was written to, so that its probes are gone. The next process that maps it gets new ones.
    pub fn rewritten(&mut self, file: FileId) {
        if self.seen.remove(&file) {
            self.probes.forget_one();
        }
        self.callbacks.retain(|(seen, _)| *seen != file);
        self.ends.rewritten(file);
        if let Some(progress) = &mut self.progress {
            progress.rewritten(file);
        }
    }

    fn put(&mut self, of: Of, pid: u32, (mapping, file): (&Mapping, FileId)) -> Result<Vec<Probe>, String> {
        let extension = Extension::open(pid, mapping)?;
        let elf = extension.elf()?;
        if of == Of::Ucp {
            layout::check(&elf)?;
        }
        let sites = sites::of(of, &elf);
        if sites.always.is_empty() && sites.follow.is_empty() {
            return Err("it exports none of the functions that are known of it".to_owned());
        }
        self.is_cheap &= sites.is_cheap;
        let delta = elf.code_delta().ok_or("it has no code")?;
        let place = |site: Site| {
            let offset = site.address.wrapping_sub(delta);
            At { program: site.program, offset, cookie: site.cookie }
        };
        let [always, follow, ends] =
            [sites.always, sites.follow, sites.ends].map(|sites| sites.into_iter().map(place).collect::<Vec<At>>());
        let offset = elf.exported("ucp_worker_progress").map(|it| it.address.wrapping_sub(delta));
        let library = extension.into_file();
        let copy = || library.try_clone().map_err(|error| error.to_string());
        if sites.publishes {
            self.ends.publishes(file);
        }
        if let Some((progress, offset)) = self.progress.as_mut().zip(offset) {
            progress.place(file, copy()?, offset);
        }
        // Ends before beginnings, so that every transfer seen to begin is seen to end too.
        if !follow.is_empty() || !ends.is_empty() {
            self.ends.place(file, copy()?, ends, follow)?;
        }
        let attach = |at: At| attach_to(&library, self.uprobes, at.program.of(&self.programs), at.offset, at.cookie);
        always.into_iter().map(attach).collect()
    }

    /// Handles the first sight of a completion callback.
    pub fn called_back(&mut self, callback: &Callback) {
        if self.callbacks.len() >= CALLBACKS_MAX || self.probes.is_closed() {
            return;
        }
        // The process may be gone, or the callback may be in anonymous memory (a libffi closure). The
        // transfer's end is then seen only when its request is freed.
        let Ok(mappings) = Mappings::of(callback.header.pid) else { return };
        let Some(mapping) = mappings.find(callback.address) else { return };
        let Some(file) = mapping.file else { return };
        let offset = callback.address - mapping.start + mapping.offset;
        if !self.callbacks.insert((file, offset)) {
            return;
        }
        let open = || Extension::open(callback.header.pid, mapping).ok().map(Extension::into_file);
        if callback.kind != callback::MESSAGE {
            let at = At { program: Program::Complete, offset, cookie: callback.kind.into() };
            return self.ends.called_back(file, at, open);
        }
        // UCXX's handler already has a probe, found by its symbol.
        let file = if Of::named(&mapping.name) == Some(Of::Ucxx) { None } else { open() };
        let attach = |file| attach_to(&file, self.uprobes, &self.programs.message, offset, 0).ok();
        if let Some(probe) = file.and_then(attach) {
            self.probes.add_one(probe);
        }
    }

    pub fn done(&mut self, done: &Done, process: ProcessRef, events: &mut Vec<Event>) {
        self.processes.insert(done.header.pid, process);
        self.slow.remove(&done.transfer.id);
        self.report(self.at(done.header.time), &done.transfer, process, events);
    }

    pub fn woken(&mut self, woken: &Woken, events: &mut Vec<Event>) {
        let change = TransferChange::Woken { notified: self.at(woken.notified), tid: Tid(woken.header.tid) };
        events.push(Event::Transfer { at: self.at(woken.header.time), id: number(woken.id), change });
    }

    fn at(&self, time: u64) -> Nanos {
        Nanos(time).saturating_sub(self.start)
    }

    fn report(&self, at: Nanos, transfer: &Transfer, process: ProcessRef, events: &mut Vec<Event>) {
        if let Some(seen) = convert::transfer(transfer, process, |time| self.at(time)) {
            events.push(Event::Transfer { at, id: number(transfer.id), change: TransferChange::Seen(Box::new(seen)) });
        }
    }

    /// Call regularly: emits sums and unfinished transfers.
    pub fn tick(
        &mut self,
        now: Nanos,
        at_the_end: bool,
        watched: impl Iterator<Item = (u32, ProcessRef)>,
        control: &mut Array<MapData, u64>,
        events: &mut Vec<Event>,
    ) {
        let elapsed = self.reported_at.elapsed();
        if self.seen.is_empty() || (elapsed < REPORT_EVERY && !at_the_end) {
            return;
        }
        self.reported_at = Instant::now();
        self.processes.extend(watched);
        let new = self.report_totals(now, None, events);
        if let Some(progress) = &mut self.progress {
            progress.tick(now.0.saturating_add(self.start.0), control);
        }
        let mut threads = std::mem::take(&mut self.threads);
        let process = |pid| Some((self.processes.get(&pid).copied()?, self.probed(pid)));
        threads.report(now, &self.maps.threads, process, events);
        self.threads = threads;
        self.report_open(now, None, at_the_end, events);
        self.report_half_seen(now, at_the_end, events);
        let a_second = |count: u64| count as f64 / elapsed.as_secs_f64().max(1e-3);
        let rate = Rate { all: a_second(new.all), ucxx: a_second(new.ucxx) };
        let is_new = self.turn(rate, elapsed, now, control, events);
        if !is_new && self.rate_controller.is_followed() {
            self.choose(rate.all, now, control, events);
        }
    }

    /// For how long a process's calls of progress were counted; `None` while a window is open.
    fn probed(&self, pid: u32) -> Option<Nanos> {
        let progress = self.progress.as_ref()?;
        (!progress.is_open()).then(|| progress.probed(pid))
    }

    /// Reports fewer transfers one by one when there are many.
    fn choose(&mut self, rate: f64, now: Nanos, control: &mut Array<MapData, u64>, events: &mut Vec<Event>) {
        let wanted = if rate <= RATE_MAX { 1 } else { (rate / REPORTED_PER_SECOND).ceil() as u32 };
        // Return to the old rate step by step when there are fewer.
        let wanted = if wanted < self.every { wanted.max(self.every / 2) } else { wanted };
        if !self.report_every(wanted, control) {
            return;
        }
        // Announce a new maximum only while the rate is high.
        if wanted > self.every_max && rate > RATE_MAX {
            self.every_max = wanted;
            let what =
                format!("{rate:.0} transfers a second: one in {wanted} is reported singly; the totals include all");
            events.push(Event::Shed { at: now, what: what.into() });
        }
    }

    /// Returns whether this changed the setting.
    fn report_every(&mut self, every: u32, control: &mut Array<MapData, u64>) -> bool {
        let is_set = every != self.every && control.set(control::REPORT_EVERY, u64::from(every), 0).is_ok();
        if is_set {
            self.every = every;
        }
        is_set
    }

    /// Returns the number of new transfers.
    fn report_totals(&mut self, at: Nanos, only: Option<u32>, events: &mut Vec<Event>) -> New {
        let mut new = New::default();
        let sums: Vec<(Kind, Total)> = self.maps.totals.iter().flatten().collect();
        for (kind, total) in sums.into_iter().filter(|(kind, _)| only.is_none_or(|pid| pid == kind.pid)) {
            let Some(process) = self.processes.get(&kind.pid).copied() else { continue };
            let Some(operation) = operation_of(kind.operation & !OF_UCXX) else { continue };
            let before = self.totals.insert(kind, total).unwrap_or_default();
            if total.count == before.count {
                continue;
            }
            let library = if kind.operation & OF_UCXX == 0 { Library::Ucx } else { Library::Ucxx };
            new.all += total.count - before.count;
            new.ucxx += if library == Library::Ucxx { total.count - before.count } else { 0 };
            events.push(Event::Transfers(Transfers {
                at,
                process,
                library,
                operation,
                count: total.count - before.count,
                bytes: total.bytes.wrapping_sub(before.bytes),
                immediate: total.immediate.saturating_sub(before.immediate),
                failed: total.failed.saturating_sub(before.failed),
                spent: Nanos(total.spent.saturating_sub(before.spent)),
                unfollowed: total.unfollowed.saturating_sub(before.unfollowed),
                every: self.every,
            }));
        }
        new
    }

    /// Emits transfers that have been unfinished for long, at the end all. Without probes their state is
    /// unknown.
    fn report_open(&mut self, now: Nanos, only: Option<u32>, all: bool, events: &mut Vec<Event>) {
        if self.probes.is_closed() {
            return;
        }
        let (at, now) = (now, now.0.saturating_add(self.start.0));
        let pending = self.maps.open.iter().flatten();
        let registered = self.maps.requests.iter().flatten().filter(|(_, transfer)| transfer.completed == 0);
        let mut reported: HashMap<u64, (u32, Transfer)> = HashMap::new();
        // UCX reports a request that it shares with UCXX, and knows more about it.
        for (key, transfer) in registered.chain(pending) {
            let since = if transfer.registered == 0 { transfer.submitted } else { transfer.registered };
            let is_known = transfer.operation != operation::NONE && transfer.flags & flags::REPORTED != 0;
            let is_wanted = is_known && only.is_none_or(|pid| pid == key.pid);
            if is_wanted && (all || now.saturating_sub(since) >= SLOW) && !self.slow.contains_key(&transfer.id) {
                reported.insert(transfer.id, (key.pid, transfer));
            }
        }
        for (id, (pid, transfer)) in reported {
            if let Some(process) = self.processes.get(&pid).copied() {
                self.slow.insert(id, pid);
                self.report(at, &transfer, process, events);
            }
        }
    }

    /// Completions of transfers whose beginnings were not seen.
    fn report_half_seen(&mut self, at: Nanos, all: bool, events: &mut Vec<Event>) {
        let now = at.0.saturating_add(self.start.0);
        let early: Vec<(Key, Early)> = self.maps.early.iter().flatten().collect();
        let old = early.iter().filter(|(_, early)| all || now.saturating_sub(early.completed) >= SLOW);
        let removed = old.filter(|(key, _)| self.maps.early.remove(key).is_ok());
        let count = removed.filter(|(_, early)| early.completed >= self.stray_until).count() as u64;
        if count > 0 {
            events.push(Event::Loss { at, reason: Reason::TransferHalfSeen, count });
        }
    }

    /// Forgets a process that has ended or runs another program now. Its unfinished transfers have no end.
    pub fn ended(&mut self, pid: u32, at: Nanos, events: &mut Vec<Event>) {
        if !self.processes.contains_key(&pid) {
            return;
        }
        self.report_totals(at, Some(pid), events);
        let own = self.processes.get(&pid).copied();
        let probed = self.probed(pid);
        self.threads.report(at, &self.maps.threads, |of| own.filter(|_| of == pid).map(|own| (own, probed)), events);
        self.report_open(at, Some(pid), true, events);
        self.slow.retain(|_, of| *of != pid);
        forget(&mut self.maps.open, pid);
        forget(&mut self.maps.requests, pid);
        let kinds: Vec<Kind> = self.totals.keys().filter(|kind| kind.pid == pid).copied().collect();
        for kind in kinds {
            self.totals.remove(&kind);
            // If this fails, the entry is attributed to the next process with this pid.
            let _ = self.maps.totals.remove(&kind);
        }
        self.threads.forget(pid, &mut self.maps.threads);
        if let Some(progress) = &mut self.progress {
            progress.ended(pid);
        }
        self.processes.remove(&pid);
    }

    /// What hits have cost so far besides the run time of their programs. Of `runs` hits, `stepped` were on
    /// instructions that the kernel certainly single-steps.
    pub fn trap_cost(&mut self, runs: u64, stepped: u64) -> Nanos {
        let cheap = if self.is_cheap { runs.saturating_sub(stepped) } else { 0 };
        self.meter.count(Hits { cheap, stepped: runs - cheap });
        self.meter.trap_cost()
    }
}

fn forget(map: &mut KernelMap<MapData, Key, Transfer>, pid: u32) {
    let keys: Vec<Key> = map.keys().flatten().filter(|key| key.pid == pid).collect();
    for key in keys {
        // The map may already have evicted it.
        let _ = map.remove(&key);
    }
}

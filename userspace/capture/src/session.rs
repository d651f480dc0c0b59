//! One capture, from attaching the probes to the last event.

/// What collectors work with. A macro, because a method would borrow the whole session.
macro_rules! context {
    ($session:expr) => {
        crate::family::Context {
            now: $session.now(),
            start: $session.start,
            at_the_end: false,
            keep_every: $session.keep_every,
            object: &mut $session.object,
            processes: &mut $session.processes,
            interner: &mut $session.interner,
            samples: &mut $session.samples,
            events: &mut $session.scratch,
            notes: &mut $session.notes,
        }
    };
}

mod budget;
mod collectors;
pub mod error;
mod losses;
mod meta;
pub mod options;
mod poll_schedule;
mod preflight;
mod records;
mod requested;

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime};

use pyobs_abi::record::Loss;
use pyobs_model::{Event, Family, Meta, Nanos, Reason, Sample};

use crate::budget::Arbiter;
use crate::copies::Copies;
pub use crate::copies::{Copied, Page, Registers};
pub use crate::families::arena::library::description::Named;
pub use crate::families::eval::chosen::Chosen;
use crate::family::{Collector, Context};
use crate::intern::Interner;
use crate::kernel::clocks;
use crate::kernel::cost::{self, Statistics, ThreadTime};
use crate::kernel::features::Features;
use crate::kernel::object::Object;
use crate::kernel::sideband::Sideband;
use crate::kernel::ticks::CLOCK;
use crate::kernel::uprobes::Closed;
use crate::machine;
use crate::native::Native;
use crate::native::namer::Namer;
use crate::processes::Processes;
use crate::registry;
use crate::stacks::Stacks;

use self::collectors::{Collectors, Token};
pub use self::error::{CaptureError, StartError};
pub use self::options::{Addresses, Options, Targets, Walk};
use self::poll_schedule::{News, PollSchedule};
use self::requested::Requested;

/// How long the end of a capture waits for the names of native functions.
const NAMES_WAIT: Duration = Duration::from_secs(12);
/// A process that the user chose is polled most often for the first of these times after its start. Any
/// process is polled often for the second, in which its interpreter is found and its libraries get probes.
const NEWBORN: Duration = Duration::from_millis(200);
const STARTS: Duration = Duration::from_secs(1);
/// Pause between two checks for answered names.
const POLL_PAUSE: Duration = Duration::from_millis(4);
const COST_PERIOD: Duration = Duration::from_secs(1);

pub struct Session {
    object: Object,
    /// Reports executable mappings if no system call program does.
    sideband: Option<Sideband>,
    processes: Processes,
    interner: Interner,
    stacks: Stacks<Token>,
    collectors: Collectors,
    /// CPU samples named in this turn.
    samples: Vec<Sample>,
    /// Version of the memory maps that the collectors have seen.
    maps_seen: u64,
    keep_every: u64,
    arbiter: Arbiter,
    meta: Meta,
    /// Both on the kernel's clock. The end is unknown until the sampler is detached.
    start: Nanos,
    end: Option<Nanos>,
    _statistics: Statistics,
    /// CPU time of the threads whose work is done once per file.
    helpers: [ThreadTime; 2],
    counted_losses: [u64; Loss::COUNT],
    counted_missed_calls: u64,
    cost_at: Instant,
    cpu_at_start: Duration,
    /// The part of that which this thread used for work done once per process.
    startup: Duration,
    poll_schedule: PollSchedule,
    notes: Vec<String>,
    scratch: Vec<Event>,
    /// Only if they were requested.
    copies: Option<Copies>,
    /// Last, because fields are dropped in order.
    _closed: Closed,
}

impl Session {
    /// Attaches everything. Samplers come last, so that nothing runs half attached.
    ///
    /// A family that this machine cannot run is left out and listed in [`Meta::refused`]. It is an error if
    /// that is `cpu`, or every requested family.
    pub fn start(options: &Options) -> Result<Self, StartError> {
        preflight::check()?;
        machine::keep_no_large_blocks();
        let cpu_at_start = clocks::cpu_time();
        let mut requested = Requested::new(options);
        let mut object = open(options)?;
        object.turn_on(registry::control_bits(&options.probes))?;
        object.attach_lifecycle()?;
        let (tables, mappings) = object.take_native()?;
        let native = Native::new(tables, mappings).map_err(StartError::Helper)?;
        let namer = Namer::start().map_err(StartError::Helper)?;
        let helpers = [native.thread_time(), namer.thread_time()];
        let statistics = Statistics::enable();
        let cpus = aya::util::online_cpus().map_err(|(what, error)| StartError::Cpus(format!("{what}: {error}")))?;
        let sideband = collectors::choose_system_calls(&mut requested, &mut object, &cpus)?;
        let notices = sideband.iter().flat_map(Sideband::files);
        let poll_schedule = PollSchedule::new(notices, &object.records).map_err(StartError::Wait)?;
        let start = machine::monotonic();
        let mut session = Self {
            processes: Processes::new(&options.targets, start, native),
            object,
            sideband,
            interner: Interner::default(),
            stacks: Stacks::new(namer),
            collectors: Collectors::default(),
            samples: Vec::new(),
            maps_seen: 0,
            keep_every: 1,
            arbiter: Arbiter::new(options.budget, cpus.len(), options.rate_hz, budget::binds(options)),
            meta: meta::meta(options),
            start,
            end: None,
            _statistics: statistics,
            helpers,
            counted_losses: [0; Loss::COUNT],
            counted_missed_calls: 0,
            cost_at: Instant::now(),
            cpu_at_start,
            startup: Duration::ZERO,
            poll_schedule,
            notes: Vec::new(),
            scratch: Vec::new(),
            copies: matches!(options.walk, Walk::Copied { .. }).then(Copies::default),
            _closed: Closed,
        };
        session.object.call_at_most_each(PollSchedule::CALL_GAP);
        session.scan(&options.targets)?;
        session.attach(&mut requested)?;
        session.started();
        Ok(session)
    }

    /// Starts each requested family.
    fn attach(&mut self, requested: &mut Requested) -> Result<(), StartError> {
        let context = context!(self);
        self.collectors = Collectors::start(requested, context, &mut self.meta)?;
        requested.something_is_left()?;
        let start = if requested.has(Family::Cpu) || requested.has(Family::Redundancy) {
            CLOCK.clone_into(&mut self.meta.sampler);
            self.object.attach_sampler(requested.options.rate_hz)?
        } else {
            machine::monotonic()
        };
        self.begin(start);
        self.object.turn_on(registry::control_bits(&requested.options.probes))?;
        self.meta.probes = requested.options.probes.iter().map(ToString::to_string).collect();
        self.meta.refused = std::mem::take(&mut requested.refused);
        Ok(())
    }

    /// Begins the recording once everything is attached. What was found so far counts as present from the
    /// start.
    fn begin(&mut self, start: Nanos) {
        self.start = start;
        self.meta.started = machine::utc(SystemTime::now());
        self.processes.starts_at(start);
        self.collectors.begin(start);
        self.scratch.iter_mut().for_each(|event| event.not_after(Nanos(0)));
    }

    fn scan(&mut self, targets: &Targets) -> Result<(), StartError> {
        let pids = match targets {
            Targets::All => machine::processes().map_err(StartError::Scan)?,
            Targets::Pids(pids) => {
                for pid in pids {
                    machine::check_target(*pid).map_err(|why| StartError::target(*pid, why))?;
                }
                machine::descendants(pids).map_err(StartError::Scan)?
            }
            Targets::Launched { pid, program } => {
                self.processes.expect(*pid, program, &mut self.object, &mut self.scratch);
                Vec::new()
            }
        };
        for pid in pids {
            self.processes.begin(pid, &mut self.object, &mut self.scratch);
        }
        if let Targets::Pids(pids) = targets {
            for pid in pids.iter().filter(|pid| !self.processes.is_python(**pid)) {
                self.notes.push(format!(
                    "process {pid} runs no CPython that pyobs reads; only its native and kernel frames are seen"
                ));
            }
        }
        Ok(())
    }

    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Whether it attaches probes during the capture, which takes privileges.
    pub fn goes_on_probing(&self) -> bool {
        self.collectors.all().any(Collector::goes_on_probing)
    }

    /// Sentences for the user since the last call.
    pub fn notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(self.processes.notes());
        notes
    }

    /// What the user named and no process has had so far, in words.
    pub fn unfound(&self) -> Vec<String> {
        self.collectors.all().flat_map(Collector::unfound).collect()
    }

    /// False once every process that the user chose, and all their children, have ended.
    pub fn targets_alive(&self) -> bool {
        self.processes.targets_alive()
    }

    /// Makes [`Self::poll`] return early when `source` is readable or its other end is closed.
    pub fn listen(&self, source: impl AsFd) -> std::io::Result<()> {
        self.poll_schedule.listen(source)
    }

    /// Waits up to `timeout` and appends what has happened.
    pub fn poll(&mut self, timeout: Duration, events: &mut Vec<Event>) -> Result<(), CaptureError> {
        let until = Instant::now() + timeout;
        loop {
            self.wait(until)?;
            self.drain();
            events.append(&mut self.scratch);
            if !events.is_empty() || self.poll_schedule.was_rung() || Instant::now() >= until {
                return Ok(());
            }
        }
    }

    fn wait(&mut self, until: Instant) -> Result<(), CaptureError> {
        let families = self.collectors.all().filter_map(Collector::next_due);
        let due = families.chain(self.processes.next_due()).min();
        Ok(self.poll_schedule.wait(until, due)?)
    }

    fn drain(&mut self) {
        self.object.log_messages();
        self.object.jitter_ticks();
        let has_more = self.drain_records();
        self.poll_schedule.leaves(has_more);
        self.settle();
    }

    /// Work that follows the records. Notices of mappings come last, because an exec must be known before
    /// what it maps.
    fn settle(&mut self) {
        if let Some(sideband) = &mut self.sideband {
            let mut mapped = HashSet::new();
            let lost = sideband.drain(|notice| {
                mapped.insert(notice);
            });
            for notice in mapped {
                self.processes.mapped(notice);
            }
            self.lose(Reason::SidebandLost, lost);
        }
        let before = cost::thread_time();
        self.processes.attach_due(&mut self.object, &mut self.scratch);
        self.startup += cost::thread_time().saturating_sub(before);
        for file in self.processes.take_changed_files() {
            self.stacks.forget(file);
        }
        self.processes.native.settle();
        self.named();
        let news = self.news();
        if let Some(gap) = self.poll_schedule.found(news) {
            self.object.call_at_most_each(gap);
        }
        self.advance(false);
        if self.cost_at.elapsed() >= COST_PERIOD {
            self.account();
        }
    }

    fn news(&mut self) -> News {
        let has_learned = self.stacks.has_learned();
        match self.processes.grew_at().elapsed() {
            age if age < NEWBORN && self.processes.has_targets() => News::Newborn,
            age if age < STARTS => News::Process,
            _ if has_learned => News::Code,
            _ => News::None,
        }
    }

    fn advance(&mut self, at_the_end: bool) {
        let maps_read = self.processes.maps_read();
        if self.maps_seen != maps_read {
            self.maps_seen = maps_read;
            self.collectors.mapped(context!(self));
        }
        let context = Context { at_the_end, ..context!(self) };
        self.collectors.advance(context);
        self.samples.clear();
    }

    fn lose(&mut self, reason: Reason, count: u64) {
        if count > 0 {
            self.scratch.push(Event::Loss { at: self.now(), reason, count });
            if matches!(reason, Reason::SidebandLost | Reason::RingFull) {
                self.end_gone();
                self.processes.examine_all();
            }
        }
    }

    /// Time since the recording began, at most its length.
    pub fn now(&self) -> Nanos {
        self.end.unwrap_or_else(machine::monotonic).saturating_sub(self.start)
    }

    /// Takes what is left and detaches everything.
    pub fn finish(mut self, events: &mut Vec<Event>) {
        self.object.detach_sampler();
        self.end = Some(machine::monotonic());
        // If turning off fails, the ring buffer keeps filling, so the drain below is bounded.
        let _ = self.object.turn_on(0);
        self.collectors.all_mut().for_each(|collector| collector.stop());
        self.drain_ring_once();
        self.settle();
        let since = Instant::now();
        self.stacks.hurry();
        while self.stacks.is_waiting() && since.elapsed() < NAMES_WAIT {
            std::thread::sleep(POLL_PAUSE);
            self.named();
        }
        self.advance(true);
        self.account();
        let end = self.now();
        self.scratch.iter_mut().for_each(|event| event.not_after(end));
        events.append(&mut self.scratch);
    }
}

/// Opens the object with the maps that these options need.
fn open(options: &Options) -> Result<Object, StartError> {
    let mut features = Features::of_running_kernel();
    features.loops &= options.walk != Walk::Bounded;
    let has_maps = |family| match family {
        Family::Arena => !options.libraries.is_empty(),
        _ => options.probes.contains(&family),
    };
    Ok(Object::open(features, options.walk.pages(), registry::contents(has_maps))?)
}

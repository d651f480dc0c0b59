//! One capture, from attaching the probes to the last event.

mod budget;
pub mod error;
mod meta;
pub mod options;
mod poll_schedule;
mod preflight;
pub(crate) mod requested;
mod system_calls;

use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime};

use pyobs_model::{Event, Family, Meta, Nanos};

use crate::budget::Arbiter;
use crate::copies::Copies;
pub use crate::copies::{Copied, Page, Registers};
pub use crate::families::arena::library::description::Named;
pub use crate::families::eval::chosen::Chosen;
use crate::family::{Collector, Context};
use crate::kernel::clocks;
use crate::kernel::cost::{Statistics, ThreadTime};
use crate::kernel::features::Features;
use crate::kernel::object::Object;
use crate::kernel::sideband::Sideband;
use crate::kernel::ticks::CLOCK;
use crate::kernel::uprobes::Closed;
use crate::machine;
use crate::native::Native;
use crate::native::namer::Namer;
use crate::pipeline::Pipeline;
use crate::pipeline::dispatch::Collectors;
use crate::pipeline::processes::Processes;
use crate::pipeline::stacks::Stacks;
use crate::registry;

pub use self::error::{CaptureError, StartError};
pub use self::options::{Matching, Options, Targets, Walk};
use self::poll_schedule::{News, PollSchedule};
use self::requested::Requested;

/// A process that the user chose is polled most often for the first of these times after its start. Any
/// process is polled often for the second, in which its interpreter is found and its libraries get probes.
const NEWBORN: Duration = Duration::from_millis(200);
const STARTS: Duration = Duration::from_secs(1);
/// How long polls stay frequent after a new line of a function with a long line table.
const LONG_TABLES: Duration = Duration::from_secs(2);
const COST_PERIOD: Duration = Duration::from_secs(1);

pub struct Session {
    pipeline: Pipeline,
    poll_schedule: PollSchedule,
    arbiter: Arbiter,
    meta: Meta,
    _statistics: Statistics,
    /// CPU time of the threads whose work is done once per file.
    helpers: [ThreadTime; 2],
    cost_at: Instant,
    cpu_at_start: Duration,
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
        machine::return_large_blocks_eagerly();
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
        let sideband = system_calls::choose(&mut requested, &mut object, &cpus)?;
        let notices = sideband.iter().flat_map(Sideband::files);
        let poll_schedule = PollSchedule::new(notices, &object.records).map_err(StartError::Wait)?;
        object.set_wake_gap(PollSchedule::CALL_GAP);
        let start = machine::monotonic();
        let context = Context::new(object, Processes::new(&options.targets, start, native), start);
        let copies = matches!(options.walk, Walk::Copied { .. }).then(Copies::default);
        let mut session = Self {
            pipeline: Pipeline::new(context, Stacks::new(namer), sideband, copies),
            poll_schedule,
            arbiter: Arbiter::new(options.budget, cpus.len(), options.rate_hz, budget::binds(options)),
            meta: meta::meta(options),
            _statistics: statistics,
            helpers,
            cost_at: Instant::now(),
            cpu_at_start,
            _closed: Closed,
        };
        session.scan(&options.targets)?;
        session.attach(&mut requested)?;
        session.started();
        Ok(session)
    }

    /// Starts each requested family.
    fn attach(&mut self, requested: &mut Requested) -> Result<(), StartError> {
        let context = &mut self.pipeline.context;
        self.pipeline.collectors = Collectors::start(requested, context, &mut self.meta)?;
        requested.something_is_left()?;
        let start = if requested.has(Family::Cpu) || requested.has(Family::Redundancy) {
            CLOCK.clone_into(&mut self.meta.sampler);
            context.object.attach_sampler(requested.options.rate_hz)?
        } else {
            machine::monotonic()
        };
        self.meta.started = machine::utc(SystemTime::now());
        self.pipeline.begin(start);
        let object = &mut self.pipeline.context.object;
        object.turn_on(registry::control_bits(&requested.options.probes))?;
        self.meta.probes = requested.options.probes.iter().map(ToString::to_string).collect();
        self.meta.refused = std::mem::take(&mut requested.refused);
        Ok(())
    }

    fn scan(&mut self, targets: &Targets) -> Result<(), StartError> {
        let Context { processes, object, events, notes, .. } = &mut self.pipeline.context;
        let pids = match targets {
            Targets::All | Targets::Matching(_) => machine::processes().map_err(StartError::Scan)?,
            Targets::Pids(pids) => {
                pids.iter().try_for_each(|pid| machine::check_target(*pid))?;
                machine::descendants(pids).map_err(StartError::Scan)?
            }
            Targets::Launched { pid, program } => {
                processes.expect(*pid, program, object, events);
                Vec::new()
            }
        };
        for pid in pids {
            processes.begin(pid, object, events);
        }
        if matches!(targets, Targets::Matching(_)) && processes.running().next().is_none() {
            notes.push(
                "no Python process that runs now matches; those that start later are watched if they do".to_owned(),
            );
        }
        if let Targets::Pids(pids) = targets {
            for pid in pids.iter().filter(|pid| !processes.is_python(**pid)) {
                notes.push(format!(
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
        self.pipeline.collectors.all().any(Collector::goes_on_probing)
    }

    /// Sentences for the user since the last call.
    pub fn notes(&mut self) -> Vec<String> {
        let Context { notes, processes, .. } = &mut self.pipeline.context;
        let mut notes = std::mem::take(notes);
        notes.extend(processes.notes());
        notes
    }

    /// What the user named and no process has had so far, in words.
    pub fn unfound(&self) -> Vec<String> {
        self.pipeline.collectors.all().flat_map(Collector::unfound).collect()
    }

    /// False once every process that the user chose, and all their children, have ended.
    pub fn targets_alive(&self) -> bool {
        self.pipeline.context.processes.targets_alive()
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
            self.turn();
            events.append(&mut self.pipeline.context.events);
            if !events.is_empty() || self.poll_schedule.was_rung() || Instant::now() >= until {
                return Ok(());
            }
        }
    }

    fn wait(&mut self, until: Instant) -> Result<(), CaptureError> {
        let families = self.pipeline.collectors.all().filter_map(Collector::next_due);
        let due = families.chain(self.pipeline.context.processes.next_due()).min();
        Ok(self.poll_schedule.wait(until, due)?)
    }

    fn turn(&mut self) {
        let has_more = self.pipeline.turn();
        self.poll_schedule.leaves(has_more);
        self.pipeline.settle();
        let news = self.news();
        if let Some(gap) = self.poll_schedule.found(news) {
            self.pipeline.context.object.set_wake_gap(gap);
        }
        self.pipeline.advance();
        if self.cost_at.elapsed() >= COST_PERIOD {
            self.account();
        }
    }

    fn news(&mut self) -> News {
        let has_learned = self.pipeline.has_learned();
        let processes = &self.pipeline.context.processes;
        match processes.grew_at().elapsed() {
            age if age < NEWBORN && processes.has_targets() => News::Newborn,
            age if age < STARTS => News::Process,
            _ if self.pipeline.long_table_at().is_some_and(|at| at.elapsed() < LONG_TABLES) => News::LongTable,
            _ if has_learned => News::Code,
            _ => News::None,
        }
    }

    /// With [`Walk::Copied`]: the samples since the last call as the kernel side walked them, with copies of
    /// their stacks.
    pub fn copies(&mut self) -> Vec<Copied> {
        self.pipeline.copies()
    }

    /// Time since the recording began, at most its length.
    pub fn now(&self) -> Nanos {
        self.pipeline.context.now()
    }

    /// Takes what is left and detaches everything.
    pub fn finish(mut self, events: &mut Vec<Event>) {
        self.pipeline.finish();
        self.account();
        let end = self.now();
        let left = &mut self.pipeline.context.events;
        left.iter_mut().for_each(|event| event.not_after(end));
        events.append(left);
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
    let mut object = Object::open(features, options.walk.pages(), registry::contents(has_maps))?;
    object.load_together(|family| options.probes.contains(&family));
    Ok(object)
}

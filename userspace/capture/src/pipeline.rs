//! The path of a record from the ring buffer to events.
//!
//! | stage | file |
//! |---|---|
//! | takes records, a bounded number at a time | `drain.rs` |
//! | parses one | `decode.rs` |
//! | keeps the watched processes, and what is known about each | `processes.rs` |
//! | joins the halves of a stack and names its frames | `stacks.rs` |
//! | hands each family its records, stacks and notices | `dispatch.rs` |
//!
//! The stages share a [`Context`]. They run on one thread, in turns: the [`Session`](crate::session::Session)
//! decides when.

pub mod decode;
pub mod dispatch;
mod drain;
mod losses;
pub mod processes;
pub mod stacks;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use pyobs_abi::record::Loss;
use pyobs_model::{Event, Nanos, Reason};

use self::decode::Record;
use self::dispatch::{Collectors, Token};
use self::stacks::{Stacks, Taken};
use crate::copies::{Copied, Copies};
use crate::family::{Context, NamedStack};
use crate::kernel::cost::thread_time;
use crate::kernel::probed_files::{self, Rewritten};
use crate::kernel::sideband::Sideband;
use crate::limits::GroupLimits;
use crate::machine;
use crate::machine_load::MachineLoad;

/// How long the end of a capture waits for the names of native functions.
const NAMES_WAIT: Duration = Duration::from_secs(12);
/// Pause between two checks for answered names.
const POLL_PAUSE: Duration = Duration::from_millis(4);

pub struct Pipeline {
    pub context: Context,
    pub collectors: Collectors,
    limits: GroupLimits,
    load: MachineLoad,
    stacks: Stacks<Token>,
    /// Reports executable mappings if no system call program does.
    sideband: Option<Sideband>,
    /// Only if they were requested.
    copies: Option<Copies>,
    /// Memory for the records of one chunk.
    records: Vec<Record>,
    /// Version of the memory maps that the collectors have seen.
    maps_seen: u64,
    counted_losses: [u64; Loss::COUNT],
    counted_missed_calls: u64,
    /// CPU time used for work done once per process.
    pub startup: Duration,
}

impl Pipeline {
    pub fn new(context: Context, stacks: Stacks<Token>, sideband: Option<Sideband>, copies: Option<Copies>) -> Self {
        Self {
            context,
            collectors: Collectors::default(),
            limits: GroupLimits::default(),
            load: MachineLoad::default(),
            stacks,
            sideband,
            copies,
            records: Vec::new(),
            maps_seen: 0,
            counted_losses: [0; Loss::COUNT],
            counted_missed_calls: 0,
            startup: Duration::ZERO,
        }
    }

    /// Begins the recording once everything is attached. What was found so far counts as present from the
    /// start.
    pub fn begin(&mut self, start: Nanos) {
        self.context.start = start;
        self.context.processes.starts_at(start);
        self.collectors.begin(start);
        self.context.events.iter_mut().for_each(|event| event.not_after(Nanos(0)));
    }

    /// Handles the records of one turn and the work that follows them. Returns whether the ring buffer
    /// contains more.
    pub fn turn(&mut self) -> bool {
        self.context.object.log_messages();
        self.context.object.jitter_ticks();
        self.drain()
    }

    /// Takes up what other threads and the sideband have reported. Notices of mappings come after the records,
    /// because an exec must be known before what it maps.
    pub fn settle(&mut self) {
        if let Some(sideband) = &mut self.sideband {
            let mut mapped = HashSet::new();
            let lost = sideband.drain(|notice| {
                mapped.insert(notice);
            });
            for notice in mapped {
                self.context.processes.mapped(notice);
            }
            self.lose(Reason::SidebandLost, lost);
        }
        let context = &mut self.context;
        let before = thread_time();
        context.processes.attach_due(&mut context.object, &mut context.events);
        self.startup += thread_time().saturating_sub(before);
        for file in context.processes.take_changed_files() {
            self.stacks.forget(file);
        }
        context.processes.native.settle();
        for Rewritten { id, path } in probed_files::take_rewritten() {
            context.notes.push(format!(
                "{path} was written to, so its probes were removed; processes that map it from now on get new ones"
            ));
            self.collectors.rewritten(id);
        }
        self.named();
    }

    /// Whether a code object was read since the last call.
    pub fn has_learned(&mut self) -> bool {
        self.stacks.has_learned()
    }

    /// When a line was last looked up in a line table that is not kept.
    pub fn long_table_at(&self) -> Option<Instant> {
        self.stacks.long_table_at()
    }

    /// Runs one turn of the collectors.
    pub fn advance(&mut self) {
        let maps_read = self.context.processes.maps_read();
        if self.maps_seen != maps_read {
            self.maps_seen = maps_read;
            self.collectors.mapped(&mut self.context);
        }
        self.collectors.advance(&mut self.context);
        let context = &mut self.context;
        let (now, groups) = (context.now(), context.processes.groups());
        self.limits.poll(now, context.at_the_end, groups, &mut context.events);
        self.load.poll(now, self.context.at_the_end, &mut self.context.events);
        self.context.samples.clear();
    }

    /// Passes on the stacks whose frames are all named.
    fn named(&mut self) {
        let context = &mut self.context;
        for Taken { purpose, stack, outcome } in self.stacks.named(&mut context.interner, &mut context.events) {
            self.collectors.named(purpose, NamedStack { id: stack, outcome }, context);
        }
    }

    pub fn lose(&mut self, reason: Reason, count: u64) {
        if count > 0 {
            let at = self.context.now();
            self.context.events.push(Event::Loss { at, reason, count });
            if matches!(reason, Reason::SidebandLost | Reason::RingFull) {
                self.end_gone();
                self.context.processes.examine_all();
            }
        }
    }

    /// Counts what the kernel side has lost since the last call.
    pub fn count_losses(&mut self) {
        let counted = self.context.object.losses();
        for loss in Loss::ALL {
            let index = *loss as usize;
            let new = counted[index].saturating_sub(self.counted_losses[index]);
            self.lose(losses::reason(*loss), new);
        }
        self.counted_losses = counted;
        let missed = self.context.object.missed_calls();
        self.lose(Reason::SystemCallMissed, missed.saturating_sub(self.counted_missed_calls));
        self.counted_missed_calls = missed;
    }

    /// With [`Walk::Copied`](crate::session::Walk::Copied): the samples since the last call as the kernel side
    /// walked them, with copies of their stacks. The newest are held back until all their pages have arrived.
    pub fn copies(&mut self) -> Vec<Copied> {
        self.copies.as_mut().map_or_else(Vec::new, |copies| copies.take(machine::monotonic().0))
    }

    /// Detaches the programs, takes what is left, and waits a bounded time for names.
    pub fn finish(&mut self) {
        self.context.object.detach_sampler();
        self.context.end = Some(machine::monotonic());
        // If turning off fails, the ring buffer keeps filling, so the drain below is bounded.
        let _ = self.context.object.turn_on(0);
        self.collectors.all_mut().for_each(|collector| collector.stop());
        self.drain_ring_once();
        self.settle();
        let since = Instant::now();
        self.stacks.hurry();
        while self.stacks.is_waiting() && since.elapsed() < NAMES_WAIT {
            std::thread::sleep(POLL_PAUSE);
            self.named();
        }
        self.context.at_the_end = true;
        self.advance();
    }
}

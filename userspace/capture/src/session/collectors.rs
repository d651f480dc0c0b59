//! The collectors of the families that are on, and what each is told.

use pyobs_model::{Event, Family, Meta, Nanos, Outcome, ProcessRef, Sample, StackId};

use super::asked::Asked;
use super::error::StartError;
use super::options::Targets;
use crate::budget::Arbiter;
use crate::family::{Collector, Context, NamedStack, Start};
use crate::intern::Interner;
use crate::kernel::object::Object;
use crate::kernel::sideband::Sideband;
use crate::processes::Processes;
use crate::record::{Life, Plain, Stack};
use crate::registry;

/// Names a stack that a family waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    family: Family,
    number: u64,
}

#[derive(Default)]
pub(super) struct Collectors {
    all: Vec<Box<dyn Collector>>,
    /// Whose each family's records are.
    of: [Option<usize>; Family::ALL.len()],
    /// Samples of the CPUs that were named in this turn.
    samples: Vec<Sample>,
}

/// The parts of a session that collectors work with.
pub(super) struct Parts<'a> {
    pub now: Nanos,
    pub start: Nanos,
    pub keep_every: u64,
    pub object: &'a mut Object,
    pub processes: &'a mut Processes,
    pub interner: &'a mut Interner,
    pub events: &'a mut Vec<Event>,
    pub notes: &'a mut Vec<String>,
}

impl<'a> Parts<'a> {
    fn context(self, at_the_end: bool, samples: &'a mut Vec<Sample>) -> Context<'a> {
        let Self { now, start, keep_every, object, processes, interner, events, notes } = self;
        Context { now, start, at_the_end, keep_every, object, processes, interner, samples, events, notes }
    }
}

impl Collectors {
    /// Starts each family that was asked for.
    pub fn start(asked: &mut Asked, parts: Parts<'_>, meta: &mut Meta) -> Result<Self, StartError> {
        let Parts { start, object, processes, interner, events, notes, .. } = parts;
        let mut own = Self::default();
        for spec in &registry::SPECS {
            let served: Vec<Family> = std::iter::once(&spec.family).chain(spec.serves).copied().collect();
            if !served.iter().any(|family| asked.has(*family)) {
                continue;
            }
            let options = &asked.options;
            let made = (spec.start)(&mut Start { options, object, processes, interner, meta, start, events, notes });
            match made {
                Ok(collector) => {
                    own.of[spec.family as usize] = Some(own.all.len());
                    own.all.push(collector);
                }
                Err(error) if spec.family == Family::Cpu => return Err(error),
                Err(error) => asked.refuse(&served, &error),
            }
        }
        Ok(own)
    }

    /// The recording begins.
    pub fn begin(&mut self, start: Nanos) {
        self.all.iter_mut().for_each(|collector| collector.begin(start));
    }

    fn find(&mut self, family: Family) -> Option<&mut Box<dyn Collector>> {
        self.all.get_mut(self.of[family as usize]?)
    }

    /// A record without a stack. `None` if it is not what its kind says.
    pub fn record(&mut self, family: Family, record: &Plain, parts: Parts<'_>) -> Option<()> {
        let mut samples = std::mem::take(&mut self.samples);
        // Those of a family that could not start are nobody's.
        let taken = match self.find(family) {
            Some(collector) => collector.record(record, &mut parts.context(false, &mut samples)),
            None => Some(()),
        };
        self.samples = samples;
        taken
    }

    /// A record with a stack. Returns the token for the stack, if it is of any use.
    pub fn wants(&mut self, family: Family, stack: &Stack, process: ProcessRef, parts: Parts<'_>) -> Option<Token> {
        if family == Family::Cpu {
            self.all.iter_mut().for_each(|collector| collector.sampled(&stack.sample, process));
        }
        let mut samples = std::mem::take(&mut self.samples);
        let context = &mut parts.context(false, &mut samples);
        let number = self.find(family).and_then(|collector| collector.wants(stack, process, context));
        self.samples = samples;
        number.map(|number| Token { family, number })
    }

    /// A stack has its names.
    pub fn named(&mut self, token: Token, id: Option<StackId>, outcome: Outcome, parts: Parts<'_>) {
        let mut samples = std::mem::take(&mut self.samples);
        if let Some(collector) = self.find(token.family) {
            let context = &mut parts.context(false, &mut samples);
            collector.named(token.number, NamedStack { id, outcome }, context);
        }
        self.samples = samples;
    }

    /// A process ends, or becomes another program; it is still known.
    pub fn ended(&mut self, life: &Life, parts: Parts<'_>) {
        let (Life::Exec(header) | Life::Exit(header)) = life else { return };
        self.each(false, parts, |collector, context| {
            collector.ended(header.pid, context.at(header.time), context);
        });
    }

    /// A process has forked, and the child is known.
    pub fn forked(&mut self, life: &Life, parts: Parts<'_>) {
        let Life::Fork { parent, child } = life else { return };
        let Some(id) = parts.processes.get(*child).map(|(watched, _)| watched.id) else { return };
        self.each(false, parts, |collector, context| {
            collector.forked(parent.pid, (*child, id), context.at(parent.time), context);
        });
    }

    /// Some processes' memory maps were read again.
    pub fn mapped(&mut self, parts: Parts<'_>) {
        self.each(false, parts, |collector, context| collector.mapped(context));
    }

    /// A turn of the loop; the last one `at_the_end`.
    pub fn advance(&mut self, at_the_end: bool, parts: Parts<'_>) {
        self.each(at_the_end, parts, |collector, context| collector.advance(context));
        self.samples.clear();
    }

    /// Has each keep to what the arbiter allows. Whether all do.
    pub fn keep(&mut self, arbiter: &Arbiter, parts: Parts<'_>) -> bool {
        let mut do_all = true;
        self.each(false, parts, |collector, context| do_all &= collector.keep(arbiter, context));
        do_all
    }

    fn each(&mut self, at_the_end: bool, parts: Parts<'_>, mut act: impl FnMut(&mut dyn Collector, &mut Context<'_>)) {
        let Self { all, samples, .. } = self;
        let mut context = parts.context(at_the_end, samples);
        all.iter_mut().for_each(|collector| act(collector.as_mut(), &mut context));
    }

    pub fn all(&self) -> impl Iterator<Item = &dyn Collector> {
        self.all.iter().map(AsRef::as_ref)
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn Collector>> {
        self.all.iter_mut()
    }
}

/// Starts to look at system calls if a family needs it, and has them tell of executable mappings. Returns what does so
/// where they do not.
pub(super) fn look_at_system_calls(
    asked: &mut Asked,
    object: &mut Object,
    cpus: &[u32],
) -> Result<Option<Sideband>, StartError> {
    let families = registry::of_system_calls();
    if families.iter().any(|family| asked.has(*family)) {
        match object.attach_system_calls(registry::points(&asked.options.probes)) {
            Ok(()) => {
                object.tell_mappings(asked.options.targets == Targets::All)?;
                return Ok(None);
            }
            Err(error) => asked.refuse(&families, &error.into()),
        }
    }
    Ok(Some(Sideband::open(cpus)?))
}

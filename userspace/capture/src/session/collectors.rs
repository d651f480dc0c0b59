//! The collectors of the enabled families, and which of them gets what.

use pyobs_model::{Family, Meta, Nanos, ProcessRef};

use super::error::StartError;
use super::options::Targets;
use super::requested::Requested;
use crate::budget::Arbiter;
use crate::family::{Collector, Context, NamedStack, Start};
use crate::kernel::object::Object;
use crate::kernel::sideband::Sideband;
use crate::record::{Lifecycle, Plain, Stack};
use crate::registry;

/// Identifies a stack that a family waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    family: Family,
    number: u64,
}

#[derive(Default)]
pub(super) struct Collectors {
    all: Vec<Box<dyn Collector>>,
    /// The collector that gets each family's records.
    of: [Option<usize>; Family::ALL.len()],
}

impl Collectors {
    /// Starts each requested family.
    pub fn start(requested: &mut Requested, context: Context<'_>, meta: &mut Meta) -> Result<Self, StartError> {
        let Context { start, object, processes, interner, events, notes, .. } = context;
        let mut own = Self::default();
        for spec in &registry::SPECS {
            let served: Vec<Family> = std::iter::once(&spec.family).chain(spec.serves).copied().collect();
            if !served.iter().any(|family| requested.has(*family)) {
                continue;
            }
            let options = &requested.options;
            let made = (spec.start)(&mut Start { options, object, processes, interner, meta, start, events, notes });
            match made {
                Ok(collector) => {
                    own.of[spec.family as usize] = Some(own.all.len());
                    own.all.push(collector);
                }
                Err(error) if spec.family == Family::Cpu => return Err(error),
                Err(error) => requested.refuse(&served, &error),
            }
        }
        Ok(own)
    }

    /// Begins the recording.
    pub fn begin(&mut self, start: Nanos) {
        self.all.iter_mut().for_each(|collector| collector.begin(start));
    }

    fn find(&mut self, family: Family) -> Option<&mut Box<dyn Collector>> {
        self.all.get_mut(self.of[family as usize]?)
    }

    /// Passes on a record without a stack. `None` if its contents do not match its kind.
    pub fn record(&mut self, family: Family, record: &Plain, mut context: Context<'_>) -> Option<()> {
        // Ignore records of families that could not start.
        self.find(family).map_or(Some(()), |collector| collector.record(record, &mut context))
    }

    /// Passes on a record with a stack. Returns the token for the stack, if a family wants it.
    pub fn wants(
        &mut self,
        family: Family,
        stack: &Stack,
        process: ProcessRef,
        mut context: Context<'_>,
    ) -> Option<Token> {
        if family == Family::Cpu {
            self.all.iter_mut().for_each(|collector| collector.sampled(&stack.sample, process));
        }
        let number = self.find(family)?.wants(stack, process, &mut context)?;
        Some(Token { family, number })
    }

    /// Passes on a stack whose frames are all named.
    pub fn named(&mut self, token: Token, stack: NamedStack, mut context: Context<'_>) {
        if let Some(collector) = self.find(token.family) {
            collector.named(token.number, stack, &mut context);
        }
    }

    /// Announces that a process ends or becomes another program; it is still known.
    pub fn ended(&mut self, change: &Lifecycle, context: Context<'_>) {
        let (Lifecycle::Exec(header) | Lifecycle::Exit(header)) = change else { return };
        let at = context.at(header.time);
        self.each(context, |collector, context| collector.ended(header.pid, at, context));
    }

    /// Announces that a process has forked; the child is already known.
    pub fn forked(&mut self, change: &Lifecycle, context: Context<'_>) {
        let Lifecycle::Fork { parent, child } = change else { return };
        let Some(id) = context.processes.get(*child).map(|(watched, _)| watched.id) else { return };
        let at = context.at(parent.time);
        self.each(context, |collector, context| collector.forked(parent.pid, (*child, id), at, context));
    }

    /// Announces that some processes' memory maps were read again.
    pub fn mapped(&mut self, context: Context<'_>) {
        self.each(context, |collector, context| collector.mapped(context));
    }

    /// Runs one turn of the loop.
    pub fn advance(&mut self, context: Context<'_>) {
        self.each(context, |collector, context| collector.advance(context));
    }

    /// Makes each collector keep to the arbiter's limits. Returns whether all do.
    pub fn keep(&mut self, arbiter: &Arbiter, context: Context<'_>) -> bool {
        let mut do_all = true;
        self.each(context, |collector, context| do_all &= collector.keep(arbiter, context));
        do_all
    }

    fn each(&mut self, mut context: Context<'_>, mut act: impl FnMut(&mut dyn Collector, &mut Context<'_>)) {
        self.all.iter_mut().for_each(|collector| act(collector.as_mut(), &mut context));
    }

    pub fn all(&self) -> impl Iterator<Item = &dyn Collector> {
        self.all.iter().map(AsRef::as_ref)
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn Collector>> {
        self.all.iter_mut()
    }
}

/// Starts watching system calls if a family needs them, and lets them report executable mappings. Returns the
/// sideband that reports these otherwise.
pub(super) fn choose_system_calls(
    requested: &mut Requested,
    object: &mut Object,
    cpus: &[u32],
) -> Result<Option<Sideband>, StartError> {
    let families = registry::of_system_calls();
    if families.iter().any(|family| requested.has(*family)) {
        match object.attach_system_calls(registry::points(&requested.options.probes)) {
            Ok(()) => {
                object.report_mappings(requested.options.targets == Targets::All)?;
                return Ok(None);
            }
            Err(error) => requested.refuse(&families, &error.into()),
        }
    }
    Ok(Some(Sideband::open(cpus)?))
}

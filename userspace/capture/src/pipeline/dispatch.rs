//! The collectors of the enabled families, and which of them gets what.

use pyobs_model::{Family, Meta, Nanos, ProcessRef, TaskId};

use super::decode::{Lifecycle, Plain, Stack};
use crate::budget::Arbiter;
use crate::family::{Collector, Context, NamedStack, Start};
use crate::files::FileId;
use crate::registry;
use crate::session::error::StartError;
use crate::session::requested::Requested;

/// Identifies a stack that a family waits for.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    family: Family,
    number: u64,
}

#[derive(Default)]
pub struct Collectors {
    all: Vec<Box<dyn Collector>>,
    /// The collector that gets each family's records.
    of: [Option<usize>; Family::ALL.len()],
}

impl Collectors {
    /// Starts each requested family.
    pub fn start(requested: &mut Requested, context: &mut Context, meta: &mut Meta) -> Result<Self, StartError> {
        let mut own = Self::default();
        for spec in &registry::SPECS {
            let served: Vec<Family> = std::iter::once(&spec.family).chain(spec.serves).copied().collect();
            if !served.iter().any(|family| requested.has(*family)) {
                continue;
            }
            let made = (spec.start)(&mut Start::new(&requested.options, context, meta));
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
    pub fn record(&mut self, family: Family, record: &Plain, context: &mut Context) -> Option<()> {
        // Ignore records of families that could not start.
        self.find(family).map_or(Some(()), |collector| collector.record(record, context))
    }

    /// Passes on a record with a stack. Returns the token for the stack, if a family wants it.
    pub fn wants(
        &mut self,
        family: Family,
        stack: &Stack,
        process: ProcessRef,
        context: &mut Context,
    ) -> Option<Token> {
        if family == Family::Cpu {
            self.all.iter_mut().for_each(|collector| collector.sampled(&stack.sample, process));
        }
        let number = self.find(family)?.wants(stack, process, context)?;
        Some(Token { family, number })
    }

    /// Returns the task that ran where a stack was taken. Its Python frames are named.
    pub fn task_of(&mut self, stack: &Stack, context: &mut Context) -> Option<TaskId> {
        self.find(Family::Tasks)?.task_of(stack, context)
    }

    /// Passes on a stack whose frames are all named.
    pub fn named(&mut self, token: Token, stack: NamedStack, context: &mut Context) {
        if let Some(collector) = self.find(token.family) {
            collector.named(token.number, stack, context);
        }
    }

    /// Announces that a process ends or becomes another program; it is still known.
    pub fn ended(&mut self, change: &Lifecycle, context: &mut Context) {
        let (Lifecycle::Exec(header) | Lifecycle::Exit(header)) = change else { return };
        let at = context.at(header.time);
        self.each(context, |collector, context| collector.ended(header.pid, at, context));
    }

    /// Announces that a process has forked; the child is already known.
    pub fn forked(&mut self, change: &Lifecycle, context: &mut Context) {
        let Lifecycle::Fork { parent, child } = change else { return };
        let Some(id) = context.processes.get(*child).map(|(watched, _)| watched.id) else { return };
        let at = context.at(parent.time);
        self.each(context, |collector, context| collector.forked(parent.pid, (*child, id), at, context));
    }

    /// Announces that a file was written to, which has removed all probes on it.
    pub fn rewritten(&mut self, file: FileId) {
        self.all.iter_mut().for_each(|collector| collector.rewritten(file));
    }

    /// Announces that some processes' memory maps were read again.
    pub fn mapped(&mut self, context: &mut Context) {
        self.each(context, |collector, context| collector.mapped(context));
    }

    /// Runs one turn of the loop.
    pub fn advance(&mut self, context: &mut Context) {
        self.each(context, |collector, context| collector.advance(context));
    }

    /// Makes each collector keep to the arbiter's limits. Returns whether all do.
    pub fn keep(&mut self, arbiter: &Arbiter, context: &mut Context) -> bool {
        let mut do_all = true;
        self.each(context, |collector, context| do_all &= collector.keep(arbiter, context));
        do_all
    }

    fn each(&mut self, context: &mut Context, mut act: impl FnMut(&mut dyn Collector, &mut Context)) {
        self.all.iter_mut().for_each(|collector| act(collector.as_mut(), context));
    }

    pub fn all(&self) -> impl Iterator<Item = &dyn Collector> {
        self.all.iter().map(AsRef::as_ref)
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn Collector>> {
        self.all.iter_mut()
    }
}

//! The family `arena` in a session: CPython's arenas and those of the libraries that the user named.

use pyobs_abi::record;
use pyobs_model::{ArenaChange, Event, Nanos, ProcessRef};

use super::library::{self, Libraries};
use super::{Arenas, Ids, Wanted};
use crate::budget::{Arbiter, Spender};
use crate::family::{Collector, Context, NamedStack, Spent, Start, Waiting};
use crate::files::FileId;
use crate::kernel::object::Object;
use crate::pipeline::decode::{Plain, Stack};
use crate::session::error::StartError;

struct Memory {
    arenas: Arenas,
    libraries: Option<Libraries>,
    waiting: Waiting<Wanted>,
}

pub(super) fn start(start: &mut Start<'_>) -> Result<Box<dyn Collector>, StartError> {
    let ids = Ids::default();
    let libraries = follow_libraries(start, ids.clone())?;
    Ok(Box::new(Memory { arenas: Arenas::new(start.start, ids), libraries, waiting: Waiting::default() }))
}

/// Loads what libraries need; unlike CPython's own arenas, theirs take probes.
fn follow_libraries(start: &mut Start<'_>, ids: Ids) -> Result<Option<Libraries>, StartError> {
    if start.options.libraries.is_empty() {
        return Ok(None);
    }
    let (programs, sites) = library::programs::load(start.object)?;
    let (libraries, notes) =
        Libraries::new(&start.options.libraries, programs, sites, (start.start, ids)).map_err(StartError::Uprobes)?;
    start.notes.extend(notes);
    Ok(Some(libraries))
}

impl Collector for Memory {
    fn begin(&mut self, start: Nanos) {
        self.arenas.starts_at(start);
        self.libraries.iter_mut().for_each(|libraries| libraries.starts_at(start));
    }

    fn record(&mut self, record: &Plain, context: &mut Context) -> Option<()> {
        if record.header.kind == record::ARENA_FREED {
            self.arenas.freed(&record.read()?, &mut context.events);
            return Some(());
        }
        let hit = record.read()?;
        if let (Some(libraries), Some((watched, _))) = (&mut self.libraries, context.processes.get(record.header.pid)) {
            libraries.hit(&hit, watched.id, &mut context.events);
        }
        Some(())
    }

    fn wants(&mut self, stack: &Stack, process: ProcessRef, context: &mut Context) -> Option<u64> {
        let header = &stack.sample.header;
        let wanted = if header.kind == record::ARENA_BIRTH {
            let (watched, _) = context.processes.get(header.pid)?;
            let id = self.arenas.born(stack, process, watched.python.as_deref(), &mut context.events)?;
            Wanted::Birth { id, at: context.at(header.time) }
        } else {
            self.libraries.as_mut()?.stack(header.tid)?
        };
        Some(self.waiting.add(wanted))
    }

    fn named(&mut self, number: u64, stack: NamedStack, context: &mut Context) {
        let Some(wanted) = self.waiting.take(number) else { return };
        let (Wanted::Birth { id, at } | Wanted::Escape { id, at }) = wanted;
        let Some(stack) = stack.id else { return context.lose_stack(at) };
        let change = match wanted {
            Wanted::Birth { .. } => ArenaChange::Born(stack),
            Wanted::Escape { .. } => ArenaChange::Escaped(stack),
        };
        context.events.push(Event::Arena { at, id, change });
    }

    fn forked(&mut self, parent: u32, (child, id): (u32, ProcessRef), at: Nanos, context: &mut Context) {
        self.arenas.forked(parent, child, id, at, &mut context.events);
    }

    fn ended(&mut self, pid: u32, _at: Nanos, context: &mut Context) {
        self.libraries.iter_mut().for_each(|libraries| libraries.ended(pid, &mut context.events));
        self.arenas.ended(pid, &mut context.events);
    }

    fn rewritten(&mut self, file: FileId) {
        self.libraries.iter_mut().for_each(|libraries| libraries.rewritten(file));
    }

    fn mapped(&mut self, context: &mut Context) {
        if let Some(libraries) = &mut self.libraries {
            context.notes.extend(libraries.follow(context.processes.mappings()));
        }
    }

    fn advance(&mut self, context: &mut Context) {
        self.arenas.tick(context.now(), context.processes.running(), &mut context.events);
        if context.at_the_end {
            self.arenas.finish(context.now(), &mut context.events);
        }
        self.libraries.iter_mut().for_each(|libraries| libraries.tick(context.now(), &mut context.events));
    }

    fn costs(&mut self, object: &Object, costs: &mut Vec<Spent>) {
        if let Some(libraries) = &self.libraries {
            let programs = library::programs::run_time(object);
            costs.push(Spent { on: Spender::Libraries, programs, traps: libraries.trap_cost() });
        }
    }

    fn keep(&mut self, arbiter: &Arbiter, _context: &mut Context) -> bool {
        if let Some(libraries) = self.libraries.as_mut().filter(|_| arbiter.level(Spender::Libraries) == 0.0) {
            libraries.close();
        }
        true
    }

    fn goes_on_probing(&self) -> bool {
        self.libraries.is_some()
    }

    fn unfound(&self) -> Vec<String> {
        self.libraries.as_ref().map_or_else(Vec::new, Libraries::unfound)
    }
}

//! The family `heap` in a session.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use pyobs_abi::heap::{FILTERS, Freed};
use pyobs_abi::record;
use pyobs_model::{Event, HeapChange, Nanos, ProcessRef, Reason, Resident};

use super::pages::{PAGE, Pages};
use super::programs::{self, Tables};
use crate::budget::{Arbiter, Spender};
use crate::family::{Collector, Context, NamedStack, Spent, Start, Waiting};
use crate::kernel::cost;
use crate::kernel::object::Object;
use crate::machine;
use crate::pipeline::decode::{Plain, Stack};
use crate::pipeline::processes::{Processes, Running};
use crate::session::error::StartError;

/// How often the pages of a process are looked up.
const EVERY: Duration = Duration::from_secs(1);
/// The share of one CPU that this may use, plus saved time, and the limits for one turn and for the end.
const SHARE: f64 = 0.0005;
const SAVED_MAX: Duration = Duration::from_millis(40);
const AT_ONCE: Duration = Duration::from_millis(2);
const AT_THE_END: Duration = Duration::from_millis(300);
/// Resident memory is reported when it has changed by this much.
const NEWS: u64 = 256 << 10;

/// What a stack was taken for.
#[derive(Debug)]
struct Wanted {
    pid: u32,
    process: ProcessRef,
    at: Nanos,
    address: u64,
    bytes: u64,
    /// `None` for a block; for a page, the anonymous memory of the process.
    anonymous: Option<u64>,
}

struct Heap {
    tables: Tables,
    waiting: Waiting<Wanted>,
    processes: BTreeMap<u32, Pages>,
    /// Those that the kernel side knows.
    followed: BTreeSet<u32>,
    /// The resident memory that was last reported.
    counted: BTreeMap<u32, Resident>,
    /// Whose pages are looked up next.
    due: VecDeque<u32>,
    begun: Instant,
    time: cost::Bucket,
    /// When there is time for the next process.
    next: Instant,
}

pub(super) fn start(start: &mut Start<'_>) -> Result<Box<dyn Collector>, StartError> {
    let now = Instant::now();
    let mut heap = Heap {
        tables: Tables::attach(start.object)?,
        waiting: Waiting::default(),
        processes: BTreeMap::new(),
        followed: BTreeSet::new(),
        counted: BTreeMap::new(),
        due: VecDeque::new(),
        begun: now,
        time: cost::Bucket::new(SHARE, SAVED_MAX),
        next: now,
    };
    heap.follow(start.processes, Nanos(0), start.events);
    Ok(Box::new(heap))
}

impl Heap {
    fn pages(&mut self, pid: u32, process: ProcessRef) -> &mut Pages {
        let pages = self.processes.entry(pid).or_insert_with(|| Pages::new(process));
        if pages.process != process {
            *pages = Pages::new(process);
        }
        pages
    }

    fn free(&mut self, pid: u32, address: u64, bytes: u64, at: Nanos, events: &mut Vec<Event>) {
        let Some(pages) = self.processes.get_mut(&pid) else { return };
        let range = address..address.saturating_add(bytes);
        let Some(gone) = pages.free(&range, at) else { return };
        gone.into_iter().for_each(|page| self.tables.forget(pid, page));
        events.push(Event::Heap { at, process: pages.process, change: HeapChange::Freed { address, bytes } });
    }

    fn shift(&mut self, pid: u32, freed: &Freed, at: Nanos, events: &mut Vec<Event>) {
        let Freed { address, bytes, to, .. } = *freed;
        let Some(pages) = self.processes.get_mut(&pid) else { return };
        let Some(moved) = pages.shift(&(address..address.saturating_add(bytes)), to, at) else { return };
        moved.into_iter().for_each(|page| self.tables.shift(pid, page, to.saturating_add(page - address)));
        events.push(Event::Heap { at, process: pages.process, change: HeapChange::Moved { address, bytes, to } });
    }

    /// Follows the interpreters that have become known.
    fn follow(&mut self, processes: &Processes, at: Nanos, events: &mut Vec<Event>) {
        for Running { pid, id, .. } in processes.running() {
            if self.followed.insert(pid) {
                self.pages(pid, id);
                if !self.tables.follow(pid) {
                    events.push(Event::Loss { at, reason: Reason::HeapTableFull, count: 1 });
                }
            }
        }
    }

    fn is_python(context: &mut Context, pid: u32) -> bool {
        context.processes.get(pid).is_some_and(|(watched, _)| watched.python.is_some())
    }

    /// Looks up the pages of the processes that are due; at the end, of all.
    fn inspect(&mut self, context: &mut Context) {
        let at_the_end = context.at_the_end;
        if at_the_end || self.due.is_empty() && self.begun.elapsed() >= EVERY {
            self.begun = Instant::now();
            self.due = self.processes.keys().copied().collect();
        }
        let (since, limit) = (Instant::now(), if at_the_end { AT_THE_END } else { AT_ONCE });
        while since.elapsed() < limit && (at_the_end || self.next <= Instant::now()) {
            let Some(pid) = self.due.pop_front() else { return };
            let before = cost::thread_time();
            self.look_up(pid, context);
            let (spent, ended) = (cost::thread_time().saturating_sub(before), Instant::now());
            self.next = ended + self.time.spend(spent, ended);
        }
    }

    fn look_up(&mut self, pid: u32, context: &mut Context) {
        let at = context.now();
        let Some(gone) = self.processes.get(&pid).and_then(|pages| pages.gone(pid)) else { return };
        for address in gone {
            self.free(pid, address, PAGE, at, &mut context.events);
        }
        let mates = self.processes.iter().filter(|(mate, _)| *mate % FILTERS == pid % FILTERS);
        self.tables.filter(pid, mates.flat_map(|(_, pages)| pages.addresses()));
        let Some(pages) = self.processes.get(&pid) else { return };
        let Some(resident) = machine::resident(pid) else { return };
        let before = self.counted.get(&pid).copied().unwrap_or_default();
        if resident.anonymous.abs_diff(before.anonymous) >= NEWS || resident.total.abs_diff(before.total) >= NEWS {
            self.counted.insert(pid, resident);
            let Resident { anonymous, files, shared, .. } = resident;
            let change = HeapChange::Counted { anonymous, files, shared };
            context.events.push(Event::Heap { at, process: pages.process, change });
        }
    }
}

impl Collector for Heap {
    fn record(&mut self, record: &Plain, context: &mut Context) -> Option<()> {
        let freed: Freed = record.read()?;
        let (pid, at) = (freed.header.pid, context.at(freed.header.time));
        if freed.to == 0 {
            self.free(pid, freed.address, freed.bytes, at, &mut context.events);
        } else {
            self.shift(pid, &freed, at, &mut context.events);
        }
        Some(())
    }

    fn wants(&mut self, stack: &Stack, process: ProcessRef, context: &mut Context) -> Option<u64> {
        let (header, at) = (&stack.sample.header, context.at(stack.sample.header.time));
        let [address, detail] = stack.sample.detail;
        let pid = header.pid;
        let is_touched = header.kind == record::HEAP_TOUCHED;
        if !Self::is_python(context, pid) {
            if is_touched {
                self.tables.forget(pid, address);
            }
            return None;
        }
        let (bytes, anonymous) = if is_touched {
            let bytes = stack.sample.weight;
            let pages = self.pages(pid, process);
            if !pages.is_new_growth(detail.saturating_sub(bytes), at) {
                self.tables.forget(pid, address);
                return None;
            }
            pages.touch(at, address);
            (bytes, Some(detail))
        } else {
            self.pages(pid, process).map(at, address, detail);
            (detail, None)
        };
        Some(self.waiting.add(Wanted { pid, process, at, address, bytes, anonymous }))
    }

    fn named(&mut self, number: u64, stack: NamedStack, context: &mut Context) {
        let Some(Wanted { pid, process, at, address, bytes, anonymous }) = self.waiting.take(number) else { return };
        let Some(stack) = stack.id else { return context.lose_stack(at) };
        let change = match anonymous {
            Some(anonymous) => HeapChange::Touched { address, bytes, anonymous, stack },
            None => HeapChange::Mapped { address, bytes, stack },
        };
        context.events.push(Event::Heap { at, process, change });
        let pages = self.processes.get_mut(&pid).filter(|pages| pages.process == process);
        let freed = pages.and_then(|pages| match anonymous {
            Some(_) => pages.name_page(at, address).map(|freed| (freed, PAGE)),
            None => pages.name_block(at, address).map(|freed| (freed, bytes)),
        });
        if let Some((at, bytes)) = freed {
            context.events.push(Event::Heap { at, process, change: HeapChange::Freed { address, bytes } });
        }
    }

    fn forked(&mut self, parent: u32, (child, id): (u32, ProcessRef), at: Nanos, context: &mut Context) {
        let Some(of_parent) = self.processes.get(&parent).filter(|pages| !pages.is_empty()) else { return };
        let change = HeapChange::Inherited { parent: of_parent.process };
        context.events.push(Event::Heap { at, process: id, change });
        let copied = of_parent.copied(id);
        self.processes.insert(child, copied);
        self.followed.insert(child);
    }

    fn ended(&mut self, pid: u32, _at: Nanos, _context: &mut Context) {
        if let Some(pages) = self.processes.remove(&pid) {
            pages.addresses().for_each(|address| self.tables.forget(pid, address));
        }
        self.followed.remove(&pid);
        self.tables.forget_process(pid);
        self.counted.remove(&pid);
    }

    fn advance(&mut self, context: &mut Context) {
        self.follow(&context.processes, context.now(), &mut context.events);
        self.inspect(context);
    }

    fn costs(&mut self, object: &Object, costs: &mut Vec<Spent>) {
        costs.push(Spent { on: Spender::Faults, programs: programs::run_time(object), traps: Nanos(0) });
    }

    fn keep(&mut self, arbiter: &Arbiter, context: &mut Context) -> bool {
        let times = (1.0 / arbiter.level(Spender::Faults)).round() as u64;
        programs::set_steps(&mut context.object, times)
    }
}

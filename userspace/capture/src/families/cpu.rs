//! The family `cpu`: samples become stacks of named frames.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pyobs_abi::cpu::walk;
use pyobs_abi::record::loss;
use pyobs_abi::stack::Frame as RawFrame;
use pyobs_model::{Event, Frame, FrameId, FrameKind, Nanos, Outcome, Reason, Sample, Tid};

use crate::cpython::names;
use crate::intern::Interner;
use crate::kernel::symbols::Symbols;
use crate::memory::ProcessMemory;
use crate::processes::{Processes, Watched};
use crate::record::{CpuStack, Record};

/// What the kernel side's loss counters mean, by index.
pub const KERNEL_LOSSES: [Reason; loss::COUNT as usize] =
    [Reason::RingFull, Reason::KernelStackUnreadable, Reason::TableFull, Reason::TaskUnreadable, Reason::BudgetShed];

/// Stands for the function in native code that is not unwound, and for a code object that could not be read.
const NATIVE: &str = "<native>";
const UNREADABLE: &str = "<unreadable>";

pub struct Cpu {
    start: Nanos,
    symbols: Symbols,
    kernel_frames: HashMap<Arc<str>, FrameId>,
    frames: Vec<FrameId>,
}

impl Cpu {
    pub fn new(start: Nanos) -> Self {
        let mut symbols = Symbols::default();
        // While we still have the right to see the kernel's addresses.
        symbols.learn(&[0]);
        Self { start, symbols, kernel_frames: HashMap::new(), frames: Vec::new() }
    }

    /// Looks up the kernel functions that a batch of records is the first to name.
    pub fn learn_symbols(&mut self, records: &[Record]) {
        let mut new = BTreeSet::new();
        for record in records {
            if let Record::CpuSample(stack) = record {
                new.extend(stack.kernel.iter().filter(|address| !self.symbols.knows(**address)));
            }
        }
        if !new.is_empty() {
            self.symbols.learn(&new.into_iter().collect::<Vec<u64>>());
        }
    }

    /// Turns a sample into events.
    pub fn resolve(
        &mut self,
        stack: &CpuStack,
        processes: &mut Processes,
        interner: &mut Interner,
        events: &mut Vec<Event>,
    ) {
        let header = &stack.sample.header;
        let at = Nanos(header.time).saturating_sub(self.start);
        // A process that user space has not seen yet, or has taken leave of while the last samples were under way.
        if processes.is_expected(header.pid) {
            return;
        }
        let Some(watched) = processes.get(header.pid) else {
            events.push(Event::Loss { at, reason: Reason::NotAttachedYet, count: 1 });
            return;
        };
        watched.see_thread(header, events);
        watched.count_unattached();
        let mut outcome = outcome(stack.sample.walk);
        self.frames.clear();
        for raw in stack.frames.iter().rev() {
            match python(*raw, at, watched, interner, events) {
                Ok(frame) => self.frames.push(frame),
                Err(reason) => {
                    events.push(Event::Loss { at, reason, count: 1 });
                    outcome = Outcome::Failed(reason);
                    let unreadable = Frame { function: Arc::from(UNREADABLE), ..nameless(FrameKind::Python) };
                    self.frames.extend(interner.frame(unreadable, events));
                }
            }
        }
        self.native(stack.sample.user_pc, outcome, watched, interner, events);
        for address in stack.kernel.iter().rev() {
            let name = self.symbols.name(*address);
            if let Some(frame) = self.kernel(name, interner, events) {
                self.frames.push(frame);
            }
        }
        let Some(id) = interner.stack(&self.frames, events) else {
            events.push(Event::Loss { at, reason: Reason::TableFull, count: 1 });
            return;
        };
        events.push(Event::Sample(Sample {
            at,
            process: watched.id,
            tid: Tid(header.tid),
            cpu: header.cpu,
            stack: id,
            outcome,
        }));
    }

    /// The module that the thread was in, when it was not the interpreter itself below Python frames.
    fn native(
        &mut self,
        pc: u64,
        outcome: Outcome,
        watched: &mut Watched,
        interner: &mut Interner,
        events: &mut Vec<Event>,
    ) {
        let interpreter = watched.python.as_ref().map(|python| python.file);
        let (module, file) = match watched.mapping(pc) {
            Some(mapping) => (Arc::clone(&mapping.name), mapping.file),
            None => (Arc::from("[unknown]"), None),
        };
        if outcome != Outcome::NoPython && file.is_some() && file == interpreter {
            return;
        }
        let frame = Frame { function: Arc::from(NATIVE), module: Some(module), ..nameless(FrameKind::Native) };
        self.frames.extend(interner.frame(frame, events));
    }

    fn kernel(&mut self, name: Arc<str>, interner: &mut Interner, events: &mut Vec<Event>) -> Option<FrameId> {
        if let Some(frame) = self.kernel_frames.get(&name) {
            return Some(*frame);
        }
        let frame = Frame { function: Arc::clone(&name), ..nameless(FrameKind::Kernel) };
        let frame = interner.frame(frame, events)?;
        self.kernel_frames.insert(name, frame);
        Some(frame)
    }
}

/// Names a Python frame.
fn python(
    raw: RawFrame,
    at: Nanos,
    watched: &Watched,
    interner: &mut Interner,
    events: &mut Vec<Event>,
) -> Result<FrameId, Reason> {
    if let Some(frame) = watched.names.frame(raw) {
        return Ok(frame);
    }
    let code = match watched.names.code(raw) {
        Some(code) => code,
        None => {
            let python = watched.python.as_deref().ok_or(Reason::ProcessGone)?;
            let read = |pid| {
                let memory = ProcessMemory::new(pid);
                names::read_code(&memory, raw.address, raw.check(), &python.layout, python.code_type)
            };
            // A forked child that has ended or become another program since had its parent's memory; the check word
            // tells whether the parent still has that code object.
            let code = read(watched.pid).or_else(|reason| match watched.parent {
                Some(parent) if raw.check() != 0 => read(parent).map_err(|_| reason),
                _ => Err(reason),
            });
            let code = Arc::new(code?);
            watched.names.insert_code(raw, Arc::clone(&code), at);
            code
        }
    };
    let line = raw.offset().and_then(|offset| code.line(offset));
    let frame = Frame {
        kind: FrameKind::Python,
        function: Arc::clone(&code.function),
        module: None,
        file: Some(Arc::clone(&code.file)),
        line,
        first_line: Some(code.first_line),
    };
    let frame = interner.frame(frame, events).ok_or(Reason::TableFull)?;
    watched.names.insert_frame(raw, frame, at);
    Ok(frame)
}

fn nameless(kind: FrameKind) -> Frame {
    Frame { kind, function: Arc::from(""), module: None, file: None, line: None, first_line: None }
}

fn outcome(end: u32) -> Outcome {
    match end {
        walk::NO_PYTHON => Outcome::NoPython,
        walk::COMPLETE => Outcome::Complete,
        walk::TRUNCATED => Outcome::Truncated,
        walk::THREAD_STATE_UNREADABLE => Outcome::Failed(Reason::ThreadStateUnreadable),
        walk::FRAME_UNREADABLE => Outcome::Failed(Reason::FrameUnreadable),
        _ => Outcome::Failed(Reason::FrameInvalid),
    }
}

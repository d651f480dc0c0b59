//! One probe family a file: what its records mean.

pub mod arena;
pub mod cpu;
pub mod eval;
mod extension;
pub mod gil;
pub mod nrt;
pub mod offcpu;
pub mod redundancy;
pub mod shm;
pub mod ucx;

use pyobs_abi::offcpu::{Sleeper, Wake};
use pyobs_abi::record::{Header, loss};
use pyobs_abi::stack::{Sample, flags};
use pyobs_model::{
    ArenaChange, ArenaId, Event, GilHolder, MemInfoChange, MemInfoId, Nanos, Outcome, ProcessRef, Reason,
    SegmentChange, SegmentId, StackId, Tid, TransferChange, TransferId,
};

use self::cpu::CpuSample;
use self::gil::Gil;
use self::offcpu::{Key, OffCpu};

/// What the kernel side's loss counters mean, by index.
pub const KERNEL_LOSSES: [Reason; loss::COUNT as usize] = [
    Reason::RingFull,
    Reason::KernelStackUnreadable,
    Reason::TableFull,
    Reason::TaskUnreadable,
    Reason::BudgetShed,
    Reason::SleepUnseen,
    Reason::SegmentTableFull,
    Reason::DescriptorsUnseen,
    Reason::WalkTaken,
    Reason::TransferTableFull,
    Reason::SidebandLost,
    Reason::TableBusy,
    Reason::TransferHalfSeen,
];

/// What a stack is for.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    Cpu(CpuSample),
    Sleep(Key),
    GilHolder { waiter: Key, tid: u32 },
    Birth { segment: SegmentId, at: Nanos },
    ArenaBirth { arena: ArenaId, at: Nanos },
    ArenaEscape { arena: ArenaId, at: Nanos },
    NrtBirth { id: MemInfoId, at: Nanos, process: ProcessRef, data: u64, bytes: u64 },
    Asked { transfer: TransferId, at: Nanos },
    Trap { watch: u64, number: u32 },
}

/// The families that records with stacks are about.
pub struct Families {
    start: Nanos,
    offcpu: OffCpu,
    gil: Gil,
}

impl Families {
    pub fn new(start: Nanos, probes: &[&str]) -> Self {
        Self { start, offcpu: OffCpu::new(start, probes.contains(&"offcpu")), gil: Gil::new(probes.contains(&"gil")) }
    }

    /// The recording begins at this time of the kernel's clock.
    pub fn starts_at(&mut self, start: Nanos) {
        self.start = start;
        self.offcpu.starts_at(start);
    }

    /// What the stack of a CPU's sample is for.
    pub fn sampled(&mut self, sample: &Sample, process: ProcessRef, outcome: Outcome) -> Purpose {
        let header = &sample.header;
        if sample.flags & flags::HOLDS_GIL != 0 {
            self.gil.held(process, Tid(header.tid), Nanos(sample.weight));
        }
        Purpose::Cpu(CpuSample::new(sample, self.at(header), process, outcome))
    }

    pub fn asleep(&mut self, sample: &Sample, process: ProcessRef, events: &mut Vec<Event>) {
        self.offcpu.asleep(sample, process, &mut self.gil, events);
    }

    /// What the stack of a GIL's holder is for; its sample names the waiter.
    pub fn holder(&mut self, sample: &Sample) -> Purpose {
        let waiter = Key { tid: sample.detail[0] as u32, since: sample.header.time };
        self.offcpu.held(waiter);
        Purpose::GilHolder { waiter, tid: sample.header.tid }
    }

    /// `no_stack` is a stack without frames.
    pub fn woken(
        &mut self,
        wake: &Wake,
        process: Option<ProcessRef>,
        no_stack: Option<StackId>,
        events: &mut Vec<Event>,
    ) {
        let is_mate = wake.waker_tid != 0 && wake.waker_pid == wake.header.pid;
        let next = no_stack.filter(|_| is_mate).map(|stack| GilHolder { tid: Tid(wake.waker_tid), stack });
        self.offcpu.woken(wake, process, next, &mut self.gil, events);
    }

    /// A stack has its names.
    pub fn named(&mut self, purpose: Purpose, stack: Option<StackId>, events: &mut Vec<Event>) {
        match purpose {
            Purpose::Cpu(sample) => sample.named(stack, events),
            Purpose::Sleep(key) => self.offcpu.named(key, stack, &mut self.gil, events),
            Purpose::GilHolder { waiter, tid } => {
                self.offcpu.holder_named(waiter, tid, stack, &mut self.gil, events);
            }
            Purpose::Birth { segment, at } => events.push(match stack {
                Some(stack) => Event::Segment { at, id: segment, change: SegmentChange::Born(stack) },
                None => no_number(at),
            }),
            Purpose::ArenaBirth { arena, at } => events.push(match stack {
                Some(stack) => Event::Arena { at, id: arena, change: ArenaChange::Born(stack) },
                None => no_number(at),
            }),
            Purpose::ArenaEscape { arena, at } => events.push(match stack {
                Some(stack) => Event::Arena { at, id: arena, change: ArenaChange::Escaped(stack) },
                None => no_number(at),
            }),
            Purpose::Asked { transfer, at } => events.push(match stack {
                Some(stack) => Event::Transfer { at, id: transfer, change: TransferChange::Asked(stack) },
                None => no_number(at),
            }),
            Purpose::NrtBirth { id, at, process, data, bytes } => events.push(match stack {
                Some(stack) => Event::MemInfo { at, id, change: MemInfoChange::Born { process, bytes, data, stack } },
                None => no_number(at),
            }),
            // The session gives it to its family.
            Purpose::Trap { .. } => {}
        }
    }

    /// Tells what goes on; `look` finds a thread in the kernel's table, and `no_stack` is a stack without frames.
    pub fn tell(
        &mut self,
        now: Nanos,
        at_the_end: bool,
        look: impl Fn(u32) -> Option<Sleeper>,
        no_stack: Option<StackId>,
        events: &mut Vec<Event>,
    ) {
        self.offcpu.tell_open(now, at_the_end, look, no_stack, &mut self.gil, events);
        self.gil.tell(now, at_the_end, events);
    }

    fn at(&self, header: &Header) -> Nanos {
        Nanos(header.time).saturating_sub(self.start)
    }
}

/// A stack has no number: there are too many.
fn no_number(at: Nanos) -> Event {
    Event::Loss { at, reason: Reason::TableFull, count: 1 }
}

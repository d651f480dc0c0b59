//! A recording of any length, of programs that make and free memory of every kind again and again.

use std::path::Path;
use std::sync::Arc;

use pyobs_model::*;
use pyobs_recording::{Error, Writer};

use super::meta::meta;

const MILLI: u64 = 1_000_000;
const PROCESSES: u64 = 16;
const THREADS: u64 = 8;
const STACKS: u64 = 1000;
const DEPTH: u64 = 24;
/// How many stacks threads wait in.
const LINES: u64 = 20;
/// How many steps memory lives for.
const LIFE: u64 = 50;
/// After this many steps a process is replaced by the next.
const GENERATION: u64 = 2000;
/// One in this many segments is never freed.
const STAYS: u64 = 64;
/// How many steps are appended together.
const BATCH: u64 = 200;

/// Writes a recording of `steps` milliseconds, with a segment, an arena, a MemInfo and a transfer in each.
pub fn write(path: &Path, steps: u64) -> Result<(), Error> {
    let mut writer = Writer::create(path, &meta())?;
    let mut events = definitions();
    for step in 0..steps {
        work(step, &mut events);
        memory(step, &mut events);
        transfer(step, &mut events);
        if step % GENERATION == GENERATION - 1 {
            succeed(step, &mut events);
        }
        if step % BATCH == BATCH - 1 {
            writer.append(&events)?;
            events.clear();
        }
    }
    writer.append(&events)?;
    writer.finish()
}

fn definitions() -> Vec<Event> {
    let mut events = Vec::new();
    for id in 0..STACKS {
        let (function, file) = (format!("Model.step_{id}").into(), format!("/srv/app/module_{}.py", id / 40).into());
        let line = Some(id as u32 + 1);
        let frame = Frame::python(function, file, line, line);
        events.push(Event::Frame { id: FrameId(id as u32), frame });
    }
    for id in 0..STACKS {
        let frames: Arc<[FrameId]> =
            (0..DEPTH).map(|depth| FrameId(((id * 7 + depth * depth) % STACKS) as u32)).collect();
        events.push(Event::Stack { id: StackId(id as u32), frames });
    }
    (0..PROCESSES).for_each(|id| begin(id, None, &mut events));
    events
}

fn begin(id: u64, started: Option<Nanos>, events: &mut Vec<Event>) {
    let process = Process {
        pid: pid(id),
        ppid: Pid(1),
        command: format!("/usr/bin/python3.12 worker.py {id}").into(),
        python: Some("3.12.1".into()),
        started,
    };
    events.push(Event::Process { id: ProcessRef(id as u32), process });
    for thread in 0..THREADS {
        let (process, tid) = (ProcessRef(id as u32), tid(id, thread));
        events.push(Event::Thread { process, tid, name: format!("worker-{thread}").into() });
    }
}

/// A process ends, and another begins.
fn succeed(step: u64, events: &mut Vec<Event>) {
    let (at, first) = (Nanos(step * MILLI + 9), step / GENERATION);
    events.push(Event::ProcessEnd { id: ProcessRef(first as u32), at });
    begin(first + PROCESSES, Some(at), events);
    let (id, pid) = (SegmentId((step - LIFE) as u32), pid(first));
    events.push(Event::Segment { at, id, change: SegmentChange::Ended { pid } });
    events.push(Event::Loss { at, reason: Reason::RingFull, count: 1 });
    events.push(Event::Cost { at, bpf: at, cpu: at, startup: Nanos(0), rss_bytes: 34 << 20 });
}

/// The process that does this step.
fn process(step: u64) -> u64 {
    // Not the oldest, which is about to end.
    step / GENERATION + 1 + step % (PROCESSES - 1)
}

fn pid(process: u64) -> Pid {
    Pid(4000 + process as u32 * 100)
}

fn tid(process: u64, thread: u64) -> Tid {
    Tid(pid(process).0 + thread as u32)
}

fn stack(step: u64) -> StackId {
    StackId((step.wrapping_mul(0x9e37_79b9) >> 7) as u32 % STACKS as u32)
}

/// What threads do: samples, sleeps, waits, calls and accesses. Samples of two CPUs are a little out of order.
fn work(step: u64, events: &mut Vec<Event>) {
    let (id, begun) = (process(step), step * MILLI);
    let process = ProcessRef(id as u32);
    for cpu in 0..4 {
        let at = Nanos(begun + 10 * MILLI - cpu * 3 * MILLI + cpu);
        let (tid, stack) = (tid(id, (step + cpu) % THREADS), stack(step * 4 + cpu));
        let (weight, outcome) = (Nanos(10_101_010), Outcome::Complete);
        events.push(Event::Sample(Sample { at, process, tid, cpu: cpu as u32, stack, weight, turn_us: None, outcome }));
    }
    let (at, tid) = (Nanos(begun + MILLI / 2), tid(id, step % THREADS));
    for part in 0..2 {
        events.push(Event::Sleep(Sleep {
            from: Nanos(begun),
            at,
            process,
            tid,
            stack: StackId((step / THREADS % LINES) as u32),
            reason: WaitReason::ALL[(step % WaitReason::ALL.len() as u64) as usize],
            count: 1,
            total: Nanos(MILLI / 4),
            length: Nanos(MILLI / 4),
            stacks: 1,
            waker: Some(Waker { pid: pid(id), tid, name: format!("worker-{part}").into() }),
        }));
    }
    let holder = GilHolder { tid: Tid(pid(id).0), stack: StackId(0) };
    let (count, total, stack) = (1, Nanos(MILLI / 2), StackId((step / THREADS % LINES) as u32));
    let (from, length, stacks, holder) = (Nanos(begun), total, 1, Some(holder));
    events.push(Event::GilWait(GilWait { from, at, process, tid, stack, holder, count, total, length, stacks }));
    events.push(Event::GilHeld { at, process, tid: Tid(pid(id).0), held: total });
    let function = FrameId((step % STACKS) as u32);
    events.push(Event::Calls(Calls { at, process, function, count: 9, timed: 9, total, max: total }));
    let touched = Some(Touched::Array("float64 8x40".into()));
    events.push(Event::Access(Access { at, process, tid, stack, weight: 1, touched, stores: true, element_of: None }));
}

/// A segment, an arena and a MemInfo begin, and older ones end.
fn memory(step: u64, events: &mut Vec<Event>) {
    let (at, id, process) = (Nanos(step * MILLI + 5), step as u32, process(step));
    let pid = pid(process);
    let mut segment = |id: u32, change| events.push(Event::Segment { at, id: SegmentId(id), change });
    let address = 0x7f00_0000_0000 + ((step % (1 << 16)) << 20);
    segment(
        id,
        SegmentChange::Begun(Segment {
            dev: 27,
            ino: step + 2,
            generation: 0,
            kind: SegmentKind::Shm,
            name: Some(format!("psm_{step:08x}").into()),
            linked: true,
            bytes: 1 << 20,
            creator: Some(pid),
        }),
    );
    segment(id, SegmentChange::Born(stack(step)));
    segment(id, SegmentChange::Holds { pid, fds: 1, mappings: 1 });
    segment(id, SegmentChange::Mapped { pid, address, bytes: 1 << 20, offset: 0 });
    if let Some(old) = step.checked_sub(LIFE).filter(|old| old % STAYS > 0) {
        let (id, pid) = (old as u32, self::pid(self::process(old)));
        let address = 0x7f00_0000_0000 + ((old % (1 << 16)) << 20);
        segment(id, SegmentChange::Unmapped { pid, address, bytes: 1 << 20 });
        segment(id, SegmentChange::Holds { pid, fds: 0, mappings: 0 });
        segment(id, SegmentChange::Unlinked { by: Some(pid) });
        segment(id, SegmentChange::Gone);
    }
    let arena = Arena {
        process: ProcessRef(process as u32),
        kind: "pymalloc".into(),
        address: 0x5500_0000_0000 + ((step % (1 << 20)) << 20),
        bytes: 1 << 20,
        born: true,
        parent: None,
    };
    let mut change = |id: u64, change| events.push(Event::Arena { at, id: ArenaId(id as u32), change });
    change(step, ArenaChange::Begun(arena));
    change(step, ArenaChange::Born(stack(step)));
    if let Some(old) = step.checked_sub(LIFE) {
        change(old, ArenaChange::Died);
    }
    let mut change = |id: u64, change| events.push(Event::MemInfo { at, id: MemInfoId(id as u32), change });
    let (data, stack) = (0x6600_0000_0000 + (step << 12), stack(step));
    change(step, MemInfoChange::Born { process: ProcessRef(process as u32), bytes: 4096, data, stack });
    if let Some(old) = step.checked_sub(LIFE) {
        change(old, MemInfoChange::Died);
    }
}

/// A transfer is requested, made and notified.
fn transfer(step: u64, events: &mut Vec<Event>) {
    let (id, process, begun) = (TransferId(step), process(step), step * MILLI);
    let asker = tid(process, 1);
    let own = |after: u64| Nanos(begun + after * 10_000);
    let transfer = Transfer {
        process: ProcessRef(process as u32),
        library: Library::Ucxx,
        operation: Operation::TagSend,
        bytes: 1 << 16,
        tag: Some(step),
        through: 0x7000_0000_0000,
        buffer: 0x6600_0000_0000 + (step << 12),
        registered: Some(own(10)),
        submitted: Some(own(20)),
        completed: Some(own(60)),
        immediate: false,
        status: Some(0),
        tid: asker,
        submitter: Some(tid(process, 2)),
        completer: Some(tid(process, 2)),
        protocol: Some(Protocol::Eager),
        parent: None,
        hash: Some(step % 7),
    };
    let woken = TransferChange::Woken { notified: own(70), tid: asker };
    events.push(Event::Transfer { at: own(60), id, change: TransferChange::Seen(Box::new(transfer)) });
    events.push(Event::Transfer { at: own(61), id, change: TransferChange::Asked(stack(step)) });
    events.push(Event::Transfer { at: own(80), id, change: woken });
}

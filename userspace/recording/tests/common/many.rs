//! A recording of any number of processes that live for a moment, beside one that stays and a few that are busy.

use std::path::Path;

use pyobs_model::*;
use pyobs_recording::{Error, Writer};

use super::meta::meta;

/// A process begins every 10 ms and lives for 50 ms.
const STEP: u64 = 10_000_000;
const LIFE: u64 = 50_000_000;
/// What each sample stands for.
pub const WEIGHT: Nanos = Nanos(1_000_000);
/// How long each process sleeps.
pub const SLEEP: Nanos = Nanos(5_000_000);
/// One in this many processes is busy, and has this many samples. Each other one has a single sample.
pub const BUSY: u32 = 1000;
pub const BUSY_SAMPLES: u32 = 20;
/// The process that stays. It has a sample whenever another process begins.
pub const STAYS: ProcessRef = ProcessRef(0);
/// How many arenas each process makes.
const ARENAS: u32 = 2;
const PIDS: u32 = 30_000;
const BATCH: u32 = 500;

pub fn pid(id: u32) -> Pid {
    Pid(100 + id % PIDS)
}

/// Writes a recording of `count` processes.
pub fn write(path: &Path, count: u32) -> Result<(), Error> {
    let mut writer = Writer::create(path, &meta())?;
    let frame = Frame::python("work".into(), "/srv/app/job.py".into(), Some(7), Some(5));
    let mut events = vec![
        Event::Frame { id: FrameId(0), frame },
        Event::Stack { id: StackId(0), frames: [FrameId(0)].into() },
        begin(0, None),
    ];
    for id in 1..count {
        live(id, &mut events);
        if id % BATCH == 0 {
            writer.append(&events)?;
            events.clear();
        }
    }
    writer.append(&events)?;
    writer.finish()
}

fn begin(id: u32, started: Option<Nanos>) -> Event {
    let command = format!("/usr/bin/python3.12 -m job --number {id} --of-the-queue default").into();
    let process = Process { pid: pid(id), ppid: Pid(1), command, python: Some("3.12.1".into()), started };
    Event::Process { id: ProcessRef(id), process }
}

fn live(id: u32, events: &mut Vec<Event>) {
    let (process, tid, stack, begun) = (ProcessRef(id), Tid(pid(id).0), StackId(0), u64::from(id) * STEP);
    events.push(begin(id, Some(Nanos(begun))));
    events.push(Event::Thread { process, tid, name: "python3".into() });
    let sample = |process, tid, at| {
        Event::Sample(Sample {
            at,
            process,
            tid,
            cpu: 0,
            stack,
            weight: WEIGHT,
            turn_us: None,
            outcome: Outcome::Complete,
        })
    };
    let samples = if id.is_multiple_of(BUSY) { BUSY_SAMPLES } else { 1 };
    let own = (0..samples).map(|number| sample(process, tid, Nanos(begun + u64::from(number) * WEIGHT.0)));
    events.extend(own);
    events.push(sample(STAYS, Tid(pid(STAYS.0).0), Nanos(begun)));
    for number in 0..ARENAS {
        let (at, arena) = (Nanos(begun + 1), ArenaId(id * ARENAS + number));
        let address = 0x5500_0000_0000 + (u64::from(number) << 20);
        let begun = Arena { process, kind: "pymalloc".into(), address, bytes: 1 << 20, born: true, parent: None };
        events.push(Event::Arena { at, id: arena, change: ArenaChange::Begun(begun) });
        events.push(Event::Arena { at, id: arena, change: ArenaChange::Born(stack) });
    }
    let (from, at) = (Nanos(begun + 30_000_000), Nanos(begun + 30_000_000 + SLEEP.0));
    events.push(Event::Sleep(Sleep {
        from,
        at,
        process,
        tid,
        stack,
        reason: WaitReason::Lock,
        count: 1,
        total: SLEEP,
        length: SLEEP,
        stacks: 1,
        waker: None,
    }));
    events.push(Event::ProcessEnd { id: process, at: Nanos(begun + LIFE) });
}

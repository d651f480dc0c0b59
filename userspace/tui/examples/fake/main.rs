//! Runs the real dashboard with invented events, to look at it without loading anything into the kernel.
//!
//! `cargo run -p pyobs-tui --example fake [live | replay | empty | starting | failing | panic | nasty | many | cpu]`

mod crowd;
mod programs;

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyobs_model::{
    Calls, Event, Family, Frame, FrameId, FrameKind, GilHolder, GilWait, History, Meta, Model, Nanos, Outcome, Pid,
    Process, ProcessRef, Reason, Sample, Sleep, StackId, Tid, WaitReason, Waker,
};
use pyobs_tui::{Batch, Color, Options, ReplayLog, Source, replay, run};
use tokio::sync::mpsc;

use crowd::Crowd;
use programs::{EVIL, PROGRAMS, Program};

/// What happens in a stack.
#[derive(Clone, Copy)]
enum Activity {
    /// Samples, with a relative weight.
    Samples(u64),
    /// A thread waits there for `ms` milliseconds of each second.
    Wait { reason: WaitReason, thread: u32, ms: u64 },
}

impl Activity {
    fn parse(text: &str) -> Option<Self> {
        if let Some(weight) = text.strip_prefix('*') {
            return weight.parse().ok().map(Self::Samples);
        }
        let (reason, rest) = text.strip_prefix('~')?.split_once('@')?;
        let (thread, ms) = rest.split_once(' ')?;
        Some(Self::Wait { reason: WaitReason::from_name(reason)?, thread: thread.parse().ok()?, ms: ms.parse().ok()? })
    }
}

/// Parses stacks and their activities from a text.
fn shapes(text: &'static str) -> Vec<(Activity, Vec<&'static str>)> {
    let mut path = Vec::new();
    let mut shapes = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let frame = line.trim_start_matches(' ');
        path.truncate(line.len() - frame.len());
        let mark = frame.rfind(" *").or_else(|| frame.rfind(" ~"));
        path.push(&frame[..mark.unwrap_or(frame.len())]);
        let activity = mark.and_then(|at| Activity::parse(&frame[at + 1..]));
        shapes.extend(activity.map(|activity| (activity, path.clone())));
    }
    shapes
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }
}

struct Fake {
    programs: Vec<(Program, Vec<(Activity, StackId)>)>,
    /// The Python functions of each process.
    functions: Vec<Vec<FrameId>>,
    random: Random,
    is_cpu_only: bool,
    crowd: Option<Crowd>,
}

impl Fake {
    fn new(programs: Vec<Program>, events: &mut Vec<Event>) -> Self {
        let (mut frames, mut stacks) = (0, 0);
        let mut known = std::collections::HashMap::new();
        let (mut all, mut functions) = (Vec::new(), Vec::new());
        for (id, program) in (0..).map(ProcessRef).zip(programs) {
            let process = Process {
                pid: Pid(program.pid),
                ppid: Pid(1),
                command: program.command.into(),
                python: program.python.map(Into::into),
                started: None,
            };
            events.push(Event::Process { id, process });
            for (tid, name) in (program.pid..).zip(program.threads) {
                events.push(Event::Thread { process: id, tid: Tid(tid), name: (*name).into() });
            }
            let mut drawn = Vec::new();
            let mut own = Vec::new();
            for (activity, shape) in shapes(program.shapes) {
                let ids: Vec<FrameId> = shape
                    .into_iter()
                    .map(|text| {
                        let id = *known.entry(text).or_insert_with(|| {
                            let id = FrameId(frames);
                            frames += 1;
                            events.push(Event::Frame { id, frame: frame(text) });
                            id
                        });
                        if !text.starts_with(['!', '^']) && !own.contains(&id) {
                            own.push(id);
                        }
                        id
                    })
                    .collect();
                events.push(Event::Stack { id: StackId(stacks), frames: ids.into() });
                drawn.push((activity, StackId(stacks)));
                stacks += 1;
            }
            all.push((program, drawn));
            functions.push(own);
        }
        Self { programs: all, functions, random: Random(88_172_645_463_325_252), is_cpu_only: false, crowd: None }
    }

    fn sample(&mut self, from: Duration, until: Duration, events: &mut Vec<Event>) {
        const TICK: Duration = Duration::from_nanos(1_000_000_000 / 99);
        let mut at = from;
        while at < until {
            for index in 0..self.programs.len() {
                let busy = self.programs[index].0.busy;
                for lane in 0..3u64 {
                    if self.random.below(300) < busy {
                        let (program, shapes) = &self.programs[index];
                        let weight =
                            |activity: &Activity| if let Activity::Samples(weight) = activity { *weight } else { 0 };
                        let mut left = self.random.below(shapes.iter().map(|(activity, _)| weight(activity)).sum());
                        let stack = shapes.iter().find(|(activity, _)| {
                            let found = left < weight(activity);
                            left = left.saturating_sub(weight(activity));
                            found
                        });
                        let Some((_, stack)) = stack else { continue };
                        let tid = program.pid + (lane as u32).min(program.threads.len() as u32 - 1);
                        events.push(Event::Sample(Sample {
                            at: nanos(at),
                            process: ProcessRef(index as u32),
                            tid: Tid(tid),
                            cpu: lane as u32,
                            stack: *stack,
                            weight: Nanos(10_101_010),
                            turn_us: None,
                            outcome: Outcome::Complete,
                        }));
                    }
                }
            }
            at += TICK;
        }
        if !self.is_cpu_only {
            self.wait(from, until, events);
        }
        if let Some(crowd) = &mut self.crowd {
            crowd.emit(nanos(until), events);
        }
        events.push(Event::Cost {
            at: nanos(until),
            bpf: nanos(until / 1800),
            cpu: nanos(until / 300),
            startup: nanos(until / 3000),
            rss_bytes: 41 << 20,
        });
    }
}

impl Fake {
    fn wait(&mut self, from: Duration, until: Duration, events: &mut Vec<Event>) {
        const PIECE: Nanos = Nanos(5_000_000);
        let passed = until.saturating_sub(from);
        let at = nanos(until);
        for (index, (program, shapes)) in self.programs.iter().enumerate() {
            let process = ProcessRef(index as u32);
            let is_computing =
                |(activity, stack): &(Activity, StackId)| matches!(activity, Activity::Samples(_)).then_some(*stack);
            let computing = shapes.iter().find_map(is_computing);
            for (activity, stack) in shapes {
                let Activity::Wait { reason, thread, ms } = *activity else { continue };
                let tid = Tid(program.pid + thread);
                let total = nanos(passed * (ms * (70 + self.random.below(60)) / 100) as u32 / 1000);
                if reason == WaitReason::Gil {
                    let holder = computing.map(|stack| GilHolder { tid: Tid(program.pid), stack });
                    let wait = GilWait {
                        from: at.saturating_sub(PIECE),
                        stacks: 1,
                        at,
                        process,
                        tid,
                        stack: *stack,
                        holder,
                        count: 1,
                        total: PIECE,
                        length: PIECE,
                    };
                    events.extend((0..total.0 / PIECE.0).map(|_| Event::GilWait(wait)));
                }
                let waker = (reason == WaitReason::Lock).then(|| Waker {
                    pid: Pid(program.pid),
                    tid: Tid(program.pid),
                    name: program.threads[0].into(),
                });
                let count = 1 + self.random.below(6);
                let length = Nanos(total.0 / 2);
                events.push(Event::Sleep(Sleep {
                    from: at.saturating_sub(total),
                    stacks: count,
                    at,
                    process,
                    tid,
                    stack: *stack,
                    reason,
                    count,
                    total,
                    length,
                    waker,
                }));
            }
            for (thread, tid) in (0..program.threads.len()).zip(program.pid..) {
                let share = if thread == 0 { program.busy.min(87) as u32 } else { 2 };
                events.push(Event::GilHeld { at, process, tid: Tid(tid), held: nanos(passed * share / 100) });
            }
        }
        for (index, functions) in self.functions.iter().enumerate() {
            for (function, nth) in functions.iter().zip(1..) {
                let count = self.random.below(20_000 / (nth * nth));
                let timed = count - count / (97 * nth);
                let (total, max) = (Nanos(timed * 1_700 * nth), Nanos(24_000 * nth));
                let process = ProcessRef(index as u32);
                events.push(Event::Calls(Calls { at, process, function: *function, count, timed, total, max }));
            }
        }
    }
}

fn frame(text: &str) -> Frame {
    let mut words = text.rsplitn(3, ' ');
    let (last, middle, first) = (words.next().unwrap_or(""), words.next().unwrap_or(""), words.next());
    let (name, kind) = match first.unwrap_or(middle).chars().next() {
        Some('!') => (&text[1..text.len() - last.len() - 1], FrameKind::Native),
        Some('^') => (&text[1..text.len() - last.len() - 1], FrameKind::Kernel),
        _ => (first.unwrap_or(""), FrameKind::Python),
    };
    let python = kind == FrameKind::Python;
    let line = last.parse().ok().filter(|_| python);
    Frame {
        kind,
        function: name.into(),
        module: (!python).then(|| Arc::from(last)),
        file: python.then(|| Arc::from(middle)),
        line,
        first_line: line.map(|line: u32| line.saturating_sub(line % 10).max(1)),
        package: None,
    }
}

fn nanos(time: Duration) -> Nanos {
    Nanos(time.as_nanos() as u64)
}

fn meta() -> Meta {
    Meta {
        started: "2026-10-02T08:15:00Z".into(),
        host: "build-7".into(),
        kernel: "6.1.0-37-amd64".into(),
        pyobs: env!("CARGO_PKG_VERSION").into(),
        rate_hz: 99,
        cpus: 2,
        probes: Family::names(),
        sampler: "cpu-clock".into(),
        ..Meta::default()
    }
}

fn main() -> std::io::Result<()> {
    let what = std::env::args().nth(1).unwrap_or_else(|| "live".to_owned());
    let history = History::Window { length: Nanos(120_000_000_000), samples: 2_000_000 };
    let mut meta = meta();
    if what == "cpu" {
        meta.probes.truncate(1);
    }
    let mut events = Vec::new();
    let mut fake = match what.as_str() {
        "many" => crowd::many(&mut events),
        "nasty" => Fake::new(vec![EVIL], &mut events),
        "empty" | "starting" => Fake::new(Vec::new(), &mut events),
        _ => Fake::new(PROGRAMS.iter().map(|p| Program { ..*p }).collect(), &mut events),
    };
    let (sender, batches) = mpsc::channel(64);
    let source_line = |_, _: &str, _| None;
    let options = |source| Options {
        source,
        color: Color::detect(),
        source_line: Box::new(source_line),
        signals: None,
        save: Box::new(|_| String::new()),
    };
    if what == "replay" {
        for second in 0..45 {
            fake.sample(Duration::from_secs(second), Duration::from_secs(second + 1), &mut events);
        }
        let log = ReplayLog::of_events(meta, events);
        return replay(log, options(Source::Replay { file: "/home/ada/pyobs-20261002-081500.pyobs".to_owned() }));
    }
    std::thread::spawn(move || feed(&what, &mut fake, events, &sender));
    run(Model::new(meta, history), batches, options(Source::Live))
}

fn feed(what: &str, fake: &mut Fake, events: Vec<Event>, sender: &mpsc::Sender<Batch>) {
    std::thread::sleep(Duration::from_millis(700));
    if what == "panic" {
        panic!("a thread beside the dashboard panicked");
    }
    if what == "cpu" {
        fake.is_cpu_only = true;
    }
    if what == "starting" {
        std::thread::sleep(Duration::from_secs(3600));
    }
    let started = Instant::now();
    let mut told = Duration::ZERO;
    let mut batch = events;
    for round in 0u64.. {
        let now = started.elapsed();
        fake.sample(told, now, &mut batch);
        told = now;
        if round % 50 == 49 && what != "empty" {
            batch.push(Event::Loss { at: nanos(now), reason: Reason::NotAttachedYet, count: 2 });
            batch.push(Event::Loss { at: nanos(now), reason: Reason::LineUnknown, count: 1 });
        }
        if sender.blocking_send(Batch::Events(std::mem::take(&mut batch))).is_err() {
            return;
        }
        if round == 20 && what == "live" {
            let note = "python3.6 (5150) is older than what pyobs reads: its samples have no Python frames.";
            let _ = sender.blocking_send(Batch::Note(note.to_owned()));
        }
        if round == 30 && what == "failing" {
            let why = "the kernel took the perf events away: too many open files; raise `ulimit -n`.";
            let _ = sender.blocking_send(Batch::Failed(why.to_owned()));
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

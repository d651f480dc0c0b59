//! The real dashboard over invented events, for looking at it without a kernel.
//!
//! `cargo run -p pyobs-tui --example fake [live | replay | empty | starting | failing | panic | nasty | many]`

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyobs_model::{
    Event, Frame, FrameId, FrameKind, History, Meta, Model, Nanos, Outcome, Pid, Process, ProcessRef, Reason, Sample,
    StackId, Tid,
};
use pyobs_tui::{Batch, Color, Options, Source, run};
use tokio::sync::mpsc;

/// Stacks, root first, one frame a line below its caller: `function file line`, with `!` before native and `^` before
/// kernel ones; `*` and a weight where samples fall.
const TRAIN: &str = "
<module> /srv/app/train.py 88
 Trainer.fit /srv/app/trainer.py 142
  Trainer.step /srv/app/trainer.py 187
   Linear.forward /srv/app/.venv/lib/python3.12/site-packages/net/layers.py 61
    !cblas_dgemm libopenblas.so.0 *30
  Trainer.step /srv/app/trainer.py 188
   Linear.backward /srv/app/.venv/lib/python3.12/site-packages/net/layers.py 79
    !cblas_dgemm libopenblas.so.0 *14
 Trainer.fit /srv/app/trainer.py 140
  DataLoader.__next__ /srv/app/.venv/lib/python3.12/site-packages/net/data/loader.py 211
   normalize /srv/app/normalize.py 31 *12
   normalize /srv/app/normalize.py 33
    !PyNumber_Multiply libpython3.12.so.1.0 *7
  DataLoader.__next__ /srv/app/.venv/lib/python3.12/site-packages/net/data/loader.py 214
   !memcpy libc.so.6
    ^asm_exc_page_fault kernel
     ^do_user_addr_fault kernel
      ^handle_mm_fault kernel
       ^clear_page_erms kernel *5
 Trainer.fit /srv/app/trainer.py 151
  Metrics.log /srv/app/metrics.py 44
   JSONEncoder.iterencode /usr/lib/python3.12/json/encoder.py 258 *3
";
const WEB: &str = "
<module> /usr/bin/gunicorn 8
 run /opt/web/venv/lib/python3.11/site-packages/gunicorn/app/wsgiapp.py 67
  Worker.handle_request /opt/web/venv/lib/python3.11/site-packages/gunicorn/workers/sync.py 177
   View.dispatch /opt/web/shop/views.py 58
    Cart.total /opt/web/shop/cart.py 103
     Cart.total.<locals>.<genexpr> /opt/web/shop/cart.py 104 *9
   View.dispatch /opt/web/shop/views.py 61
    Template.render /opt/web/venv/lib/python3.11/site-packages/jinja2/environment.py 1304
     !_PyEval_Vector python3.11 *6
  Worker.accept /opt/web/venv/lib/python3.11/site-packages/gunicorn/workers/sync.py 28
   !accept4 libc.so.6
    ^entry_SYSCALL_64 kernel
     ^do_syscall_64 kernel
      ^inet_csk_accept kernel *4
Thread._bootstrap /usr/lib/python3.11/threading.py 995
 Reporter.run /opt/web/shop/report.py 12 *2
";
const SLEEPY: &str = "
<module> /home/ada/poll.py 7
 wait_for_change /home/ada/poll.py 3 *1
";
const NASTY: &str = "
\u{1b}[31mred\u{7} /tmp/\u{1b}]0;owned\u{7}.py 1
 <script>alert(1)</script> /tmp/a.html 2
  漢字の関数名はとても幅が広い /tmp/漢字.py 3 *5
\u{202e}desrever /tmp/\u{200b}\u{200b}zero.py 9
 👩‍👩‍👧‍👦.family /tmp/emoji.py 8
  z\u{335}\u{321}\u{322}\u{31b}\u{31b}algo /tmp/z.py 4 *4
";

/// The stacks of such a text with their weights.
fn shapes(text: &'static str) -> Vec<(u64, Vec<&'static str>)> {
    let mut path = Vec::new();
    let mut shapes = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let frame = line.trim_start_matches(' ');
        path.truncate(line.len() - frame.len());
        let (frame, weight) = match frame.rsplit_once(" *") {
            Some((frame, weight)) => (frame, weight.parse().ok()),
            None => (frame, None),
        };
        path.push(frame);
        shapes.extend(weight.map(|weight| (weight, path.clone())));
    }
    shapes
}

struct Program {
    pid: u32,
    python: Option<&'static str>,
    command: &'static str,
    threads: &'static [&'static str],
    shapes: &'static str,
    /// Of one core, in percent.
    busy: u64,
}

const PROGRAMS: &[Program] = &[
    Program {
        pid: 4242,
        python: Some("3.12.1"),
        command: "/srv/app/.venv/bin/python3 -m train --config configs/large.toml --epochs 40",
        threads: &["python3", "loader-0", "loader-1"],
        shapes: TRAIN,
        busy: 170,
    },
    Program {
        pid: 918,
        python: Some("3.11.2"),
        command: "/usr/bin/python3 /usr/bin/gunicorn shop.wsgi --workers 4",
        threads: &["gunicorn", "Thread-1 (report)"],
        shapes: WEB,
        busy: 42,
    },
    Program {
        pid: 919,
        python: Some("3.11.2"),
        command: "/usr/bin/python3 /usr/bin/gunicorn shop.wsgi --workers 4",
        threads: &["gunicorn"],
        shapes: WEB,
        busy: 23,
    },
    Program {
        pid: 77120,
        python: Some("3.8.20"),
        command: "python3.8 poll.py",
        threads: &["python3.8"],
        shapes: SLEEPY,
        busy: 2,
    },
    Program {
        pid: 77121,
        python: Some("3.14.0"),
        command: "python3.14 -c import\u{a0}time;time.sleep(1000)",
        threads: &["python3.14"],
        shapes: SLEEPY,
        busy: 0,
    },
];
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
    programs: Vec<(Program, Vec<(u64, StackId)>)>,
    random: Random,
}

impl Fake {
    fn new(programs: Vec<Program>, events: &mut Vec<Event>) -> Self {
        let (mut frames, mut stacks) = (0, 0);
        let mut known = std::collections::HashMap::new();
        let mut all = Vec::new();
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
            for (weight, shape) in shapes(program.shapes) {
                let ids: Vec<FrameId> = shape
                    .into_iter()
                    .map(|text| {
                        *known.entry(text).or_insert_with(|| {
                            let id = FrameId(frames);
                            frames += 1;
                            events.push(Event::Frame { id, frame: frame(text) });
                            id
                        })
                    })
                    .collect();
                events.push(Event::Stack { id: StackId(stacks), frames: ids.into() });
                drawn.push((weight, StackId(stacks)));
                stacks += 1;
            }
            all.push((program, drawn));
        }
        Self { programs: all, random: Random(88_172_645_463_325_252) }
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
                        let mut left = self.random.below(shapes.iter().map(|(weight, _)| weight).sum());
                        let stack = shapes.iter().find(|(weight, _)| {
                            let found = left < *weight;
                            left = left.saturating_sub(*weight);
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
                            outcome: Outcome::Complete,
                        }));
                    }
                }
            }
            at += TICK;
        }
        events.push(Event::Cost {
            at: nanos(until),
            bpf: nanos(until / 1800),
            cpu: nanos(until / 300),
            rss_bytes: 41 << 20,
        });
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
        probes: vec!["cpu".into()],
        sampler: "cpu-clock".into(),
    }
}

/// 200 processes and 50,000 frames.
fn many(events: &mut Vec<Event>) -> Fake {
    let programs = (0..200)
        .map(|index| Program {
            pid: 10_000 + index * 8,
            python: Some("3.12.1"),
            command: "python3 worker.py --queue default",
            threads: &["python3"],
            shapes: "",
            busy: 1,
        })
        .collect();
    let mut fake = Fake::new(programs, events);
    let mut stack = 0;
    for (index, (_, shapes)) in fake.programs.iter_mut().enumerate() {
        for shape in 0..10u32 {
            let first = (index as u32 * 10 + shape) * 25;
            for id in first..first + 25 {
                let text = format!("function_{} /srv/many/module_{}.py {}", id % 5000, id % 300, 1 + id / 5000);
                events.push(Event::Frame { id: FrameId(id), frame: frame(&text) });
            }
            events.push(Event::Stack { id: StackId(stack), frames: (first..first + 25).map(FrameId).collect() });
            shapes.push((1, StackId(stack)));
            stack += 1;
        }
    }
    fake
}

fn main() -> std::io::Result<()> {
    let what = std::env::args().nth(1).unwrap_or_else(|| "live".to_owned());
    let history = History::Window { length: Nanos(120_000_000_000), samples: 2_000_000 };
    let mut model = Model::new(meta(), if what == "replay" { History::All } else { history });
    let mut events = Vec::new();
    let mut fake = match what.as_str() {
        "many" => many(&mut events),
        "nasty" => Fake::new(
            vec![Program {
                pid: 666,
                python: Some("3.12.1"),
                command: "\u{1b}[2Jevil \u{202e}cod.exe\t",
                threads: &["\u{1b}c"],
                shapes: NASTY,
                busy: 90,
            }],
            &mut events,
        ),
        "empty" | "starting" => Fake::new(Vec::new(), &mut events),
        _ => Fake::new(PROGRAMS.iter().map(|p| Program { ..*p }).collect(), &mut events),
    };
    let (sender, batches) = mpsc::channel(64);
    let source = if what == "replay" {
        Source::Replay { file: "/home/ada/pyobs-20261002-081500.pyobs".to_owned() }
    } else {
        Source::Live
    };
    if what == "replay" {
        fake.sample(Duration::ZERO, Duration::from_secs(45), &mut events);
        for event in &events {
            model.apply(event);
        }
        drop(sender);
    } else {
        std::thread::spawn(move || feed(&what, &mut fake, events, &sender));
    }
    run(model, batches, Options { source, color: Color::detect() })
}

fn feed(what: &str, fake: &mut Fake, events: Vec<Event>, sender: &mpsc::Sender<Batch>) {
    std::thread::sleep(Duration::from_millis(700));
    if what == "panic" {
        panic!("a thread beside the dashboard panicked");
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

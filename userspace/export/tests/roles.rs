//! Every format that names threads appends the role of those that take part in transfers.

mod common;

use std::io::Read;

use common::perfetto::timeline;
use common::{ModelBuilder, checked_speedscope, exported, frame, meta};
use flate2::read::GzDecoder;
use prost::Message;
use pyobs_export::pprof::proto::Profile;
use pyobs_export::{Format, Options, export};
use pyobs_model::*;
use serde_json::Value;

const MS: u64 = 1_000_000;
const MAIN: Tid = Tid(4242);
const PROGRESS: Tid = Tid(4243);
const OTHER: Tid = Tid(4244);

/// The totals of `tid`: transfers that it completed, and how often one woke it.
fn totals(tid: Tid, completed: u64, woken: u64) -> Event {
    Event::TransferThread(TransferThread {
        at: Nanos(900 * MS),
        process: ProcessRef(0),
        tid,
        registered: woken,
        submitted: completed,
        dispatched: completed,
        completed,
        notified: 0,
        woken,
        progress: 0,
        probed: Nanos(0),
        observed: Nanos(900 * MS),
        awake: Nanos(100 * MS),
    })
}

/// An event loop in a thread called `name`, a progress thread that wakes it and then holds the GIL, and an unrelated thread.
fn example(name: &str) -> Model {
    let mut it = ModelBuilder::new("h");
    let probes = Family::names();
    it.model = Model::new(Meta { probes, ..meta("build-host") }, History::All);
    let threads = [(MAIN.0, name), (PROGRESS.0, "python"), (OTHER.0, "worker")];
    it.process(0, 4242, "/usr/bin/python3.12 main.py", &threads);
    let serve = frame(FrameKind::Python, "serve", "/srv/app/main.py", 31, 30);
    for (tid, _) in threads {
        it.samples(0, tid, 3, Outcome::Complete, std::slice::from_ref(&serve));
    }
    let (stack, process, length) = (it.stack(&[serve]), ProcessRef(0), Nanos(5 * MS));
    let waker = Some(Waker { pid: Pid(4242), tid: PROGRESS, name: "python".into() });
    let (at, reason, holder) = (Nanos(500 * MS), WaitReason::Poll, Some(GilHolder { tid: PROGRESS, stack }));
    let sleep = Sleep {
        from: at.saturating_sub(length),
        stacks: 1,
        at,
        process,
        tid: MAIN,
        stack,
        reason,
        length,
        count: 1,
        total: length,
        waker,
    };
    let stranger = Some(Waker { pid: Pid(99), tid: PROGRESS, name: "stranger".into() });
    let other = Sleep { tid: OTHER, waker: stranger, ..sleep.clone() };
    let wait = GilWait {
        from: Nanos(510 * MS).saturating_sub(length),
        stacks: 1,
        at: Nanos(510 * MS),
        process,
        tid: MAIN,
        stack,
        holder,
        length,
        count: 1,
        total: length,
    };
    for event in
        [totals(MAIN, 0, 9), totals(PROGRESS, 9, 0), Event::Sleep(sleep), Event::Sleep(other), Event::GilWait(wait)]
    {
        it.model.apply(&event);
    }
    it.model
}

const NAMES: [&str; 3] = ["MainThread (event_loop) 4242", "python (progress) 4243", "worker 4244"];

fn model() -> Model {
    example("MainThread")
}

#[test]
fn speedscope_names_threads_with_roles() {
    let mut names: Vec<String> = checked_speedscope(&exported(&model(), Format::Speedscope, &Options::default()))
        .into_iter()
        .map(|(_, name)| name)
        .collect();
    names.sort_unstable();
    assert_eq!(names, NAMES.map(|name| format!("python3.12 (4242), {name}")));
}

#[test]
fn firefox_names_threads_with_roles() {
    let profile: Value = serde_json::from_str(&exported(&model(), Format::Firefox, &Options::default())).unwrap();
    let threads = profile["threads"].as_array().unwrap();
    let names: Vec<&str> = threads.iter().map(|thread| thread["name"].as_str().unwrap()).collect();
    // The viewer shows a main thread under the name of its process.
    assert_eq!(names, ["python3.12 main.py (event_loop)", NAMES[1], NAMES[2]]);
    let main = threads.iter().find(|thread| thread["tid"] == "4242").unwrap();
    let texts: Vec<&str> = main["stringArray"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(texts.contains(&"5.00 ms, woken by python (progress) 4243"), "{texts:?}");
    assert!(texts.contains(&"5.00 ms, behind python (progress) 4243 at serve (main.py:31)"), "{texts:?}");
}

#[test]
fn pprof_names_threads_with_roles() {
    let (mut packed, mut bytes) = (Vec::new(), Vec::new());
    export(&model(), Format::Pprof, &Options::default(), &mut packed).unwrap();
    GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).unwrap();
    let strings = Profile::decode(bytes.as_slice()).unwrap().string_table;
    assert!(NAMES.iter().all(|name| strings.iter().any(|it| it == name)), "{strings:?}");
}

/// Perfetto appends the tid itself.
#[test]
fn perfetto_names_threads_with_roles() {
    let all = timeline(&model(), &Options::default());
    let of = |tid: u32| all.of("wait").filter(move |slice| slice.tid == i32::try_from(tid).ok());
    assert!(of(MAIN.0).all(|slice| slice.track[1] == "MainThread (event_loop)"), "{all:?}");
    assert!(of(OTHER.0).all(|slice| slice.track[1] == "worker"), "{all:?}");
    let args: Vec<_> =
        of(MAIN.0).flat_map(|slice| [slice.args.get("woken_by"), slice.args.get("behind")]).flatten().collect();
    assert_eq!(args, ["python (progress) 4243"; 2]);
    let of_another = of(OTHER.0).next().unwrap().args.get("woken_by").unwrap();
    assert_eq!(of_another, "stranger 4243", "the thread belongs to another process");
}

#[test]
fn the_page_names_threads_with_roles() {
    let page = exported(&model(), Format::Html, &Options::default());
    for name in NAMES {
        assert!(page.contains(&format!("<title>{name}</title>")), "{name}");
    }
    // As a waker, as a holder of the GIL, and among the workers.
    assert_eq!(page.matches("<td>python (progress) 4243</td>").count(), 3);
    // As a sleeper, as a waiter for the GIL, and among the workers.
    assert_eq!(page.matches("<td>MainThread (event_loop) 4242</td>").count(), 3);
    let page = exported(&example("<script>\u{1b}"), Format::Html, &Options::default());
    assert!(page.contains("<title>&lt;script&gt;\u{fffd} (event_loop) 4242</title>"));
}

/// Formats that add up stacks have no threads.
#[test]
fn folded_stacks_have_no_threads() {
    let text = exported(&model(), Format::Folded, &Options::default());
    assert_eq!(text, "python3.12 (4242);serve (main.py) 9\n");
}

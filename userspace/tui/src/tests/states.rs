//! Every screen in every state, in terminals of usual and large size. The events went through a recording.

use std::time::Duration;

use insta::assert_snapshot;
use pyobs_model::{Event, Family, History, Meta, Model, Nanos, Reason, Refused};
use pyobs_recording::{Reader, Writer};

use super::{Bench, EVERYWHERE, LARGE, USUAL, redundancy, synthetic, ucx};
use crate::app::Msg;
use crate::{Batch, ReplayLog, Source};

const SCREENS: std::ops::RangeInclusive<char> = '0'..='9';

/// Events of all families.
pub(super) fn events() -> Vec<Event> {
    let is_of_redundancy =
        |event: &Event| matches!(event, Event::Access(_) | Event::Call(_) | Event::Pair(_) | Event::Watchpoints { .. });
    let is_of_transfers = |event: &Event| match event {
        Event::Arena { id, .. } => *id == ucx::ARENA,
        event => matches!(event, Event::Transfer { .. } | Event::TransferThread(_) | Event::Transfers { .. }),
    };
    let mut events = synthetic::sharing();
    events.extend(redundancy::dispatching().into_iter().filter(is_of_redundancy));
    events.extend(ucx::events().into_iter().filter(is_of_transfers));
    events
}

/// Writes events into a recording and reads them back.
fn recorded(events: &[Event]) -> (Meta, Vec<Event>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.pyobs");
    let meta = Meta { probes: Family::names(), ..synthetic::meta() };
    let mut writer = Writer::create(&path, &meta).unwrap();
    writer.append(events).unwrap();
    writer.finish().unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let (meta, mut read) = (reader.meta().clone(), Vec::new());
    reader.replay(|event| read.push(event)).unwrap();
    (meta, read)
}

fn all_screens(state: &str, new: impl Fn((u16, u16)) -> Bench) {
    for size in [USUAL, LARGE] {
        let pictures = SCREENS.map(|screen| {
            let picture = new(size).keys(&screen.to_string()).picture();
            let lines = picture.lines().map(|line| line.trim_matches('"').trim_end());
            format!("key {screen}\n{}\n", lines.collect::<Vec<_>>().join("\n"))
        });
        assert_snapshot!(format!("{state}_{}x{}", size.0, size.1), pictures.collect::<String>());
    }
}

fn live(size: (u16, u16)) -> Bench {
    Bench::new(synthetic::model_of(&Family::ALL), Source::Live, size)
}

fn watching(size: (u16, u16)) -> Bench {
    let mut bench = live(size);
    bench.send(Batch::Events(recorded(&events()).1));
    bench
}

#[test]
fn starting() {
    all_screens("starting", live);
}

#[test]
fn without_any_python() {
    all_screens("without_any_python", |size| {
        let mut bench = live(size);
        bench.send(Batch::Events(Vec::new()));
        bench
    });
}

#[test]
fn without_rights() {
    all_screens("without_rights", |size| {
        let mut bench = live(size);
        bench.send(Batch::Failed("pyobs needs to be root, or CAP_BPF and CAP_PERFMON; try `sudo pyobs top`".into()));
        bench
    });
}

/// The header names the families that are off. Health says why, and so does the screen that is empty for that reason.
#[test]
fn with_families_that_were_refused() {
    let reason = "the kernel refuses the BPF program shm_fork: unknown func bpf_x#1; run Linux 5.15 or newer";
    let refused = ["arena", "shm"].map(|family| Refused { family: family.into(), reason: reason.into() }).to_vec();
    let meta = Meta { refused, ..synthetic::meta() };
    for size in [USUAL, LARGE] {
        let mut bench = Bench::new(Model::new(meta.clone(), History::All), Source::Live, size);
        bench.send(Batch::Events(Vec::new()));
        let on = |bench: &mut Bench, key: &str| -> String {
            let picture = bench.keys(key).picture();
            assert!(picture.contains(if size.0 > 100 { "off: arena shm" } else { "2 off" }), "{picture}");
            picture.split(['"', '\n', ' ']).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
        };
        let words = on(&mut bench, "5");
        assert!(words.contains(&format!("arena, shm are off: {reason}")), "{words}");
        // The reason replaces the advice to turn the family on.
        let words = on(&mut bench, "6");
        assert!(words.contains(&format!("The family shm is unavailable: {reason}.")), "{words}");
    }
}

#[test]
fn going_on() {
    all_screens("going_on", watching);
}

#[test]
fn lagging() {
    all_screens("lagging", |size| {
        let mut bench = watching(size);
        bench.now = Duration::from_secs(5);
        bench.msg(Msg::Tick);
        bench
    });
}

#[test]
fn dropping() {
    all_screens("dropping", |size| {
        let (mut bench, at) = (watching(size), Nanos(9_900_000_000));
        let what = "CPU samples at 49 Hz: the budget of 1 % was used up".into();
        let lost = Event::Loss { at, reason: Reason::RingFull, count: 3_000_000 };
        bench.send(Batch::Events(vec![lost, Event::Shed { at, what }]));
        bench
    });
}

#[test]
fn ended() {
    all_screens("ended", |size| {
        let mut bench = watching(size);
        bench.msg(Msg::Ended);
        bench
    });
}

#[test]
fn of_an_empty_recording() {
    all_screens("of_an_empty_recording", |size| {
        Bench::replaying(ReplayLog::of_events(recorded(&[]).0, Vec::new()), size)
    });
}

/// A recording may return events of equal times in another order.
#[test]
fn a_live_capture_and_its_replay_look_the_same() {
    let (meta, read) = recorded(&events());
    // Without the first line, which says whether it is live, and the last one with the hints.
    let body = |mut bench: Bench, keys: &str| {
        let picture = bench.keys(keys).picture();
        let lines: Vec<String> = picture.lines().map(str::to_owned).collect();
        lines[1..lines.len() - 1].to_vec()
    };
    for size in [USUAL, LARGE] {
        for keys in EVERYWHERE.iter().filter(|keys| !keys.contains(['?', '/'])) {
            let mut live = live(size);
            live.send(Batch::Events(events()));
            live.msg(Msg::Ended);
            let replayed = Bench::replaying(synthetic::log(meta.clone(), read.clone()), size);
            // A replay starts with the whole recording in view; its next window is the one that a live capture starts with.
            assert_eq!(body(live, keys), body(replayed, &format!("w{keys}")), "{keys}");
        }
    }
}

#[test]
fn of_a_recording() {
    all_screens("of_a_recording", |size| {
        let (meta, events) = recorded(&events());
        Bench::replaying(synthetic::log(meta, events), size)
    });
}

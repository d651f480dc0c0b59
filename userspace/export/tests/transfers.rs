//! Transfers as a timeline.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::collections::BTreeMap;

use common::{Builder, exported, frame, meta};
use pyobs_export::{Error, Format, Options, export};
use pyobs_model::*;
use serde_json::Value;

const MICRO: u64 = 1_000;
const MAIN: Tid = Tid(4242);
const PROGRESS: Tid = Tid(4243);

fn builder() -> Builder {
    let mut it = Builder::new("h");
    let probes = families::NAMES.iter().map(ToString::to_string).collect();
    it.model = Model::new(Meta { probes, ..meta("build-host") }, History::All);
    it
}

fn transfer(begun: u64) -> Transfer {
    let after = |micros: u64| Some(Nanos((begun + micros) * MICRO));
    Transfer {
        process: ProcessRef(0),
        library: Library::Ucxx,
        operation: Operation::TagSend,
        bytes: 4096,
        tag: Some(7),
        through: 0xe0,
        buffer: 0x1000,
        registered: after(0),
        submitted: after(40),
        completed: after(400),
        immediate: false,
        status: Some(0),
        tid: MAIN,
        submitter: Some(PROGRESS),
        completer: Some(PROGRESS),
        protocol: Some(Protocol::Eager),
        parent: None,
        hash: None,
    }
}

fn seen(id: u64, transfer: Transfer) -> Event {
    let at = transfer.completed.unwrap_or_default();
    Event::Transfer { at, id: TransferId(id), change: TransferChange::Seen(Box::new(transfer)) }
}

/// One with a future, one of libucp alone that is over at once, one without an end, and one of two parts.
fn example() -> Model {
    let mut it = builder();
    it.process(0, 4242, "/usr/bin/python3.12 main.py", &[(4242, "MainThread"), (4243, "python")]);
    let stack = it.stack(&[frame(FrameKind::Python, "step", "/srv/app/main.py", 31, 30)]);
    let at_once = Transfer {
        library: Library::Ucx,
        registered: None,
        completed: Some(Nanos(1_041 * MICRO)),
        immediate: true,
        submitter: Some(MAIN),
        completer: Some(MAIN),
        ..transfer(1_000)
    };
    let open = Transfer { completed: None, completer: None, status: None, ..transfer(2_000) };
    let multi = Transfer { operation: Operation::MultiSend, submitted: Some(Nanos(3_000 * MICRO)), ..transfer(3_000) };
    let part = |begun| Transfer { parent: Some(TransferId(4)), ..transfer(begun) };
    let woken = TransferChange::Woken { notified: Nanos(410 * MICRO), tid: MAIN };
    for event in [
        seen(1, transfer(0)),
        Event::Transfer { at: Nanos(0), id: TransferId(1), change: TransferChange::Asked(stack) },
        Event::Transfer { at: Nanos(700 * MICRO), id: TransferId(1), change: woken },
        seen(2, at_once),
        seen(3, open),
        seen(4, multi),
        seen(5, part(3_001)),
        seen(6, part(3_002)),
    ] {
        it.model.apply(&event);
    }
    it.model
}

/// What the format demands: slices of a thread do not cross, what begins on a track ends there, and an arrow goes forward
/// in time, from slice to slice.
#[track_caller]
fn checked(text: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(text).unwrap();
    let events = file["traceEvents"].as_array().unwrap().clone();
    let time = |event: &Value| event["ts"].as_f64().unwrap();
    let mut slices: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    let mut open: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
    let mut arrows: BTreeMap<String, Vec<(String, f64, String)>> = BTreeMap::new();
    for event in &events {
        let track = format!("{} {}", event["pid"], event["tid"]);
        let id = event["id"].as_str().unwrap_or_default().to_owned();
        match event["ph"].as_str().unwrap() {
            "X" => slices.entry(track).or_default().push((time(event), event["dur"].as_f64().unwrap())),
            "b" => open.entry(id).or_default().push((event["name"].to_string(), time(event))),
            "e" => {
                let (name, from) = open.get_mut(&id).unwrap().pop().unwrap();
                assert_eq!(name, event["name"].to_string());
                assert!(from <= time(event));
            }
            phase @ ("s" | "t" | "f") => {
                arrows.entry(id).or_default().push((phase.to_owned(), time(event), track));
            }
            "M" | "C" => assert!(event["args"].is_object()),
            other => panic!("{other}"),
        }
    }
    for (track, slices) in &mut slices {
        slices.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert!(slices.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0), "{track}");
    }
    for arrow in arrows.values_mut() {
        arrow.sort_by(|one, other| one.1.total_cmp(&other.1));
        let phases: String = arrow.iter().map(|(phase, ..)| phase.as_str()).collect();
        assert!(phases.starts_with('s') && phases.trim_matches('t').ends_with(['s', 'f']), "{phases}");
        for (_, at, track) in arrow {
            assert!(slices[track].iter().any(|(from, length)| from <= at && *at <= from + length), "{track} {at}");
        }
    }
    events
}

#[test]
fn a_transfer_is_a_slice_with_its_stages_and_arrows_lead_from_thread_to_thread() {
    let text = exported(&example(), Format::Perfetto, &Options::default());
    let events = checked(&text);
    let of = |ph: &str, id: &str| -> Vec<(String, f64)> {
        let own = events.iter().filter(|event| event["ph"] == ph && event["id"] == id);
        own.map(|event| (event["name"].as_str().unwrap().to_owned(), event["ts"].as_f64().unwrap())).collect()
    };
    let named = |pairs: &[(&str, f64)]| pairs.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect::<Vec<_>>();
    let stages = [("tag_send", 0.0), ("queued", 0.0), ("pending", 40.0), ("completed", 400.0), ("notified", 410.0)];
    assert_eq!(of("b", "0x1"), named(&stages));
    let ends = [("queued", 40.0), ("pending", 400.0), ("completed", 410.0), ("notified", 700.0), ("tag_send", 700.0)];
    assert_eq!(of("e", "0x1"), named(&ends));
    let flow = |id: &str| {
        let own = events.iter().filter(|event| event["cat"] == "flow" && event["id"] == id);
        let mut points: Vec<(u64, u64)> =
            own.map(|event| (event["ts"].as_f64().unwrap() as u64, event["tid"].as_u64().unwrap())).collect();
        points.sort_unstable();
        points
    };
    assert_eq!(flow("0x1"), [(0, 4242), (40, 4243), (400, 4243), (410, 4243), (700, 4242)]);
    assert_eq!(flow("0x2"), [(1_040, 4242), (1_041, 4242)]);
    // What has no end is open, as the format has it.
    assert_eq!((of("b", "0x3").len(), of("e", "0x3").len()), (2, 1));
    let whole = events.iter().find(|event| event["ph"] == "b" && event["id"] == "0x4").unwrap();
    assert_eq!(whole["args"]["bytes"], "8192");
    assert!(text.contains("step (main.py:31)") && text.contains("\"protocol\":\"eager\""), "{text}");
    let deepest = events.iter().filter(|event| event["name"] == "queue").map(|event| &event["args"]["waiting"]);
    assert_eq!(deepest.filter_map(Value::as_u64).max(), Some(2));
    insta::assert_snapshot!("perfetto", text);
}

#[test]
fn only_what_is_selected_is_told() {
    let from = Some(Nanos(2_500 * MICRO));
    let selection = Selection { from, ..Selection::default() };
    let text = exported(&example(), Format::Perfetto, &Options { selection, ..Options::default() });
    let events = checked(&text);
    let wholes = events.iter().filter(|event| event["ph"] == "b" && event["name"] != "pending");
    let begun: Vec<&str> =
        wholes.filter(|event| event["name"] != "queued").filter_map(|it| it["id"].as_str()).collect();
    // The one without an end goes on.
    assert_eq!(begun, ["0x3", "0x4", "0x5", "0x6"]);
}

#[test]
fn a_recording_of_samples_only_is_refused_with_what_to_do() {
    let model = Model::new(meta("h"), History::All);
    let error = export(&model, Format::Perfetto, &Options::default(), &mut Vec::new()).unwrap_err();
    assert!(matches!(error, Error::NoTimeline) && error.to_string().contains("leave --probe out"));
    assert!(checked(&exported(&builder().model, Format::Perfetto, &Options::default())).is_empty());
}

#[test]
fn hostile_names_and_numbers_do_no_harm() {
    let text = "\u{1b}[31m;\n\"<script>]]>&\u{202e}".repeat(40);
    let mut it = builder();
    it.process(0, 4242, &text, &[(4242, &text)]);
    let stack = it.stack(&[frame(FrameKind::Python, &text, &text, 3, 3)]);
    let most = Some(Nanos(u64::MAX));
    let worst =
        Transfer { registered: most, submitted: Some(Nanos(0)), completed: most, bytes: u64::MAX, ..transfer(0) };
    let woken = TransferChange::Woken { notified: Nanos(0), tid: Tid(u32::MAX) };
    for id in 0..3 {
        it.model.apply(&seen(id, worst));
        it.model.apply(&Event::Transfer { at: Nanos(0), id: TransferId(id), change: TransferChange::Asked(stack) });
        it.model.apply(&Event::Transfer { at: Nanos(0), id: TransferId(id), change: woken.clone() });
    }
    let text = exported(&it.model, Format::Perfetto, &Options::default());
    let file: Value = serde_json::from_str(&text).unwrap();
    assert!(file["traceEvents"].as_array().unwrap().len() > 20);
}

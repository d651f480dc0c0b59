//! Transfers in a Perfetto trace.

mod common;

use common::perfetto::timeline;
use common::{ModelBuilder, frame, meta};
use pyobs_export::{Error, Format, Options, export};
use pyobs_model::*;

const MICRO: u64 = 1_000;
const MAIN: Tid = Tid(4242);
const PROGRESS: Tid = Tid(4243);

fn builder() -> ModelBuilder {
    let mut it = ModelBuilder::new("h");
    let probes = Family::names();
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

/// A transfer with a future, one by libucp that completes immediately, one without an end, and one of two parts.
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

#[test]
fn a_transfer_is_a_slice_with_its_stages_and_arrows_lead_from_thread_to_thread() {
    let all = timeline(&example(), &Options::default());
    let process = "python3.12 main.py";
    let own = |id: &str| -> Vec<(&str, f64, Option<f64>)> {
        let first = all.of("transfer").position(|slice| slice.args.get("transfer").is_some_and(|it| it == id)).unwrap();
        let rest = all.of("transfer").skip(first + 1).take_while(|slice| !slice.args.contains_key("transfer"));
        let own = all.of("transfer").skip(first).take(1).chain(rest);
        own.map(|slice| (slice.name.as_str(), slice.from, slice.to)).collect()
    };
    let stages = [
        ("tag_send", 0.0, Some(700.0)),
        ("queued", 0.0, Some(40.0)),
        ("pending", 40.0, Some(400.0)),
        ("completed", 400.0, Some(410.0)),
        ("notified", 410.0, Some(700.0)),
    ];
    assert_eq!(own("0x1"), stages);
    // A transfer without an end stays open.
    assert_eq!(own("0x3"), [("tag_send", 2_000.0, None), ("queued", 2_000.0, Some(2_040.0))]);
    assert!(all.of("transfer").all(|slice| slice.track[0] == process));
    let arrow = |id: u64| {
        let own = all.of("thread").filter(|slice| slice.arrows.contains(&id) || slice.ends.contains(&id));
        let mut points: Vec<(u64, i32, bool)> =
            own.map(|slice| (slice.from as u64, slice.tid.unwrap(), slice.ends.contains(&id))).collect();
        points.sort_unstable();
        points
    };
    let points = [(0, 4242, false), (40, 4243, false), (400, 4243, false), (410, 4243, false), (700, 4242, true)];
    assert_eq!(arrow(1), points);
    assert_eq!(arrow(2), [(1_040, 4242, false), (1_041, 4242, true)]);
    let wakes = all.of("thread").find(|slice| slice.name == "wake tag_send").unwrap();
    assert_eq!(wakes.track, [process, "MainThread", "transfers"]);
    let args = |id: &str| {
        &all.of("transfer").find(|slice| slice.args.get("transfer").is_some_and(|it| it == id)).unwrap().args
    };
    assert_eq!(args("0x4")["bytes"], "8192");
    assert_eq!((args("0x1")["asked_at"].as_str(), args("0x1")["protocol"].as_str()), ("step (main.py:31)", "eager"));
    assert_eq!(all.counters["queue"].iter().map(|(_, depth)| *depth).max(), Some(2));
}

#[test]
fn only_selected_transfers_are_exported() {
    let from = Some(Nanos(2_500 * MICRO));
    let selection = Selection { from, ..Selection::default() };
    let all = timeline(&example(), &Options { selection, ..Options::default() });
    let begun: Vec<&str> = all.of("transfer").filter_map(|slice| Some(slice.args.get("transfer")?.as_str())).collect();
    // 0x3 began earlier, but has no end.
    assert_eq!(begun, ["0x3", "0x4", "0x5", "0x6"]);
}

#[test]
fn a_recording_without_data_for_a_timeline_is_an_error_with_advice() {
    let model = Model::new(Meta { probes: vec!["eval".to_owned()], ..meta("h") }, History::All);
    let error = export(&model, Format::Perfetto, &Options::default(), &mut Vec::new()).unwrap_err();
    assert!(matches!(error, Error::NoTimeline) && error.to_string().contains("leave --probe out"));
    assert!(timeline(&builder().model, &Options::default()).slices.is_empty());
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
    assert!(timeline(&it.model, &Options::default()).slices.len() > 20);
}

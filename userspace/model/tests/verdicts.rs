//! Lines where nothing was found: whether it would have been, or too little is known.

use pyobs_model::report::Report;
use pyobs_model::*;

/// A line that a program calls native code at, by its number.
fn model() -> Model {
    let probes = vec!["redundancy".to_owned()];
    let mut model = Model::new(Meta { rate_hz: 99, probes, ..Meta::default() }, History::All);
    let process = Process { pid: Pid(7), ppid: Pid(1), command: "python".into(), python: None, started: None };
    model.apply(&Event::Process { id: ProcessRef(0), process });
    for id in 0..4 {
        let frame = Frame::python("f".into(), "/srv/a.py".into(), Some(id), Some(1));
        model.apply(&Event::Frame { id: FrameId(id), frame });
        model.apply(&Event::Stack { id: StackId(id), frames: [FrameId(id)].into() });
    }
    model
}

fn accesses(model: &mut Model, line: u32, objects: u32, arrays: u32) {
    let object = Touched::Metadata(Some("numpy.ndarray".into()));
    for (touched, count) in [(object, objects), (Touched::Array("float64 9".into()), arrays)] {
        for _ in 0..count {
            let (at, process, tid, stack, element_of) = (Nanos(1), ProcessRef(0), Tid(1), StackId(line), None);
            let (touched, stores, weight) = (Some(touched.clone()), false, 1);
            model.apply(&Event::Access(Access { at, process, tid, stack, weight, touched, stores, element_of }));
        }
    }
}

fn calls(model: &mut Model, line: u32, same: u32, others: u32) {
    for number in 0..same + others {
        let (at, process, tid, stack, callee) = (Nanos(1), ProcessRef(0), Tid(1), StackId(line), "cos".into());
        let compared = Compared::Arguments { varying: u16::from(number >= same) << 1 };
        model.apply(&Event::Call(NativeCall {
            at,
            process,
            tid,
            stack,
            callee,
            called_by: CalledBy::default(),
            compared,
        }));
    }
}

fn stores(model: &mut Model, line: u32, equal: u32, others: u32) {
    for number in 0..equal + others {
        model.apply(&Event::Pair(Pair {
            at: Nanos(1),
            process: ProcessRef(0),
            tid: Tid(1),
            first: StackId(line),
            second: StackId(line),
            kind: PairKind::Store,
            touched: Touched::Array("float64 9".into()),
            address: None,
            bytes: 8,
            equal: number < equal,
            unread: Some(false),
        }));
    }
}

#[test]
fn a_line_is_clear_only_if_waste_would_have_been_found() {
    let verdict = |objects, arrays, (same, others), (equal, different)| {
        let mut model = model();
        accesses(&mut model, 0, objects, arrays);
        calls(&mut model, 0, same, others);
        stores(&mut model, 0, equal, different);
        Report::new(&model, &Selection::default(), None).redundancy.unwrap().lines[0].verdict
    };
    assert_eq!(verdict(50, 0, (0, 0), (0, 0)), "found");
    assert_eq!(verdict(0, 50, (0, 0), (0, 0)), "undecided", "whether calls repeat is not known");
    assert_eq!(verdict(0, 50, (0, 20), (0, 0)), "clear");
    assert_eq!(verdict(0, 50, (0, 0), (0, 20)), "clear");
    assert_eq!(verdict(0, 50, (20, 0), (0, 0)), "undecided", "no result was seen");
    assert_eq!(verdict(0, 50, (14, 6), (0, 0)), "undecided", "it may be just above the threshold");
    assert_eq!(verdict(0, 50, (0, 4), (0, 4)), "undecided", "few calls and stores");
    assert_eq!(verdict(0, 50, (0, 20), (20, 0)), "found");
    assert_eq!(verdict(4, 0, (0, 20), (0, 0)), "undecided", "few addresses");
    assert_eq!(verdict(45, 5, (0, 20), (0, 0)), "undecided", "nearly dispatch");
}

/// The largest undecided line bounds the waste that may have gone unseen.
#[test]
fn the_report_says_what_is_undecided() {
    let mut model = model();
    for (line, count) in [(0, 50), (1, 30), (2, 20)] {
        accesses(&mut model, line, 0, count);
    }
    calls(&mut model, 0, 0, 20);
    let undecided = Report::new(&model, &Selection::default(), None).redundancy.unwrap().undecided;
    assert_eq!(undecided.lines, 2);
    // Without CPU samples, a line's time is the whole.
    assert_eq!(undecided.native_share_max, 1.0);
    for _ in 0..200 {
        let (at, process, tid, cpu, stack) = (Nanos(1), ProcessRef(0), Tid(1), 0, StackId(3));
        let (weight, outcome) = (Nanos(1_000_000_000 / 99), Outcome::Complete);
        model.apply(&Event::Sample(Sample { at, process, tid, cpu, stack, weight, turn_us: None, outcome }));
    }
    let undecided = Report::new(&model, &Selection::default(), None).redundancy.unwrap().undecided;
    assert!((undecided.native_share_max - 0.15).abs() < 1e-3, "{undecided:?}");
}

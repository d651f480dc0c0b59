//! The tree of access pairs, and what few of them prove.

use pyobs_model::findings::Evidence;
use pyobs_model::report::Report;
use pyobs_model::views::pair_tree;
use pyobs_model::*;

fn model() -> Model {
    let probes = vec!["redundancy".to_owned()];
    let mut model = Model::new(Meta { rate_hz: 99, probes, ..Meta::default() }, History::All);
    let process = Process { pid: Pid(7), ppid: Pid(1), command: "python".into(), python: None, started: None };
    model.apply(&Event::Process { id: ProcessRef(0), process });
    for (id, function) in (0..).zip(["main", "one", "other"]) {
        let frame = Frame::python(function.into(), "/srv/a.py".into(), Some(id + 1), Some(1));
        model.apply(&Event::Frame { id: FrameId(id), frame });
    }
    for (id, frames) in (0..).zip([[0, 1], [0, 2]]) {
        model.apply(&Event::Stack { id: StackId(id), frames: frames.map(FrameId).into() });
    }
    model
}

fn pair(tid: u32, first: u32, second: u32, equal: bool) -> Event {
    Event::Pair(Pair {
        at: Nanos(1),
        process: ProcessRef(0),
        tid: Tid(tid),
        first: StackId(first),
        second: StackId(second),
        kind: PairKind::Store,
        touched: Touched::Array("float64 4".into()),
        address: None,
        bytes: 8,
        equal,
        unread: None,
    })
}

#[test]
fn the_tree_merges_the_pairs_of_all_threads() {
    let mut model = model();
    for tid in [1, 2] {
        for _ in 0..3 {
            model.apply(&pair(tid, 0, 1, true));
        }
        model.apply(&pair(tid, 0, 0, false));
    }
    let tree = pair_tree(&model, &model.redundancy().pair_sums(&Selection::default()));
    let told: Vec<_> = tree
        .iter()
        .map(|node| (node.parent, node.is_second, node.frame.0, node.sum.equal, node.sum.compared))
        .collect();
    let expected = [
        (None, false, 0, 6, 8),
        (Some(0), false, 1, 6, 8),
        (Some(1), true, 0, 6, 8),
        (Some(2), true, 2, 6, 6),
        (Some(2), true, 1, 0, 2),
    ];
    assert_eq!(told, expected);
    let report = Report::new(&model, &Selection::default(), None).redundancy.unwrap();
    assert_eq!(report.tree.len(), tree.len());
    assert_eq!(report.tree[3].redundant_bytes, 48);
}

#[test]
fn rare_pairs_are_omitted_from_the_tree() {
    let mut model = model();
    (0..500).for_each(|_| model.apply(&pair(1, 0, 1, true)));
    model.apply(&pair(1, 1, 1, true));
    let tree = pair_tree(&model, &model.redundancy().pair_sums(&Selection::default()));
    assert_eq!(tree.len(), 4, "{tree:?}");
    assert_eq!(tree[0].sum.compared, 501, "but it counts");
}

#[test]
fn few_pairs_and_addresses_are_marked_as_few() {
    let mut model = model();
    let access = |stack| {
        let (at, process, tid, stack) = (Nanos(1), ProcessRef(0), Tid(1), StackId(stack));
        Event::Access(Access {
            at,
            process,
            tid,
            stack,
            weight: 1,
            touched: Some(Touched::Static),
            stores: false,
            element_of: None,
        })
    };
    (0..7).for_each(|_| model.apply(&access(0)));
    (0..6).for_each(|_| model.apply(&access(1)));
    (0..7).for_each(|_| model.apply(&pair(1, 0, 1, true)));
    (0..6).for_each(|_| model.apply(&pair(1, 0, 0, true)));
    let report = Report::new(&model, &Selection::default(), None).redundancy.unwrap();
    let lines: Vec<_> = report.lines.iter().map(|line| (line.samples, line.enough_data, line.metadata_share)).collect();
    assert_eq!(lines, [(7, true, Some(1.0)), (6, false, None)]);
    let pairs: Vec<_> = report.pairs.iter().map(|pair| (pair.compared, pair.enough_data)).collect();
    assert_eq!(pairs, [(7, true), (6, false)]);
}

/// The program works on objects for half of its time and on arrays for the other half. The budget keeps one sample in
/// eight.
#[test]
fn accesses_represent_the_samples_that_the_budget_dropped() {
    let mut model = model();
    let (process, tid, stack, stores, element_of) = (ProcessRef(0), Tid(1), StackId(0), false, None);
    let object = Touched::Metadata(Some("numpy.ndarray".into()));
    for (touched, count, weight) in [(object, 800, 1), (Touched::Array("float64 9".into()), 100, 8)] {
        for _ in 0..count {
            let (at, cpu, outcome) = (Nanos(1), 0, Outcome::Complete);
            // The other half of the CPU time is outside native code.
            let of_line = Nanos(u64::from(weight) * 10_101_010 * 2);
            model.apply(&Event::Sample(Sample {
                at,
                process,
                tid,
                cpu,
                stack,
                weight: of_line,
                turn_us: None,
                outcome,
            }));
            let (touched, element_of) = (Some(touched.clone()), element_of.clone());
            model.apply(&Event::Access(Access { at, process, tid, stack, weight, touched, stores, element_of }));
        }
    }
    let report = Report::new(&model, &Selection::default(), None);
    let line = &report.redundancy.unwrap().lines[0];
    let is_near = |value: f64, expected: f64| (value - expected).abs() < 1e-4;
    assert_eq!((line.samples, line.metadata, line.array), (900, 800, 100));
    assert!(is_near(line.metadata_share.unwrap(), 0.5) && is_near(line.native_share, 0.5), "{line:?}");
    assert!(is_near(line.native_s, 1600.0 / 99.0), "{line:?}");
    assert!(report.findings.iter().all(|it| it.id != "redundancy/dispatch"), "{:#?}", report.findings);
}

/// Two seconds have 40 samples each, and half of them are accesses. All calls and pairs are in the first second.
#[test]
fn a_selected_time_has_only_its_own_events() {
    const SECOND: u64 = 1_000_000_000;
    let mut model = model();
    let (process, tid, stack) = (ProcessRef(0), Tid(1), StackId(0));
    for n in 0..80 {
        let at = Nanos(n * SECOND / 40);
        model.apply(&Event::Sample(Sample {
            at,
            process,
            tid,
            cpu: 0,
            stack,
            weight: Nanos(10_101_010),
            turn_us: None,
            outcome: Outcome::Complete,
        }));
        let touched = Some(Touched::Metadata(Some("numpy.ndarray".into())));
        if n % 2 == 0 {
            model.apply(&Event::Access(Access {
                at,
                process,
                tid,
                stack,
                weight: 1,
                touched,
                stores: false,
                element_of: None,
            }));
        }
        if n < 40 {
            let (callee, compared) = ("cos".into(), Compared::Arguments { varying: 0 });
            model.apply(&Event::Call(NativeCall {
                at,
                process,
                tid,
                stack,
                callee,
                called_by: CalledBy::default(),
                compared,
            }));
            let compared = Compared::Result { same: true };
            model.apply(&Event::Call(NativeCall {
                at,
                process,
                tid,
                stack,
                callee: "cos".into(),
                called_by: CalledBy::default(),
                compared,
            }));
            if let Event::Pair(pair) = pair(1, 0, 0, true) {
                model.apply(&Event::Pair(Pair { at, ..pair }));
            }
        }
    }
    model.advance(Nanos(4 * SECOND));
    let told = |from: u64, to: Option<u64>, is_moving| {
        let to = to.map(|to| Nanos(to * SECOND));
        let selection = Selection { from: Some(Nanos(from * SECOND)), to, is_moving, ..Selection::default() };
        let report = Report::new(&model, &selection, None);
        let redundancy = report.redundancy.unwrap();
        let mut ids: Vec<_> = report.findings.iter().map(|finding| finding.id).collect();
        ids.dedup();
        let lines: Vec<_> =
            redundancy.lines.iter().map(|line| (line.samples, (line.native_share * 1e4).round() / 1e4)).collect();
        let calls: Vec<_> = redundancy.calls.iter().map(|call| call.samples).collect();
        let pairs: Vec<_> = redundancy.pairs.iter().map(|pair| pair.compared).collect();
        assert_eq!(redundancy.tree.is_empty(), pairs.is_empty());
        (lines, calls, pairs, ids)
    };
    let both = vec!["redundancy/dispatch", "redundancy/recomputed"];
    assert_eq!(told(0, None, false), (vec![(40, 0.5)], vec![40], vec![40], both.clone()));
    // Twenty addresses do not prove dispatch.
    assert_eq!(told(0, Some(1), false), (vec![(20, 0.5)], vec![40], vec![40], both[1..].to_vec()));
    assert_eq!(told(1, Some(2), false), (vec![(20, 0.5)], vec![], vec![], vec![]));
    assert_eq!(told(2, Some(4), false), (vec![], vec![], vec![], vec![]));
    // The last seconds of a dashboard prove nothing.
    assert_eq!(told(3, None, true), told(0, None, false));
}

#[test]
fn unread_stores_belong_to_the_line_that_stored() {
    let mut model = model();
    let pair = |first, second, is_unread| match pair(1, first, second, false) {
        Event::Pair(pair) => Event::Pair(Pair { unread: Some(is_unread), ..pair }),
        other => other,
    };
    for _ in 0..20 {
        model.apply(&pair(0, 1, true));
        model.apply(&pair(1, 0, false));
    }
    let report = Report::new(&model, &Selection::default(), None);
    let dead: Vec<_> = report.findings.iter().filter(|finding| finding.id == "redundancy/dead-store").collect();
    assert_eq!(dead.len(), 1, "{dead:#?}");
    let text = |key| match &dead[0].evidence[key] {
        Evidence::Text(text) => text.as_str(),
        other => panic!("{other:?}"),
    };
    assert_eq!((text("line"), text("over")), ("one (/srv/a.py:2)", "other (/srv/a.py:3)"));
}

#[test]
fn only_work_on_objects_is_dispatch() {
    // One sample in `every` takes an element.
    let dispatch = |every: u32, touched: &[(Touched, u32)]| {
        let mut model = model();
        for (touched, count) in touched {
            let (at, process, tid, stack) = (Nanos(1), ProcessRef(0), Tid(1), StackId(0));
            for number in 0..*count {
                let element_of = (number % every == 1).then(|| "float64 8x40".into());
                let touched = Some(touched.clone());
                let access = Access { at, process, tid, stack, weight: 1, touched, stores: false, element_of };
                model.apply(&Event::Access(access));
            }
        }
        Report::new(&model, &Selection::default(), None)
            .findings
            .iter()
            .filter(|it| it.id == "redundancy/dispatch")
            .count()
    };
    let found = |touched: &[(Touched, u32)]| dispatch(u32::MAX, touched);
    let object = |name: &str| Touched::Metadata(Some(name.into()));
    let array = || Touched::Array("float64 9".into());
    assert_eq!(found(&[(object("numpy.ndarray"), 30), (Touched::Static, 70), (array(), 2)]), 1);
    assert_eq!(found(&[(Touched::Static, 100), (array(), 4)]), 0, "constants of what computes");
    assert_eq!(found(&[(object("coroutine"), 30), (Touched::Static, 70)]), 0, "no arrays");
    assert_eq!(found(&[(object("numpy.ndarray"), 30), (Touched::Static, 40), (array(), 40)]), 0, "data");
    let small = [(object("numpy.ndarray"), 150), (Touched::Static, 250), (array(), 50)];
    assert_eq!(dispatch(4, &small), 1, "elements");
    assert_eq!(found(&small), 0, "whole arrays that are small");
    assert_eq!(dispatch(25, &small), 0, "an element now and then");
}

#[test]
fn the_finding_names_the_array_with_the_most_elements() {
    let mut model = model();
    for (array, count) in [("float64 3", 10), ("float64 8x40", 20)] {
        let (at, process, tid, stack) = (Nanos(1), ProcessRef(0), Tid(1), StackId(0));
        for _ in 0..count {
            let (touched, element_of) = (Some(Touched::Metadata(Some("numpy.ndarray".into()))), Some(array.into()));
            model.apply(&Event::Access(Access {
                at,
                process,
                tid,
                stack,
                weight: 1,
                touched,
                stores: false,
                element_of,
            }));
        }
    }
    let report = Report::new(&model, &Selection::default(), None);
    let line = &report.redundancy.unwrap().lines[0];
    assert_eq!((line.elements, line.elements_of.as_deref()), (30, Some("float64 8x40")));
    assert!(report.findings[0].detail.contains("most often of float64 8x40"), "{:#?}", report.findings);
}

#[test]
fn a_constant_operand_is_found_beside_a_changing_one() {
    let load = |shape: &str, is_equal| match pair(1, 0, 1, is_equal) {
        Event::Pair(pair) => Event::Pair(Pair { kind: PairKind::Load, touched: Touched::Array(shape.into()), ..pair }),
        other => other,
    };
    let rereads = |same: usize| {
        let mut model = model();
        for number in 0..100 {
            model.apply(&load("float64 9", number < same));
            model.apply(&load("float64 3x3", false));
        }
        let report = Report::new(&model, &Selection::default(), None);
        let found = report.findings.iter().filter(|it| it.id == "redundancy/reread");
        found.map(|it| (it.evidence["compared"].clone(), it.evidence["array"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(rereads(100), [(Evidence::Count(100), Evidence::Text("float64 9".to_owned()))]);
    assert_eq!(rereads(60), []);
}

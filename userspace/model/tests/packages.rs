//! Which line native code belongs to when packages call each other.

use pyobs_model::findings::{self, Evidence, Finding};
use pyobs_model::report::Report;
use pyobs_model::*;

const MAIN: &str = "/srv/main.py";
const TREND: &str = "/srv/env/lib/python3.12/site-packages/ta/trend.py";
const METHODS: &str = "/srv/env/lib/python3.12/site-packages/numpy/_core/_methods.py";
const JSON: &str = "/usr/lib/python3.12/json/encoder.py";
const GENERATED: &str = "<__array_function__ internals>";
const UFUNC: &str = "/srv/env/lib/python3.12/site-packages/numpy/_core/_multiarray_umath.so";
const TABLES: &str = "/srv/env/lib/python3.12/site-packages/pandas/_libs/index.so";
const DECODER: &str = "/usr/lib/python3.12/lib-dynload/_json.so";
const PYTHON: &str = "/usr/bin/python3.12";
const LIBC: &str = "/usr/lib/libc.so.6";
const OWN: &str = "/srv/fast.so";

/// Frames, root first: the file and, for Python, the line; 0 for a native frame.
type Frames = [(&'static str, u32)];

fn model(stacks: &[&Frames]) -> Model {
    let probes = vec!["redundancy".to_owned()];
    let mut model = Model::new(Meta { rate_hz: 99, probes, ..Meta::default() }, History::All);
    let process = Process { pid: Pid(7), ppid: Pid(1), command: "python".into(), python: None, started: None };
    model.apply(&Event::Process { id: ProcessRef(0), process });
    let mut next = 0;
    for (id, stack) in (0..).zip(stacks) {
        let mut frames = Vec::new();
        for (file, line) in *stack {
            let frame = if *line > 0 {
                Frame::python("f".into(), (*file).into(), Some(*line), Some(1))
            } else {
                let module = file.rsplit('/').next().map(Into::into);
                Frame { module, package: package::of_file(file), ..Frame::new(FrameKind::Native, "g".into()) }
            };
            let known = (0..next).find(|id| model.frame(FrameId(*id)) == Some(&frame));
            if known.is_none() {
                model.apply(&Event::Frame { id: FrameId(next), frame });
                next += 1;
            }
            frames.push(FrameId(known.unwrap_or(next - 1)));
        }
        model.apply(&Event::Stack { id: StackId(id), frames: frames.into() });
    }
    model
}

fn access(stack: u32, count: usize, model: &mut Model) {
    let touched = Some(Touched::Metadata(Some("numpy.ndarray".into())));
    for _ in 0..count {
        let (at, process, tid, stack, weight) = (Nanos(1), ProcessRef(0), Tid(1), StackId(stack), 1);
        let (touched, element_of) = (touched.clone(), Some("float64 9".into()));
        model.apply(&Event::Access(Access { at, process, tid, stack, weight, touched, stores: false, element_of }));
    }
}

/// The file and line of a frame in a report.
type Place = (String, u32);

fn place(frame: &report::FrameOut) -> Place {
    (frame.file.as_deref().unwrap_or_default().to_owned(), frame.line.unwrap_or(0))
}

/// The lines with their callers and numbers of samples.
fn lines(model: &Model) -> Vec<(Place, Place, u64)> {
    let lines = Report::new(model, &Selection::default(), None).redundancy.map_or_else(Vec::new, |it| it.lines);
    let mut lines: Vec<_> = lines.iter().map(|line| (place(&line.frame), place(&line.caller), line.samples)).collect();
    lines.sort();
    lines
}

#[test]
fn native_code_belongs_to_the_innermost_line_outside_its_package() {
    let cases: &[(&str, &Frames, (&str, u32))] = &[
        ("np.mean", &[(MAIN, 9), (METHODS, 120), (PYTHON, 0), (UFUNC, 0)], (MAIN, 9)),
        ("a loop of a library over NumPy", &[(MAIN, 9), (TREND, 620), (PYTHON, 0), (UFUNC, 0)], (TREND, 620)),
        ("below it, NumPy's own Python", &[(MAIN, 9), (TREND, 620), (METHODS, 120), (UFUNC, 0)], (TREND, 620)),
        ("two packages of native code", &[(MAIN, 9), (TREND, 620), (TABLES, 0), (UFUNC, 0)], (TREND, 620)),
        ("a library of the system below it", &[(MAIN, 9), (METHODS, 120), (UFUNC, 0), (LIBC, 0)], (MAIN, 9)),
        ("the standard library", &[(MAIN, 9), (JSON, 200), (PYTHON, 0), (DECODER, 0)], (MAIN, 9)),
        ("the interpreter alone", &[(MAIN, 9), (JSON, 200), (PYTHON, 0), (LIBC, 0)], (MAIN, 9)),
        ("a library calls the standard library", &[(MAIN, 9), (TREND, 5), (JSON, 200), (DECODER, 0)], (TREND, 5)),
        ("a library of no package", &[(MAIN, 9), (TREND, 620), (PYTHON, 0), (OWN, 0)], (MAIN, 9)),
        ("the interpreter, for a library", &[(MAIN, 9), (TREND, 620), (PYTHON, 0), (LIBC, 0)], (TREND, 620)),
        ("the program's own library", &[(MAIN, 9), (PYTHON, 0), (OWN, 0)], (MAIN, 9)),
        ("a callback of the program", &[(MAIN, 9), (METHODS, 120), (MAIN, 3), (UFUNC, 0)], (MAIN, 3)),
        ("generated code", &[(MAIN, 9), (GENERATED, 2), (METHODS, 120), (UFUNC, 0)], (MAIN, 9)),
        ("nothing but the package", &[(METHODS, 7), (METHODS, 120), (UFUNC, 0)], (METHODS, 120)),
    ];
    for (what, stack, (file, line)) in cases {
        let mut model = model(&[stack]);
        access(0, 10, &mut model);
        let found = lines(&model);
        assert_eq!(found.len(), 1, "{what}");
        assert_eq!(found[0].0, ((*file).to_owned(), *line), "{what}");
    }
}

/// The library's line has a tenth of the native code below the line of the program, or less.
#[test]
fn what_a_library_spreads_over_its_lines_belongs_to_the_program() {
    let direct: &Frames = &[(MAIN, 9), (UFUNC, 0)];
    let looped: &Frames = &[(MAIN, 9), (TREND, 620), (UFUNC, 0)];
    let (main, trend) = ((MAIN.to_owned(), 9), (TREND.to_owned(), 620));
    for (of_library, expected) in [
        (10, vec![(trend.clone(), main.clone(), 10), (main.clone(), main.clone(), 90)]),
        (9, vec![(main.clone(), main.clone(), 100)]),
    ] {
        let mut model = model(&[direct, looped]);
        access(0, if of_library == 9 { 91 } else { 90 }, &mut model);
        access(1, of_library, &mut model);
        assert_eq!(lines(&model), expected, "{of_library}");
    }
}

fn text<'a>(finding: &'a Finding, key: &str) -> &'a str {
    match &finding.evidence[key] {
        Evidence::Text(text) => text,
        other => panic!("{key}: {other:?}"),
    }
}

#[test]
fn joins_that_copy_much_to_add_little_are_found() {
    let append: &Frames = &[(MAIN, 9), (METHODS, 120), (UFUNC, 0)];
    let found = |count: usize, copied, added| {
        let mut model = model(&[append]);
        access(0, 30, &mut model);
        // Of ten calls, one is seen wrongly.
        for number in 0..count {
            let added = if number % 10 == 9 { copied } else { added };
            let (at, process, tid, stack, callee) = (Nanos(1), ProcessRef(0), Tid(1), StackId(0), "concatenate".into());
            let compared = Compared::Copied { copied, added };
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
        let report = Report::new(&model, &Selection::default(), None);
        let found = report.findings.into_iter().find(|finding| finding.id == "redundancy/copied");
        found.map(|finding| (finding.summary.clone(), text(&finding, "line").to_owned()))
    };
    let (summary, line) = found(20, 8000, 8).unwrap();
    assert_eq!(line, format!("f ({MAIN}:9)"));
    assert!(summary.ends_with("copies 7.8 KiB to add 8 B at each call of concatenate"), "{summary}");
    assert_eq!(found(20, 8000, 1001), None, "it adds much");
    assert_eq!(found(6, 8000, 8), None, "few calls");
}

/// A package looks up the same things for each of the calls to it, which are all different.
#[test]
fn what_a_package_repeats_is_not_the_callers_waste() {
    let own: &Frames = &[(MAIN, 9), (UFUNC, 0)];
    let inner: &Frames = &[(MAIN, 9), (METHODS, 120), (UFUNC, 0)];
    let found = |stack, samples| {
        let mut model = model(&[own, inner]);
        access(0, samples, &mut model);
        for _ in 0..20 {
            for compared in [Compared::Arguments { varying: 0 }, Compared::Result { same: true }] {
                let (at, process, tid, callee) = (Nanos(1), ProcessRef(0), Tid(1), "type".into());
                model.apply(&Event::Call(NativeCall {
                    at,
                    process,
                    tid,
                    stack: StackId(stack),
                    callee,
                    called_by: CalledBy::default(),
                    compared,
                }));
            }
        }
        let report = Report::new(&model, &Selection::default(), None);
        assert_eq!(report.redundancy.unwrap().calls[0].inner, stack == 1);
        report.findings.iter().filter(|finding| finding.id == "redundancy/recomputed").count()
    };
    assert_eq!(found(1, 100), 0, "a fifth of what the line does");
    assert_eq!(found(1, 80), 1, "a quarter");
    assert_eq!(found(0, 100), 1, "its own call");
}

/// Three quarters of the calls come from one line of the program.
#[test]
fn findings_name_the_line_of_the_library_and_the_one_that_led_there() {
    let often: &Frames = &[(MAIN, 9), (TREND, 620), (METHODS, 120), (UFUNC, 0)];
    let seldom: &Frames = &[(MAIN, 12), (TREND, 620), (METHODS, 120), (UFUNC, 0)];
    let mut model = model(&[often, seldom]);
    access(0, 60, &mut model);
    access(1, 20, &mut model);
    for (id, count) in [(0, 30), (1, 10)] {
        for _ in 0..count {
            let (at, process, tid, stack, callee) = (Nanos(1), ProcessRef(0), Tid(1), StackId(id), "diff".into());
            for compared in [Compared::Arguments { varying: 0 }, Compared::Result { same: true }] {
                let callee = std::sync::Arc::clone(&callee);
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
            model.apply(&Event::Pair(Pair {
                at,
                process,
                tid,
                first: stack,
                second: stack,
                kind: PairKind::Store,
                touched: Touched::Array("float64 9".into()),
                address: None,
                bytes: 8,
                equal: true,
                unread: None,
            }));
        }
    }
    let report = Report::new(&model, &Selection::default(), None);
    let mut ids: Vec<&str> = report.findings.iter().map(|finding| finding.id).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["redundancy/dispatch", "redundancy/recomputed", "redundancy/recomputed"]);
    let (line, caller) = (format!("f ({TREND}:620)"), format!("f ({MAIN}:9)"));
    for finding in &report.findings {
        assert_eq!((text(finding, "line"), text(finding, "caller")), (&*line, &*caller), "{}", finding.id);
        assert_eq!(finding.evidence["caller_share"], Evidence::Number(0.75), "{}", finding.id);
        assert!(finding.summary.starts_with(&format!("{line}, from {caller}, ")), "{}", finding.summary);
    }
    // Both findings are about the same time, which is all there is.
    assert_eq!(findings::redundancy_gain(&report.findings), Some((ProcessRef(0), 1.0)));
    let redundancy = report.redundancy.unwrap();
    let (trend, main) = ((TREND.to_owned(), 620), (MAIN.to_owned(), 9));
    let call = &redundancy.calls[0];
    assert_eq!((place(&call.frame), place(&call.caller), call.caller_share), (trend.clone(), main.clone(), 0.75));
    assert_eq!((call.samples, redundancy.calls.len()), (40, 1), "both callers make the same call");
    for pair in &redundancy.pairs {
        let places = [&pair.frame, &pair.caller].map(|frame| place(frame.as_ref().unwrap()));
        assert_eq!(places, [trend.clone(), main.clone()]);
    }
}

//! The HTML page: it is whole, loads nothing, and has no markup but its own.

mod common;

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::page::{Element, page};
use common::{ModelBuilder, exported, found, frame, gil_wait, meta, parsed_svg};
use pyobs_export::{Format, Options, Weight};
use pyobs_model::*;

fn example(name: &str) -> Model {
    use FrameKind::{Kernel, Native, Python};
    let mut it = ModelBuilder::new(name);
    let probes = Family::names();
    it.model = Model::new(Meta { probes, ..meta(name) }, History::All);
    it.process(0, 4242, &format!("/usr/bin/{name} main.py"), &[(4242, "MainThread"), (4250, name)]);
    let main = frame(Python, "<module>", "/srv/app/main.py", 31, 1);
    let frames = [main.clone(), frame(Native, name, name, 0, 0), frame(Kernel, name, "vmlinux", 0, 0)];
    it.samples(0, 4242, 60, Outcome::Complete, &frames);
    let waits = it.stack(&[main, frame(Python, name, name, 7, 7)]);
    it.model.apply(&Event::Sleep(Sleep {
        from: Nanos(500_000_000).saturating_sub(Nanos(400_000_000)),
        stacks: 1,
        at: Nanos(500_000_000),
        process: ProcessRef(0),
        tid: Tid(4250),
        stack: waits,
        reason: WaitReason::Lock,
        length: Nanos(400_000_000),
        count: 1,
        total: Nanos(400_000_000),
        waker: Some(Waker { pid: Pid(4242), tid: Tid(4242), name: name.into() }),
    }));
    it.model.apply(&gil_wait(waits, 550_000_000, 5_000_000));
    it.model.apply(&Event::Shed { at: Nanos(0), what: name.into() });
    stores(waits, name).iter().for_each(|event| it.model.apply(event));
    it.model
}

/// A store into a segment called `name`, one into an arena of the kind `name`, and one into unknown memory.
fn stores(stack: StackId, name: &str) -> Vec<Event> {
    let (at, process, pid, bytes) = (Nanos(0), ProcessRef(0), Pid(4242), 1 << 20);
    let (kind, creator) = (SegmentKind::Shm, Some(pid));
    let kept = Segment { dev: 1, ino: 2, generation: 3, kind, name: Some(name.into()), linked: true, bytes, creator };
    let mapped = SegmentChange::Mapped { pid, address: 0x10_0000, bytes, offset: 0 };
    let segment = |change| Event::Segment { at, id: SegmentId(0), change };
    let pool = Arena { process, kind: name.into(), address: 0x40_0000, bytes, born: true, parent: None };
    let slab = ArenaChange::Slab { address: pool.address, bytes };
    let arena = |change| Event::Arena { at, id: ArenaId(0), change };
    let pair = |address| {
        let (tid, kind, touched) = (Tid(4242), PairKind::Store, Touched::Unknown);
        let (first, second, address, unread) = (stack, stack, Some(address), None);
        Event::Pair(Pair { at, process, tid, first, second, kind, touched, address, bytes: 8, equal: true, unread })
    };
    let begun = [segment(SegmentChange::Begun(kept)), segment(mapped), arena(ArenaChange::Begun(pool)), arena(slab)];
    begun.into_iter().chain([0x10_0008, 0x40_0008, 0x90_0000].map(pair)).collect()
}

#[test]
fn the_page_has_all_parts_and_loads_nothing() {
    let page = page(&example("worker"), &Options::default());
    for part in [
        "findings",
        "flame",
        "timeline",
        "processes",
        "frames",
        "offcpu",
        "gil",
        "calls",
        "segments",
        "arenas",
        "meminfos",
        "stages",
        "transfers",
        "redundancy",
        "health",
    ] {
        page.section(part);
    }
    let policy = page.named("meta").iter().any(|it| {
        it.attribute("http-equiv") == Some("Content-Security-Policy")
            && it.attribute("content").is_some_and(|it| it.starts_with("default-src 'none';"))
    });
    assert!(policy);
    let source = exported(&example("worker"), Format::Html, &Options::default());
    for link in ["http://", "https://", " src=", "@import", "url("] {
        assert!(!source.contains(link), "{link}");
    }
    assert_eq!(page.named("iframe").len(), 5, "cpu, offcpu, gil, redundant, bytes");
    assert!(page.text.contains("worker 4250") && page.text.contains("/srv/app/main.py:31"));
    let pairs = page.cells("redundancy", "lies in");
    assert_eq!(pairs, ["", "arena worker 4242:0x400000:1", "segment worker 1:2:3"]);
    for class in ["cpu", "gilwait", "sleep"] {
        let paths = page.section("timeline").of_class(class).into_iter().filter(|it| it.name == "path");
        assert_eq!(paths.count(), 1, "{class}");
    }
}

#[test]
fn each_finding_has_its_detail_and_advice() {
    for case in found::cases() {
        let (page, finding) = (page(&case.model, &Options::default()), case.finding());
        let try_it = format!("Try {}", finding.advice);
        let has = |it: &&Element| {
            let paragraphs: Vec<&str> = it.named("p").iter().map(|it| it.text.as_str()).collect();
            paragraphs == [finding.detail.as_str(), &try_it]
        };
        assert!(page.section("findings").named("article").iter().any(has), "{}: {page:?}", case.id);
    }
}

#[test]
fn the_timeline_assigns_segments_to_creators_and_skips_short_lived_processes() {
    let mut it = ModelBuilder::new("h");
    let probes = Family::names();
    it.model = Model::new(Meta { probes, ..meta("h") }, History::All);
    let process = |id, at, command: &str| {
        let (started, command) = (Some(Nanos(at)), command.into());
        Event::Process { id, process: Process { pid: Pid(4242), ppid: Pid(1), command, python: None, started } }
    };
    let arena = |id, at, process| {
        let (kind, address) = ("pymalloc".into(), 0x40_0000);
        let arena = Arena { process, kind, address, bytes: 1 << 20, born: false, parent: None };
        Event::Arena { at: Nanos(at), id: ArenaId(id), change: ArenaChange::Begun(arena) }
    };
    // A forked child execs another program, which makes a segment.
    let (copy, program, creator) = (ProcessRef(0), ProcessRef(1), Some(Pid(4242)));
    let (kind, name) = (SegmentKind::Shm, Some("tensor".into()));
    let segment = Segment { dev: 1, ino: 2, generation: 3, kind, name, linked: true, bytes: 4096, creator };
    for event in [
        process(copy, 0, "parent"),
        arena(0, 1, copy),
        Event::ProcessEnd { id: copy, at: Nanos(1_000_000) },
        process(program, 1_000_001, "loader"),
        arena(1, 2_000_000, program),
        Event::Segment { at: Nanos(3_000_000), id: SegmentId(0), change: SegmentChange::Begun(segment) },
    ] {
        it.model.apply(&event);
    }
    it.model.advance(Nanos(1_000_000_000));
    let page = page(&it.model, &Options::default());
    let timeline = page.section("timeline");
    let tooltips = timeline.named("title");
    assert!(tooltips.iter().any(|it| it.text.starts_with("tensor, 4.0 KiB")), "{timeline:?}");
    let processes: Vec<&str> = timeline.of_class("process").iter().map(|it| it.text.as_str()).collect();
    assert_eq!(processes, ["loader (4242)"]);
}

/// Names of elements and attributes in a page, and its scripts.
fn markup(page: &Element) -> (BTreeSet<&str>, BTreeSet<&str>, Vec<&str>) {
    let all = page.all();
    let attributes = all.iter().flat_map(|it| it.attributes.keys().map(String::as_str));
    let scripts = page.named("script").into_iter().map(|it| it.text.as_str());
    (all.iter().map(|it| it.name.as_str()).collect(), attributes.collect(), scripts.collect())
}

#[test]
fn hostile_names_are_text() {
    let harmless = page(&example("worker"), &Options::default());
    let name = "</script></style></title>--><script>alert(1)</script>\"'><img src=x onerror=alert(1)>&lt;&\u{1b}[31m\u{202e}\0";
    let shown = name.replace(['\u{1b}', '\u{202e}', '\0'], "\u{fffd}");
    for weight in [Weight::Cpu, Weight::OffCpu] {
        let options = Options { weight, title: Some(name.to_owned()), ..Options::default() };
        let page = page(&example(name), &options);
        assert_eq!(markup(&page), markup(&harmless));
        for title in ["title", "h1"] {
            assert_eq!(page.named(title)[0].text, shown);
        }
        for (kind, id) in [("segment", "1:2:3"), ("arena", "4242:0x400000:1")] {
            assert!(page.cells("redundancy", "lies in").contains(&&*format!("{kind} {shown} {id}")));
        }
        let tooltips = page.section("timeline").named("title");
        assert!(tooltips.iter().any(|it| it.text == format!("{shown} 4250")), "{tooltips:?}");
        for frame in page.named("iframe") {
            let picture =
                String::from_utf8(STANDARD.decode(frame.attribute("data-picture").unwrap()).unwrap()).unwrap();
            parsed_svg(&picture);
            assert!(picture.matches("<script").count() <= 1, "inferno's own");
        }
    }
    page(&example(&"x<".repeat(100_000)), &Options::default());
}

#[test]
fn an_empty_model_is_a_page_and_a_selection_bounds_the_time() {
    page(&Model::new(meta("h"), History::All), &Options::default());
    let selection = Selection { from: Some(Nanos(100_000_000)), to: Some(Nanos(300_000_000)), ..Selection::default() };
    let page = page(&example("worker"), &Options { selection, ..Options::default() });
    let axis = page.section("timeline").named("svg")[0];
    assert_eq!(["data-from", "data-to"].map(|it| axis.attribute(it)), [Some("0.1"), Some("0.3")]);
}

//! The page: whole, closed to the outside, and with nobody's markup but its own.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use common::{Builder, found, frame, meta};
use pyobs_export::{Format, Options, Weight, escape, export};
use pyobs_model::*;

/// Characters that scripts and styles of our own have are no matter.
#[track_caller]
fn page(model: &Model, options: &Options) -> String {
    let mut out = Vec::new();
    export(model, Format::Html, options, &mut out).unwrap();
    let page = String::from_utf8(out).unwrap();
    let unsafe_at = page.chars().find(|c| *c != '\n' && escape::is_unsafe(*c));
    assert_eq!(unsafe_at, None);
    page
}

/// Elements that are begun and not ended, outside of scripts, styles and attributes.
fn open_elements(page: &str) -> Vec<String> {
    let mut open: Vec<String> = Vec::new();
    let mut rest = page.split_once("<html").unwrap().1;
    open.push("html".to_owned());
    while let Some((_, after)) = rest.split_once('<') {
        let (tag, after) = after.split_once('>').unwrap();
        rest = after;
        let name: String = tag.trim_start_matches('/').chars().take_while(char::is_ascii_alphanumeric).collect();
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_deref(), Some(name.as_str()), "<{tag}>");
        } else if name == "script" || name == "style" {
            rest = after.split_once(&format!("</{name}>")).unwrap().1;
        } else if !tag.ends_with('/') && name != "meta" {
            open.push(name);
        }
    }
    open
}

/// What a column of a table has, sorted.
fn cells(page: &str, table: &str, column: &str) -> Vec<String> {
    let (_, rest) = page.split_once(&format!("<section id=\"{table}\">")).unwrap();
    let (head, body) = rest.split_once("</section>").unwrap().0.split_once("</thead>").unwrap();
    let at = head.split("</th>").position(|it| it.ends_with(&format!(">{column}"))).unwrap();
    let cell = |row: &str| row.split("<td").nth(at + 1).unwrap().split(['>', '<']).nth(1).unwrap().to_owned();
    let mut cells: Vec<String> = body.split("<tr>").skip(1).map(cell).collect();
    cells.sort_unstable();
    cells
}

fn example(name: &str) -> Model {
    use FrameKind::{Kernel, Native, Python};
    let mut it = Builder::new(name);
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
    it.model.apply(&Event::GilWait(GilWait {
        from: Nanos(550_000_000).saturating_sub(Nanos(5_000_000)),
        stacks: 1,
        at: Nanos(550_000_000),
        process: ProcessRef(0),
        tid: Tid(4250),
        stack: waits,
        holder: Some(GilHolder { tid: Tid(4242), stack: waits }),
        length: Nanos(5_000_000),
        count: 1,
        total: Nanos(5_000_000),
    }));
    it.model.apply(&Event::Shed { at: Nanos(0), what: name.into() });
    stores(waits, name).iter().for_each(|event| it.model.apply(event));
    it.model
}

/// Into a segment of this name, into an arena of this kind, and into nothing that is known.
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
fn the_page_has_all_parts_and_is_closed_to_the_outside() {
    let page = page(&example("worker"), &Options::default());
    assert_eq!(open_elements(&page), Vec::<String>::new());
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
        assert_eq!(page.matches(&format!("<section id=\"{part}\">")).count(), 1, "{part}");
    }
    assert!(page.contains("content=\"default-src 'none';"), "the policy");
    for link in ["http://", "https://", " src=", "@import", "url("] {
        assert!(!page.contains(link), "{link}");
    }
    assert_eq!(page.matches("<iframe ").count(), 5, "cpu, offcpu, gil, redundant, bytes");
    assert!(page.contains("worker 4250") && page.contains("/srv/app/main.py:31"));
    let pairs = cells(&page, "redundancy", "lies in");
    assert_eq!(pairs, ["", "arena worker 4242:0x400000:1", "segment worker 1:2:3"]);
    let lanes = page.split_once("id=\"timeline\"").unwrap().1.split_once("</section>").unwrap().0;
    for class in ["cpu", "gilwait", "sleep"] {
        assert_eq!(lanes.matches(&format!("<path class=\"{class}\"")).count(), 1, "{class}");
    }
}

#[test]
fn each_finding_has_what_was_seen_and_what_to_try() {
    for case in found::cases() {
        let (page, finding) = (page(&case.model, &Options::default()), case.finding());
        let [detail, advice] = [finding.detail, finding.advice].map(|text| escape::html(&text, 4096));
        assert!(page.contains(&format!("<p>{detail}</p><p><b>Try</b> {advice}</p>")), "{}: {page}", case.id);
    }
}

#[test]
fn the_timeline_gives_segments_to_their_makers_and_leaves_out_what_was_there_for_a_moment() {
    let mut it = Builder::new("h");
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
    // A copy of the parent becomes another program, which makes a segment.
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
    let lanes = page.split_once("id=\"timeline\"").unwrap().1.split_once("</section>").unwrap().0;
    assert!(lanes.contains("loader (4242)") && lanes.contains("<title>tensor, 4.0 KiB"), "{lanes}");
    assert!(!lanes.contains("parent (4242)"), "{lanes}");
}

#[test]
fn hostile_names_are_text() {
    let name = "</script></style><script>alert(1)</script>\"'><img src=x onerror=alert(1)>&\u{1b}[31m\u{202e}\0";
    for weight in [Weight::Cpu, Weight::OffCpu] {
        let page = page(&example(name), &Options { weight, ..Options::default() });
        assert_eq!(open_elements(&page), Vec::<String>::new());
        assert_eq!(page.matches("<script").count(), 1, "ours");
        assert_eq!(page.matches("<style").count(), 1, "ours");
        let pairs = cells(&page, "redundancy", "lies in");
        for (kind, id) in [("segment", "1:2:3"), ("arena", "4242:0x400000:1")] {
            let is_it =
                |it: &String| it.starts_with(&format!("{kind} &lt;/script&gt;")) && it.ends_with(&format!(" {id}"));
            assert!(pairs.iter().any(is_it), "{kind}: {pairs:?}");
        }
        assert!(!page.contains("<img") && page.contains("&lt;img src=x onerror=alert(1)&gt;"));
    }
    page(&example(&"x<".repeat(100_000)), &Options::default());
}

#[test]
fn nothing_is_a_page_and_a_selection_bounds_the_time() {
    let empty = page(&Model::new(meta("h"), History::All), &Options::default());
    assert_eq!(open_elements(&empty), Vec::<String>::new());
    let selection = Selection { from: Some(Nanos(100_000_000)), to: Some(Nanos(300_000_000)), ..Selection::default() };
    let page = page(&example("worker"), &Options { selection, ..Options::default() });
    assert!(page.contains("data-from=\"0.1\" data-to=\"0.3\""));
}

//! Links lead from detail to detail, and back.

use std::collections::BTreeSet;

use insta::assert_snapshot;

use pyobs_model::{
    Access, Event, Family, MemInfoChange, MemInfoId, Nanos, Pair, PairKind, Pid, ProcessRef, Segment, SegmentChange,
    SegmentId, SegmentKind, StackId, Tid, Touched,
};

use super::{Bench, synthetic, ucx};
use crate::app::Msg;
use crate::{Batch, Source};

const SIZE: (u16, u16) = (140, 40);

/// The lines below the header, whose numbers change.
fn body(bench: &mut Bench) -> Vec<String> {
    bench.picture().lines().skip(1).map(str::to_owned).collect()
}

/// The breadcrumb.
fn crumbs(bench: &mut Bench) -> String {
    let picture = bench.picture();
    let line = picture.lines().next().unwrap_or_default().trim_matches('"').trim();
    line.strip_prefix("pyobs · ").unwrap_or(line).split(" · ").next().unwrap_or_default().to_owned()
}

/// Follows each link of the current detail and comes back. Returns the breadcrumbs.
#[track_caller]
fn follow_all(bench: &mut Bench, least: usize) -> Vec<String> {
    let mut led = Vec::new();
    let mut places = BTreeSet::new();
    for nth in 0..24 {
        let before = body(bench);
        bench.keys("\n");
        let there = body(bench);
        if there != before {
            led.push(crumbs(bench));
            places.insert(there);
            bench.keys("\u{1b}");
            assert_eq!(body(bench), before, "back from link {nth}");
        }
        bench.keys("↓");
    }
    assert!(places.len() >= least, "{led:#?}");
    led
}

#[test]
fn every_link_of_a_wait_leads_there_and_back() {
    let mut bench = Bench::waiting(SIZE);
    bench.keys("4m\n");
    let led = follow_all(&mut bench, 6);
    assert!(led[0].ends_with("Waits › A wait › thread › Frames"), "{led:#?}");
    assert!(led[1].ends_with("Waits › A wait › frame › Frames › A frame"), "{led:#?}");
}

#[test]
fn every_link_of_a_segment_leads_there_and_back() {
    let mut bench = Bench::sharing(SIZE);
    bench.keys("6m\n");
    let led = follow_all(&mut bench, 4);
    assert!(led[0].ends_with("Memory › A line, a segment, or arenas › process › Frames"), "{led:#?}");
}

#[test]
fn every_link_of_arenas_leads_there_and_back() {
    let mut bench = Bench::sharing(SIZE);
    bench.keys("6mm\n");
    follow_all(&mut bench, 3);
}

#[test]
fn every_link_of_a_line_leads_there_and_back() {
    let mut bench = Bench::dispatching(SIZE);
    bench.keys("8\n");
    follow_all(&mut bench, 3);
}

#[test]
fn a_transfer_leads_to_what_its_buffer_lies_in() {
    let mut bench = Bench::watching(SIZE);
    bench.keys("7\n");
    let led = follow_all(&mut bench, 5);
    assert!(led.iter().any(|crumbs| crumbs.contains("buffer › Memory › A line, a segment, or arenas")), "{led:#?}");
    assert!(led.iter().any(|crumbs| crumbs.contains("thread › Frames")), "{led:#?}");
}

/// Another line holds more bytes, so it is the first one in the list.
#[test]
fn a_buffer_in_a_meminfo_leads_to_the_meminfos_of_its_line() {
    let mut bench = regions();
    let more = MemInfoChange::Born { process: ProcessRef(0), bytes: 1 << 30, data: 0, stack: StackId(1) };
    bench.send(Batch::Events(vec![Event::MemInfo { at: Nanos(0), id: MemInfoId(1), change: more }]));
    let transfer = bench.keys("7\n").picture();
    assert!(transfer.contains("a MemInfo at 0x7f1200032000, 200 KiB"), "{transfer}");
    let leads = |bench: &mut Bench| crumbs(bench).ends_with("buffer › Memory › A line, a segment, or arenas");
    let is_there = (0..24).any(|_| leads(bench.keys("\n")) || leads(bench.keys("\u{1b}↓")));
    let there = bench.picture();
    assert!(is_there && there.contains(" live       1, 200 KiB; 1 born "), "{there}");
    assert!(there.contains(" born at    /usr/lib/python3.12/threading.py:355 "), "{there}");
    assert!(bench.keys("\u{1b}").picture().contains("a MemInfo at 0x7f1200032000, 200 KiB"));
}

/// Transfers out of a segment, out of an arena in it and out of a MemInfo, and stores into it.
fn regions() -> Bench {
    let at = Nanos(0);
    let mut events = ucx::events();
    let (kind, name, creator) = (SegmentKind::Shm, Some("pool".into()), Some(Pid(4242)));
    let segment = Segment { dev: 27, ino: 9, generation: 0, kind, name, linked: true, bytes: 64 << 20, creator };
    let (pid, address, bytes) = (Pid(4242), 0x7f12_0000_0000 - (1 << 20), 64 << 20);
    for change in [
        SegmentChange::Begun(segment),
        SegmentChange::Born(StackId(11)),
        SegmentChange::Holds { pid, fds: 1, mappings: 1 },
        SegmentChange::Mapped { pid, address, bytes, offset: 0 },
    ] {
        events.push(Event::Segment { at, id: SegmentId(0), change });
    }
    // The buffers of transfers 50 and later are in it.
    let (process, stack, data) = (ProcessRef(0), StackId(11), 0x7f12_0000_0000 + 50 * 4096);
    let change = MemInfoChange::Born { process, bytes: 50 * 4096, data, stack };
    events.push(Event::MemInfo { at, id: MemInfoId(0), change });
    for n in 0..40 {
        let (at, tid, kind, touched) =
            (Nanos(n * 1_000_000), Tid(4242), PairKind::Store, Touched::Array("f8 9".into()));
        let (first, second, address, bytes) = (StackId(6), StackId(11), Some(0x7f12_0000_0000), 8);
        let (equal, unread) = (n > 1, None);
        let pair = Pair { at, process, tid, first, second, kind, touched, address, bytes, equal, unread };
        events.push(Event::Pair(pair));
        let (weight, touched, stores) = (1, None, true);
        events.push(Event::Access(Access { at, process, tid, stack, weight, touched, stores, element_of: None }));
    }
    events.sort_by_key(Event::at);
    let mut bench = Bench::new(synthetic::model_of(&Family::ALL), Source::Live, SIZE);
    bench.send(Batch::Events(events));
    bench
}

#[test]
fn regions_link_to_their_transfers_and_to_the_lines_that_store_into_them() {
    for (keys, count) in [("6m", 100), ("6mm", 100), ("6mmm", 50)] {
        let mut bench = regions();
        let picture = bench.keys(keys).keys("\n").picture();
        assert!(picture.contains("TRANSFERS OUT OF IT"), "{keys}: {picture}");
        let led = follow_all(&mut bench, 8);
        assert!(led.iter().any(|crumbs| crumbs.ends_with("transfer › Transfers › A transfer")), "{keys}: {led:#?}");
        // Twenty are listed, and the others are counted.
        let others = format!("and {} others", count - 20);
        let mut bench = regions();
        bench.keys(keys).keys("\n");
        let has_others = (0..40).any(|_| bench.keys("↓").picture().contains(&others));
        assert!(has_others, "{keys}: {others}");
    }
    // The arena lies in the segment and the MemInfo in the arena, so all of their details show the stores.
    for keys in ["6m\n", "6mm\n", "7\n"] {
        let mut bench = regions();
        bench.keys(keys);
        let words = "38 of 40 stores, 304 of 320 B";
        let line =
            (0..60).find_map(|_| bench.keys("↓").picture().lines().find(|it| it.contains(words)).map(str::to_owned));
        assert!(line.is_some(), "{keys}: {}", bench.picture());
    }
}

#[test]
fn findings_on_the_timeline_lead_to_their_evidence() {
    let mut bench = Bench::waiting(SIZE);
    let picture = bench.keys("w9←←←←←←←←").picture();
    let lane = picture.lines().find(|line| line.contains("findings ")).unwrap();
    // The finding's waits are spread over the ten seconds.
    assert!(lane.matches('!').count() > 100, "{lane}");
    assert!(picture.contains("1 finding rests on what happened then"), "{picture}");
    assert!(picture.contains("! gil/convoy: thread 4243"), "{picture}");
    bench.keys("\n");
    assert!(crumbs(&mut bench).ends_with("Timeline › gil/convoy › Waits"), "{}", bench.picture());
    bench.keys("\u{1b}");
    assert_eq!(bench.picture().lines().skip(1).collect::<Vec<_>>(), picture.lines().skip(1).collect::<Vec<_>>());
    // There is no evidence after the last event.
    bench.now += std::time::Duration::from_secs(30);
    bench.msg(Msg::Tick);
    assert!(bench.keys("ww").picture().lines().all(|line| !line.contains("findings ")), "{}", bench.picture());
}

#[test]
fn a_line_leads_to_the_region_that_it_stores_into() {
    let mut bench = regions();
    bench.keys("8\n");
    let led = follow_all(&mut bench, 3);
    assert!(led.iter().any(|crumbs| crumbs.contains("region › Memory")), "{led:#?}");
    let mut bench = regions();
    bench.keys("8\n");
    let is_told = (0..40).any(|_| bench.keys("↓").picture().contains("an arena of pymalloc: 38 of 40 equal"));
    assert!(is_told, "{}", bench.picture());
}

#[test]
fn a_finding_leads_on_and_each_escape_is_one_step_back() {
    let mut bench = Bench::waiting(SIZE);
    bench.keys("w");
    let mut seen = vec![body(&mut bench)];
    // The finding's row, its detail, the frame that waits, and a caller of that frame.
    for keys in ["\n", "\n", "↓\n", "\n"] {
        bench.keys(keys.trim_end_matches('\n'));
        if keys.len() > 1 {
            seen.pop();
            seen.push(body(&mut bench));
        }
        bench.keys("\n");
        seen.push(body(&mut bench));
    }
    assert_snapshot!("a_way_of_four_steps", bench.picture());
    seen.pop();
    while let Some(before) = seen.pop() {
        bench.keys("\u{1b}");
        assert_eq!(body(&mut bench), before);
    }
}

#[test]
fn a_jump_to_a_thread_picks_it_until_the_user_goes_back() {
    let mut bench = Bench::waiting(SIZE);
    bench.keys("4m\n\n");
    assert!(bench.picture().contains("thread 4243 of"), "{}", bench.picture());
    assert!(!bench.keys("\u{1b}").picture().contains("thread 4243 of 4242 python3 -m train --epochs  "));
    bench.keys("\u{1b}");
    assert!(bench.app.ui.picked.is_none());
}

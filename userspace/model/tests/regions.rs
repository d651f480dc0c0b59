//! The region map: what lies at an address, now and in the past.

use std::collections::HashMap;

use pyobs_model::regions::{Regions, Space};
use pyobs_model::report::Report;
use pyobs_model::{
    Arena, ArenaChange, ArenaId, Event, History, MemInfoChange, MemInfoId, Meta, Model, Nanos, Pid, Process,
    ProcessRef, Region, RegionId, Segment, SegmentChange, SegmentId, SegmentKind, Selection, StackId,
};

const PID: Pid = Pid(7);
const PROCESS: ProcessRef = ProcessRef(0);
const SEGMENT: RegionId = RegionId::Segment(SegmentId(0));
const SPACE: Space = Space::Segments(PID);

/// The innermost region at an address now.
fn region(model: &Model, address: u64) -> Option<&Region> {
    model.region_at_time(PROCESS, address, Nanos(u64::MAX))
}

fn model() -> Model {
    let probes = ["shm", "arena", "nrt"].map(str::to_owned).to_vec();
    let mut model = Model::new(Meta { rate_hz: 99, probes, ..Meta::default() }, History::All);
    let process = Process { pid: PID, ppid: Pid(1), command: "python".into(), python: None, started: None };
    model.apply(&Event::Process { id: PROCESS, process });
    model.apply(&Event::Stack { id: StackId(0), frames: [].into() });
    let (name, kind) = (Some("a".into()), SegmentKind::Shm);
    let segment = Segment { dev: 27, ino: 559, generation: 3, kind, name, linked: true, bytes: 1 << 20, creator: None };
    at(&mut model, 0, SegmentChange::Begun(segment));
    at(&mut model, 0, SegmentChange::Holds { pid: PID, fds: 1, mappings: 1 });
    model
}

fn at(model: &mut Model, at: u64, change: SegmentChange) {
    model.apply(&Event::Segment { at: Nanos(at), id: SegmentId(0), change });
}

fn mapped(address: u64, bytes: u64, offset: u64) -> SegmentChange {
    SegmentChange::Mapped { pid: PID, address, bytes, offset }
}

fn unmapped(address: u64, bytes: u64) -> SegmentChange {
    SegmentChange::Unmapped { pid: PID, address, bytes }
}

fn arena(model: &mut Model, at: u64, id: u32, change: ArenaChange) {
    model.apply(&Event::Arena { at: Nanos(at), id: ArenaId(id), change });
}

fn begun(kind: &str, address: u64, bytes: u64) -> ArenaChange {
    ArenaChange::Begun(Arena { process: PROCESS, kind: kind.into(), address, bytes, born: true, parent: None })
}

#[test]
fn a_mapping_covers_exactly_its_range_and_lifetime() {
    let mut model = model();
    at(&mut model, 10, mapped(0x1000, 0x3000, 0x8000));
    let found = *region(&model, 0x3fff).unwrap();
    assert_eq!((found.id, found.address, found.offset, found.born), (SEGMENT, 0x1000, 0x8000, Nanos(10)));
    assert_eq!((region(&model, 0xfff), region(&model, 0x4000)), (None, None));
    at(&mut model, 20, unmapped(0x2000, 0x1000));
    assert_eq!(region(&model, 0x2000), None);
    assert_eq!(region(&model, 0x3000).unwrap().offset, 0xa000);
    for (time, is_there) in [(9, false), (10, true), (19, true), (20, false)] {
        assert_eq!(model.region_at_time(PROCESS, 0x2fff, Nanos(time)).is_some(), is_there, "{time}");
    }
    let pieces: Vec<(u64, u64)> = model.mappings(PID).map(|region| (region.address, region.bytes)).collect();
    assert_eq!(pieces, [(0x1000, 0x1000), (0x3000, 0x1000)]);
}

#[test]
fn reuses_of_an_address_are_distinguished_by_time() {
    let mut model = model();
    at(&mut model, 10, mapped(0x1000, 0x1000, 0));
    at(&mut model, 20, unmapped(0x1000, 0x1000));
    arena(&mut model, 30, 0, begun("pymalloc", 0x1000, 0x1000));
    arena(&mut model, 40, 0, ArenaChange::Died);
    arena(&mut model, 50, 1, begun("pymalloc", 0x1000, 0x1000));
    let then = |at| model.region_at_time(PROCESS, 0x1800, Nanos(at)).map(|region| region.id);
    let expected =
        [None, Some(SEGMENT), None, Some(RegionId::Arena(ArenaId(0))), None, Some(RegionId::Arena(ArenaId(1)))];
    assert_eq!([5, 15, 25, 35, 45, 55].map(then), expected);
}

#[test]
fn the_innermost_region_is_found_first() {
    let mut model = model();
    at(&mut model, 1, mapped(0x10_0000, 0x10_0000, 0));
    arena(&mut model, 2, 0, begun("pool", 0x99, 0));
    arena(&mut model, 2, 0, ArenaChange::Slab { address: 0x11_0000, bytes: 0x1000 });
    let change = MemInfoChange::Born { process: PROCESS, bytes: 64, data: 0x11_0100, stack: StackId(0) };
    model.apply(&Event::MemInfo { at: Nanos(3), id: MemInfoId(5), change });
    let all = |address| -> Vec<RegionId> {
        model.regions_at_time(PROCESS, address, Nanos(9)).map(|region| region.id).collect()
    };
    let (meminfo, pool) = (RegionId::MemInfo(MemInfoId(5)), RegionId::Arena(ArenaId(0)));
    assert_eq!(all(0x11_013f), [meminfo, pool, SEGMENT]);
    assert_eq!(all(0x11_0140), [pool, SEGMENT]);
    assert_eq!(all(0x11_1000), [SEGMENT]);
    let report = Report::new(&model, &Selection::default(), None);
    let region = report.arenas.unwrap()[0].region.clone().unwrap();
    assert_eq!((region.kind, region.id.as_str()), ("segment", "27:559:3"));
    let segment = &report.segments.unwrap()[0];
    assert_eq!((segment.id.as_str(), segment.holders[0].ranges[0].address.as_str()), ("27:559:3", "0x100000"));
}

#[test]
fn an_ended_process_has_no_regions() {
    let mut model = model();
    at(&mut model, 1, mapped(0x1000, 0x1000, 0));
    at(&mut model, 9, SegmentChange::Ended { pid: PID });
    assert_eq!(model.mappings(PID).count(), 0);
    at(&mut model, 10, SegmentChange::Holds { pid: PID, fds: 1, mappings: 1 });
    at(&mut model, 10, mapped(0x5000, 0x1000, 0));
    at(&mut model, 12, SegmentChange::Released);
    assert_eq!(model.mappings(PID).count(), 0);
    arena(&mut model, 13, 0, begun("pymalloc", 0x8000, 0x1000));
    model.apply(&Event::ProcessEnd { id: PROCESS, at: Nanos(20) });
    assert_eq!(region(&model, 0x8000), None);
    assert!(model.region_at_time(PROCESS, 0x8000, Nanos(19)).is_some());
    // Regions of one process do not appear in another.
    let process = Process { pid: PID, ppid: Pid(1), command: "next".into(), python: None, started: Some(Nanos(21)) };
    model.apply(&Event::Process { id: ProcessRef(1), process });
    assert_eq!(model.region_at_time(ProcessRef(1), 0x1000, Nanos(5)), None);
}

#[test]
fn a_meminfo_whose_death_is_reported_before_its_birth_existed_in_between() {
    let mut model = model();
    let meminfo = |at, change| Event::MemInfo { at: Nanos(at), id: MemInfoId(0), change };
    model.apply(&meminfo(30, MemInfoChange::Died));
    let born = MemInfoChange::Born { process: PROCESS, bytes: 64, data: 0x500, stack: StackId(0) };
    model.apply(&meminfo(10, born));
    let is_there = |at| model.region_at_time(PROCESS, 0x510, Nanos(at)).is_some();
    assert_eq!([5, 10, 29, 30].map(is_there), [false, true, true, false]);
    assert_eq!(region(&model, 0x510), None);
}

#[test]
fn a_mistaken_arena_never_existed() {
    let mut model = model();
    arena(&mut model, 1, 0, begun("pymalloc", 0x8000, 0x1000));
    arena(&mut model, 5, 0, ArenaChange::Mistaken);
    assert_eq!(model.region_at_time(PROCESS, 0x8000, Nanos(3)), None);
}

/// Compared with a map of single pages.
#[test]
fn random_changes_match_a_map_of_single_pages() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut regions = Regions::new(History::All);
    let mut pages: HashMap<u64, (u32, u64)> = HashMap::new();
    let mut history = Vec::new();
    for step in 1..4000_u64 {
        let (page, count) = (random(64), random(8));
        let range = page..page + count;
        if random(3) == 0 {
            regions.end(SPACE, range.start..range.end, Nanos(step));
            pages.retain(|page, _| !range.contains(page));
        } else {
            let id = RegionId::Segment(SegmentId(step as u32));
            let region =
                Region { id, address: page, bytes: count, offset: 100, stack: None, born: Nanos(step), died: None };
            regions.begin(SPACE, region);
            pages.extend(range.map(|at| (at, (step as u32, 100 + at - page))));
        }
        let probe = random(72);
        let found = regions.at(SPACE, probe);
        let told = found.map(|found| match found.id {
            RegionId::Segment(id) => (id.0, found.offset + probe - found.address),
            other => panic!("{other:?}"),
        });
        assert_eq!(told, pages.get(&probe).copied(), "step {step}");
        history.push((step, probe, told));
    }
    for (step, probe, expected) in history {
        let found = regions.at_time(SPACE, probe, Nanos(step));
        let told = found.map(|found| match found.id {
            RegionId::Segment(id) => (id.0, found.offset + probe - found.address),
            other => panic!("{other:?}"),
        });
        assert_eq!(told, expected, "at {step}");
    }
    regions.expire(Nanos(u64::MAX));
    assert!((0..80).all(|page| regions.at_time(SPACE, page, Nanos(5)).is_none()));
}

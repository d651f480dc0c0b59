//! Enter on a finding of the Overview opens the screen with its evidence, and selects the row.

use pyobs_model::{
    Arena, ArenaChange, ArenaId, Event, Family, Filled, GilWait, HeapChange, MemInfoChange, MemInfoId, Nanos,
    ProcessRef, SegmentChange, SegmentId, StackId, Tid, Touched, Transfer, TransferChange, TransferThread,
};

use super::{Bench, Source, redundancy, synthetic, ucx};
use crate::theme::Theme;
use crate::{Batch, Color};

const SIZE: (u16, u16) = (200, 50);
const SECOND: u64 = 1_000_000_000;
/// The stack of a line without findings.
const COMPUTES: StackId = StackId(1);

/// The text of the selected row.
#[track_caller]
fn selected(bench: &mut Bench) -> String {
    let picture = bench.picture();
    let buffer = bench.terminal.backend().buffer();
    let style = Theme::new(Color::Rich).selected();
    let is_selected = |y: &u16| (0..SIZE.0).all(|x| Some(buffer[(x, *y)].bg) == style.bg);
    let rows: Vec<u16> = (0..SIZE.1).filter(is_selected).collect();
    let [row] = rows[..] else { panic!("{rows:?} selected\n{picture}") };
    picture.lines().nth(usize::from(row)).unwrap_or_default().to_owned()
}

fn bench(events: Vec<Event>) -> Bench {
    let mut bench = Bench::new(synthetic::model_of(&Family::ALL), Source::Live, SIZE);
    bench.send(Batch::Events(events));
    bench.draw();
    bench
}

/// Follows a finding of the Overview. Returns the pictures before and after.
#[track_caller]
fn follow(bench: &mut Bench, id: &str, screen: &str) -> [String; 2] {
    let at = bench.app.ui.board.entries().position(|entry| entry.finding.id == id);
    let at = at.unwrap_or_else(|| panic!("no {id}\n{}", bench.terminal.backend()));
    bench.keys(&"↓".repeat(at));
    assert!(selected(bench).contains(id));
    let overview = bench.picture();
    let there = bench.keys("\n").picture();
    assert!(there.contains(&format!("Overview › {id} › {screen} ")), "{there}");
    [overview, there]
}

/// Asserts that Enter leads to `screen` and a row with these words, which is not the first, and Esc back.
#[track_caller]
fn leads(events: Vec<Event>, id: &str, screen: &str, words: &[&str]) {
    let mut bench = bench(events);
    let [overview, there] = follow(&mut bench, id, screen);
    let row = selected(&mut bench);
    assert!(words.iter().all(|word| row.contains(word)), "{row}\n{there}");
    assert_ne!(selected(bench.keys("⇱")), row, "the first row is selected anyway\n{there}");
    assert_eq!(bench.keys("\u{1b}").picture(), overview);
}

#[test]
fn a_gil_finding_leads_to_the_waits_of_its_thread() {
    // A single long wait in another process is not a convoy.
    let (process, length) = (ProcessRef(1), Nanos(9 * SECOND));
    let other = GilWait { process, ..synthetic::gil_wait(9_900, 918, 9, None) };
    let other = GilWait { from: other.at.saturating_sub(length), total: length, length, ..other };
    let mut events = synthetic::waiting();
    events.push(Event::GilWait(other));
    leads(events, "gil/convoy", "Waits", &["loader-0", "client.py:25"]);
}

#[test]
fn a_segment_finding_leads_to_the_segment() {
    leads(synthetic::sharing(), "shm/residue", "Memory", &["psm_"]);
}

#[test]
fn an_arena_finding_leads_to_the_arenas_of_its_line() {
    let mut events = synthetic::sharing();
    let mut emit = |id, change| events.push(Event::Arena { at: Nanos(9 * SECOND), id: ArenaId(id), change });
    for id in 30..40 {
        emit(id, ArenaChange::Filled(Filled { slabs: 64, used: 1, bytes: 9_000 }));
    }
    let (process, kind, bytes) = (ProcessRef(0), "lib".into(), 1 << 30);
    emit(41, ArenaChange::Begun(Arena { process, kind, address: 0xa0, bytes, born: true, parent: None }));
    emit(41, ArenaChange::Born(COMPUTES));
    leads(events, "arena/sparse", "Memory", &["pymalloc", "threading.py:355"]);
}

#[test]
fn a_growing_line_leads_to_its_memory() {
    let mut events = synthetic::waiting();
    for second in 0..20 {
        let (address, bytes, stack) = (second << 20, 8 << 20, if second % 5 == 0 { StackId(11) } else { COMPUTES });
        let bytes = if stack == COMPUTES { bytes } else { 64 * bytes };
        let change = HeapChange::Touched { address, bytes, anonymous: second << 29, stack };
        events.push(Event::Heap { at: Nanos(second * SECOND), process: ProcessRef(0), change });
    }
    for second in [1, 6, 11] {
        let change = HeapChange::Freed { address: (second - 1) << 20, bytes: 4096 };
        events.push(Event::Heap { at: Nanos(second * SECOND), process: ProcessRef(0), change });
    }
    leads(events, "heap/growing", "Memory", &["other", "normalize.py:31"]);
}

#[test]
fn a_meminfo_finding_leads_to_the_meminfos_of_its_line() {
    let mut events = synthetic::sharing();
    let born = MemInfoChange::Born { process: ProcessRef(1), bytes: 1 << 30, data: 0, stack: COMPUTES };
    events.push(Event::MemInfo { at: Nanos(9 * SECOND), id: MemInfoId(100), change: born });
    events.push(Event::ProcessEnd { id: ProcessRef(0), at: Nanos(9 * SECOND) });
    leads(events, "nrt/leaked", "Memory", &["4242", "threading.py:355"]);
}

#[test]
fn a_redundancy_finding_leads_to_its_line() {
    let mut events = redundancy::dispatching();
    let object = || Some(Touched::Metadata(Some("dict".into())));
    events.extend((0..500).map(|ms| redundancy::access(7_000 + ms, COMPUTES.0, object(), false)));
    leads(events, "redundancy/recomputed", "Redundancy", &["threading.py:355"]);
}

#[test]
fn a_finding_about_equal_transfers_leads_to_the_latest() {
    let mut events = ucx::events();
    events.extend(synthetic::sharing().into_iter().filter(|event| matches!(event, Event::Segment { .. })));
    let buffer = 0x7e00_0000_0000;
    let mapped = SegmentChange::Mapped { pid: pyobs_model::Pid(4242), address: buffer, bytes: 1 << 20, offset: 0 };
    events.push(Event::Segment { at: Nanos(SECOND), id: SegmentId(0), change: mapped });
    for id in 130..135 {
        let same = Transfer { buffer, bytes: 65_536, hash: Some(9), ..ucx::transfer(id) };
        events.extend(ucx::seen(id, same));
    }
    // Each transfer begins 8 ms after the one before.
    events.extend(ucx::seen(200, ucx::transfer(200)));
    leads(events, "shm/resent", "Transfers", &["1.072 s", "64 KiB"]);
}

/// The table is shown whatever the screen showed before.
#[test]
fn a_finding_about_all_transfers_leads_to_their_table() {
    let mut events = ucx::events();
    for event in &mut events {
        if let Event::Transfer { at, change: TransferChange::Woken { notified, .. }, .. } = event {
            *at = notified.saturating_add(Nanos(8_000_000));
        }
    }
    for before in ["7m", "7↓↓↓\n", "7"] {
        let mut bench = bench(events.clone());
        bench.keys(before).keys("0");
        let [overview, there] = follow(&mut bench, "ucx/slow-notify", "Transfers");
        assert!(there.contains("OPERATION") && !there.contains("ROLE"), "{before}: {there}");
        assert_eq!(bench.keys("\u{1b}").picture(), overview);
    }
}

#[test]
fn a_polling_finding_leads_to_the_thread() {
    let mut events = ucx::events();
    events.push(match ucx::thread(4243, 0, 100, 0, 9_900) {
        // 100,000 times per second.
        Event::TransferThread(thread) => Event::TransferThread(TransferThread { progress: 3_000, ..thread }),
        other => other,
    });
    leads(events, "ucx/busy-poll", "Transfers", &[&Tid(4243).to_string(), "progress"]);
}

//! Private memory by line: what is held now, what was held at the peak, and which lines grow throughout.

use std::collections::BTreeMap;

use pyobs_model::families::heap::{HeapKind, HeapTime};
use pyobs_model::findings::{self, Evidence, Finding, Severity, Target};
use pyobs_model::views::{self, HeapUse, Weight};
use pyobs_model::*;

const SECOND: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;
const PROCESS: ProcessRef = ProcessRef(0);

struct Bench {
    model: Model,
    anonymous: u64,
}

impl Bench {
    /// A process with a line for each stack, 0 to 4.
    fn new() -> Self {
        let probes = vec!["heap".to_owned(), "arena".to_owned()];
        let mut model = Model::new(Meta { rate_hz: 99, probes, ..Meta::default() }, History::All);
        for (id, pid) in [(0, 7), (1, 8)] {
            let process =
                Process { pid: Pid(pid), ppid: Pid(1), command: "python".into(), python: None, started: None };
            model.apply(&Event::Process { id: ProcessRef(id), process });
        }
        for id in 0..5 {
            let frame = Frame::python(format!("line_{id}").into(), "/app/main.py".into(), Some(id), Some(1));
            model.apply(&Event::Frame { id: FrameId(id), frame });
            model.apply(&Event::Stack { id: StackId(id), frames: [FrameId(id)].into() });
        }
        Self { model, anonymous: 0 }
    }

    fn apply(&mut self, second: u64, change: HeapChange) {
        self.model.apply(&Event::Heap { at: Nanos(second * SECOND), process: PROCESS, change });
    }

    fn touch(&mut self, second: u64, address: u64, mib: u64, stack: u32) {
        self.anonymous += mib * MIB;
        let (anonymous, stack) = (self.anonymous, StackId(stack));
        self.apply(second, HeapChange::Touched { address, bytes: mib * MIB, anonymous, stack });
    }

    fn free(&mut self, second: u64, address: u64, bytes: u64) {
        self.apply(second, HeapChange::Freed { address, bytes });
    }

    /// MiB by line, without the memory that has none.
    fn lines(&self, time: HeapTime) -> BTreeMap<u32, u64> {
        let selection = Selection { memory: Some(time), ..Selection::default() };
        let lines = views::heap_lines(&self.model, &selection).into_iter();
        lines.filter_map(|line| Some((line.frame?.0, line.bytes / MIB))).collect()
    }
}

#[test]
fn a_page_stands_for_its_line_until_it_is_given_back() {
    let mut bench = Bench::new();
    bench.touch(1, 0x1000, 3, 0);
    bench.touch(2, 0x5000, 4, 1);
    assert_eq!(bench.lines(HeapTime::End), [(0, 3), (1, 4)].into());
    bench.free(3, 0x1000, 4096);
    bench.touch(4, 0x1000, 2, 2);
    assert_eq!(bench.lines(HeapTime::End), [(1, 4), (2, 2)].into());
    // What was sampled after the memory was given back stays, in whatever order the two become known.
    bench.free(3, 0, 1 << 20);
    assert_eq!(bench.lines(HeapTime::End), [(2, 2)].into());
}

#[test]
fn what_is_touched_in_a_block_belongs_to_the_line_that_mapped_it() {
    let mut bench = Bench::new();
    let (address, bytes) = (0x10_0000, 16 * MIB);
    // The stack of the block has names later than the first page in it.
    bench.touch(2, address + 0x1000, 1, 1);
    bench.apply(1, HeapChange::Mapped { address, bytes, stack: StackId(0) });
    bench.touch(3, address + 0x2000, 5, 1);
    bench.touch(3, address + bytes, 2, 1);
    assert_eq!(bench.lines(HeapTime::End), [(0, 6), (1, 2)].into());
    // It moves with what was touched, and its first part is unmapped there.
    bench.apply(4, HeapChange::Moved { address, bytes, to: 0x9000_0000 });
    bench.free(5, address, bytes);
    assert_eq!(bench.lines(HeapTime::End)[&0], 6);
    bench.free(6, 0x9000_0000, 0x2000);
    assert_eq!(bench.lines(HeapTime::End), [(0, 5), (1, 2)].into());
}

#[test]
fn memory_in_arenas_is_that_of_objects() {
    let mut bench = Bench::new();
    let arena =
        Arena { process: PROCESS, kind: "pymalloc".into(), address: 0x10_0000, bytes: MIB, born: true, parent: None };
    bench.model.apply(&Event::Arena { at: Nanos(0), id: ArenaId(0), change: ArenaChange::Begun(arena) });
    bench.touch(1, 0x10_3000, 1, 0);
    bench.touch(1, 0x30_0000, 2, 0);
    bench.apply(2, HeapChange::Counted { anonymous: 10 * MIB, files: 4 * MIB, shared: MIB });
    let rows = views::heap_processes(&bench.model, &Selection::default());
    let parts = rows[0].parts().map(|(_, bytes)| bytes / MIB);
    assert_eq!(parts, [1, 0, 2, 7, 1, 4]);
    assert_eq!(rows[0].total() / MIB, 15);
    let uses: Vec<HeapUse> =
        views::heap_lines(&bench.model, &Selection::default()).iter().map(|line| line.used_for).collect();
    let (objects, other) = (HeapUse::Sampled(HeapKind::Objects), HeapUse::Sampled(HeapKind::Other));
    assert_eq!(uses, [HeapUse::Unknown, HeapUse::Files, other, objects, HeapUse::Shared]);
}

#[test]
fn the_peak_is_what_was_held_when_the_process_had_most() {
    let mut bench = Bench::new();
    bench.touch(1, 0x1000, 30, 0);
    bench.touch(2, 0x2000, 50, 1);
    bench.free(3, 0x2000, 4096);
    bench.anonymous -= 50 * MIB;
    bench.touch(4, 0x3000, 20, 2);
    assert_eq!(bench.lines(HeapTime::Peak), [(0, 30), (1, 50)].into());
    assert_eq!(bench.lines(HeapTime::End), [(0, 30), (2, 20)].into());
    bench.touch(5, 0x4000, 60, 3);
    assert_eq!(bench.lines(HeapTime::Peak), [(0, 30), (2, 20), (3, 60)].into());
    // A process that has ended holds nothing, so its peak is shown.
    let sum = |model: &Model| -> u64 { Weight::Bytes.sums(model, &Selection::default()).values().sum() };
    assert_eq!(sum(&bench.model), 110 * MIB);
    bench.model.apply(&Event::ProcessEnd { id: PROCESS, at: Nanos(6 * SECOND) });
    assert_eq!(bench.lines(HeapTime::End), BTreeMap::new());
    assert_eq!(sum(&bench.model), 110 * MIB);
    assert_eq!(views::heap_processes(&bench.model, &Selection::default())[0].at, Some(Nanos(5 * SECOND)));
}

#[test]
fn a_fork_begins_with_a_copy() {
    let mut bench = Bench::new();
    bench.touch(1, 0x1000, 3, 0);
    let child = ProcessRef(1);
    let inherited = HeapChange::Inherited { parent: PROCESS };
    bench.model.apply(&Event::Heap { at: Nanos(2 * SECOND), process: child, change: inherited });
    bench.free(3, 0x1000, 4096);
    let held = |process| {
        let selection = Selection { processes: Some([process].into()), ..Selection::default() };
        views::heap_lines(&bench.model, &selection).iter().map(|line| line.bytes).sum::<u64>()
    };
    assert_eq!((held(PROCESS), held(child)), (3 * MIB, 3 * MIB));
}

#[test]
fn nothing_overflows() {
    let mut bench = Bench::new();
    let (address, bytes, stack) = (u64::MAX, u64::MAX, StackId(0));
    for _ in 0..2 {
        bench.apply(1, HeapChange::Mapped { address, bytes, stack });
        bench.apply(1, HeapChange::Touched { address, bytes, anonymous: u64::MAX, stack });
        bench.apply(1, HeapChange::Touched { address: 0, bytes, anonymous: u64::MAX, stack });
        bench.apply(1, HeapChange::Counted { anonymous: u64::MAX, files: u64::MAX, shared: u64::MAX });
        bench.apply(1, HeapChange::Moved { address: 0, bytes, to: u64::MAX });
        bench.apply(2, HeapChange::Freed { address, bytes });
    }
    let _ = (bench.lines(HeapTime::End), views::heap_processes(&bench.model, &Selection::default()));
}

fn growing(bench: &Bench) -> Vec<Finding> {
    let found = findings::find(&bench.model, &Selection::default());
    found.into_iter().filter(|finding| finding.id == "heap/growing").collect()
}

#[test]
fn a_line_that_grows_throughout_is_a_finding() {
    let mut bench = Bench::new();
    bench.touch(1, 0x1000, 100, 1);
    for second in 1..=20 {
        bench.touch(second, second << 20, 1, 0);
        // Another line takes and gives back far more.
        bench.touch(second, 0x7000, 50, 2);
        bench.free(second, 0x7000, 4096);
    }
    let [finding] = &growing(&bench)[..] else { panic!("{:?}", growing(&bench)) };
    assert_eq!(finding.evidence["line"], Evidence::Text("line_0 (/app/main.py:0)".to_owned()));
    assert_eq!(finding.severity, Severity::Warning);
    let used_for = HeapUse::Sampled(HeapKind::Other);
    assert_eq!(finding.target, Some(Target::Memory(used_for, Some(FrameId(0)))));
}

#[test]
fn what_stops_growing_or_is_given_back_is_no_finding() {
    let mut stopped = Bench::new();
    (1..=10).for_each(|second| stopped.touch(second, second << 20, 1, 0));
    stopped.apply(20, HeapChange::Counted { anonymous: 10 * MIB, files: 0, shared: 0 });
    assert_eq!(growing(&stopped), []);
    let mut sawtooth = Bench::new();
    for second in 1..=40 {
        if second % 7 == 0 {
            sawtooth.free(second, 0, 1 << 30);
        } else {
            sawtooth.touch(second, second << 20, 1 + second / 4, 0);
        }
    }
    assert_eq!(growing(&sawtooth), []);
    let mut short = Bench::new();
    (1..=10).for_each(|second| short.touch(second, second << 20, 10, 0));
    assert_eq!(growing(&short), []);
}

//! The resident memory of processes, by kind and by line.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::own_line;
use crate::families::heap::{Counted, HeapKey, HeapKind, HeapTime, ProcessHeap};
use crate::{FrameId, Model, Nanos, ProcessRef, Selection, StackId};

/// The resident memory of a process at one moment. Each byte of it is in one of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapProcess {
    pub process: ProcessRef,
    pub time: HeapTime,
    /// When that was; `None` for the latest.
    pub at: Option<Nanos>,
    pub counted: Counted,
    /// Parts of the anonymous memory whose line is known.
    pub objects: u64,
    pub blocks: u64,
    pub other: u64,
}

impl HeapProcess {
    fn of(process: ProcessRef, heap: &ProcessHeap, time: HeapTime) -> Self {
        let sum = |kind: HeapKind| {
            let rows = heap.rows(time).filter(|(key, ..)| key.kind == kind);
            rows.fold(0_u64, |sum, (_, bytes, _)| sum.saturating_add(bytes))
        };
        Self {
            process,
            time,
            at: (time == HeapTime::Peak).then(|| heap.peak_at()),
            counted: heap.counted(time),
            objects: sum(HeapKind::Objects),
            blocks: sum(HeapKind::Block),
            other: sum(HeapKind::Other),
        }
    }

    /// The sum of the parts.
    pub fn total(&self) -> u64 {
        self.known().max(self.counted.anonymous).saturating_add(self.counted.files).saturating_add(self.counted.shared)
    }

    fn known(&self) -> u64 {
        self.objects.saturating_add(self.blocks).saturating_add(self.other)
    }

    /// Anonymous memory without a known line: what the process had before it was watched.
    pub fn unknown(&self) -> u64 {
        self.counted.anonymous.saturating_sub(self.known())
    }

    /// The parts with their names, as on screen and in reports.
    pub fn parts(&self) -> [(&'static str, u64); 6] {
        [
            ("objects", self.objects),
            ("blocks", self.blocks),
            ("other", self.other),
            ("unknown", self.unknown()),
            ("shared", self.counted.shared),
            ("files", self.counted.files),
        ]
    }
}

/// What resident memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HeapUse {
    Sampled(HeapKind),
    /// Anonymous memory without a known line.
    Unknown,
    Shared,
    Files,
}

impl HeapUse {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sampled(kind) => kind.name(),
            Self::Unknown => "unknown",
            Self::Shared => "shared",
            Self::Files => "files",
        }
    }

    /// What it is, in words.
    pub fn about(self) -> &'static str {
        match self {
            Self::Sampled(HeapKind::Objects) => "small Python objects, at the line that first used the memory",
            Self::Sampled(HeapKind::Block) => "blocks of addresses, at the line that mapped them",
            Self::Sampled(HeapKind::Other) => "malloc's heap and the like, at the line that first used the memory",
            Self::Unknown => "from before pyobs began to watch",
            Self::Shared => "shared memory",
            Self::Files => "pages of files, such as code",
        }
    }
}

/// The memory that one line of a process uses, or a part of the process's memory without a line.
#[derive(Clone, Debug, PartialEq)]
pub struct HeapLine {
    pub process: ProcessRef,
    pub used_for: HeapUse,
    /// As [`own_line`] finds it; `None` for memory without a line.
    pub frame: Option<FrameId>,
    pub bytes: u64,
    /// Growth since the process was watched, including memory that was released again.
    pub touched: u64,
    /// When it first touched something.
    pub since: Nanos,
    /// The stacks that lead to it, with what each uses, largest first.
    pub stacks: Vec<(StackId, u64)>,
}

impl HeapLine {
    /// Whether it rests on samples, which have stacks and times.
    pub fn is_sampled(&self) -> bool {
        matches!(self.used_for, HeapUse::Sampled(_))
    }

    fn new(process: ProcessRef, used_for: HeapUse, frame: Option<FrameId>, since: Nanos) -> Self {
        Self { process, used_for, frame, bytes: 0, touched: 0, since, stacks: Vec::new() }
    }
}

/// The moment of a process's memory that a selection shows.
pub fn heap_time(heap: &ProcessHeap, selection: &Selection) -> HeapTime {
    selection.memory.unwrap_or_else(|| heap.usual_time())
}

/// Sorted by size, largest first.
pub fn heap_processes(model: &Model, selection: &Selection) -> Vec<HeapProcess> {
    let heaps = model.heap().processes().filter(|(process, _)| selection.has_process(*process));
    let rows = heaps.map(|(process, heap)| HeapProcess::of(process, heap, heap_time(heap, selection)));
    let mut rows: Vec<HeapProcess> = rows.filter(|row| row.total() > 0).collect();
    rows.sort_by_key(|row| Reverse(row.total()));
    rows
}

/// Sorted by size, largest first.
pub fn heap_lines(model: &Model, selection: &Selection) -> Vec<HeapLine> {
    let mut lines: BTreeMap<(ProcessRef, HeapUse, Option<FrameId>), HeapLine> = BTreeMap::new();
    for (process, heap) in model.heap().processes().filter(|(process, _)| selection.has_process(*process)) {
        let time = heap_time(heap, selection);
        let whole = HeapProcess::of(process, heap, time);
        let others = [
            (HeapUse::Unknown, whole.unknown()),
            (HeapUse::Shared, whole.counted.shared),
            (HeapUse::Files, whole.counted.files),
        ];
        for (used_for, bytes) in others.into_iter().filter(|(_, bytes)| *bytes > 0) {
            let line = HeapLine { bytes, ..HeapLine::new(process, used_for, None, Nanos(0)) };
            lines.insert((process, used_for, None), line);
        }
        for (key, bytes, row) in heap.rows(time) {
            let (used_for, frame) = (HeapUse::Sampled(key.kind), own_line(model, key.stack));
            let new = || HeapLine::new(process, used_for, frame, row.since);
            let line = lines.entry((process, used_for, frame)).or_insert_with(new);
            line.bytes = line.bytes.saturating_add(bytes);
            line.touched = line.touched.saturating_add(row.touched);
            line.since = line.since.min(row.since);
            line.stacks.push((key.stack, bytes));
        }
    }
    let mut lines: Vec<HeapLine> = lines.into_values().collect();
    lines.iter_mut().for_each(|line| line.stacks.sort_by_key(|(_, bytes)| Reverse(*bytes)));
    lines.sort_by_key(|line| Reverse((line.bytes, line.touched)));
    lines
}

/// Bounds the stacks whose courses are added up.
const STACKS_MAX: usize = 32;

/// What a line used at some times, oldest first.
pub fn heap_course(model: &Model, line: &HeapLine) -> Vec<(Nanos, u64)> {
    let HeapUse::Sampled(kind) = line.used_for else { return Vec::new() };
    let Some(heap) = model.heap().get(line.process) else { return Vec::new() };
    let stacks = line.stacks.iter().take(STACKS_MAX);
    let courses = stacks.filter_map(|(stack, _)| heap.course(HeapKey { kind, stack: *stack }));
    let courses: Vec<&[(Nanos, u64)]> = courses.collect();
    let mut steps: Vec<(Nanos, usize, u64)> = Vec::new();
    for (number, course) in courses.iter().enumerate() {
        steps.extend(course.iter().map(|(at, live)| (*at, number, *live)));
    }
    steps.sort_unstable();
    let mut now = vec![0_u64; courses.len()];
    let mut sum = 0_u64;
    let add = |(at, number, live): (Nanos, usize, u64)| {
        sum = sum.saturating_sub(now[number]).saturating_add(live);
        now[number] = live;
        (at, sum)
    };
    steps.into_iter().map(add).collect()
}

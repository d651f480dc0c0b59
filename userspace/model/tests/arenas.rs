//! Arenas that cannot be freed, and the line where what keeps them was born.

use pyobs_model::findings::{self, Cost, Evidence, Finding, Severity, Target};
use pyobs_model::*;

const POOLS: u32 = 64;

/// A number of arenas of 1 MiB, born at one line.
struct Born {
    count: u32,
    /// `None` if the birth was not seen.
    line: Option<u32>,
    /// Pools in use.
    used: u32,
    died: bool,
}

fn model(all: &[Born]) -> Model {
    let probes = vec!["arena".to_owned()];
    let meta = Meta { rate_hz: 99, probes, ..Meta::default() };
    let mut model = Model::new(meta, History::All);
    let process = Process { pid: Pid(7), ppid: Pid(1), command: "python".into(), python: None, started: None };
    model.apply(&Event::Process { id: ProcessRef(0), process });
    let mut next = 0_u32;
    for (born, id) in all.iter().zip(0..) {
        if let Some(line) = born.line {
            let function = format!("line_{line}").into();
            let frame = Frame::python(function, "/app/main.py".into(), Some(line), Some(1));
            model.apply(&Event::Frame { id: FrameId(id), frame });
            model.apply(&Event::Stack { id: StackId(id), frames: [FrameId(id)].into() });
        }
        for _ in 0..born.count {
            let (process, kind, address) = (ProcessRef(0), "pymalloc".into(), u64::from(next + 1) << 20);
            let is_seen = born.line.is_some();
            let arena = Arena { process, kind, address, bytes: 1 << 20, born: is_seen, parent: None };
            let filled = Filled { slabs: POOLS, used: born.used, bytes: u64::from(born.used) << 10 };
            let birth = born.line.map(|_| ArenaChange::Born(StackId(id)));
            let changes = [Some(ArenaChange::Begun(arena)), birth, Some(ArenaChange::Filled(filled))];
            for change in changes.into_iter().flatten().chain(born.died.then_some(ArenaChange::Died)) {
                model.apply(&Event::Arena { at: Nanos(u64::from(next)), id: ArenaId(next), change });
            }
            next += 1;
        }
    }
    model
}

fn born(count: u32, line: u32, used: u32) -> Born {
    Born { count, line: Some(line), used, died: false }
}

fn found(all: &[Born]) -> Vec<Finding> {
    let found = findings::find(&model(all), &Selection::default());
    found.into_iter().filter(|finding| finding.id == "arena/sparse").collect()
}

#[test]
fn the_finding_names_the_line_with_the_most_arenas() {
    let there = Born { count: 25, line: None, used: 1, died: false };
    let gone = Born { count: 50, line: Some(9), used: 1, died: true };
    let [finding] = &found(&[born(4, 3, 2), born(20, 5, 2), gone, there])[..] else { panic!() };
    // Arenas from before the recording have no line, and freed arenas keep nothing.
    assert_eq!(finding.evidence["line"], Evidence::Text("line_5 (/app/main.py:5)".to_owned()));
    assert_eq!(finding.target, Some(Target::Arenas(Some(FrameId(1)))));
    // 24 arenas with 2 pools in use, and 25 with one.
    let numbers = ["arenas", "bytes", "pools", "pools_used"].map(|name| finding.evidence[name].clone());
    assert_eq!(numbers, [49, 49 << 20, 49 * 64, 73].map(Evidence::Count));
    assert_eq!(finding.cost, Cost::bytes((49 << 20) - (73 << 10)));
    assert!(finding.detail.contains("20 of them were born at line_5 (/app/main.py:5)"), "{}", finding.detail);
    assert_eq!(finding.severity, Severity::Info);
}

#[test]
fn arenas_in_use_or_few_are_no_finding() {
    let quarter = POOLS / 4;
    assert_eq!(found(&[born(20, 3, quarter)]).len(), 1);
    assert_eq!(found(&[born(20, 3, quarter + 1)]), []);
    assert_eq!(found(&[born(16, 3, 1)]).len(), 1);
    assert_eq!(found(&[born(15, 3, 1)]), []);
    // Arenas that are full elsewhere count too.
    assert_eq!(found(&[born(20, 3, 1), born(20, 5, POOLS)]), []);
    assert_eq!(found(&[born(256, 3, 1)]).first().unwrap().severity, Severity::Warning);
}

//! Tests waste that takes a few percent of a program's time, hidden among useful work. The program's source marks the
//! wasteful line.

use pyobs_tests::{Case, Recording, case, needs, workload};

use super::{DEAD, DISPATCH, RECOMPUTED, lines, numpy, record};

pub fn cases() -> Vec<Case> {
    let kinds = [
        ("slice", DISPATCH),
        ("repeat", RECOMPUTED),
        ("algorithm", DISPATCH),
        ("api", DISPATCH),
        ("memo", RECOMPUTED),
        ("dead", DEAD),
    ];
    let wastes = kinds.map(|(kind, id)| {
        hidden(&format!("{kind}_among_decoys_is_in_the_first_two"), move || {
            let (marked, recording) = run(kind, 60);
            let found = lines(&recording, id);
            let place = found.iter().position(|line| *line == marked);
            assert!(place.is_some_and(|place| place < 2), "line {marked} is not in the first two of {found:?}");
            for id in [RECOMPUTED, DEAD] {
                let others: Vec<u64> = lines(&recording, id).into_iter().filter(|line| *line != marked).collect();
                assert!(others.is_empty(), "{id} at {others:?}, which do not waste");
            }
        })
    });
    let decoys = hidden("decoys_alone_waste_nothing_in_twenty_minutes", || {
        for _ in 0..5 {
            let (_, recording) = run("none", 240);
            for id in [RECOMPUTED, DEAD] {
                assert_eq!(lines(&recording, id), [0u64; 0], "{id}");
            }
        }
    });
    wastes.into_iter().chain([decoys]).collect()
}

fn hidden(name: &str, body: impl Fn() + Send + 'static) -> Case {
    case(name, body).needs(needs::root()).needs(numpy("3.12")).needs(needs::all())
}

/// The marked line, and the recording.
fn run(kind: &str, seconds: u32) -> (u64, Recording) {
    let mut program = pyobs_tests::command(numpy("3.12").unwrap());
    program.arg("-B").arg(workload("redundancy_hidden.py")).arg(kind).arg(seconds.to_string());
    let recording = record().command(program).run();
    (recording.stdout.trim().parse().unwrap(), recording)
}

//! The kinds of frames look different in the flame graph.

use std::collections::HashSet;

use pyobs_model::{Event, FrameKind, Outcome, ProcessRef};
use ratatui::buffer::Cell;
use ratatui::style::{Color as Ink, Modifier};

use super::{Bench, synthetic};
use crate::{Batch, Color, Source};

const KINDS: [FrameKind; 3] = [FrameKind::Python, FrameKind::Native, FrameKind::Kernel];
/// Functions per kind: more than there are shades.
const FUNCTIONS: u32 = 6;

fn name(kind: FrameKind, number: u32) -> String {
    format!("{}{number}", ["py", "na", "ke"][KINDS.iter().position(|other| *other == kind).unwrap()])
}

/// Functions of all kinds side by side.
fn events() -> Vec<Event> {
    let all = KINDS.into_iter().flat_map(|kind| (0..FUNCTIONS).map(move |number| (kind, name(kind, number))));
    let frames: Vec<_> = all
        .map(|(kind, name)| match kind {
            FrameKind::Python => synthetic::python(&name, "a.py", 1),
            kind => synthetic::compiled(kind, &name, "a.so"),
        })
        .collect();
    let stacks: Vec<[u32; 1]> = (0..frames.len() as u32).map(|frame| [frame]).collect();
    let stacks: Vec<&[u32]> = stacks.iter().map(|stack| &stack[..]).collect();
    let mut events = synthetic::define(&frames, &stacks);
    events.push(Event::Process { id: ProcessRef(0), process: synthetic::process(7, Some("3.12.1"), "python3") });
    let samples = (0..frames.len() as u32 * 10)
        .map(|number| synthetic::sample(u64::from(number), 0, 7, number % frames.len() as u32, Outcome::Complete));
    events.extend(samples);
    events
}

/// The looks of the flame graph's boxes of each kind.
fn looks<T: Eq + std::hash::Hash>(color: Color, look: fn(&Cell) -> T) -> [HashSet<T>; 3] {
    let mut bench = Bench::with_color(synthetic::model(), Source::Live, (160, 20), color);
    bench.send(Batch::Events(events()));
    bench.keys("3");
    let picture = bench.picture();
    let buffer = bench.terminal.backend().buffer();
    KINDS.map(|kind| {
        let cells = (0..FUNCTIONS).map(|number| {
            let name = name(kind, number);
            let row =
                picture.lines().position(|line| line.contains(&name)).unwrap_or_else(|| panic!("{name}\n{picture}"));
            let line = picture.lines().nth(row).unwrap().trim_start_matches('"');
            let column = line[..line.find(&name).unwrap()].chars().count();
            &buffer[(column as u16, row as u16)]
        });
        cells.map(look).collect()
    })
}

#[track_caller]
fn are_apart<T: Eq + std::hash::Hash + std::fmt::Debug>(looks: &[HashSet<T>; 3]) {
    let [python, native, kernel] = looks;
    let apart = python.is_disjoint(native) && python.is_disjoint(kernel) && native.is_disjoint(kernel);
    assert!(apart, "{looks:?}");
}

#[test]
fn each_kind_has_its_own_colours_in_a_flame_graph() {
    for color in [Color::Rich, Color::Basic] {
        let colours = looks(color, |cell| cell.bg);
        are_apart(&colours);
        assert!(colours.iter().flatten().all(|colour| *colour != Ink::Reset), "{colours:?}");
    }
    // Neighbours of one kind differ as well.
    let shades = looks(Color::Rich, |cell| cell.bg);
    assert!(shades.iter().all(|shades| shades.len() > 1), "{shades:?}");
}

#[test]
fn without_colours_the_kinds_differ_by_text_style() {
    let styles: [HashSet<Modifier>; 3] =
        looks(Color::Off, |cell| cell.modifier & (Modifier::ITALIC | Modifier::UNDERLINED | Modifier::REVERSED));
    are_apart(&styles);
}

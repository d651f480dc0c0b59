//! Figures that rest on sampled stacks.

use pyobs_model::{Event, Family, Sleep, WaitReason};

use super::{Bench, synthetic};
use crate::input::Key;
use crate::{Batch, Source};

#[test]
fn a_wait_says_how_many_stacks_it_rests_on() {
    for (stacks, row, detail) in [
        (11, "too few", "not enough data: 11 stacks of 400 waits"),
        (12, "12.0 ms", "12 sampled stacks, ± 28.9 %"),
        (400, "12.0 ms", "400, 30.0 µs on average"),
    ] {
        let mut bench = Bench::new(synthetic::model_of(&Family::ALL), Source::Live, (140, 30));
        let sleep = synthetic::sleep(9_000, 0, 4242, 0, WaitReason::Io);
        let mut events = synthetic::events();
        events.push(Event::Sleep(Sleep { count: 400, stacks, ..sleep }));
        bench.send(Batch::Events(events));
        let picture = bench.keys("4").picture();
        assert!(picture.contains(row), "{stacks}: {picture}");
        bench.press(Key::Enter);
        let picture = bench.picture();
        assert!(picture.contains(detail), "{stacks}: {picture}");
    }
}

//! Rows as CSV, and the last minutes as a recording.

use pyobs_model::{Event, Sample};

use super::{Bench, EVERYWHERE, LARGE, USUAL, synthetic};
use crate::{Batch, Saved};

/// What the test's writer was given: the note has its debug output.
fn saved(bench: &Bench) -> String {
    bench.app.ui.notes.back().cloned().unwrap_or_default()
}

#[test]
fn every_table_has_as_many_cells_in_each_row_as_names() {
    let mut tables = 0;
    for (keys, size) in EVERYWHERE.iter().flat_map(|keys| [(keys, USUAL), (keys, LARGE)]) {
        let mut bench = Bench::watching(size);
        bench.keys(keys).draw();
        let app = &bench.app;
        let Some(cells) = app.navigation.current().cells(&app.model, &app.ui) else { continue };
        let (names, rows) = cells.split_first().unwrap();
        assert!(names.len() > 3, "{keys}: {names:?}");
        for row in rows {
            assert_eq!(row.len(), names.len(), "{keys}: {names:?}\n{row:?}");
        }
        tables += usize::from(!rows.is_empty());
    }
    assert!(tables > 20, "{tables}");
}

#[test]
fn rows_are_written_whole_and_as_they_are_sorted_and_filtered() {
    let mut bench = Bench::watching(USUAL);
    bench.keys("1/python3\nx");
    let Saved::Rows { of, csv } = rows(&bench) else { panic!() };
    assert_eq!(of, "Processes");
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "PID,PYTHON,CPU %,SAMPLES,THR,RSS,USER,CONTAINER,COMMAND");
    assert_eq!(lines[1], "4242,3.12.1,75.8,750,3,100 MiB,train,trainer,python3 -m train --epochs 40");
    assert!(saved(&bench).starts_with("Rows { of: \"Processes\""));
    assert!(bench.keys("\u{1b}3x").picture().contains("Flame shows no table now"));
}

/// The rows of the current screen, as the key writes them.
fn rows(bench: &Bench) -> Saved {
    let screen = bench.app.navigation.current();
    let cells = screen.cells(&bench.app.model, &bench.app.ui).unwrap();
    Saved::Rows { of: screen.about().title, csv: crate::csv::lines(cells) }
}

#[test]
fn a_live_capture_can_be_written_and_a_replay_is_a_recording_already() {
    let mut bench = Bench::live(USUAL);
    bench.keys("R");
    let text = saved(&bench);
    let is_sample = |event: &&Event| matches!(event, Event::Sample(Sample { .. }));
    let samples = synthetic::events().iter().filter(is_sample).count();
    assert!(text.starts_with("Flight(FlightRecording { events: [Frame"), "{}", &text[..80]);
    assert_eq!(text.matches("Sample(Sample {").count(), samples);
    bench.send(Batch::Note("another".to_owned()));
    let mut replay = Bench::replay(USUAL);
    assert!(replay.keys("R").picture().contains("this is a recording already"));
}

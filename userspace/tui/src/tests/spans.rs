//! A span of time restricts the screens that cover a time range. The others say that they do not follow it.

use std::time::Duration;

use pyobs_model::{Family, Nanos};

use super::{Bench, states, synthetic};
use crate::app::Msg;
use crate::{Batch, Source};

const SECOND: u64 = 1_000_000_000;

/// Events of all families in the first ten seconds, then none, seen through a span in seconds.
fn spanned(from: u64, to: u64) -> Bench {
    let mut bench = Bench::new(synthetic::model_of(&Family::ALL), Source::Live, (140, 40));
    bench.send(Batch::Events(states::events()));
    bench.now = Duration::from_secs(30);
    bench.msg(Msg::Tick);
    bench.app.ui.span = Some((Nanos(from * SECOND), Nanos(to * SECOND)));
    bench
}

fn ids(bench: &Bench) -> Vec<&'static str> {
    let mut ids: Vec<_> = bench.app.ui.board.entries().map(|entry| entry.finding.id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

#[test]
fn a_span_without_events_has_no_rows_of_them() {
    for (keys, what) in [
        ("2", "No samples"),
        ("2m", "No sleeps"),
        ("2mm", "No waits for the GIL"),
        ("2mmm", "No accesses"),
        ("2c", "No calls"),
        ("3", "No samples"),
        ("4", "No sleeps"),
        ("4m", "No waits for the GIL"),
        ("7m", "No transfers"),
        ("8", "No accesses"),
    ] {
        let picture = spanned(15, 20).keys(keys).picture();
        assert!(picture.contains(&format!("{what} from 15.000 s to 20.000 s")), "{keys}: {picture}");
        assert!(!spanned(0, 10).keys(keys).picture().contains("No "), "{keys}");
    }
    let mut bench = spanned(15, 20);
    bench.keys("1").draw();
    let rows = bench.picture();
    let rows: Vec<_> = rows.lines().filter(|line| line.contains("python")).collect();
    assert!(rows.len() > 2 && rows.iter().all(|row| row.contains("  0.0 ")), "{rows:#?}");
    // The transfer without an end is still pending.
    assert_eq!(spanned(15, 20).keys("7").picture().matches("tag_").count(), 1);
    assert!(spanned(0, 10).keys("7").picture().matches("tag_").count() > 1);
}

#[test]
fn a_span_shows_the_memory_at_its_end() {
    let segments = |from, to| spanned(from, to).keys("6m").picture();
    let line = |picture: &str, name: &str| picture.lines().find(|line| line.contains(name)).map(str::to_owned);
    let (early, late) = (segments(3, 4), segments(15, 20));
    for (picture, name, verdict) in [
        (&early, "arrow-buffer", Some("held")),
        (&late, "arrow-buffer", None),
        (&early, "psm_", Some("held")),
        (&late, "psm_", Some("residue")),
        (&early, "cache.db", None),
        (&late, "cache.db", Some("held")),
    ] {
        let line = line(picture, name);
        assert_eq!(line.is_some(), verdict.is_some(), "{name}: {picture}");
        assert!(line.is_none_or(|line| verdict.is_none_or(|verdict| line.contains(verdict))), "{name}: {picture}");
    }
    // Of 41 arenas, every tenth dies at 5 s. One more arena stays alive.
    let arenas = |from, to| {
        let mut bench = spanned(from, to);
        let picture = bench.keys("6mm").picture();
        let of_line =
            |line: &str| line.contains("pymalloc").then(|| line.split_whitespace().nth(3)?.parse::<u64>().ok());
        picture.lines().filter_map(of_line).flatten().sum::<u64>()
    };
    assert_eq!((arenas(3, 4), arenas(15, 20)), (42, 38));
}

#[test]
fn a_span_without_events_has_only_findings_about_what_still_exists() {
    let mut bench = spanned(15, 20);
    bench.keys("0").draw();
    assert_eq!(ids(&bench), ["shm/residue"]);
    let mut bench = spanned(0, 10);
    bench.keys("0").draw();
    let all = ids(&bench);
    assert!(["gil/", "redundancy/", "ucx/"].iter().all(|kind| all.iter().any(|id| id.starts_with(kind))), "{all:?}");
}

#[test]
fn screens_of_all_time_say_so() {
    for keys in ["5", "6", "6mmm", "6mmmm"] {
        let picture = spanned(15, 20).keys(keys).picture();
        assert!(picture.contains("of all time") && !picture.contains("15.00–20.00 s"), "{keys}: {picture}");
    }
    for keys in ["0", "1", "2", "3", "4", "6m", "6mm", "7", "7m", "8", "9"] {
        let picture = spanned(15, 20).keys(keys).picture();
        assert!(!picture.contains("of all time") && picture.contains("15.00–20.00 s"), "{keys}: {picture}");
    }
}

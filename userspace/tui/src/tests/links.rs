//! From detail to detail along what they name, and back.

use std::collections::BTreeSet;

use insta::assert_snapshot;

use super::{Bench, transfers};

const SIZE: (u16, u16) = (140, 40);

/// Without the numbers that stand in the header.
fn body(bench: &mut Bench) -> Vec<String> {
    bench.picture().lines().skip(1).map(str::to_owned).collect()
}

/// The line of the header that has the breadcrumb.
fn crumbs(bench: &mut Bench) -> String {
    let picture = bench.picture();
    let line = picture.lines().next().unwrap_or_default().trim_matches('"').trim();
    line.strip_prefix("pyobs · ").unwrap_or(line).split(" · ").next().unwrap_or_default().to_owned()
}

/// Follows each link of the detail in sight in turn, and comes back.
#[track_caller]
fn follow_all(bench: &mut Bench, least: usize) -> Vec<String> {
    let mut led = Vec::new();
    let mut places = BTreeSet::new();
    for nth in 0..24 {
        let before = body(bench);
        bench.keys("\n");
        let there = body(bench);
        if there != before {
            led.push(crumbs(bench));
            places.insert(there);
            bench.keys("\u{1b}");
            assert_eq!(body(bench), before, "back from link {nth}");
        }
        bench.keys("↓");
    }
    assert!(places.len() >= least, "{led:#?}");
    led
}

#[test]
fn every_link_of_a_wait_leads_there_and_back() {
    let mut bench = Bench::waiting(SIZE);
    bench.keys("4m\n");
    let led = follow_all(&mut bench, 6);
    assert!(led[0].ends_with("Waits › A wait › thread › Frames"), "{led:#?}");
    assert!(led[1].ends_with("Waits › A wait › frame › Frames › A frame"), "{led:#?}");
}

#[test]
fn every_link_of_a_segment_leads_there_and_back() {
    let mut bench = Bench::sharing(SIZE);
    bench.keys("6\n");
    let led = follow_all(&mut bench, 4);
    assert!(led[0].ends_with("Memory › A segment, or arenas › process › Frames"), "{led:#?}");
}

#[test]
fn every_link_of_arenas_leads_there_and_back() {
    let mut bench = Bench::sharing(SIZE);
    bench.keys("6m\n");
    follow_all(&mut bench, 3);
}

#[test]
fn every_link_of_a_line_leads_there_and_back() {
    let mut bench = Bench::dispatching(SIZE);
    bench.keys("8\n");
    follow_all(&mut bench, 3);
}

#[test]
fn a_transfer_leads_to_what_its_buffer_lies_in() {
    let mut bench = transfers::bench(SIZE);
    bench.keys("7\n");
    let led = follow_all(&mut bench, 5);
    assert!(led.iter().any(|crumbs| crumbs.contains("buffer › Memory › A segment, or arenas")), "{led:#?}");
    assert!(led.iter().any(|crumbs| crumbs.contains("thread › Frames")), "{led:#?}");
}

#[test]
fn a_finding_leads_on_and_each_escape_is_one_step_back() {
    let mut bench = Bench::waiting(SIZE);
    bench.keys("w");
    let mut seen = vec![body(&mut bench)];
    // Its row, its detail, the frame that waits, and a caller of that.
    for keys in ["\n", "\n", "↓\n", "\n"] {
        bench.keys(keys.trim_end_matches('\n'));
        if keys.len() > 1 {
            seen.pop();
            seen.push(body(&mut bench));
        }
        bench.keys("\n");
        seen.push(body(&mut bench));
    }
    assert_snapshot!("a_way_of_four_steps", bench.picture());
    seen.pop();
    while let Some(before) = seen.pop() {
        bench.keys("\u{1b}");
        assert_eq!(body(&mut bench), before);
    }
}

#[test]
fn a_thread_that_was_gone_to_is_selected_until_one_goes_back() {
    let mut bench = Bench::waiting(SIZE);
    bench.keys("4m\n\n");
    assert!(bench.picture().contains("thread 4243 of"), "{}", bench.picture());
    assert!(!bench.keys("\u{1b}").picture().contains("thread 4243 of 4242 python3 -m train --epochs  "));
    bench.keys("\u{1b}");
    assert!(bench.app.ui.picked.is_none());
}

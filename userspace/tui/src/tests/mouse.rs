//! The mouse on whole screens. The tests look for texts in the picture to know where to click.

use std::time::Duration;

use super::Bench;
use crate::app::{Flow, Msg};
use crate::input::{MouseEvent, MouseEventKind};

const SIZE: (u16, u16) = (140, 40);

/// The cell in which a text begins.
#[track_caller]
fn find(bench: &mut Bench, text: &str) -> (u16, u16) {
    let picture = bench.picture();
    for (line, y) in picture.lines().zip(0..) {
        let line = line.trim_matches('"');
        if let Some(at) = line.find(text) {
            return (line[..at].chars().count() as u16, y);
        }
    }
    panic!("no {text} in\n{picture}");
}

fn press(bench: &mut Bench, (x, y): (u16, u16)) -> Flow {
    bench.draw();
    bench.msg(Msg::Mouse(MouseEvent { kind: MouseEventKind::Press, x, y }))
}

/// Clicks on a text, long enough after the last click to be no double click.
#[track_caller]
fn click(bench: &mut Bench, text: &str) -> String {
    let place = find(bench, text);
    bench.now += Duration::from_secs(1);
    assert_eq!(press(bench, place), Flow::GoOn);
    bench.picture()
}

fn wheel(bench: &mut Bench, kind: MouseEventKind) -> String {
    bench.draw();
    bench.msg(Msg::Mouse(MouseEvent { kind, x: 3, y: 3 }));
    bench.picture()
}

#[test]
fn a_click_on_a_tab_shows_its_screen() {
    let mut bench = Bench::waiting(SIZE);
    for (tab, there) in [("Frames", "OWN %"), ("Waits", "GIL HELD %"), ("Health", "PYTHON STACKS"), ("Over", "MACHINE")]
    {
        assert!(click(&mut bench, tab).contains(there), "{tab}");
    }
}

#[test]
fn a_click_selects_and_another_one_opens() {
    // A screen, a text in a row that is not the first, and a text that only the row's detail has.
    for (screen, row, detail) in [
        ("2", "cart.py:104", "CALLED BY"),
        ("4", "pthread_cond", "WAITED IN"),
        ("6m", "arrow-buffer", "HELD BY"),
        ("1", "gunicorn", "OWN %"),
    ] {
        let mut by_mouse = Bench::sharing(SIZE);
        by_mouse.keys(screen);
        let selected = click(&mut by_mouse, row);
        assert!(!selected.contains(detail), "{screen}: {selected}");
        let opened = click(&mut by_mouse, row);
        assert!(opened.contains(detail), "{screen}: {opened}");
        // The same with a double click, and with the keys.
        let mut double = Bench::sharing(SIZE);
        double.keys(screen);
        let place = find(&mut double, row);
        press(&mut double, place);
        press(&mut double, place);
        let body = |picture: &str| picture.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(body(&double.picture()), body(&opened), "{screen}");
    }
}

#[test]
fn the_second_click_of_a_double_click_is_ignored_if_the_first_one_opened_something() {
    let mut bench = Bench::live(SIZE);
    bench.keys("2");
    // The first row is already selected.
    let place = find(&mut bench, "Linear.forward");
    press(&mut bench, place);
    let opened = bench.picture();
    assert!(opened.contains("CALLED BY"), "{opened}");
    press(&mut bench, place);
    assert_eq!(bench.picture(), opened);
}

#[test]
fn the_breadcrumb_leads_back() {
    let mut bench = Bench::waiting(SIZE);
    bench.keys("w");
    let overview = bench.picture();
    bench.keys("\n\n");
    assert!(bench.picture().contains("Overview › gil/convoy › Waits › A wait"));
    let waits = click(&mut bench, "Waits › A wait");
    assert!(waits.contains("GIL HELD %") && !waits.contains("A wait"), "{waits}");
    assert_eq!(click(&mut bench, "Overview ›"), overview);
}

#[test]
fn hints_of_the_footer_are_buttons() {
    let mut bench = Bench::live(SIZE);
    bench.keys("2");
    assert!(click(&mut bench, "functions").contains("DEFINED AT"));
    assert!(click(&mut bench, "? help").contains(" Keys "));
    // A click anywhere closes the help.
    assert!(!click(&mut bench, "Frames").contains(" Keys "));
    let quit = find(&mut bench, "q quit");
    assert_eq!(press(&mut bench, quit), Flow::Quit);
}

#[test]
fn the_wheel_steps_through_lists_pages_and_the_help() {
    for keys in ["2", "4", "5", "6\n", "9", "2?", "3"] {
        let mut bench = Bench::sharing((80, 24));
        bench.keys(keys);
        let top = bench.picture();
        wheel(&mut bench, MouseEventKind::WheelDown);
        wheel(&mut bench, MouseEventKind::WheelDown);
        wheel(&mut bench, MouseEventKind::WheelUp);
        wheel(&mut bench, MouseEventKind::WheelUp);
        let again = wheel(&mut bench, MouseEventKind::WheelUp);
        assert_eq!(again, top, "{keys}");
    }
}

#[test]
fn a_click_on_a_box_selects_it_and_another_one_zooms() {
    let mut bench = Bench::live(SIZE);
    bench.keys("3");
    let selected = click(&mut bench, "normalize:31");
    assert!(selected.lines().rev().nth(2).is_some_and(|line| line.contains("normalize")), "{selected}");
    assert!(click(&mut bench, "normalize:31").contains("of the zoomed box"));
}

#[test]
fn a_click_in_a_lane_moves_the_cursor_there() {
    let mut bench = Bench::sharing(SIZE);
    bench.keys("9");
    bench.draw();
    bench.now += Duration::from_secs(1);
    press(&mut bench, (60, 4));
    let picked = bench.picture();
    bench.keys("←");
    let left = bench.picture();
    assert_ne!(picked, left);
    assert_eq!(bench.keys("→").picture(), picked);
}

#[test]
fn clicks_anywhere_at_any_size_do_no_harm() {
    for keys in [
        "0", "1t", "2", "2\n", "2c", "3", "4", "4\n", "5", "6", "6m", "6m\n", "6mm", "6mmmm", "7", "7m", "8", "8\n",
        "9", "2?", "2/x",
    ] {
        for size in [(30, 6), (90, 30)] {
            let mut bench = Bench::sharing(size);
            for (x, y) in (0..size.0).step_by(23).flat_map(|x| (0..size.1).step_by(4).map(move |y| (x, y))) {
                bench.keys("\u{1b}\u{1b}\u{1b}").keys(keys);
                press(&mut bench, (x, y));
                bench.draw();
                press(&mut bench, (x, y));
            }
            bench.draw();
            bench.resize(10, 10);
            press(&mut bench, (60, 5));
        }
    }
}

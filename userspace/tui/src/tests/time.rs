//! When the dashboard computes and draws, and the model's clock.

use std::time::Duration;

use pyobs_model::{Event, Nanos, Outcome, WaitReason};

use super::{Bench, synthetic};
use crate::app::{Flow, Msg};
use crate::input::Key;
use crate::{Batch, Source};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn pictures_are_at_least_100_ms_apart() {
    let mut bench = Bench::live((80, 24));
    assert!(bench.app.wants_picture(ms(0)));
    bench.app.prepare(ms(0));
    assert!(!bench.app.wants_picture(ms(500)), "nothing has changed");
    bench.now = ms(400);
    bench.press(Key::Char('2'));
    bench.app.prepare(ms(400));
    bench.press(Key::Char('3'));
    assert!(!bench.app.wants_picture(ms(499)));
    assert_eq!(bench.app.deadline(), Some(ms(500)));
    assert!(bench.app.wants_picture(ms(500)));
}

#[test]
fn events_are_shown_half_a_second_after_the_last_computation() {
    let mut bench = Bench::live((80, 24));
    bench.app.prepare(ms(0));
    bench.now = ms(100);
    bench.send(Batch::Events(vec![synthetic::sample(10_001, 0, 4242, 0, Outcome::Complete)]));
    assert!(!bench.app.wants_picture(ms(499)));
    assert_eq!(bench.app.deadline(), Some(ms(500)));
    assert!(bench.app.wants_picture(ms(500)));
}

#[test]
fn a_replay_sleeps_until_a_key_comes() {
    let mut bench = Bench::replay((80, 24));
    bench.app.prepare(ms(0));
    assert_eq!(bench.app.deadline(), None);
}

#[test]
fn a_live_window_moves_on_without_events() {
    let mut bench = Bench::live((80, 24));
    assert!(bench.keys("2").picture().contains("Linear.forward"));
    bench.now = Duration::from_secs(15);
    bench.msg(Msg::Tick);
    bench.now = Duration::from_secs(21);
    bench.msg(Msg::Tick);
    assert_eq!(bench.app.model.now().as_secs_f64().round(), 31.0);
    assert!(bench.picture().contains("No samples in the last 10 s"));
}

#[test]
fn a_capture_without_new_events_lags_until_they_come() {
    let mut bench = Bench::live((80, 24));
    let mut header = |seconds: u64, events: Option<Vec<Event>>| {
        bench.now = Duration::from_secs(seconds);
        if let Some(events) = events {
            bench.send(Batch::Events(events));
        }
        bench.msg(Msg::Tick);
        bench.picture().lines().next().unwrap().trim_matches('"').trim().to_owned()
    };
    // The events end at 10 s.
    assert!(header(2, None).ends_with("LIVE"));
    assert!(header(3, None).ends_with("LAGGING 3 s"));
    // Old events do not end the lag.
    let old = vec![synthetic::sample(11_000, 0, 4242, 0, Outcome::Complete)];
    assert!(header(8, Some(old)).ends_with("LAGGING 7 s"));
    let new = vec![synthetic::sample(18_500, 0, 4242, 0, Outcome::Complete)];
    assert!(header(9, Some(new)).ends_with("LIVE"));
    bench.now = Duration::from_secs(20);
    bench.msg(Msg::Tick);
    assert!(bench.picture().contains("LAGGING 11 s"));
    assert!(!bench.keys(" ").picture().contains("LAGGING"), "{}", bench.picture());
    bench.msg(Msg::Ended);
    assert!(!bench.picture().contains("LAGGING"));
}

#[test]
fn the_last_picture_of_a_capture_stays() {
    let mut bench = Bench::live((80, 24));
    bench.msg(Msg::Ended);
    bench.now = Duration::from_secs(100);
    bench.msg(Msg::Tick);
    assert!(bench.keys("2").picture().contains("Linear.forward"));
}

#[test]
fn a_pause_freezes_the_rows_but_not_the_count() {
    let mut bench = Bench::live((80, 24));
    let before = bench.keys("2 ").picture();
    bench.now = Duration::from_secs(3);
    let late = (0..500).map(|n| synthetic::sample(11_000 + n, 1, 918, 3, Outcome::Complete)).collect();
    bench.send(Batch::Events(late));
    // Changing the order, the look and the screen computes the views again, but for the frozen time.
    let after = bench.keys("toll32").picture();
    let rows = |picture: &str| picture.lines().skip(2).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rows(&before), rows(&after));
    assert!(after.contains("1,500 samples"), "{after}");
    assert!(bench.keys(" ").picture().contains("Cart.total"), "{after}");
    assert_ne!(rows(&before), rows(&bench.picture()));
}

#[test]
fn a_pause_freezes_waits() {
    for keys in ["4 ", "4 m", "2 m", "3 m", "2 c"] {
        let mut bench = Bench::waiting((80, 24));
        let before = bench.keys(keys).picture();
        bench.now = Duration::from_secs(3);
        let late = |n: u64| {
            let sleep = synthetic::sleep(11_000 + n, 0, 4243, 7, WaitReason::Io);
            let gil = synthetic::gil_wait(11_000 + n, 4243, 8, Some((4242, 0)));
            let calls = synthetic::calls(12_000, 0, 5, 9, 9, 1000);
            [Event::Sleep(sleep), Event::GilWait(gil), calls]
        };
        bench.send(Batch::Events((0..500).flat_map(late).collect()));
        let after = bench.keys("ll14".replace('4', &keys[..1]).as_str()).picture();
        let rows = |picture: &str| picture.lines().skip(2).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(rows(&before), rows(&after), "{keys}");
    }
}

#[test]
fn events_ahead_of_the_clock_adjust_it() {
    let mut bench = Bench::new(synthetic::model(), Source::Live, (80, 24));
    bench.now = Duration::from_secs(5);
    bench.send(Batch::Events(vec![]));
    bench.msg(Msg::Tick);
    assert_eq!(bench.app.model.now(), Nanos(0), "no event had a time yet");
    bench.send(Batch::Events(synthetic::events()));
    bench.now = Duration::from_secs(7);
    bench.msg(Msg::Tick);
    assert_eq!(bench.app.model.now(), Nanos(12_000_000_000));
}

#[test]
fn q_and_control_c_quit() {
    for key in [Key::Char('q'), Key::Ctrl('c')] {
        assert_eq!(Bench::live((80, 24)).press(key), Flow::Quit);
    }
    let mut typing = Bench::live((80, 24));
    typing.keys("2/");
    assert_eq!(typing.press(Key::Char('q')), Flow::GoOn);
    assert_eq!(typing.press(Key::Ctrl('c')), Flow::Quit);
}

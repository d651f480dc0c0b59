//! Replays: the picture at a time shows what had happened until then.

use std::time::Duration;

use insta::assert_snapshot;
use pyobs_model::{Event, Family, History, Model, Nanos, Selection, views};

use super::{Bench, LARGE, USUAL, synthetic};
use crate::app::Msg;
use crate::replay_log::{Motion, Player, Position};
use crate::{Batch, ReplayLog, Source};

const SIZE: (u16, u16) = (100, 30);
const SECOND: u64 = 1_000_000_000;

pub(super) fn meta() -> pyobs_model::Meta {
    let probes = Family::names();
    pyobs_model::Meta { probes, ..synthetic::meta() }
}

fn sharing() -> Bench {
    Bench::replaying(synthetic::log(meta(), synthetic::sharing()), SIZE)
}

/// The model of the events until a time, built without a log.
fn until(at: Nanos) -> Model {
    let mut model = Model::new(meta(), History::All);
    let mut events = synthetic::sharing();
    events.sort_by_key(Event::at);
    events.iter().filter(|event| event.at().is_none_or(|of| of <= at)).for_each(|event| model.apply(event));
    model.advance(at);
    model
}

fn facts(model: &Model) -> String {
    let all = Selection::default();
    let segments = model.shm().segments().map(|(id, state)| (id, state.verdict().name(), state.holders.len()));
    let ended = model.processes().map(|(_, state)| state.ended);
    format!(
        "{:?} {} {:?} {:?} {:?} {:?} {} {:?}",
        model.now(),
        model.cpu().total(),
        views::frames(model, &all, views::Look { group: views::Group::Process, ..views::Look::default() }),
        segments.collect::<Vec<_>>(),
        views::arenas(model, &all),
        ended.collect::<Vec<_>>(),
        model.loss().total(),
        model.cost().at
    )
}

fn step(bench: &mut Bench, passed: Duration) {
    bench.now += passed;
    bench.msg(Msg::Tick);
}

fn position(bench: &Bench) -> Position {
    bench.app.ui.position.unwrap()
}

#[test]
fn a_seek_gives_the_model_as_of_that_time() {
    let (mut player, mut model) = Player::new(synthetic::log(meta(), synthetic::sharing()));
    for ms in [9_990, 5_000, 5_000, 1, 0, 4_000, 9_000, 8_999, 20_000, 3_333] {
        player.seek(Nanos(ms * 1_000_000));
        let at = player.position().at;
        while player.is_behind() {
            player.work(&mut model, Duration::ZERO);
        }
        assert_eq!(facts(&model), facts(&until(at)), "{ms} ms");
    }
}

#[test]
fn a_long_seek_works_in_slices_and_can_be_redirected() {
    let mut log = synthetic::events();
    log.retain(|event| event.at().is_none());
    for n in 0..20_000 {
        log.push(Event::Sample(match synthetic::sample(n, 0, 4242, 0, pyobs_model::Outcome::Complete) {
            Event::Sample(sample) => sample,
            other => panic!("{other:?}"),
        }));
    }
    let (mut player, mut model) = Player::new(ReplayLog::of_events(meta(), log));
    let mut told = Vec::new();
    while let Motion::Seeking(percent) = player.position().motion {
        told.push(percent);
        player.work(&mut model, Duration::ZERO);
    }
    assert!(told.len() > 5 && told.is_sorted() && told[0] == 0, "{told:?}");
    assert_eq!(model.cpu().total(), 20_000);
    // Redirect a seek half-way: the last target counts.
    player.seek(Nanos(15_000_000_000));
    player.work(&mut model, Duration::ZERO);
    assert!(player.is_behind());
    player.seek(Nanos(1_000_000_000));
    while player.is_behind() {
        player.work(&mut model, Duration::ZERO);
    }
    assert_eq!((model.cpu().total(), model.now()), (1_001, Nanos(1_000_000_000)));
}

#[test]
fn keys_seek_any_time() {
    let mut bench = sharing();
    let at = |bench: &Bench| position(bench).at.0;
    let end = at(&bench);
    assert!(position(&bench).is_at_end());
    assert_eq!(at(bench.keys(",")), end - SECOND);
    assert_eq!(at(bench.keys(".")), end);
    assert_eq!(at(bench.keys(",,,,<")), 0, "ten seconds are more than the rest");
    assert_eq!(at(bench.keys(".")), SECOND);
    assert_eq!(at(bench.keys(">")), end);
    assert_eq!(at(bench.keys("{")), 0);
    assert_eq!(bench.app.model.cpu().total(), 1, "the first sample is at time 0");
    assert_eq!(at(bench.keys("}")), end);
    let there = bench.keys("9←←←←t").app.model.now().0;
    assert!(there < end && there == at(&bench), "{there}");
}

#[test]
fn playback_has_the_chosen_speed_and_stops_at_the_end() {
    let mut bench = sharing();
    bench.keys("{ ");
    let begun = position(&bench).at.0;
    step(&mut bench, Duration::from_secs(1));
    assert_eq!((position(&bench).at.0 - begun, position(&bench).motion), (SECOND, Motion::Playing));
    for (key, quarters) in [("]", 8), ("]", 16), ("[", 8), ("[", 4), ("[", 2), ("[", 1), ("[", 1)] {
        bench.keys(key);
        let before = position(&bench).at.0;
        step(&mut bench, Duration::from_millis(100));
        assert_eq!(position(&bench).at.0 - before, SECOND / 10 * quarters / 4, "{key}");
    }
    bench.keys(" ");
    let stopped = position(&bench).at;
    step(&mut bench, Duration::from_secs(1));
    assert_eq!((position(&bench).at, position(&bench).motion), (stopped, Motion::Stopped));
    bench.draw();
    assert_eq!(bench.app.deadline(), None, "a stopped replay needs no wake-up");
    bench.keys(" ]]]]]]");
    step(&mut bench, Duration::from_secs(1));
    assert!(position(&bench).is_at_end());
    assert_eq!(position(&bench).motion, Motion::Stopped);
    // At the end, playback starts from the beginning.
    bench.keys(" ");
    assert!(position(&bench).at.0 < SECOND, "{:?}", position(&bench));
}

#[test]
fn playback_draws_at_most_ten_times_a_second() {
    let mut bench = sharing();
    bench.keys("{ ").draw();
    assert!(!bench.app.wants_picture(bench.now + Duration::from_millis(99)));
    assert_eq!(bench.app.deadline(), Some(bench.now + Duration::from_millis(100)));
    step(&mut bench, Duration::from_millis(100));
    assert!(bench.app.wants_picture(bench.now));
}

#[test]
fn a_seek_keeps_the_span() {
    let mut bench = sharing();
    bench.keys("9←←←v←←←←v2");
    let spanned = bench.picture();
    let rows = |picture: &str| picture.lines().skip(2).map(str::to_owned).collect::<Vec<_>>();
    assert!(bench.keys("{").picture().contains("No samples"));
    assert_eq!(rows(&bench.keys("}").picture()), rows(&spanned));
}

#[test]
fn a_process_appears_when_it_starts() {
    let mut events = synthetic::events();
    for event in &mut events {
        if let Event::Process { id, process } = event {
            process.started = (id.0 == 2).then_some(Nanos(6 * SECOND));
        }
    }
    let mut bench = Bench::replaying(synthetic::log(meta(), events), SIZE);
    assert!(bench.keys("1").picture().contains("idle.py"));
    assert!(!bench.keys("{.....").picture().contains("idle.py"));
    assert!(bench.keys(".").picture().contains("idle.py"));
}

#[test]
fn a_live_capture_ignores_the_keys_of_a_replay() {
    let mut bench = Bench::live(SIZE);
    let before = bench.keys("2").picture();
    assert_eq!(bench.keys(",.<>{}[]").picture(), before);
    assert!(Bench::new(synthetic::model(), Source::Live, SIZE).app.ui.position.is_none());
    bench.send(Batch::Events(Vec::new()));
}

#[test]
fn pictures() {
    for size in [USUAL, LARGE] {
        let shown =
            |keys: &str| Bench::replaying(synthetic::log(meta(), synthetic::sharing()), size).keys(keys).picture();
        let name = |what: &str| format!("{what}_{}x{}", size.0, size.1);
        assert_snapshot!(name("stopped"), shown("{....6"));
        assert_snapshot!(name("playing"), shown("{....]] 4"));
        let mut seeking = sharing();
        seeking.resize(size.0, size.1);
        seeking.keys(",,");
        let now = position(&seeking);
        seeking.app.ui.position = Some(Position { motion: Motion::Seeking(43), ..now });
        assert_snapshot!(name("seeking"), seeking.picture());
        assert_snapshot!(name("help"), shown("?"));
    }
}

/// The log has two busy cores and 100 waits per second.
#[test]
fn a_seek_in_a_long_log_misses_no_events() {
    let mut log = synthetic::waiting();
    log.retain(|event| event.at().is_none());
    for ms in (0..300_000).step_by(10) {
        for thread in 0..2 {
            log.push(synthetic::sample(ms, 0, 4242 + thread, thread, pyobs_model::Outcome::Complete));
        }
        log.push(Event::Sleep(synthetic::sleep(ms, 0, 4243, 6, pyobs_model::WaitReason::Lock)));
    }
    let (mut player, mut model) = Player::new(ReplayLog::of_events(meta(), log));
    for seconds in [300, 290, 150, 151, 3] {
        player.seek(Nanos(seconds * SECOND));
        let (mut slices, mut done) = (0, 0);
        while let Motion::Seeking(percent) = player.position().motion {
            // A seek backward starts from the beginning.
            assert!(percent >= done || slices == 1, "{percent} after {done}");
            (slices, done) = (slices + 1, percent);
            player.work(&mut model, Duration::ZERO);
        }
        let samples: u64 = model.cpu().sums(&Selection::default()).into_values().map(|sum| sum.samples).sum();
        assert_eq!(samples, 2 * (100 * seconds + 1).min(30_000), "at {seconds} s");
        assert!(slices > 1 || seconds == 151 || seconds == 3, "{slices} slices to {seconds} s");
    }
}

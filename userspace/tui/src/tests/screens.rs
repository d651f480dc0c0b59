//! Every screen and state as it looks, at the sizes of small, usual and large terminals.

use insta::assert_snapshot;
use pyobs_model::Event;
use ratatui::style::{Color as Ink, Style};

use super::{Bench, synthetic};
use crate::app::Msg;
use crate::{Batch, Color, Source};

const SMALL: (u16, u16) = (60, 15);
const USUAL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (140, 40);

macro_rules! at_sizes {
    ($name:ident, [$($size:ident),*], $new:expr, $keys:expr) => {
        #[test]
        fn $name() {
            $(
                let mut bench = $new($size);
                bench.keys($keys);
                let name = format!("{}_{}x{}", stringify!($name), $size.0, $size.1);
                assert_snapshot!(name, bench.picture());
            )*
        }
    };
}

at_sizes!(processes, [SMALL, USUAL, LARGE], Bench::live, "");
at_sizes!(processes_with_threads, [USUAL, LARGE], Bench::live, "t");
at_sizes!(processes_by_command, [USUAL], Bench::live, "S");
at_sizes!(frames, [SMALL, USUAL, LARGE], Bench::live, "2");
at_sizes!(frames_by_function, [USUAL, LARGE], Bench::live, "2l");
at_sizes!(frames_with_native, [USUAL, LARGE], Bench::live, "2ft");
at_sizes!(frames_split_by_process, [USUAL, LARGE], Bench::live, "2p");
at_sizes!(frames_of_one_process, [USUAL, LARGE], Bench::live, "1↓\n");
at_sizes!(frames_of_one_thread, [USUAL], Bench::live, "1t↓\n");
at_sizes!(frame_detail, [SMALL, USUAL, LARGE], Bench::live, "2t↓\n");
at_sizes!(frame_detail_by_function, [USUAL], Bench::live, "2tl↓\n");
at_sizes!(frame_detail_of_recursion, [USUAL], Bench::live, "2n↓↓↓↓↓↓↓\n");
at_sizes!(flame, [SMALL, USUAL, LARGE], Bench::live, "3f↓↓");
at_sizes!(flame_zoomed, [USUAL, LARGE], Bench::live, "3f↓↓↓\n↓↓");
at_sizes!(flame_highlighting, [USUAL], Bench::live, "3f/norm\n");
at_sizes!(health, [SMALL, USUAL, LARGE], Bench::live, "4");
at_sizes!(help, [SMALL, USUAL, LARGE], Bench::live, "2?");
at_sizes!(typing_a_filter, [SMALL, USUAL], Bench::live, "2/trainer");
at_sizes!(typing_an_invalid_filter, [USUAL], Bench::live, "2/norm(");
at_sizes!(nothing_matches, [USUAL], Bench::live, "2/zzz\n");
at_sizes!(paused, [USUAL], Bench::live, "2 ");
at_sizes!(replay, [USUAL, LARGE], Bench::replay, "");
at_sizes!(replay_of_its_last_ten_seconds, [USUAL], Bench::replay, "w");

#[test]
fn starting() {
    for size in [SMALL, USUAL] {
        let mut bench = Bench::new(synthetic::model(), Source::Live, size);
        assert_snapshot!(format!("starting_{}x{}", size.0, size.1), bench.picture());
    }
}

#[test]
fn no_python_yet() {
    let mut bench = Bench::new(synthetic::model(), Source::Live, USUAL);
    bench.send(Batch::Events(Vec::new()));
    assert_snapshot!(bench.picture());
}

#[test]
fn python_without_samples() {
    let mut bench = Bench::new(synthetic::model(), Source::Live, USUAL);
    let is_process = |event: &Event| matches!(event, Event::Process { .. });
    bench.send(Batch::Events(synthetic::events().into_iter().filter(is_process).collect()));
    assert_snapshot!(bench.keys("2").picture());
}

#[test]
fn an_idle_process_is_selected() {
    assert_snapshot!(Bench::live(USUAL).keys("1↓↓\n").picture());
}

#[test]
fn empty_replay() {
    let source = Source::Replay { file: "empty.pyobs".to_owned() };
    assert_snapshot!(Bench::new(synthetic::model(), source, USUAL).picture());
}

#[test]
fn ended() {
    let mut bench = Bench::live(USUAL);
    bench.msg(Msg::Ended);
    assert_snapshot!(bench.keys("2").picture());
}

#[test]
fn failed_before_anything_came() {
    let mut bench = Bench::new(synthetic::model(), Source::Live, USUAL);
    bench.send(Batch::Failed("the kernel refused the perf event: too many open files; try `ulimit -n 4096`".into()));
    assert_snapshot!(bench.picture());
}

#[test]
fn failed_later() {
    let mut bench = Bench::live(USUAL);
    bench.send(Batch::Failed("the kernel refused the perf event: too many open files".into()));
    assert_snapshot!(bench.picture());
}

#[test]
fn note() {
    let mut bench = Bench::live(USUAL);
    bench.send(Batch::Note("python3.5 (5150) is older than what pyobs reads.".into()));
    assert_snapshot!(bench.picture());
    assert!(bench.keys("4G").picture().contains("python3.5 (5150)"));
}

#[test]
fn too_small() {
    let mut bench = Bench::live((28, 5));
    assert_snapshot!(bench.picture());
}

#[test]
fn no_color_means_no_color() {
    for keys in ["1", "2", "3f↓↓", "4", "2?", "2/x"] {
        let mut bench = Bench::with_color(synthetic::filled(), Source::Live, USUAL, Color::Off);
        bench.send(Batch::Events(Vec::new()));
        bench.keys(keys).draw();
        let is_plain = |style: Style| [style.fg, style.bg].iter().all(|ink| matches!(ink, None | Some(Ink::Reset)));
        assert!(bench.terminal.backend().buffer().content.iter().all(|cell| is_plain(cell.style())), "{keys}");
    }
}

#[test]
fn basic_color_uses_the_sixteen() {
    for keys in ["1", "2f", "3f↓↓", "4", "2?"] {
        let mut bench = Bench::with_color(synthetic::filled(), Source::Live, USUAL, Color::Basic);
        bench.send(Batch::Events(Vec::new()));
        bench.keys(keys).draw();
        let cells = &bench.terminal.backend().buffer().content;
        assert!(cells.iter().all(|cell| !matches!(cell.fg, Ink::Indexed(_) | Ink::Rgb(..))), "{keys}");
    }
}

//! Pictures of all screens and states, in terminals of usual and large size.

use insta::assert_snapshot;
use pyobs_model::{Event, Family, Nanos, Reason, SegmentChange, SegmentId, StackId};
use ratatui::style::{Color as Ink, Style};

use super::{Bench, EVERYWHERE, LARGE, USUAL, synthetic};
use crate::{Batch, Color, Source};

const SMALL: (u16, u16) = (60, 15);

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

at_sizes!(overview_of_a_finding, [USUAL, LARGE], Bench::watching, "↓");
at_sizes!(overview_without_findings, [USUAL, LARGE], Bench::live, "");
at_sizes!(overview_of_a_quiet_machine, [USUAL, LARGE], Bench::quiet, "");
at_sizes!(processes_with_all_others, [USUAL, LARGE], Bench::quiet, "1");
at_sizes!(overview_paused, [USUAL], Bench::watching, " ");
at_sizes!(evidence_of_waits, [USUAL], Bench::watching, "\n");
at_sizes!(evidence_of_a_segment, [USUAL], Bench::watching, "↓↓↓\n");
at_sizes!(evidence_of_a_line, [USUAL, LARGE], Bench::watching, "↓↓\n\n");
at_sizes!(processes, [USUAL, LARGE], Bench::live, "1");
at_sizes!(processes_with_threads, [USUAL, LARGE], Bench::live, "1t");
at_sizes!(processes_as_a_tree, [USUAL], Bench::live, "1c");
at_sizes!(processes_by_command, [USUAL], Bench::live, "1S");
at_sizes!(frames, [USUAL, LARGE], Bench::live, "2");
at_sizes!(frames_by_function, [USUAL, LARGE], Bench::live, "2l");
at_sizes!(frames_with_native, [USUAL, LARGE], Bench::live, "2ft");
at_sizes!(frames_split_by_process, [USUAL, LARGE], Bench::live, "2g");
at_sizes!(frames_of_one_process, [USUAL, LARGE], Bench::live, "1↓\n");
at_sizes!(frames_of_one_thread, [USUAL], Bench::live, "1t↓\n");
at_sizes!(frame_detail, [USUAL, LARGE], Bench::live, "2t↓\n");
at_sizes!(frame_detail_by_function, [USUAL], Bench::live, "2tl↓\n");
at_sizes!(frame_detail_of_recursion, [USUAL], Bench::live, "2n↓↓↓↓↓↓↓\n");
at_sizes!(flame, [USUAL, LARGE], Bench::live, "3↓↓");
at_sizes!(flame_zoomed, [USUAL, LARGE], Bench::live, "3↓↓↓\n↓↓");
at_sizes!(flame_highlighting, [USUAL], Bench::live, "3/norm\n");
at_sizes!(health, [USUAL, LARGE], Bench::live, "5");
at_sizes!(waits_for_the_gil, [USUAL, LARGE], Bench::watching, "4m");
at_sizes!(waits_by_function, [USUAL], Bench::watching, "4lsss");
at_sizes!(waits_of_one_thread, [USUAL], Bench::watching, "1t↓↓\n4");
at_sizes!(waits_filtered, [USUAL], Bench::watching, "4/^lock$\n");
at_sizes!(waits_that_do_not_match, [USUAL], Bench::watching, "4/zzz\n");
at_sizes!(wait_detail, [USUAL, LARGE], Bench::watching, "4↓\n");
at_sizes!(wait_for_the_gil_detail, [USUAL, LARGE], Bench::watching, "4m\n");
at_sizes!(waits_that_are_off, [USUAL], Bench::live, "4");
at_sizes!(frames_off_cpu, [USUAL, LARGE], Bench::watching, "2mf");
at_sizes!(frames_by_waits_for_the_gil, [USUAL], Bench::watching, "2mm");
at_sizes!(frame_detail_off_cpu, [USUAL], Bench::watching, "2mf\n");
at_sizes!(calls, [USUAL, LARGE], Bench::watching, "2c");
at_sizes!(calls_split_by_process, [USUAL], Bench::watching, "2cg");
at_sizes!(calls_that_are_off, [USUAL], Bench::live, "2c");
at_sizes!(memory_by_line, [USUAL, LARGE], Bench::watching, "6");
at_sizes!(memory_by_line_detail, [USUAL, LARGE], Bench::watching, "6↓↓\n");
at_sizes!(memory_by_verdict, [USUAL], Bench::watching, "6msss");
at_sizes!(memory_filtered, [USUAL], Bench::watching, "6m/memfd\n");
at_sizes!(memory_of_one_process, [USUAL], Bench::watching, "1\n6m");
at_sizes!(segment_detail, [USUAL, LARGE], Bench::watching, "6m\n");
at_sizes!(arenas, [USUAL, LARGE], Bench::watching, "6mm");
at_sizes!(arenas_by_use, [USUAL], Bench::watching, "6mmsss");
at_sizes!(arena_detail, [USUAL, LARGE], Bench::watching, "6mm\n");
at_sizes!(meminfos, [USUAL, LARGE], Bench::watching, "6mmm");
at_sizes!(meminfos_detail, [USUAL, LARGE], Bench::watching, "6mmm\n");
at_sizes!(arenas_that_are_off, [USUAL], Bench::live, "6m");
at_sizes!(redundancy_by_calls, [USUAL, LARGE], Bench::watching, "8sss");
at_sizes!(redundancy_detail, [USUAL, LARGE], Bench::watching, "8\n");
at_sizes!(redundancy_of_calls_detail, [USUAL, LARGE], Bench::watching, "8sss\n");
at_sizes!(redundancy_that_is_off, [USUAL], Bench::live, "8");
at_sizes!(flame_of_redundant_samples, [USUAL], Bench::watching, "3mmm");
at_sizes!(flame_of_memory, [USUAL], Bench::watching, "3mmmm↓↓");
at_sizes!(frames_by_memory, [USUAL], Bench::watching, "2mmmm");
at_sizes!(memory_of_processes, [USUAL, LARGE], Bench::watching, "6mmmm");
at_sizes!(processes_by_program, [USUAL, LARGE], Bench::watching, "1g\n");
at_sizes!(processes_by_container, [USUAL], Bench::watching, "1gg↓\n↓t");
at_sizes!(frames_by_user, [USUAL, LARGE], Bench::watching, "2gggg");
at_sizes!(flame_by_user, [USUAL], Bench::watching, "3ggg");
at_sizes!(waits_by_process, [USUAL], Bench::watching, "4g");
at_sizes!(waits_by_container, [LARGE], Bench::watching, "4ggg\n");
at_sizes!(memory_by_container, [USUAL], Bench::watching, "6mmmmgg");
at_sizes!(memory_that_is_off, [USUAL], Bench::live, "6");
at_sizes!(transfers_by_size, [USUAL], Bench::watching, "7s/recv\n");
at_sizes!(transfers_that_are_off, [USUAL], Bench::live, "7");
at_sizes!(transfer_detail, [USUAL, LARGE], Bench::watching, "7↓↓\n");
at_sizes!(threads_of_transfers, [USUAL, LARGE], Bench::watching, "7m");
at_sizes!(flame_off_cpu, [USUAL, LARGE], Bench::watching, "3m↓↓");
at_sizes!(flame_with_all_native_code, [USUAL], Bench::watching, "3mff");
at_sizes!(flame_without_native_code, [USUAL], Bench::watching, "3mf");
at_sizes!(timeline_of_waits, [USUAL, LARGE], Bench::watching, "9↓↓←←←");
at_sizes!(timeline_zoomed, [USUAL, LARGE], Bench::watching, "9←←←++");
at_sizes!(timeline_with_a_span, [USUAL], Bench::watching, "9←←←v←←←←v");
at_sizes!(frames_of_a_span, [USUAL], Bench::watching, "9←←←v←←←←v2");
at_sizes!(timeline_starting, [USUAL], |size| Bench::new(synthetic::model(), Source::Live, size), "9");
at_sizes!(timeline_of_one_process, [USUAL], Bench::watching, "1↓\n9");
at_sizes!(timeline_of_a_replay, [USUAL], Bench::replay, "9");
at_sizes!(help, [USUAL, LARGE], Bench::live, "2?");
at_sizes!(typing_a_filter, [USUAL], Bench::live, "2/trainer");
at_sizes!(typing_an_invalid_filter, [USUAL], Bench::live, "2/norm(");
at_sizes!(nothing_matches, [USUAL], Bench::live, "2/zzz\n");
at_sizes!(paused, [USUAL], Bench::live, "2 ");
at_sizes!(replay, [USUAL, LARGE], Bench::replay, "2");
at_sizes!(replay_opens_with_the_overview, [USUAL], Bench::replay, "");
at_sizes!(replay_of_its_last_ten_seconds, [USUAL], Bench::replay, "2w");

#[test]
fn starting() {
    let mut bench = Bench::new(synthetic::model(), Source::Live, USUAL);
    assert_snapshot!("starting_80x24", bench.picture());
}

#[test]
fn the_last_python_has_ended() {
    let mut bench = Bench::live(USUAL);
    let ends = synthetic::events().into_iter().filter_map(|event| match event {
        Event::Process { id, .. } => Some(Event::ProcessEnd { id, at: Nanos(9_950_000_000) }),
        _ => None,
    });
    bench.send(Batch::Events(ends.collect()));
    bench.send(Batch::Events(vec![Event::Loss { at: Nanos(40_000_000_000), reason: Reason::SleepUnseen, count: 1 }]));
    let picture = bench.keys("2").picture();
    assert!(picture.contains("No Python process any more"), "{picture}");
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
fn waits_are_starting() {
    let model = synthetic::model_of(&[Family::Cpu, Family::OffCpu, Family::Gil]);
    assert_snapshot!(Bench::new(model, Source::Live, USUAL).keys("4").picture());
}

#[test]
fn no_waits_yet() {
    let mut bench = Bench::new(synthetic::model_of(&[Family::Cpu, Family::OffCpu, Family::Gil]), Source::Live, USUAL);
    bench.send(Batch::Events(synthetic::events()));
    assert_snapshot!(bench.keys("4").picture());
}

#[test]
fn waits_without_the_gil() {
    let mut bench = Bench::new(synthetic::model_of(&[Family::OffCpu]), Source::Live, USUAL);
    let is_gil = |event: &Event| matches!(event, Event::GilWait(_) | Event::GilHeld { .. });
    bench.send(Batch::Events(synthetic::waiting().into_iter().filter(|event| !is_gil(event)).collect()));
    assert_snapshot!("waits_without_the_gil", bench.keys("4").picture());
    assert_snapshot!("waits_for_the_gil_that_are_off", bench.keys("m").picture());
}

#[test]
fn waits_that_lag_behind() {
    let mut bench = Bench::waiting(USUAL);
    let (at, reason) = (Nanos(9_900_000_000), Reason::SleepUnseen);
    bench.send(Batch::Events(vec![Event::Loss { at, reason, count: 5120 }]));
    assert_snapshot!(bench.keys("4").picture());
}

#[test]
fn a_replay_that_has_no_waits() {
    assert_snapshot!(Bench::replay(USUAL).keys("4").picture());
}

#[test]
fn failed_before_anything_came() {
    let mut bench = Bench::new(synthetic::model(), Source::Live, USUAL);
    bench.send(Batch::Failed("the kernel refused the perf event: too many open files; try `ulimit -n 4096`".into()));
    assert_snapshot!(bench.picture());
}

#[test]
fn the_overview_and_the_timeline_of_idle_processes() {
    for keys in ["0", "9"] {
        let mut idle = Bench::new(synthetic::model(), Source::Live, USUAL);
        let is_process = |event: &Event| matches!(event, Event::Process { .. });
        idle.send(Batch::Events(synthetic::events().into_iter().filter(is_process).collect()));
        assert_snapshot!(format!("idle_{keys}"), idle.keys(keys).picture());
    }
}

#[test]
fn the_overview_tells_what_is_dropped_and_what_lags() {
    let mut bench = Bench::waiting(USUAL);
    let at = Nanos(9_900_000_000);
    let what = "CPU samples at 49 Hz: the budget of 1 % was used up".into();
    bench.send(Batch::Events(vec![
        Event::Loss { at, reason: Reason::SleepUnseen, count: 5120 },
        Event::Loss { at, reason: Reason::RingFull, count: 3_000_000 },
        Event::Shed { at, what },
    ]));
    assert_snapshot!(bench.picture());
}

#[test]
fn the_timeline_has_a_lane_of_what_was_shed() {
    let mut bench = Bench::waiting(USUAL);
    let on =
        |tenth: u64, family: &str, measure: &str, on| Event::measure(Nanos(tenth * 100_000_000), family, measure, on);
    bench.send(Batch::Events(vec![
        on(30, "offcpu", "stacks 1/64", true),
        on(50, "cpu", "samples 1/2", true),
        on(70, "offcpu", "stacks 1/64", false),
    ]));
    assert_snapshot!(bench.keys("9↓").picture());
}

#[test]
fn the_header_says_what_is_shed_now() {
    let meta = pyobs_model::Meta { cpus: 4, ..synthetic::meta() };
    let history = pyobs_model::History::Window { length: Nanos(60_000_000_000), samples: 1000 };
    let mut bench = Bench::new(pyobs_model::Model::new(meta, history), Source::Live, (160, 50));
    let at = |seconds: u64| Nanos(seconds * 1_000_000_000);
    let model_cost = |bench: &Bench| {
        let (kernel, user) = bench.app.model.cost_now();
        bench.app.model.cost_percent(kernel + user)
    };
    let cost = |seconds: u64| Event::Cost {
        at: at(seconds),
        bpf: Nanos(seconds * 40_000_000),
        cpu: Nanos(seconds * 40_000_000),
        startup: Nanos(5_000_000),
        rss_bytes: 1 << 20,
    };
    let on = |seconds, family: &str, measure: &str, on| Event::measure(at(seconds), family, measure, on);
    bench.send(Batch::Events(vec![
        cost(11),
        on(3, "offcpu", "stacks 1/64", true),
        on(9, "offcpu", "stacks 1/64", false),
        on(9, "offcpu", "stacks 1/8", true),
        on(12, "cpu", "samples 1/2", true),
        cost(12),
    ]));
    let shed = "shed: offcpu stacks 1/8 since 9 s, cpu samples 1/2 since 12 s";
    let header = bench.picture();
    assert!(header.contains(shed), "{header}");
    let cost = model_cost(&bench);
    assert!((cost.0 - 2.0).abs() < 1e-6 && cost.1 == "of the machine", "{cost:?}");
}

#[test]
fn what_to_try_is_whole_where_many_findings_leave_little_room() {
    let mut events = synthetic::sharing();
    let left: Vec<Event> =
        events.iter().filter(|event| matches!(event, Event::Segment { id: SegmentId(2), .. })).cloned().collect();
    for line in 0..12 {
        events.extend(left.iter().cloned().map(|event| match event {
            Event::Segment { at, change: SegmentChange::Born(_), .. } => {
                Event::Segment { at, id: SegmentId(10 + line), change: SegmentChange::Born(StackId(line)) }
            }
            Event::Segment { at, change, .. } => Event::Segment { at, id: SegmentId(10 + line), change },
            other => other,
        }));
    }
    events.sort_by_key(Event::at);
    let mut bench = Bench::new(synthetic::model_of(&Family::ALL), Source::Live, USUAL);
    bench.send(Batch::Events(events));
    assert_snapshot!("overview_of_many_findings_80x24", bench.picture());
    assert_snapshot!("overview_of_many_findings_other_80x24", bench.keys("↓").picture());
}

#[test]
fn sentences_are_wrapped_again_after_a_resize() {
    let mut bench = Bench::dispatching(LARGE);
    bench.keys("8\n").draw();
    bench.resize(SMALL.0, SMALL.1);
    assert_eq!(bench.picture(), Bench::dispatching(SMALL).keys("8\n").picture());
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
    assert!(bench.keys("5G").picture().contains("python3.5 (5150)"));
}

#[test]
fn too_small() {
    let mut bench = Bench::live((28, 5));
    assert_snapshot!(bench.picture());
}

#[test]
fn only_what_is_watched_can_be_measured() {
    let mut bench = Bench::new(synthetic::model_of(&[Family::Cpu, Family::Gil]), Source::Live, LARGE);
    bench.send(Batch::Events(synthetic::waiting()));
    assert!(bench.keys("2").picture().contains("cpu time"));
    assert!(bench.keys("m").picture().contains("gil time"));
    assert!(bench.keys("m").picture().contains("cpu time"));
}

#[test]
fn no_color_means_no_color() {
    for keys in EVERYWHERE {
        let mut bench = Bench::of_all(USUAL, Color::Off);
        bench.keys(keys).draw();
        let is_plain = |style: Style| [style.fg, style.bg].iter().all(|ink| matches!(ink, None | Some(Ink::Reset)));
        assert!(bench.terminal.backend().buffer().content.iter().all(|cell| is_plain(cell.style())), "{keys}");
    }
}

#[test]
fn basic_color_uses_the_sixteen() {
    for keys in EVERYWHERE {
        let mut bench = Bench::of_all(USUAL, Color::Basic);
        bench.keys(keys).draw();
        let cells = &bench.terminal.backend().buffer().content;
        let is_rich = |ink: Ink| matches!(ink, Ink::Indexed(_) | Ink::Rgb(..));
        assert!(cells.iter().all(|cell| !is_rich(cell.fg) && !is_rich(cell.bg)), "{keys}");
        assert!(cells.iter().any(|cell| cell.fg != Ink::Reset || cell.bg != Ink::Reset), "{keys}");
    }
}

#[test]
fn a_finding_leads_to_its_evidence_and_back() {
    let mut bench = Bench::waiting((140, 40));
    bench.keys("w");
    let overview = bench.picture();
    let there = bench.keys("\n").picture();
    assert!(there.contains("Overview › gil/convoy › Waits"), "{there}");
    assert!(bench.keys("\n").picture().contains("Overview › gil/convoy › Waits › A wait"));
    assert!(bench.keys("\u{1b}").picture().contains("Overview › gil/convoy › Waits"));
    assert_eq!(bench.keys("\u{1b}").picture(), overview);
    // A screen's own key clears the history.
    assert!(!bench.keys("\n2").picture().contains('›'));
}

#[test]
fn a_span_restricts_the_other_screens_until_it_is_undone() {
    let mut bench = Bench::live(LARGE);
    let all = bench.keys("2").picture();
    let spanned = bench.keys("9←←←←←←v←←←←←←v2").picture();
    assert_ne!(all, spanned);
    assert!(!spanned.contains("last 10 s") && spanned.contains("–9."), "{spanned}");
    assert_eq!(bench.keys("\u{1b}").picture(), all);
}

#[test]
fn escape_discards_a_span_that_was_begun() {
    let mut bench = Bench::live(LARGE);
    let before = bench.keys("9←←").picture();
    bench.keys("v←→\u{1b}");
    assert_eq!(bench.picture(), before);
}

//! Hostile text and numbers from watched processes.

use pyobs_model::{
    Calls, Event, Family, FrameId, FrameKind, GilWait, Nanos, Outcome, ProcessRef, Sleep, Tid, WaitReason,
};
use unicode_width::UnicodeWidthStr;

use super::{Bench, synthetic};
use crate::{Batch, Source, text};

const NASTY: &[&str] = &[
    "\u{1b}[2J\u{1b}[31mred\u{7}",
    "\u{1b}]0;title\u{7}\u{1b}]52;c;Zm9v\u{7}",
    "line\r\nend\ttab\u{8}\u{7f}\u{85}\u{9b}31m",
    "\u{202e}rtl\u{202c}\u{2066}isolate\u{2069}\u{200f}",
    "zero\u{200b}\u{200d}\u{2060}\u{feff}width\u{ad}",
    "漢字の関数名はとても幅が広い名前です漢字の関数名はとても幅が広い名前です",
    "👩‍👩‍👧‍👦👍🏽🇩🇪❤️1️⃣",
    "z\u{335}\u{321}\u{322}\u{31b}\u{31b}\u{317}a\u{334}lgo",
    "ن\u{644}\u{627}مثال",
    "",
    " ",
    "\u{300}\u{301}starts with marks",
    "\u{e0041}\u{e0042}tags\u{fe0f}\u{1d173}",
    "\u{115f}\u{3164}\u{ffa0}fillers",
    "\u{2028}\u{2029}separators",
    "\u{fffd}\u{10ffff}\u{e000}",
];

fn bench_of(name: &str) -> Bench {
    let mut frame = synthetic::python(name, name, 3);
    frame.module = Some(name.into());
    let native = [FrameKind::Native, FrameKind::Kernel].map(|kind| synthetic::compiled(kind, name, name));
    let [native, kernel] = native;
    let frames = [frame.clone(), synthetic::python("leaf", name, 4), native, kernel];
    let mut events = synthetic::define(&frames, &[&[0, 2, 1], &[0, 2, 3], &[2, 3]]);
    events.push(Event::Process { id: ProcessRef(0), process: synthetic::process(1, Some(name), name) });
    events.push(Event::Thread { process: ProcessRef(0), tid: Tid(1), name: name.into() });
    events.extend((0..50).map(|n| synthetic::sample(n, 0, 1, (n % 2) as u32, Outcome::Complete)));
    events.extend((0..50).flat_map(|n| waits(n, name)));
    let mut bench = Bench::new(synthetic::model_of(&Family::ALL), Source::Live, (100, 30));
    bench.send(Batch::Events(events));
    bench.send(Batch::Note(name.to_owned()));
    bench
}

fn waits(n: u64, name: &str) -> [Event; 5] {
    let sleep = synthetic::sleep(n * 10, 0, 1, (n % 3) as u32, WaitReason::ALL[n as usize % 6]);
    let sleep = Event::Sleep(Sleep { waker: synthetic::waker(7, name), ..sleep });
    let held = |tid| {
        let (at, held) = (Nanos(n * 10_000_000), Nanos(if tid == 2 { 9_000_000 } else { 10_000 }));
        Event::GilHeld { at, process: ProcessRef(0), tid: Tid(tid), held }
    };
    let gil = Event::GilWait(synthetic::gil_wait(n * 10, 1, 1, Some((2, 0))));
    [sleep, gil, held(1), held(2), synthetic::calls(n * 10, 0, (n % 4) as u32, 9, 8, 1000)]
}

fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{ad}' | '\u{fe0f}' | '\u{e0000}'..='\u{e0fff}' | '\u{115f}' | '\u{3164}' | '\u{ffa0}')
}

fn assert_harmless(bench: &mut Bench, what: &str) {
    bench.draw();
    let buffer = bench.terminal.backend().buffer();
    for cell in &buffer.content {
        assert!(!cell.symbol().contains(is_harmful), "{what:?} put {:?} on the screen", cell.symbol());
        assert!(cell.symbol().chars().count() <= 3, "{what:?} piled up {:?}", cell.symbol());
    }
}

#[test]
fn hostile_text_does_not_reach_the_screen() {
    for name in NASTY {
        for keys in [
            "0",
            "9",
            "9↓←←",
            "9←v←v2",
            "0\n",
            "1t",
            "1\n",
            "2",
            "2p",
            "2l",
            "2\n",
            "2f/x",
            "2mf",
            "2cp",
            "3f↓↓",
            "3↓↓\n/(",
            "3mff↓↓",
            "4",
            "4m",
            "4\n",
            "4m\n",
            "4/x",
            "5G",
            "5",
            "?",
        ] {
            let mut bench = bench_of(name);
            bench.keys(keys);
            assert_harmless(&mut bench, name);
        }
    }
}

#[test]
fn a_name_of_100_kb_is_cheap_to_draw() {
    for piece in ["x", "漢", "\u{301}", "\u{1b}[", "/"] {
        let name = piece.repeat(100_000);
        for keys in
            ["0", "0\n", "9", "9↓←", "1tS", "2nf", "2p/x*y", "2\n", "2csssss", "3f↓↓", "4sssss", "4m/x*y", "4\n", "5"]
        {
            let mut bench = bench_of(&name);
            bench.keys(keys);
            assert_harmless(&mut bench, piece);
        }
    }
}

#[test]
fn times_whose_sums_overflow_do_no_harm() {
    let max = Nanos(u64::MAX);
    for keys in [
        "0",
        "0\n",
        "9",
        "9++",
        "1",
        "2mf",
        "2mm",
        "2mf\n",
        "2c",
        "2cssp",
        "3m↓↓\n→",
        "3mm↓↓",
        "4",
        "4s",
        "4\n",
        "4m",
        "4m\n",
        "5",
    ] {
        let mut bench = bench_of("name");
        for tid in 1..4 {
            let sleep = synthetic::sleep(1, 0, tid, tid % 3, WaitReason::Io);
            let gil = synthetic::gil_wait(1, tid, tid % 3, Some((3, 0)));
            let held = Event::GilHeld { at: Nanos(1), process: ProcessRef(0), tid: Tid(tid), held: max };
            let (process, function) = (ProcessRef(0), FrameId(tid));
            let calls = Calls { at: max, process, function, count: max.0, timed: max.0, total: max, max };
            let events = [
                Event::Sleep(Sleep { count: max.0, total: max, length: max, ..sleep }),
                Event::GilWait(GilWait { count: max.0, total: max, length: max, ..gil }),
                held,
                Event::Calls(calls),
            ];
            bench.send(Batch::Events([events.clone(), events].concat()));
        }
        bench.keys("www").keys(keys);
        assert_harmless(&mut bench, keys);
        bench.keys("w");
        assert_harmless(&mut bench, keys);
    }
}

#[test]
fn the_filter_accepts_any_text() {
    let mut bench = Bench::live((80, 24));
    bench.keys("2/");
    for name in NASTY {
        bench.keys(&name.replace(['\u{1b}', '\n', '\r'], ""));
        assert_harmless(&mut bench, name);
    }
}

#[test]
fn text_fits_any_width() {
    for name in NASTY {
        for width in 0..40 {
            for fitted in [text::fit(name, width), text::fit_left(name, width)] {
                assert!(fitted.width() <= width, "{name:?} in {width} gave {fitted:?}");
                assert!(!fitted.contains(is_harmful));
            }
        }
    }
}

#[test]
fn truncated_text_has_an_ellipsis() {
    assert_eq!(text::fit("normalize", 9), "normalize");
    assert_eq!(text::fit("normalize", 8), "normali…");
    assert_eq!(text::fit("漢字漢字", 8), "漢字漢字");
    assert_eq!(text::fit("漢字漢字", 7), "漢字漢…");
    assert_eq!(text::fit("漢字漢字", 6), "漢字…");
    assert_eq!(text::fit("x", 0), "");
    assert_eq!(text::fit("xy", 1), "…");
    assert_eq!(text::fit_left("/srv/app/trainer.py:12", 14), "…trainer.py:12");
    assert_eq!(text::fit_left("漢字漢字", 6), "…漢字");
    assert_eq!(text::fit_left("漢字漢字", 8), "漢字漢字");
    assert_eq!(text::fit("a\u{1b}[31mb", 20), "a·[31mb");
}

//! Waits, calls and findings in every format.

mod common;

use common::perfetto::{DecodedSlice, timeline};
use common::{ModelBuilder, OF_SAMPLES, checked_speedscope, exported, frame, in_words, meta, parsed_svg};
use pyobs_export::{Error, Format, Native, Options, Weight, export};
use pyobs_model::*;
use serde_json::Value;

const MS: u64 = 1_000_000;

fn families_on() -> Meta {
    Meta { probes: Family::names(), ..meta("build-host") }
}

fn sleep(at: u64, tid: u32, stack: StackId, reason: WaitReason, count: u64, total: u64) -> Event {
    let (at, total, length) = (Nanos(at * MS), Nanos(total), Nanos(total / count.max(1)));
    let waker = (tid == 4250).then(|| Waker { pid: Pid(4242), tid: Tid(4242), name: "MainThread".into() });
    Event::Sleep(Sleep {
        from: at.saturating_sub(total),
        stacks: count,
        at,
        process: ProcessRef(0),
        tid: Tid(tid),
        stack,
        reason,
        count,
        total,
        length,
        waker,
    })
}

/// Two seconds of a thread that computes, and one that waits for messages and then for the GIL.
fn example() -> Model {
    use FrameKind::{Kernel, Native, Python};
    let mut it = ModelBuilder::new("build-host");
    it.model = Model::new(families_on(), History::All);
    it.process(0, 4242, "/usr/bin/python3.12 main.py", &[(4242, "MainThread"), (4250, "io")]);
    let compute = |line| frame(Python, "Model.fit", "/srv/app/model.py", line, 20);
    let receive = frame(Python, "receive", "/srv/app/net.py", 12, 10);
    let [main, more] = [24, 25].map(|line| it.stack(&[compute(line)]));
    let recv = frame(Native, "recv", "libc.so.6", 0, 0);
    let socket = it.stack(&[receive.clone(), recv, frame(Kernel, "schedule", "vmlinux", 0, 0)]);
    let gil = it.stack(&[receive.clone(), frame(Native, "take_gil", "python3.12", 0, 0)]);
    it.model.apply(&sleep(900, 4250, socket, WaitReason::Io, 100, 1_000 * MS + 499));
    it.model.apply(&sleep(950, 4250, gil, WaitReason::Gil, 100, 500 * MS));
    it.model.apply(&sleep(1000, 4242, main, WaitReason::Lock, 1, 300));
    for (round, at) in (0..100).zip((10..).step_by(20)) {
        let holder = Some(GilHolder { tid: Tid(4242), stack: if round % 4 == 0 { more } else { main } });
        let (at, process, tid, total) = (Nanos(at * MS), ProcessRef(0), Tid(4250), Nanos(5 * MS));
        let wait = GilWait {
            from: at.saturating_sub(total),
            stacks: 1,
            at,
            process,
            tid,
            stack: gil,
            holder,
            count: 1,
            total,
            length: total,
        };
        it.model.apply(&Event::GilWait(wait));
    }
    let (at, process, function) = (Nanos(2000 * MS), ProcessRef(0), FrameId(0));
    it.model.apply(&Event::GilHeld { at, process, tid: Tid(4242), held: Nanos(1900 * MS) });
    it.model.apply(&Event::GilHeld { at, process, tid: Tid(4250), held: Nanos(10 * MS) });
    let (total, max) = (Nanos(1_800 * MS), Nanos(40 * MS));
    it.model.apply(&Event::Calls(Calls { at, process, function, count: 1234, timed: 1200, total, max }));
    it.model
}

/// Hostile names and numbers.
fn hostile() -> Model {
    let text = "\u{1b}[31m;\n<script>]]>&\u{202e}".repeat(40);
    let mut it = ModelBuilder::new("h");
    it.model = Model::new(families_on(), History::All);
    it.process(0, 7, &text, &[(1, &text), (2, &text)]);
    let (at, process, name) = (Nanos(u64::MAX), ProcessRef(0), &*text);
    for kind in [FrameKind::Python, FrameKind::Native, FrameKind::Kernel] {
        let stack = it.stack(&[frame(kind, name, name, 3, 3)]);
        for reason in WaitReason::ALL {
            it.model.apply(&sleep(1, 4250, stack, *reason, u64::MAX, u64::MAX));
        }
        let (tid, holder, total) = (Tid(2), Some(GilHolder { tid: Tid(1), stack }), Nanos(u64::MAX));
        let wait = GilWait {
            from: at.saturating_sub(total),
            stacks: 20,
            at,
            process,
            tid,
            stack,
            holder,
            count: 20,
            total,
            length: total,
        };
        it.model.apply(&Event::GilWait(wait));
    }
    it.model.apply(&Event::GilHeld { at, process, tid: Tid(1), held: at });
    let calls = Calls { at, process, function: FrameId(0), count: at.0, timed: 1, total: at, max: at };
    it.model.apply(&Event::Calls(calls));
    it.model
}

fn of(weight: Weight) -> Options {
    Options { weight, ..Options::default() }
}

#[test]
fn a_figure_says_how_many_stacks_it_rests_on() {
    let mut it = ModelBuilder::new("build-host");
    it.model = Model::new(families_on(), History::All);
    it.process(0, 4242, "/usr/bin/python3.12 main.py", &[(4242, "MainThread")]);
    for (name, count, stacks) in [("often", 1_000, 12), ("seldom", 500, 11), ("exact", 2, 2)] {
        let stack = it.stack(&[frame(FrameKind::Python, name, "/srv/app/net.py", 12, 10)]);
        let Event::Sleep(all) = sleep(900, 4242, stack, WaitReason::Io, count, 100 * MS) else { unreachable!() };
        it.model.apply(&Event::Sleep(Sleep { stacks, ..all }));
    }
    let words = in_words(&it.model, 10);
    let row = |name: &str| words.lines().find(|line| line.ends_with(name)).unwrap_or_else(|| panic!("{words}"));
    assert!(row("often").contains("100 ms       1,000") && row("often").contains(" 12  io"), "{words}");
    assert!(row("seldom").trim_start().starts_with("not enough data       11  io"), "{words}");
    assert!(row("exact").contains("100 ms           2"), "{words}");
    let reason = words.lines().find(|line| line.ends_with("  io")).unwrap_or_default();
    assert!(reason.contains("300 ms       1,502"), "the sum of a reason is exact: {words}");
}

/// One or more waits, seen as 40 pieces of 5 ms, of which `stacks` have a stack.
fn gil_in_pieces(stacks: u64) -> Model {
    let mut it = ModelBuilder::new("build-host");
    it.model = Model::new(families_on(), History::All);
    it.process(0, 4242, "main.py", &[(4242, "MainThread"), (4250, "io")]);
    let stack = it.stack(&[frame(FrameKind::Python, "ask", "/srv/app/net.py", 12, 10)]);
    let held = it.stack(&[frame(FrameKind::Python, "hold", "/srv/app/net.py", 30, 20)]);
    let (process, holder) = (ProcessRef(0), Some(GilHolder { tid: Tid(4242), stack: held }));
    let (from, at, total, length) = (Nanos(0), Nanos(250 * MS), Nanos(200 * MS), Nanos(5 * MS));
    it.model.apply(&Event::GilWait(GilWait {
        from,
        at,
        process,
        tid: Tid(4250),
        stack,
        holder,
        count: 40,
        total,
        length,
        stacks,
    }));
    it.model.advance(Nanos(1000 * MS));
    it.model
}

#[test]
fn counts_of_sampled_gil_waits_are_bounds_and_times_are_exact() {
    for (stacks, count_of, row, line) in [
        (40, "waits", "   0.0%    20.0%          40    5.00 ms", "net.py:30"),
        (13, "pieces", "   0.0%    20.0%         ≤40   ≥5.00 ms", "net.py:30"),
        (11, "pieces", "   0.0%    20.0%         ≤40   ≥5.00 ms", " - "),
    ] {
        let model = gil_in_pieces(stacks);
        let json: Value = serde_json::from_str(&exported(&model, Format::Json, &Options::default())).unwrap();
        assert_eq!(json["gil"][0]["count_of"], count_of);
        assert_eq!(json["gil"][0]["total_s"], 0.2);
        assert_eq!(json["processes"][0]["gil"]["wanted_s"], 0.2);
        let text = in_words(&model, 10);
        let found = text.lines().find(|line| line.starts_with(row));
        assert!(found.is_some_and(|found| found.contains(line)), "{stacks}: {text}");
        assert_eq!(text.contains("at most a switch interval"), stacks < 40, "{text}");
    }
}

#[test]
fn folded_times_are_whole_microseconds() {
    let of = |weight| Options { native: Native::Full, ..of(weight) };
    let text = exported(&example(), Format::Folded, &of(Weight::OffCpu));
    let expected = "python3.12 (4242);receive (net.py);recv (libc.so.6);schedule [kernel] 1000000\n\
                    python3.12 (4242);receive (net.py);take_gil (python3.12) 500000\n";
    assert_eq!(text, expected, "and 0.3 µs are none");
    let text = exported(&example(), Format::Folded, &of(Weight::Gil));
    assert_eq!(text, "python3.12 (4242);receive (net.py);take_gil (python3.12) 500000\n", "the waiter's stack");
    let selection = Selection { from: Some(Nanos(910 * MS)), ..Selection::default() };
    let text = exported(&example(), Format::Folded, &Options { selection, ..of(Weight::OffCpu) });
    assert_eq!(text, "python3.12 (4242);receive (net.py);take_gil (python3.12) 40000\n", "the part of it");
}

#[test]
fn speedscope_has_seconds() {
    for (weight, title, expected) in [
        (Weight::OffCpu, "Time off CPU on build-host", &[("io 4250", 1.5), ("MainThread 4242", 3e-7)][..]),
        (Weight::Gil, "Waits for the GIL on build-host", &[("io 4250", 0.5)]),
    ] {
        let text = exported(&example(), Format::Speedscope, &of(weight));
        let profiles = checked_speedscope(&text);
        assert_eq!(profiles.len(), expected.len());
        for ((seconds, name), (thread, total)) in profiles.iter().zip(expected) {
            assert!(name.ends_with(thread) && (seconds - total).abs() < 1e-6, "{profiles:?}");
        }
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["name"], title);
    }
}

#[test]
fn the_svg_says_what_its_widths_are() {
    let colours = "orange: Python, blue: native, green: kernel";
    let subtitle = format!("1.50 s in all threads together · 2.0 s · 2026-01-02T03:04:05Z · {colours}");
    let texts = parsed_svg(&exported(&example(), Format::Svg, &of(Weight::OffCpu)));
    for expected in ["Time off CPU on build-host", &subtitle, "recv (libc.so.6) (1,000,000 µs, 66.67%)"] {
        assert!(texts.iter().any(|text| text == expected), "{expected}: {texts:#?}");
    }
    let texts = parsed_svg(&exported(&example(), Format::Svg, &of(Weight::Gil)));
    assert!(texts.iter().any(|text| text == "Waits for the GIL on build-host"), "{texts:#?}");
}

#[test]
fn json_has_waits_calls_and_findings() {
    let text = exported(&example(), Format::Json, &Options { limit: Some(2), ..of(Weight::Gil) });
    insta::assert_snapshot!("json", text);
}

#[test]
fn words_tell_of_waits_calls_and_findings() {
    insta::assert_snapshot!("words", in_words(&example(), 10));
    insta::assert_snapshot!("words_limit", in_words(&example(), 1));
}

#[test]
fn nothing_seen_is_told_from_a_family_that_was_off() {
    let mut model = Model::new(families_on(), History::All);
    for weight in [Weight::OffCpu, Weight::Gil] {
        assert_eq!(exported(&model, Format::Folded, &of(weight)), "");
        let svg = exported(&model, Format::Svg, &of(weight));
        assert!(parsed_svg(&svg).iter().any(|text| text.trim() == "no waits"));
        let profiles = checked_speedscope(&exported(&model, Format::Speedscope, &of(weight)));
        assert_eq!(profiles, [(0.0, "no waits".to_owned())]);
    }
    let report: Value = serde_json::from_str(&exported(&model, Format::Json, &Options::default())).unwrap();
    assert!(
        ["offcpu", "gil", "calls", "arenas", "heap", "segments", "transfers", "workers", "findings"]
            .iter()
            .all(|key| report[key] == Value::Array(Vec::new()))
    );
    assert_eq!(in_words(&model, 10).matches("Nothing was seen.").count(), 8);
    model = Model::new(meta("h"), History::All);
    for (format, weight) in [(Format::Json, Weight::Gil), (Format::Folded, Weight::OffCpu)] {
        let error = export(&model, format, &of(weight), &mut Vec::new()).unwrap_err();
        assert!(matches!(error, Error::NoData(refused) if refused == weight));
    }
    assert!(!in_words(&model, 10).contains("Nothing was seen."));
}

#[test]
fn hostile_names_and_numbers_do_no_harm() {
    let model = hostile();
    for weight in [Weight::OffCpu, Weight::Gil] {
        for format in OF_SAMPLES {
            let text = exported(&model, format, &of(weight));
            match format {
                Format::Svg => assert!(!parsed_svg(&text).is_empty()),
                Format::Folded => assert!(text.lines().count() <= 3, "{text}"),
                _ => _ = serde_json::from_str::<Value>(&text).unwrap(),
            }
        }
    }
    let text = in_words(&model, 10);
    assert!(text.contains("thread 2 (") && text.contains("What matters first"), "{text}");
}

#[test]
fn the_timeline_has_waits_where_they_were() {
    let all = timeline(&example(), &Options::default());
    let waits: Vec<&DecodedSlice> = all.of("wait").collect();
    assert!(waits.iter().all(|wait| wait.to >= Some(wait.from) && wait.track.len() == 2), "{waits:?}");
    for name in ["wait for the GIL", "sleep: "] {
        assert!(waits.iter().any(|wait| wait.name.starts_with(name)), "{name}: {waits:?}");
    }
}

/// execve(2) keeps the pid, and Perfetto's engine would assign the new program's threads to the old one.
#[test]
fn what_a_process_becomes_is_the_same_track() {
    let mut it = ModelBuilder::new("build-host");
    it.model = Model::new(families_on(), History::All);
    let stack = it.stack(&[frame(FrameKind::Python, "poll", "/srv/app/net.py", 12, 10)]);
    // The last process reuses the pid.
    let lives = [("python3 -m launch", 0, 10), ("python3 stage.py", 10, 20), ("python3 other.py", 30, 40)];
    for ((command, from, to), id) in lives.into_iter().zip((0..).map(ProcessRef)) {
        let started = Some(Nanos(from * MS));
        let python = Some("3.12.1".into());
        let process = Process { pid: Pid(7), ppid: Pid(1), command: command.into(), python, started };
        it.model.apply(&Event::Process { id, process });
        let Event::Sleep(sleep) = sleep(to, 7, stack, WaitReason::Io, 1, 5 * MS) else { unreachable!() };
        it.model.apply(&Event::Sleep(Sleep { process: id, ..sleep }));
        it.model.apply(&Event::ProcessEnd { id, at: Nanos(to * MS) });
    }
    let all = timeline(&it.model, &Options::default());
    let tracks: Vec<(&str, f64)> = all.of("wait").map(|wait| (wait.track[0].as_str(), wait.from)).collect();
    assert_eq!(tracks, [("python3 stage.py", 5e3), ("python3 stage.py", 15e3), ("python3 other.py", 35e3)]);
}

//! Tests `pyobs export`, format by format.

use std::collections::BTreeSet;

use pyobs_tests::{Workload, command, compare, json, needs};
use quick_xml::Reader;
use quick_xml::events::Event;
use regex::Regex;
use serde_json::Value;

use super::{recording, run};

/// The functions in which threads.py burns CPU time.
pub const BURNED: [&str; 5] =
    ["in_first_thread", "in_second_thread", "in_daemon_thread", "in_thread_of_c", "in_main_thread"];

/// All samples, with or without Python frames.
fn samples() -> u64 {
    json::list(&recording().report, "/processes").iter().map(|process| json::count(process, "/samples")).sum()
}

fn cpu_s() -> f64 {
    json::list(&recording().report, "/processes").iter().map(|process| json::number(process, "/cpu_s")).sum()
}

/// The sampling periods of one of these functions in the folded stacks, and the number of lines that they are summed
/// over.
pub fn inclusive(function: &str) -> (u64, usize) {
    let folded = recording().export("folded", &[]);
    let own = folded.lines().filter(|line| line.contains(&format!(";{function} ({function}.py")));
    let counts: Vec<u64> = own.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    (counts.iter().sum(), counts.len())
}

pub fn folded() {
    // A process, frames and a count; names contain neither `;` nor control characters.
    let process = r"[^;\p{Cc}]+ \(\d+\)";
    let frame = r"[^;\p{Cc}]+ (\([^;\p{Cc}]+\)|\[kernel\])";
    let line = Regex::new(&format!("^{process}(;{frame})+ [1-9][0-9]*$")).unwrap();
    let with_line = Regex::new(r"in_main_thread \(in_main_thread\.py:\d+\)").unwrap();
    for lines in [false, true] {
        let text = recording().export("folded", if lines { &["--lines"] } else { &[] });
        let wrong: Vec<&str> = text.lines().filter(|text| !line.is_match(text)).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        let counts = text.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
        // Each line is rounded to a sampling period.
        let (count, rate) = (text.lines().count() as f64, json::number(&recording().report, "/recording/rate_hz"));
        compare::close("CPU seconds", counts.sum::<u64>() as f64 / rate, cpu_s(), 0.5 * count / rate);
        let stacks: Vec<&str> = text.lines().map(|line| line.rsplit_once(' ').unwrap().0).collect();
        assert_eq!(stacks.len(), stacks.iter().collect::<BTreeSet<_>>().len(), "a stack has several lines");
        assert_eq!(with_line.is_match(&text), lines, "{text}");
        assert!(BURNED.iter().all(|function| text.contains(&format!(";{function} ({function}.py"))), "{text}");
    }
}

/// Checks against <https://www.speedscope.app/file-format-schema.json>.
pub fn speedscope() {
    let document = json::parse(&recording().export("speedscope", &["--lines"]));
    assert_eq!(document["$schema"], "https://www.speedscope.app/file-format-schema.json");
    let frames = json::list(&document, "/shared/frames");
    let mut total = 0.0;
    for profile in json::list(&document, "/profiles") {
        assert_eq!(profile["type"], "sampled", "{profile}");
        assert!(profile["name"].is_string() && profile["unit"].is_string());
        let (start, end) = (json::number(profile, "/startValue"), json::number(profile, "/endValue"));
        let (samples, weights) = (json::list(profile, "/samples"), json::list(profile, "/weights"));
        assert_eq!(samples.len(), weights.len());
        let weight: f64 = weights.iter().map(|weight| weight.as_f64().unwrap()).sum();
        compare::close("the weights and the range", weight, end - start, 1e-6 * weight.max(1.0));
        let index = |frame: &Value| usize::try_from(frame.as_u64().unwrap()).unwrap();
        assert!(samples.iter().flat_map(|stack| stack.as_array().unwrap()).all(|frame| index(frame) < frames.len()));
        total += weight;
    }
    compare::close("CPU seconds", total, cpu_s(), 1e-6);
    for function in BURNED {
        assert!(frames.iter().any(|frame| frame["name"] == function), "{function} is not in {frames:#?}");
    }
    let of_spin = frames.iter().filter(|frame| frame["name"] == "spin");
    assert!(
        of_spin.into_iter().all(|frame| json::text(frame, "/file").ends_with("/burn.py") && frame["line"].is_u64())
    );
}

pub fn json_of_a_selection() {
    let whole = json::parse(&recording().export("json", &[]));
    assert_eq!(whole, recording().report);
    let threads = json::list(&recording().report, "/processes/0/threads");
    let first = threads.iter().find(|thread| thread["name"] == "first-thread").unwrap();
    let tid = json::count(first, "/tid").to_string();
    let part = json::parse(&recording().export("json", &["--tid", &tid]));
    let functions: BTreeSet<&str> =
        json::list(&part, "/frames").iter().map(|row| json::text(row, "/frame/function")).collect();
    assert!(functions.contains("in_first_thread") && !functions.contains("in_main_thread"), "{functions:?}");
    let before = json::parse(&recording().export("json", &["--to", "0.000001"]));
    assert_eq!(json::list(&before, "/frames").len(), 0);
}

pub fn svg() {
    let text = recording().export("svg", &[]);
    let mut reader = Reader::from_str(&text);
    let (mut elements, mut titles, mut open) = (BTreeSet::new(), String::new(), 0_u32);
    loop {
        match reader.read_event().unwrap_or_else(|error| panic!("not XML: {error}")) {
            Event::Start(element) => {
                open += 1;
                elements.insert(String::from_utf8(element.name().as_ref().to_vec()).unwrap());
            }
            Event::End(_) => open -= 1,
            Event::Text(text) => titles.push_str(&String::from_utf8_lossy(&text)),
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(open, 0, "an element is not closed");
    assert!(elements.contains("svg") && elements.contains("title"), "{elements:?}");
    for function in BURNED {
        assert!(titles.contains(function), "{function} is in no title");
    }
    let file = recording().file.with_extension("svg");
    let written = run(&["export", recording().file.to_str().unwrap(), "--format", "svg", "-o", file.to_str().unwrap()]);
    assert!(written.status.success() && written.stdout.is_empty(), "{written:?}");
    assert!(std::fs::read_to_string(file).unwrap().contains("<svg"));
}

/// Go's own reader must give the same sums for the functions, the tags and the total.
pub fn pprof() {
    let file = recording().file.with_extension("pb.gz");
    let (from, to) = (recording().file.to_str().unwrap(), file.to_str().unwrap());
    let written = run(&["export", from, "--format", "pprof", "-o", to]);
    assert!(written.status.success() && written.stdout.is_empty(), "{written:?}");
    let read = |options: &[&str]| {
        let reader = needs::pprof().unwrap();
        let mut reader_command = command(&reader[0]);
        reader_command.args(&reader[1..]).args(["-symbolize=none", "-sample_index=samples"]).args(options).arg(to);
        let ended = Workload::start(reader_command).wait();
        assert!(ended.status.success(), "{ended:?}");
        ended.stdout
    };
    let top = read(&["-top", "-nodecount=100000", "-nodefraction=0"]);
    assert!(top.contains(&format!("% of {} total", samples())), "{} samples: {top}", samples());
    for function in BURNED {
        // flat flat% sum% cum cum% name
        let row = top.lines().find(|line| line.ends_with(&format!(" {function}")));
        let row = row.unwrap_or_else(|| panic!("{function} is not in {top}"));
        let sum: f64 = row.split_whitespace().nth(3).unwrap().parse().unwrap();
        compare::close(
            &format!("samples of {function} and their weights"),
            sum,
            inclusive(function).0 as f64,
            0.1 * sum + 2.0,
        );
    }
    let lines = read(&["-top", "-lines", "-nodecount=100000", "-nodefraction=0"]);
    assert!(lines.lines().any(|line| line.contains("spin ") && line.contains("burn.py:14")), "{lines}");
    let tags = read(&["-tags"]);
    for thread in ["first-thread", "daemon-thread"] {
        assert!(tags.contains(thread), "{thread} is not in {tags}");
    }
}

/// Checks against the documentation of the processed profile format.
pub fn firefox() {
    let document = json::parse(&recording().export("firefox", &[]));
    let (mut total, mut names) = (0, BTreeSet::new());
    for thread in json::list(&document, "/threads") {
        let length = json::list(thread, "/stackTable/prefix").len();
        let stacks = json::list(thread, "/samples/stack");
        assert!(stacks.iter().all(|at| at.is_null() || at.as_u64().unwrap() < length as u64));
        total += json::list(thread, "/samples/weight").iter().map(|weight| weight.as_u64().unwrap()).sum::<u64>();
        let strings = json::list(thread, "/stringArray");
        let name = |at: &Value| strings[usize::try_from(at.as_u64().unwrap()).unwrap()].as_str().unwrap();
        names.extend(json::list(thread, "/funcTable/name").iter().map(name));
    }
    let threads = json::list(&document, "/threads").len() as f64;
    compare::close("CPU seconds", total as f64 / 1e3, cpu_s(), 1e-3 * threads);
    for function in BURNED {
        assert!(names.contains(format!("{function} ({function}.py)").as_str()), "{function} is not in {names:#?}");
    }
    let sleeps: u64 = json::list(&document, "/threads").iter().map(|it| json::count(it, "/markers/length")).sum();
    assert!(sleeps > 0, "no sleeps, although threads start and join");
}

/// By Perfetto's own descriptors: the threads' waits must be on tracks of the threads, and there must be a sample for
/// each sampling period of CPU time.
pub fn perfetto() {
    let trace = recording().perfetto();
    let slices = json::list(&trace, "/slices");
    let waits: Vec<&Value> = slices.iter().filter(|slice| slice["category"] == "wait").collect();
    assert!(!waits.is_empty() && waits.iter().all(|wait| wait["to_ns"].as_u64() >= wait["from_ns"].as_u64()));
    let threads: BTreeSet<&str> = waits.iter().filter_map(|wait| wait["track"][1].as_str()).collect();
    assert!(threads.contains("first-thread"), "{threads:?}");
    let sleeps = json::list(&recording().report, "/offcpu");
    let pids: BTreeSet<u64> = sleeps.iter().map(|sleep| json::count(sleep, "/tid")).collect();
    let tracks: BTreeSet<u64> = waits.iter().map(|wait| json::count(wait, "/tid")).collect();
    assert!(tracks.is_superset(&pids), "{tracks:?} {pids:?}");
    let arenas = json::list(&trace, "/counters/arenas");
    assert!(arenas.iter().any(|at| at[1].as_u64() >= Some(256 << 10)), "{arenas:?}");
    let samples = json::list(&trace, "/samples");
    let rate = json::number(&recording().report, "/recording/rate_hz");
    // Each thread has a remainder of less than a period.
    compare::close("CPU seconds", samples.len() as f64 / rate, cpu_s(), tracks.len() as f64 / rate);
    for function in BURNED {
        let name = format!("{function} ({function}.py)");
        assert!(
            samples.iter().any(|sample| sample["frames"].as_array().unwrap().contains(&name.clone().into())),
            "{name}"
        );
    }
}

/// In a browser: the page's script runs, the browser refuses nothing, and nothing is requested from a network.
pub fn html() {
    let file = recording().file.with_extension("html");
    let (from, to) = (recording().file.to_str().unwrap(), file.to_str().unwrap());
    let written = run(&["export", from, "--format", "html", "-o", to]);
    assert!(written.status.success(), "{written:?}");
    let mut browser = command(needs::program("chromium").unwrap());
    let home = format!("--user-data-dir={}", file.with_extension("home").display());
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", &home, "--dump-dom"]);
    browser.arg(format!("file://{to}"));
    let ended = Workload::start(browser).wait();
    assert!(ended.status.success(), "{ended:?}");
    let complaints: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
    assert!(ended.stdout.contains("class=\"filter\""), "the page's script did not run: the tables have no filter");
    for function in BURNED {
        assert!(ended.stdout.contains(&format!("{function} (")), "{function} is in no table");
    }
}

/// A recording does not differ from itself.
pub fn diff() {
    let file = recording().file.to_str().unwrap();
    let words = run(&["diff", file, file]);
    assert!(words.status.success() && words.stdout.contains("No change"), "{words:?}");
    let document = json::parse(&run(&["diff", file, file, "--json"]).stdout);
    assert_eq!(document["changed"], false);
    assert_eq!(json::count(&document, "/before/samples"), samples());
    let functions: BTreeSet<&str> =
        json::list(&recording().report, "/frames").iter().map(|row| json::text(row, "/frame/function")).collect();
    assert!(json::count(&document, "/frames/compared") >= functions.len() as u64);
    let picture = run(&["diff", file, file, "--format", "svg"]).stdout;
    assert!(BURNED.iter().all(|function| picture.contains(function)), "{picture}");
    for wrong in [vec!["diff", file], vec!["diff", file, file, "--json", "--format", "svg"]] {
        assert_eq!(run(&wrong).status.code(), Some(2), "{wrong:?}");
    }
    let refused = run(&["diff", file, file, "-o", file]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert_eq!(run(&["diff", file, "/nonexistent.pyobs"]).status.code(), Some(1));
}

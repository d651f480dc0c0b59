//! `pyobs export`, format by format.

use std::collections::BTreeSet;

use pyobs_tests::json;
use quick_xml::Reader;
use quick_xml::events::Event;
use regex::Regex;
use serde_json::Value;

use super::{recording, run};

/// The functions in which threads.py burns.
const BURNED: [&str; 5] =
    ["in_first_thread", "in_second_thread", "in_daemon_thread", "in_thread_of_c", "in_main_thread"];

/// All of them, with Python frames or without.
fn samples() -> u64 {
    json::list(&recording().report, "/processes").iter().map(|process| json::count(process, "/samples")).sum()
}

pub fn folded() {
    // Process, frames, count; no `;` and no control characters in names.
    let process = r"[^;\p{Cc}]+ \(\d+\)";
    let frame = r"[^;\p{Cc}]+ (\([^;\p{Cc}]+\)|\[kernel\])";
    let line = Regex::new(&format!("^{process}(;{frame})+ [1-9][0-9]*$")).unwrap();
    let with_line = Regex::new(r"in_main_thread \(in_main_thread\.py:\d+\)").unwrap();
    for lines in [false, true] {
        let text = recording().export("folded", if lines { &["--lines"] } else { &[] });
        let wrong: Vec<&str> = text.lines().filter(|text| !line.is_match(text)).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        let counts = text.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
        assert_eq!(counts.sum::<u64>(), samples());
        let stacks: Vec<&str> = text.lines().map(|line| line.rsplit_once(' ').unwrap().0).collect();
        assert_eq!(stacks.len(), stacks.iter().collect::<BTreeSet<_>>().len(), "a stack has one line");
        assert_eq!(with_line.is_match(&text), lines, "{text}");
        assert!(BURNED.iter().all(|function| text.contains(&format!(";{function} ({function}.py"))), "{text}");
    }
}

/// By https://www.speedscope.app/file-format-schema.json.
pub fn speedscope() {
    let document = json::parse(&recording().export("speedscope", &["--lines"]));
    assert_eq!(document["$schema"], "https://www.speedscope.app/file-format-schema.json");
    let frames = json::list(&document, "/shared/frames");
    let mut total = 0;
    for profile in json::list(&document, "/profiles") {
        assert_eq!(profile["type"], "sampled", "{profile}");
        assert!(profile["name"].is_string() && profile["unit"].is_string());
        let (start, end) = (json::number(profile, "/startValue"), json::number(profile, "/endValue"));
        let (samples, weights) = (json::list(profile, "/samples"), json::list(profile, "/weights"));
        assert_eq!(samples.len(), weights.len());
        let weight: f64 = weights.iter().map(|weight| weight.as_f64().unwrap()).sum();
        pyobs_tests::compare::close("the weights and the range", weight, end - start, 1e-6 * weight.max(1.0));
        let index = |frame: &Value| usize::try_from(frame.as_u64().unwrap()).unwrap();
        assert!(samples.iter().flat_map(|stack| stack.as_array().unwrap()).all(|frame| index(frame) < frames.len()));
        total += samples.len();
    }
    assert!(total > 0, "no profile has a sample");
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
        match reader.read_event().unwrap_or_else(|error| panic!("no XML: {error}")) {
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

//! Findings in the report: three in full, the rest in a line each, or a sentence that there are none.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::{ModelBuilder, found, in_words, meta};
use pyobs_model::*;

/// Labels and texts of the paragraph whose headline contains `words`. The headline comes first and has no label.
#[track_caller]
fn paragraph(text: &str, words: &str) -> Vec<(String, String)> {
    let first = text.lines().position(|line| line.starts_with("  1. ")).unwrap_or_else(|| panic!("{text}"));
    let mut paragraphs: Vec<Vec<(String, String)>> = Vec::new();
    for line in text.lines().skip(first).take_while(|line| !line.is_empty()) {
        let (label, rest) = line.split_at(12.min(line.len()));
        if line.starts_with("  ") && !line.starts_with("   ") {
            paragraphs.push(vec![(String::new(), line.to_owned())]);
        } else if let Some(label) = label.trim().strip_suffix(':').filter(|_| label.starts_with("     ")) {
            paragraphs.last_mut().unwrap().push((label.to_owned(), rest.trim().to_owned()));
        } else {
            let (_, before) = paragraphs.last_mut().unwrap().last_mut().unwrap();
            *before += &format!(" {}", line.trim());
        }
    }
    let found = paragraphs.into_iter().find(|paragraph| paragraph[0].1.contains(words));
    found.unwrap_or_else(|| panic!("no {words}: {text}"))
}

fn labelled<'a>(paragraph: &'a [(String, String)], label: &str) -> Option<&'a str> {
    paragraph.iter().find(|(own, _)| own == label).map(|(_, text)| text.as_str())
}

fn is_whole(text: &str) -> bool {
    text.starts_with(char::is_uppercase) && text.ends_with('.')
}

#[test]
fn each_finding_has_its_line_a_number_and_advice() {
    for case in found::cases() {
        let text = in_words(&case.model, 10);
        let paragraph = paragraph(&text, case.id);
        assert_eq!(labelled(&paragraph, "Where"), case.line, "{}: {text}", case.id);
        let (headline, seen) = (&paragraph[0].1, labelled(&paragraph, "Seen").unwrap());
        assert!(headline.contains(case.number) || seen.contains(case.number), "{}: {text}", case.id);
        let finding = case.finding();
        assert_eq!(labelled(&paragraph, "Try"), Some(finding.advice.as_str()), "{text}");
        assert!(finding.advice.contains(case.advice) && is_whole(&finding.advice), "{finding:#?}");
        assert_eq!(seen, finding.detail);
        assert!(!seen.contains(case.advice) && seen.ends_with('.'), "the advice is not repeated: {finding:#?}");
    }
}

/// Ids of findings in the sources of the model.
fn ids() -> BTreeSet<String> {
    ids_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/src/findings"))
}

fn ids_in(folder: &Path) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.is_dir() {
            ids.append(&mut ids_in(&path));
            continue;
        }
        let source = std::fs::read_to_string(path).unwrap();
        let quoted = source.split('"').filter(|text| !text.contains(char::is_whitespace));
        ids.extend(quoted.filter(|text| is_id(text)).map(str::to_owned));
    }
    ids
}

fn is_id(text: &str) -> bool {
    let subjects = Family::names().into_iter().chain(["container".to_owned()]);
    let families = subjects.filter_map(|subject| text.strip_prefix(&*subject)?.strip_prefix('/'));
    families
        .into_iter()
        .any(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || "-_".contains(c)))
}

#[test]
fn every_finding_has_a_test_case() {
    let cases: BTreeSet<String> = found::cases().into_iter().map(|case| case.id.to_owned()).collect();
    assert_eq!(ids(), cases);
}

/// A process that left segments behind, made by as many `lines`.
fn many(lines: u32) -> Model {
    let mut it = ModelBuilder::new("h");
    let probes = Family::names();
    it.model = Model::new(Meta { probes, ..meta("build-host") }, History::All);
    it.process(0, 7, "/usr/bin/python3.12 main.py", &[(7, "MainThread")]);
    for line in 0..lines {
        let stack = it.stack(&[common::frame(FrameKind::Python, "save", "/srv/app/main.py", line + 1, 1)]);
        let (kind, name, creator) = (SegmentKind::Shm, Some(format!("left_{line}").into()), Some(Pid(7)));
        let (ino, bytes) = (u64::from(line), u64::from(lines - line) << 20);
        let segment = Segment { dev: 1, ino, generation: 0, kind, name, linked: true, bytes, creator };
        for change in [SegmentChange::Begun(segment), SegmentChange::Born(stack), SegmentChange::Ended { pid: Pid(7) }]
        {
            it.model.apply(&Event::Segment { at: Nanos(1), id: SegmentId(line), change });
        }
    }
    it.model
}

#[test]
fn three_findings_are_in_full_the_most_expensive_first_and_the_others_in_a_line() {
    let text = in_words(&many(6), 5);
    let part = |from: &str| text[text.find(from).unwrap()..].lines().take_while(|line| !line.is_empty());
    let numbered: Vec<&str> = part("What matters first").filter(|line| line.as_bytes()[2].is_ascii_digit()).collect();
    let names = ["1. warning shm/residue, python3.12 (7): left_0 (6.0 MiB)", "2. ", "3. "];
    assert_eq!(numbered.len(), 3, "{text}");
    assert!(numbered.iter().zip(names).all(|(line, name)| line.trim().starts_with(name)), "{text}");
    assert_eq!(text.matches("Try:").count(), 3);
    let rest: Vec<&str> = part("Also found").skip(1).collect();
    let lines = |number: u32, mib| {
        let about =
            format!("  warning shm/residue, python3.12 (7): left_{number} ({mib} MiB) is left behind by processes");
        [format!("{about} that have ended,"), format!("    at save (/srv/app/main.py:{})", number + 1)]
    };
    assert_eq!(rest, [&lines(3, "3.0")[..], &lines(4, "2.0")[..], &["  and 1 more".to_owned()]].concat());
}

#[test]
fn three_findings_need_no_further_section_and_the_limit_holds() {
    assert!(!in_words(&many(3), 10).contains("Also found"));
    let text = in_words(&many(3), 1);
    assert_eq!((text.matches("Try:").count(), text.contains("  and 2 more")), (1, true), "{text}");
}

#[test]
fn a_refused_family_is_named_with_the_reason() {
    let refused = ["offcpu", "gil"].map(|family| Refused { family: family.into(), reason: "no; do this".into() });
    let text = in_words(&Model::new(Meta { refused: refused.to_vec(), ..meta("host") }, History::All), 10);
    assert!(text.contains("\noffcpu, gil are off: no; do this\n"), "{text}");
}

#[test]
fn without_findings_a_sentence_says_what_was_not_watched() {
    let all = Family::names();
    let told = |probes| in_words(&Model::new(Meta { probes, ..meta("h") }, History::All), 10);
    assert!(told(all.clone()).contains("\nNothing of what was watched looks wrong.\n"));
    let text = told(all.into_iter().filter(|family| family != "eval").collect());
    assert!(text.contains("\nNothing of what was watched looks wrong (not watched: eval).\n"), "{text}");
    assert!(!in_words(&many(1), 10).contains("looks wrong"));
}

/// Half the width of the 95 % confidence interval of a binomial share, in percentage points.
fn binomial(share: f64, samples: f64) -> f64 {
    196.0 * (share * (1.0 - share) / samples).sqrt()
}

#[test]
fn shares_of_lines_and_functions_have_their_error() {
    let mut it = ModelBuilder::new("h");
    it.process(0, 7, "/usr/bin/python3.12 main.py", &[(7, "MainThread")]);
    let line = |line| common::frame(FrameKind::Python, "work", "/srv/main.py", line, 1);
    it.samples(0, 7, 240, Outcome::Complete, &[line(2), line(10)]);
    it.samples(0, 7, 80, Outcome::Complete, &[line(3)]);
    it.samples(0, 7, 80, Outcome::Complete, &[line(4)]);
    let text = in_words(&it.model, 10);
    let row = |place: &str| text.lines().find(|line| line.contains(place)).unwrap();
    let of = |share: f64| format!("{:.1}% ±{:.1}", share * 100.0, binomial(share, 400.0));
    assert!(row("main.py:10 ").starts_with(&format!(" {}   {}", of(0.6), of(0.6))), "{text}");
    assert!(row("main.py:2 ").starts_with(&format!("{:<13} {}", "  0.0%", of(0.6))), "{text}");
    assert!(row("main.py:3 ").starts_with(&format!(" {}", of(0.2))), "{text}");
    assert!(row(" main.py  ").starts_with("100.0%       100.0%"), "a share of 100 % has no error: {text}");
}

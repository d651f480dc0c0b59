//! Tests names that a watched process chose to do harm: no output may pass them raw to a terminal, a browser or a
//! parser.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;

use pyobs_tests::{Case, Record, Recording, Workload, case, json, needs, workload};
use quick_xml::events::Event;
use quick_xml::{Reader, XmlVersion};
use serde_json::Value;

use crate::verb::{is_calm, pyobs, run};

const VERSIONS: [&str; 4] = ["3.8", "3.11", "3.12", "3.13"];

/// No line that people read may be longer.
const LINE_MAX: usize = 2000;

pub fn cases() -> Vec<Case> {
    VERSIONS
        .into_iter()
        .map(|version| {
            case(format!("hostile/names_of_{version}_are_harmless_in_every_output"), move || examine(version))
                .needs(needs::root())
                .needs(needs::python(version).and_then(|python| needs::few(&python)))
        })
        .collect()
}

#[track_caller]
fn examine(version: &str) {
    let python = needs::python(version).unwrap();
    let mut names = python.script(workload("fault_names.py"));
    names.arg0("\u{1b}[2J\u{1b}]0;argv\u{7};<script>\n\u{202e}");
    let mut names = Workload::start(names);
    let functions: usize = names.line().parse().unwrap();
    let recording = Record::new().rate(499).pid(names.pid()).seconds(4.0).run();
    assert!(recording.status.success(), "{recording:?}");
    is_calm(&recording.stderr);

    let report = as_text(&recording, &["report", "FILE", "--json"]);
    let document = json::parse(&report);
    has_no_controls("report --json", &report);
    tells_the_truth(&document, functions);

    let words = as_text(&recording, &["report", "FILE"]);
    has_no_controls("report", &words);
    has_no_reordering("report", &words);
    lines_are_bounded("report", &words);

    let folded = as_text(&recording, &["export", "FILE", "--format", "folded"]);
    has_no_controls("folded", &folded);
    is_folded(&folded);
    let with_lines = as_text(&recording, &["export", "FILE", "--format", "folded", "--lines"]);
    has_no_controls("folded --lines", &with_lines);
    is_folded(&with_lines);

    let json = as_text(&recording, &["export", "FILE", "--format", "json"]);
    has_no_controls("json", &json);
    json::parse(&json);

    let speedscope = as_text(&recording, &["export", "FILE", "--format", "speedscope"]);
    has_no_controls("speedscope", &speedscope);
    let frames = json::parse(&speedscope);
    assert!(json::list(&frames, "/shared/frames").len() >= functions);

    let svg = as_text(&recording, &["export", "FILE", "--format", "svg"]);
    has_no_controls("svg", &svg);
    is_plain_svg(&svg, &as_text(&plain(version), &["export", "FILE", "--format", "svg"]));
}

#[track_caller]
fn plain(version: &str) -> Recording {
    let mut spin = needs::python(version).unwrap().script(workload("fault_spin.py"));
    spin.arg("1");
    Record::new().rate(499).command(spin).run()
}

#[track_caller]
fn as_text(recording: &Recording, line: &[&str]) -> String {
    let file = recording.file.display().to_string();
    let outcome = run(pyobs(line.iter().map(|word| if *word == "FILE" { file.as_str() } else { word })));
    outcome.succeeds().text().to_owned()
}

#[track_caller]
fn has_no_controls(what: &str, text: &str) {
    if let Some((at, c)) = text.char_indices().find(|(_, c)| c.is_control() && *c != '\n') {
        panic!("{what} has the raw character {c:?}: {:?}", around(text, at));
    }
}

/// Finds Unicode's bidi embeddings, overrides, isolates and marks.
#[track_caller]
fn has_no_reordering(what: &str, text: &str) {
    let reorders =
        |c: char| matches!(c, '\u{061c}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if let Some((at, c)) = text.char_indices().find(|(_, c)| reorders(*c)) {
        panic!("{what} has the raw character {c:?}: {:?}", around(text, at));
    }
}

fn around(text: &str, at: usize) -> &str {
    &text[text.floor_char_boundary(at.saturating_sub(60))..text.ceil_char_boundary((at + 60).min(text.len()))]
}

#[track_caller]
fn lines_are_bounded(what: &str, text: &str) {
    let longest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    assert!(longest <= LINE_MAX, "{what} has a line of {longest} characters");
}

/// Names are escaped but not lost: JSON contains them exactly, truncated if they are too long.
#[track_caller]
fn tells_the_truth(document: &Value, functions: usize) {
    let rows = json::list(document, "/frames");
    let names: BTreeSet<&str> = rows.iter().filter_map(|row| row["frame"]["function"].as_str()).collect();
    for expected in [
        "\u{1b}[2J\u{1b}]0;pwned\u{7}\u{1b}[8m",
        "<script>alert('pwned')</script>]]><img src=x onerror=alert(1)>",
        "semi;colon;folded 1234567",
        "line\nbreak\r\nand\ttab\u{b}\u{c}\u{2028}\u{2029}",
        "\u{202e}evil\u{202c}\u{2066}\u{200b}\u{feff}bidi",
        // SQLite texts end at a NUL, so a recording replaces it.
        "nul\u{fffd}byte",
        "\u{1f600} astral \u{e0041}\u{fffe}\u{ffff}",
    ] {
        assert!(names.contains(expected), "{expected:?} is missing in {names:?}");
    }
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    assert!(longest <= LINE_MAX, "a name of {longest} characters");
    assert!(names.iter().any(|name| name.starts_with("longlonglong")), "{names:?}");
    let hostile = rows.iter().filter(|row| {
        row["frame"]["file"]
            .as_str()
            .is_some_and(|file| file.starts_with("/tmp/") || file.ends_with("/.py") || file.contains("long"))
    });
    let lost = document["loss"].as_object().map_or(0, serde_json::Map::len);
    assert!(hostile.count() + lost >= functions - 1, "functions are missing without a reason: {names:?}");
    let process = &json::list(document, "/processes")[0];
    assert!(json::text(process, "/command").starts_with("\u{1b}[2J"), "{process:#}");
    let threads = json::list(process, "/threads");
    assert!(
        threads.iter().any(|thread| thread["name"].as_str().is_some_and(|name| name.contains("<i>"))),
        "{process:#}"
    );
}

/// Each line must have frames between semicolons and a count at its end, and no name may split a frame.
#[track_caller]
fn is_folded(text: &str) {
    for line in text.lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap_or_else(|| panic!("without a count: {line:?}"));
        assert!(count.parse::<u64>().is_ok(), "without a count: {line:?}");
        for frame in stack.split(';') {
            let is_whole = frame.ends_with(')') || frame.ends_with("[kernel]");
            assert!(is_whole, "a frame is a fragment of a name: {frame:?} in {line:?}");
        }
        assert!(line.chars().count() <= 60 * LINE_MAX, "a line of {} bytes", line.len());
        for c in ['\u{2028}', '\u{2029}', '\u{85}'] {
            assert!(!line.contains(c), "a line end {c:?} in {line:?}");
        }
    }
}

/// The markup must be well-formed, and have only the elements and attributes of a harmless flame graph.
#[track_caller]
fn is_plain_svg(hostile: &str, plain: &str) {
    let (hostile, plain) = (Markup::of(hostile), Markup::of(plain));
    assert_eq!(hostile.scripts, plain.scripts, "scripts");
    let strange: Vec<_> = hostile.names.difference(&plain.names).collect();
    assert!(strange.is_empty(), "elements or attributes made by a name: {strange:?}");
}

#[derive(Default)]
struct Markup {
    scripts: usize,
    /// Names of elements, and of attributes as `element attribute`.
    names: BTreeSet<String>,
}

impl Markup {
    #[track_caller]
    fn of(svg: &str) -> Self {
        let mut markup = Self::default();
        let mut reader = Reader::from_str(svg);
        reader.config_mut().check_comments = true;
        let mut depth = 0_i32;
        loop {
            match reader.read_event() {
                Ok(Event::Eof) => break,
                Ok(Event::Start(start)) => {
                    depth += 1;
                    markup.add(&start);
                }
                Ok(Event::Empty(start)) => markup.add(&start),
                Ok(Event::End(_)) => depth -= 1,
                Ok(Event::GeneralRef(entity)) => {
                    let name = entity.decode().unwrap().into_owned();
                    let known = name.starts_with('#') || ["lt", "gt", "amp", "quot", "apos"].contains(&name.as_str());
                    assert!(known, "the entity {name}");
                    if name.starts_with('#') {
                        entity
                            .resolve_char_ref()
                            .unwrap_or_else(|error| panic!("&{name}; is not a character: {error}"));
                    }
                }
                Ok(Event::Text(text)) => {
                    text.decode().unwrap();
                }
                Ok(_) => {}
                Err(error) => panic!("the SVG is not well-formed at {}: {error}", reader.error_position()),
            }
        }
        assert_eq!(depth, 0, "elements are not closed");
        for c in svg.chars() {
            assert!(!matches!(c, '\u{fffe}' | '\u{ffff}'), "{c:?} is not allowed in XML");
        }
        markup
    }

    #[track_caller]
    fn add(&mut self, start: &quick_xml::events::BytesStart<'_>) {
        let name = String::from_utf8_lossy(start.name().as_ref()).into_owned();
        if name == "script" {
            self.scripts += 1;
        }
        for attribute in start.attributes() {
            let attribute = attribute.unwrap_or_else(|error| panic!("an attribute of <{name}>: {error}"));
            attribute
                .normalized_value(XmlVersion::Implicit1_0)
                .unwrap_or_else(|error| panic!("an attribute of <{name}>: {error}"));
            self.names.insert(format!("{name} {}", String::from_utf8_lossy(attribute.key.as_ref())));
        }
        self.names.insert(name);
    }
}

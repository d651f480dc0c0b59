//! Tests of the command line: what is accepted, and the sentence for what is refused.

use super::*;

#[track_caller]
fn verb(line: &str) -> Verb {
    parsed(line).unwrap().unwrap()
}

/// The message for arguments that must be refused.
#[track_caller]
fn refusal(line: &str) -> String {
    match parsed(line).unwrap_err() {
        Failure::Usage(sentence) => sentence,
        other => panic!("{line}: {other:?}"),
    }
}

fn parsed(line: &str) -> Result<Option<Verb>, Failure> {
    parse(line.split_whitespace().map(OsString::from))
}

#[track_caller]
fn record(line: &str) -> Record {
    match verb(line) {
        Verb::Record(record) => record,
        other => panic!("{other:?}"),
    }
}

#[test]
fn clap_accepts_the_definition() {
    Cli::command().debug_assert();
}

#[test]
fn top_takes_several_pids() {
    let Verb::Top(top) = verb("pyobs top --pid 1 --pid 22 --rate 999 --budget 0.5 --probe +cpu") else { panic!() };
    assert_eq!(top.watch.pids, [1, 22]);
    assert_eq!(top.watch.rate, Some(999));
    assert_eq!(top.watch.budget, Some(0.5));
    assert_eq!(top.watch.probe.unwrap().families, Probes::default().families);
}

#[test]
fn options_that_were_not_typed_are_absent() {
    let Verb::Top(top) = verb("pyobs top") else { panic!() };
    assert!(top.watch.pids.is_empty());
    assert_eq!((top.watch.rate, top.watch.budget, top.watch.probe), (None, None, None));
}

#[test]
fn everything_after_the_dashes_is_the_command() {
    let record = record("pyobs record -o x.pyobs --duration 1.5 -- python -c pass --pid 3");
    assert_eq!(record.command, ["python", "-c", "pass", "--pid", "3"]);
    assert_eq!(record.duration, Some(Duration::from_millis(1500)));
    assert!(record.watch.pids.is_empty());
}

#[test]
fn a_command_needs_the_dashes_and_excludes_pids() {
    assert!(refusal("pyobs record python").contains("python"));
    assert!(refusal("pyobs record --pid 3 -- python").contains("--pid"));
}

#[test]
fn a_minus_removes_a_family() {
    assert!(refusal("pyobs top --probe -cpu,-offcpu,-gil,-arena,-heap,-shm,-tasks").contains("no family on"));
}

#[test]
fn numbers_have_bounds() {
    for line in [
        "top --rate 0",
        "top --rate 20001",
        "top --rate -1",
        "top --rate fast",
        "top --pid 0",
        "top --pid 4194304",
        "top --pid -3",
        "top --budget 0",
        "top --budget -1",
        "top --budget NaN",
        "top --budget inf",
        "record --duration 0",
        "record --duration -1",
        "record --duration 1e300",
        "record --duration nan",
        "report x --limit -1",
        "export x --format svg --from -1",
        "export x --format svg --from inf",
        "export x --format svg --from 2 --to 2",
        "export x --format gif",
        "export x --format svg --weight heavy",
        "export x",
    ] {
        let sentence = refusal(&format!("pyobs {line}"));
        assert!(!sentence.contains('\n'), "{line}: {sentence}");
        assert!(sentence.contains("pyobs") || sentence.contains("--to"), "{line}: {sentence}");
    }
    for line in [
        "top --rate 1",
        "top --rate 20000",
        "top --pid 4194303",
        "record --duration 0.001",
        "export x --format svg --weight gil",
        "export x --format svg --weight bytes",
        "export x --format folded --weight redundant",
    ] {
        verb(&format!("pyobs {line}"));
    }
}

#[test]
fn the_manual_lists_the_families_of_the_registry() {
    let manual = include_str!("../../../docs/cli.md");
    for spec in &pyobs_capture::registry::SPECS {
        let (family, shows) = (spec.family, spec.shows);
        let on = if spec.is_on_by_default { "yes" } else { "no" };
        let row = format!("| [`{family}`](families/{family}.md) | {shows} | {on} |");
        assert!(manual.contains(&row), "{row}");
    }
}

#[test]
fn unknown_words_suggest_the_nearest() {
    assert!(refusal("pyobs reprot x").contains("did you mean `report`?"));
    assert!(refusal("pyobs top --rat 3").contains("did you mean `--rate`?"));
    assert!(refusal("pyobs diff a").contains("<AFTER>"));
    assert!(refusal("pyobs diff a b --json --format svg").contains("--format"));
    assert!(refusal("pyobs").contains("one of top, record"));
    assert!(refusal("pyobs top --rat 3").ends_with("see `pyobs top --help`"));
}

#[test]
fn arguments_that_are_not_text_are_refused_or_passed_on() {
    use std::os::unix::ffi::OsStringExt;
    let bytes = OsString::from_vec(vec![b'a', 0xff]);
    let line = |words: &[&str]| words.iter().map(OsString::from).chain([bytes.clone()]).collect::<Vec<_>>();
    assert!(matches!(parse(line(&["pyobs", "top", "--probe"])), Err(Failure::Usage(_))));
    assert!(matches!(parse(line(&["pyobs"])), Err(Failure::Usage(_))));
    let Ok(Some(Verb::Replay(replay))) = parse(line(&["pyobs", "replay"])) else { panic!() };
    assert_eq!(replay.file, PathBuf::from(bytes.clone()));
    let Ok(Some(Verb::Record(record))) = parse(line(&["pyobs", "record", "--"])) else { panic!() };
    assert_eq!(record.command, [bytes]);
}

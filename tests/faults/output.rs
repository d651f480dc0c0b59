//! Tests readers that go away, and outputs that are full.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, pipe};
use std::process::Stdio;
use std::sync::{Arc, OnceLock};

use pyobs_tests::{Case, Folder, Record, Recording, case, command, needs, workload};

use crate::python;
use crate::verb::{FORMATS, is_calm, pyobs, run, run_into};

/// Verbs that write to standard output, with `FILE` for the recording. `export` is added for each format.
const WRITERS: &[&[&str]] = &[
    &["report", "FILE"],
    &["report", "FILE", "--json"],
    &["doctor"],
    &["doctor", "--json"],
    &["completions", "bash"],
    &["man"],
    &["--help"],
    &["record", "--help"],
    &["--version"],
];

pub fn cases() -> Vec<Case> {
    let shared = Arc::new(OnceLock::new());
    let good = move || {
        let shared = Arc::clone(&shared);
        move || -> Arc<Recording> { Arc::clone(shared.get_or_init(|| Arc::new(record()))) }
    };
    let cases = vec![
        case("output/a_reader_that_is_gone_is_not_an_error", {
            let good = good();
            move || {
                for line in every_writer(&good()) {
                    let (reader, writer) = pipe().unwrap();
                    drop(reader);
                    let outcome = run_into(pyobs(&line), writer);
                    outcome.succeeds();
                    assert_eq!(outcome.stderr, "", "{line:?}");
                }
            }
        }),
        case("output/a_reader_of_one_line_gets_it_without_an_error", {
            let good = good();
            move || {
                for line in every_writer(&good()) {
                    let (reader, writer) = pipe().unwrap();
                    let head = std::thread::spawn(move || {
                        let mut first = String::new();
                        BufReader::with_capacity(1, reader).read_line(&mut first).map(|_| first)
                    });
                    let outcome = run_into(pyobs(&line), writer);
                    outcome.succeeds();
                    assert_eq!(outcome.stderr, "", "{line:?}");
                    assert!(!head.join().unwrap().unwrap().trim().is_empty(), "{line:?} wrote nothing");
                }
            }
        }),
        case("output/full_output_gives_a_sentence", {
            let good = good();
            move || {
                for line in every_writer(&good()) {
                    let outcome = run_into(pyobs(&line), full());
                    assert_eq!(outcome.code(), Some(1), "{outcome:#?}");
                    outcome.fails_with(1);
                }
            }
        }),
        case("output/a_full_file_gives_a_sentence_that_names_it", {
            let good = good();
            move || {
                for format in FORMATS {
                    let file = good().file.display().to_string();
                    let outcome = run(pyobs(["export", &file, "--format", format, "-o", "/dev/full"]));
                    assert!(outcome.fails_with(1).contains("/dev/full"), "{outcome:?}");
                }
                let file = good().file.display().to_string();
                let nowhere = "/no/such/folder/a.svg";
                let outcome = run(pyobs(["export", &file, "--format", "svg", "-o", nowhere]));
                assert!(outcome.fails_with(1).contains(nowhere), "{outcome:?}");
            }
        }),
        case("output/an_export_onto_its_own_recording_is_refused", {
            let good = good();
            move || {
                let folder = Folder::new();
                let file = folder.join("a.pyobs");
                std::fs::copy(&good().file, &file).unwrap();
                let before = std::fs::read(&file).unwrap();
                let path = file.display().to_string();
                let outcome = run(pyobs(["export", &path, "--format", "svg", "-o", &path]));
                assert!(std::fs::read(&file).unwrap() == before, "the recording was overwritten: {outcome:?}");
                outcome.fails_with(2);
            }
        }),
        case("output/closed_descriptors_do_no_harm", {
            let good = good();
            move || {
                let file = good().file.clone();
                for closed in [">&-", "2>&-", "<&-", ">&- 2>&- <&-"] {
                    let mut shell = command("sh");
                    shell.args(["-c", &format!("exec \"$0\" report \"$1\" {closed}")]).arg(pyobs_tests::pyobs());
                    let outcome = run(with(shell, &file));
                    outcome.is_calm();
                    assert!(matches!(outcome.code(), Some(0 | 1)), "{closed}: {outcome:?}");
                }
            }
        }),
        case("output/record_without_stderr_makes_a_complete_recording", {
            || {
                let folder = Folder::new();
                for redirect in ["2>&-", "2>/dev/full", ">&- 2>&- <&-"] {
                    let file = folder.join("a.pyobs");
                    let mut shell = command("sh");
                    shell.args(["-c", &format!("exec \"$0\" record --duration 1 -o \"$1\" {redirect}")]);
                    shell.arg(pyobs_tests::pyobs());
                    let outcome = run(with(shell, &file));
                    assert_eq!(outcome.code(), Some(0), "{redirect}: {outcome:?}");
                    let report = run(pyobs(["report".as_ref(), file.as_os_str()]));
                    report.succeeds();
                    is_calm(&report.stderr);
                    assert_eq!(report.stderr, "", "{redirect}: the recording is damaged");
                }
            }
        }),
    ];
    cases.into_iter().map(|case| case.needs(needs::root()).needs(python())).collect()
}

fn record() -> Recording {
    let mut children = python().unwrap().script(workload("fault_children.py"));
    children.arg("10");
    Record::new().rate(999).command(children).run()
}

fn every_writer(good: &Recording) -> Vec<Vec<String>> {
    let file = good.file.display().to_string();
    let fill = |word: &&str| if *word == "FILE" { file.clone() } else { (*word).to_owned() };
    let exports = FORMATS.map(|format| ["export", "FILE", "--format", format]);
    let lines = WRITERS.iter().copied().chain(exports.iter().map(|line| &line[..]));
    lines.map(|line| line.iter().map(fill).collect()).collect()
}

fn full() -> Stdio {
    let full: File = OpenOptions::new().write(true).open("/dev/full").unwrap();
    full.into()
}

fn with(mut shell: std::process::Command, argument: &std::path::Path) -> std::process::Command {
    shell.arg(argument);
    shell
}

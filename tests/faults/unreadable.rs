//! Tests damaged recordings, and files that are not recordings, with `report` and `export` (tests/terminal covers
//! `replay`).

use std::fs;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use pyobs_tests::{Case, Folder, Record, Recording, Workload, case, json, needs, workload};

use crate::python;
use crate::spoilt::{Numbers, hopeless};
use crate::verb::{FORMATS, Outcome, pyobs, run};

pub fn cases() -> Vec<Case> {
    // All cases share one recording, which is removed with the last of them.
    let shared = Arc::new(OnceLock::new());
    let good = move || {
        let shared = Arc::clone(&shared);
        move || -> Arc<Recording> { Arc::clone(shared.get_or_init(|| Arc::new(record()))) }
    };
    let cases = vec![
        case("unreadable/other_files_give_a_sentence_that_names_them", {
            let good = good();
            move || {
                let folder = Folder::new();
                for (what, path) in hopeless(&good().file, &folder) {
                    for outcome in [report(&path), export(&path, "svg"), export(&path, "json")] {
                        assert_eq!(outcome.code(), Some(1), "{what}: {outcome:#?}");
                        let sentence = outcome.fails_with(1);
                        let name = path.to_str().unwrap();
                        assert!(sentence.contains(name), "{what}: the sentence does not name {name}: {sentence}");
                        assert!(outcome.stdout.is_empty(), "{what}: {outcome:#?}");
                    }
                }
            }
        }),
        case("unreadable/a_newer_recording_says_so", {
            let good = good();
            move || {
                let folder = Folder::new();
                let spoilt = hopeless(&good().file, &folder);
                let (_, newer) = spoilt.iter().find(|(what, _)| *what == "of a newer version").unwrap();
                let outcome = report(newer);
                let sentence = outcome.fails_with(1);
                assert!(sentence.contains("9999") && sentence.contains("newer"), "{sentence}");
            }
        }),
        case("unreadable/a_truncated_recording_gives_what_is_left_and_says_so", {
            let good = good();
            move || {
                let (good, folder) = (good(), Folder::new());
                let (bytes, mut numbers) = (fs::read(&good.file).unwrap(), Numbers::new());
                let path = folder.join("cut.pyobs");
                for _ in 0..20 {
                    let length = numbers.below(bytes.len());
                    fs::write(&path, &bytes[..length]).unwrap();
                    for outcome in every_output(&path) {
                        is_honest(&outcome, &format!("truncated at {length} of {}", bytes.len()));
                        assert_eq!(
                            outcome.stderr.lines().count(),
                            1,
                            "truncated at {length} without a sentence: {outcome:#?}"
                        );
                    }
                    adds_nothing(&good, &path, &format!("truncated at {length}"));
                }
            }
        }),
        case("unreadable/random_bytes_never_crash_or_hang", {
            let good = good();
            move || {
                let (good, folder) = (good(), Folder::new());
                let (bytes, mut numbers) = (fs::read(&good.file).unwrap(), Numbers::new());
                let path = folder.join("corrupt.pyobs");
                for round in 0..20 {
                    let mut corrupt = bytes.clone();
                    for _ in 0..=round * 10 {
                        let place = numbers.below(corrupt.len());
                        corrupt[place] = u8::try_from(numbers.below(256)).unwrap();
                    }
                    fs::write(&path, &corrupt).unwrap();
                    for outcome in every_output(&path) {
                        is_honest(&outcome, &format!("round {round}"));
                    }
                }
            }
        }),
        case("unreadable/a_page_of_garbage_never_crashes_or_hangs", {
            let good = good();
            move || {
                let (good, folder) = (good(), Folder::new());
                let (bytes, mut numbers) = (fs::read(&good.file).unwrap(), Numbers::new());
                let path = folder.join("corrupt.pyobs");
                for page in 1..(bytes.len() / 4096).min(24) {
                    let mut corrupt = bytes.clone();
                    corrupt[page * 4096..][..4096].fill_with(|| numbers.below(256) as u8);
                    fs::write(&path, &corrupt).unwrap();
                    is_honest(&report(&path), &format!("page {page}"));
                }
            }
        }),
        case("unreadable/a_recording_is_not_changed_by_reading_it", {
            let good = good();
            move || {
                let (good, folder) = (good(), Folder::new());
                let path = folder.join("a.pyobs");
                fs::copy(&good.file, &path).unwrap();
                let before = fs::read(&path).unwrap();
                for outcome in every_output(&path) {
                    outcome.succeeds();
                }
                assert!(fs::read(&path).unwrap() == before);
                assert_eq!(fs::read_dir(&*folder).unwrap().count(), 1, "other files lie beside it");
            }
        }),
        case("unreadable/a_recording_in_progress_can_be_read_repeatedly", || {
            let mut spin = Workload::start(python().unwrap().script(workload("fault_spin.py")));
            spin.wait_for("ready");
            let running = Record::new().rate(999).pid(spin.pid()).start();
            let file = running.file().to_owned();
            let mut before = 0;
            std::thread::sleep(std::time::Duration::from_secs(1));
            for _ in 0..20 {
                for outcome in every_output(&file) {
                    outcome.succeeds();
                    assert_eq!(outcome.stderr, "", "{}", outcome.shown);
                }
                let json = run(pyobs(["report".as_ref(), "--json".as_ref(), file.as_os_str()]));
                let samples = json::count(&json::parse(json.text()), "/stacks/samples");
                assert!(samples >= before, "the samples went from {before} to {samples}");
                before = samples;
            }
            assert!(before > 0);
            let recording = running.stop();
            assert!(recording.status.success(), "{recording:?}");
            assert!(json::count(&recording.report, "/stacks/samples") >= before);
        }),
        case("unreadable/a_process_that_is_not_recorded_gives_a_sentence", {
            let good = good();
            move || {
                let file = good().file.clone();
                let absent = ["--format", "json", "--pid", "4194303"];
                let mut export = pyobs(["export".as_ref(), file.as_os_str()]);
                export.args(absent);
                assert!(run(export).fails_with(1).contains("4194303"));
            }
        }),
    ];
    cases.into_iter().map(|case| case.needs(needs::root()).needs(python()).needs(needs::program("mkfifo"))).collect()
}

fn record() -> Recording {
    let mut spin = python().unwrap().script(workload("fault_spin.py"));
    spin.arg("2");
    Record::new().rate(999).command(spin).run()
}

fn report(file: &Path) -> Outcome {
    run(pyobs(["report".as_ref(), file.as_os_str()]))
}

fn export(file: &Path, format: &str) -> Outcome {
    run(pyobs(["export".as_ref(), file.as_os_str(), "--format".as_ref(), format.as_ref()]))
}

fn every_output(file: &Path) -> Vec<Outcome> {
    let json = run(pyobs(["report".as_ref(), "--json".as_ref(), file.as_os_str()]));
    let mut outcomes = vec![report(file), json];
    outcomes.extend(FORMATS.iter().map(|format| export(file, format)));
    outcomes
}

/// Asserts that it did what it could or said why not. For a damaged recording it may say both: what is damaged, and
/// what therefore cannot be done.
#[track_caller]
fn is_honest(outcome: &Outcome, what: &str) {
    assert!(matches!(outcome.code(), Some(0 | 1)), "{what}: {outcome:#?}");
    outcome.is_calm();
    let sentences: Vec<&str> = outcome.stderr.lines().collect();
    let is_damage = |sentence: &&str| sentence.contains("damaged");
    assert!(sentences.len() <= 1 || sentences.len() == 2 && is_damage(&sentences[0]), "{what}: {outcome:#?}");
    if outcome.code() == Some(1) {
        assert!(!sentences.is_empty(), "{what}: {outcome:#?}");
        assert!(outcome.stdout.is_empty(), "{what}: {outcome:#?}");
    } else {
        assert!(!outcome.text().contains('\0'), "{what}: {outcome:#?}");
    }
}

/// Asserts that everything read from a damaged recording was in the intact one.
#[track_caller]
fn adds_nothing(good: &Recording, damaged: &Path, what: &str) {
    let outcome = run(pyobs(["report".as_ref(), "--json".as_ref(), damaged.as_os_str()]));
    if outcome.code() != Some(0) {
        return;
    }
    let report = json::parse(outcome.text());
    let samples = |report| json::count(report, "/stacks/samples");
    assert!(samples(&report) <= samples(&good.report), "{what}: more samples than before");
    let functions = |report: &serde_json::Value| {
        let rows = json::list(report, "/frames").iter();
        rows.map(|row| row["frame"]["function"].to_string()).collect::<Vec<_>>()
    };
    let known = functions(&good.report);
    for function in functions(&report) {
        // A question mark replaces a frame that the file no longer has.
        assert!(known.contains(&function) || function == "\"?\"", "{what}: {function} was never there");
    }
}

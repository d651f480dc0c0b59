//! Tests the dashboard on recordings, intact and damaged.

use std::collections::BTreeMap;

use pyobs_tests::{Case, Folder, Record, Recording, case, json, needs, workload};

use crate::ends::is_one_sentence;
use crate::pty::{SIZES, Terminal};
use crate::python;
use crate::screens::quit;
use crate::spoilt::{Numbers, hopeless};

pub fn cases() -> Vec<Case> {
    let cases = vec![
        case("replay/shows_the_hot_function_of_the_report", || {
            let recording = record();
            let hottest = hottest(&recording);
            assert_eq!(hottest, "hot_function");
            for size in SIZES {
                let mut terminal = open(size, &recording.file);
                terminal.wait_for("REPLAY");
                terminal.press("2");
                terminal.wait_until("the hottest function in the first row", |screen| {
                    let text = screen.contents();
                    let mut rows = text.lines().skip_while(|line| !line.contains("TOTAL %"));
                    rows.nth(1).is_some_and(|row| row.contains(&hottest))
                });
                terminal.press("3");
                terminal.wait_for(&hottest);
                terminal.press("5");
                terminal.wait_for("PYTHON STACKS");
                quit(terminal);
            }
        }),
        case("replay/of_other_files_gives_a_sentence", || {
            let folder = Folder::new();
            for (what, path) in hopeless(&record().file, &folder) {
                let mut terminal = open((80, 24), &path);
                let status = terminal.wait();
                assert_eq!(status.code(), Some(1), "{what}: {}", terminal.text());
                is_one_sentence(&terminal);
                terminal.is_restored();
            }
        }),
        case("replay/of_a_damaged_recording_never_crashes_or_hangs", || {
            let (recording, folder, mut numbers) = (record(), Folder::new(), Numbers::new());
            let (bytes, path) = (std::fs::read(&recording.file).unwrap(), folder.join("damaged.pyobs"));
            for round in 0..12 {
                let mut damaged = bytes.clone();
                if round % 2 == 0 {
                    damaged.truncate(numbers.below(bytes.len()));
                } else {
                    for _ in 0..round * 10 {
                        let place = numbers.below(damaged.len());
                        damaged[place] = numbers.below(256) as u8;
                    }
                }
                std::fs::write(&path, &damaged).unwrap();
                let mut terminal = open((80, 24), &path);
                std::thread::sleep(std::time::Duration::from_millis(500));
                terminal.press("2341q");
                let status = terminal.wait();
                assert!(matches!(status.code(), Some(0 | 1)), "round {round}: {}", terminal.text());
                terminal.is_restored();
            }
        }),
    ];
    cases.into_iter().map(|case| case.needs(needs::root()).needs(python())).collect()
}

#[track_caller]
fn open(size: (u16, u16), file: &std::path::Path) -> Terminal {
    Terminal::open(size, ["replay".as_ref(), file.as_os_str()])
}

fn record() -> Recording {
    let mut spin = python().unwrap().script(workload("fault_spin.py"));
    spin.arg("3");
    Record::new().rate(499).command(spin).run()
}

/// The Python function with the most samples by `report --json`, apart from `main` and the module.
#[track_caller]
fn hottest(recording: &Recording) -> String {
    let mut own: BTreeMap<&str, u64> = BTreeMap::new();
    for row in json::list(&recording.report, "/frames").iter().filter(|row| row["frame"]["kind"] == "python") {
        *own.entry(json::text(row, "/frame/function")).or_default() += json::count(row, "/total");
    }
    own.remove("<module>");
    own.remove("main");
    own.into_iter().max_by_key(|(_, samples)| *samples).map(|(name, _)| name.to_owned()).unwrap()
}

//! Tests the keys that write files: the rows of a screen, and the last minutes of a capture.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use pyobs_tests::{Case, Folder, Workload, case, json, needs, workload};

use crate::pty::Terminal;
use crate::python;
use crate::screens::quit;

/// A user that owns no files of a test machine.
const USER: u32 = 54_321;

pub fn cases() -> Vec<Case> {
    let cases = vec![
        case("kept/rows_and_the_last_minutes_become_files", || write_files(None)),
        case("kept/files_belong_to_the_user_who_ran_sudo", || write_files(Some(USER))).needs(can_be_reached()),
        case("kept/a_folder_of_another_user_is_not_written_to", refuse).needs(can_be_reached()),
    ];
    cases.into_iter().map(|case| case.needs(needs::root()).needs(python())).collect()
}

/// Whether other users can reach the folders of the tests.
fn can_be_reached() -> Result<(), String> {
    let folder = Folder::new();
    let is_open = |folder: &Path| fs::metadata(folder).is_ok_and(|found| found.permissions().mode() & 0o001 != 0);
    match folder.ancestors().skip(1).find(|folder| !folder.as_os_str().is_empty() && !is_open(folder)) {
        Some(closed) => Err(format!("other users cannot reach {}", closed.display())),
        None => Ok(()),
    }
}

/// Runs the dashboard in a folder of a user, as if that user or another had run sudo.
pub fn top_in(folder: &Path, owner: Option<u32>, sudo: Option<u32>) -> (Workload, Terminal) {
    if let Some(owner) = owner {
        chown(folder, Some(owner), Some(owner)).unwrap();
    }
    let mut spin = Workload::start(python().unwrap().script(workload("fault_spin.py")));
    spin.wait_for("ready");
    let mut top = Command::new(pyobs_tests::pyobs());
    top.args(["top", "--pid", &spin.pid().to_string()]).current_dir(folder).env("TERM", "xterm-256color");
    if let Some(user) = sudo {
        top.env("SUDO_UID", user.to_string()).env("SUDO_GID", user.to_string());
    }
    let mut terminal = Terminal::with((140, 40), top);
    terminal.press("2");
    terminal.wait_for("hot_function");
    (spin, terminal)
}

/// The only file of the folder with this ending.
#[track_caller]
fn file(folder: &Path, ending: &str) -> PathBuf {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|of| of == ending)).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    file.clone()
}

fn write_files(user: Option<u32>) {
    let folder = Folder::new();
    let (_spin, mut terminal) = top_in(&folder, user, user);
    terminal.press("x");
    terminal.wait_for("rows to pyobs-");
    let rows = file(&folder, "csv");
    let text = fs::read_to_string(&rows).unwrap();
    assert!(text.starts_with("OWN %,TOTAL %,OWN,FUNCTION,LINE\r\n"), "{text}");
    assert!(text.lines().any(|line| line.contains(",hot_function,")), "{text}");
    terminal.press("R");
    terminal.wait_for("wrote the last");
    let recording = file(&folder, "pyobs");
    for file in [&rows, &recording] {
        let expected = user.unwrap_or(0);
        assert_eq!(fs::metadata(file).unwrap().uid(), expected, "{}", file.display());
    }
    quit(terminal);
    let mut report = pyobs_tests::command(pyobs_tests::pyobs());
    report.args(["report", "--json"]).arg(&recording);
    let ended = Workload::start(report).wait();
    assert!(ended.status.success(), "{}", ended.stderr);
    let report = json::parse(&ended.stdout);
    let [process] = json::list(&report, "/processes") else { panic!("{:#}", report["processes"]) };
    let hot = json::list(&report, "/frames").iter().find(|row| row["frame"]["function"] == "hot_function").unwrap();
    let share = json::number(hot, "/total_s") / json::number(process, "/cpu_s");
    assert!((0.5..=1.0).contains(&share), "{share} of the process: {hot:#}");
    assert_eq!(report["recording"]["finished"], true);
}

/// A folder that belongs to neither root nor the user behind sudo.
fn refuse() {
    let folder = Folder::new();
    let (_spin, mut terminal) = top_in(&folder, Some(USER + 1), Some(USER));
    for (key, said) in [("x", "the rows could not be written"), ("R", "the last minutes could not be written")] {
        terminal.press(key);
        terminal.wait_for(said);
    }
    assert_eq!(fs::read_dir(&*folder).unwrap().count(), 0);
    quit(terminal);
}

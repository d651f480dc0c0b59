//! What scripts rely on: exit codes, one sentence on stderr, and nothing else on stdout. None of it needs root.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

fn pyobs() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pyobs"));
    command.stdin(Stdio::null());
    command
}

#[track_caller]
fn run(arguments: &[&str]) -> Output {
    pyobs().args(arguments).output().unwrap()
}

#[track_caller]
fn refused(arguments: &[&str], code: i32) -> String {
    let output = run(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert!(said.starts_with("pyobs: ") && said.ends_with('\n'), "{arguments:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    said
}

#[test]
fn wrong_arguments_exit_with_2() {
    refused(&[], 2);
    refused(&["nonsense"], 2);
    refused(&["top", "--rate", "0"], 2);
    refused(&["record", "--probe", "nonsense"], 2);
    refused(&["export", "x.pyobs"], 2);
    // Standard output is not a terminal here.
    refused(&["top"], 2);
    refused(&["replay", "/no/such.pyobs"], 2);
}

#[test]
fn failures_exit_with_1() {
    for arguments in [&["report", "/no/such.pyobs"][..], &["export", "/etc/passwd", "--format", "svg"]] {
        refused(arguments, 1);
    }
}

#[test]
fn arguments_cannot_drive_the_terminal() {
    let said = refused(&["report", "/no/\u{1b}[2J\n"], 1);
    assert!(!said.contains('\u{1b}'));
    refused(&["\u{1b}[2J\n"], 2);
}

#[test]
fn help_version_man_and_completions_exit_with_0_and_print_to_stdout() {
    for arguments in [
        &["--help"][..],
        &["-h"],
        &["record", "--help"],
        &["--version"],
        &["man"],
        &["completions", "bash"],
        &["completions", "zsh"],
        &["completions", "fish"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_reader_that_closes_is_not_an_error() {
    for arguments in [&["man"][..], &["completions", "bash"], &["--help"]] {
        let (read, write) = std::io::pipe().unwrap();
        drop(read);
        let output = pyobs().args(arguments).stdout(write).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(output.stderr.is_empty(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_full_disk_exits_with_1() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = pyobs().arg("man").stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(BufReader::new(&output.stderr[..]).lines().count(), 1);
}

#[test]
fn doctor_says_the_same_in_words_and_in_json() {
    let words = run(&["doctor"]);
    let json = run(&["doctor", "--json"]);
    assert!(matches!(words.status.code(), Some(0 | 3)));
    assert_eq!(words.status.code(), json.status.code());
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["version"], 1);
    let words = String::from_utf8(words.stdout).unwrap();
    assert!(!words.contains('\u{1b}'));
    let checks = json["checks"].as_array().unwrap();
    assert!(checks.len() > 30);
    for check in checks {
        assert!(words.contains(check["name"].as_str().unwrap()), "{check}");
        assert!(check["families"].is_array() && check["area"].is_string() && check["why"].is_string(), "{check}");
        assert_eq!(check["todo"].is_null(), check["status"] == "works", "{check}");
    }
}

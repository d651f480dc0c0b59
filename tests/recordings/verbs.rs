//! Runs `report`, `export` and `diff` over the recordings.

use std::fs;
use std::process::Command;

use pyobs_tests::{Folder, command, pyobs};

use crate::corpus::{self, File};
use crate::golden;
use crate::summary::{self, FORMATS};

/// The rows of each list in the golden reports in JSON. A digest of the whole report is among the exports.
const ROWS: &str = "3";

/// What the two recordings that `diff` compares are called: one program, slow and then fast.
const COMPARED: [&str; 2] = ["before.pyobs", "after.pyobs"];

/// Pins the folder, time zone and locale, so that the output is the same on every machine.
pub fn neutral(command: &mut Command) {
    command.current_dir(corpus::folder()).env_clear().env("TZ", "UTC").env("LC_ALL", "C.UTF-8");
}

/// What pyobs writes to standard output, or the sentence with which it refuses. Two runs must agree: hash tables have another
/// order in each.
#[track_caller]
fn answer(arguments: &[&str]) -> Result<Vec<u8>, String> {
    let run = || {
        let mut verb = command(pyobs());
        verb.args(arguments);
        neutral(&mut verb);
        let output = verb.output().unwrap();
        let sentence = String::from_utf8(output.stderr).unwrap();
        match output.status.code() {
            Some(0) => {
                assert_eq!(sentence, "", "{arguments:?}");
                Ok(output.stdout)
            }
            Some(1) => Err(sentence),
            _ => panic!("{arguments:?}: {}: {sentence}", output.status),
        }
    };
    let first = run();
    assert!(first == run(), "two runs of {arguments:?} differ");
    first
}

#[track_caller]
fn output(arguments: &[&str]) -> Vec<u8> {
    answer(arguments).unwrap_or_else(|sentence| panic!("{arguments:?}: {sentence}"))
}

#[track_caller]
fn text(arguments: &[&str]) -> String {
    String::from_utf8(output(arguments)).unwrap()
}

/// `pyobs` names its version in some outputs.
fn without_version(bytes: Vec<u8>) -> Vec<u8> {
    match String::from_utf8(bytes) {
        Ok(text) => text.replace(concat!("pyobs ", env!("CARGO_PKG_VERSION")), "pyobs VERSION").into_bytes(),
        Err(error) => error.into_bytes(),
    }
}

pub fn report_in_words(file: &File) {
    golden::check(&format!("{}/report.txt", file.name), &text(&["report", &file.file()]));
}

pub fn report_as_json(file: &File) {
    golden::check(&format!("{}/report.json", file.name), &text(&["report", "--json", "--limit", ROWS, &file.file()]));
}

/// One golden file for all formats: a summary and a digest of each. A case that fails leaves the exports themselves.
pub fn exports(file: &File) {
    let mut all = String::new();
    let folder = Folder::new();
    for (format, _) in FORMATS {
        let arguments = ["export", &file.file(), "--format", format, "--weight", file.weight];
        match answer(&arguments).map(without_version) {
            Ok(bytes) => {
                fs::write(folder.join(format), &bytes).unwrap();
                all += &summary::of(format, &bytes);
            }
            Err(sentence) => all += &format!("{format}: refused: {sentence}"),
        }
    }
    golden::check(&format!("{}/exports.txt", file.name), &all);
}

pub fn diff_in_words() {
    golden::check("diff/words.txt", &text(&[&["diff"][..], &COMPARED].concat()));
}

pub fn diff_as_json() {
    golden::check("diff/diff.json", &text(&[&["diff", "--json"][..], &COMPARED].concat()));
}

pub fn diff_as_svg() {
    let svg = output(&[&["diff", "--format", "svg"][..], &COMPARED].concat());
    golden::check("diff/svg.txt", &summary::of("svg", &without_version(svg)));
}

//! Compares the committed table of structure offsets with the debug information of the interpreters at hand.

use std::path::{Path, PathBuf};

use pyobs_capture::elf::Elf;
use pyobs_tests::{Case, case};

use crate::generator;
use crate::interpreters::minor_of_name;

const TABLE: &str = include_str!("../../userspace/capture/src/cpython/offsets.toml");

pub fn cases() -> Vec<Case> {
    let files = generator::find_interpreters();
    let mut cases: Vec<Case> = (6..=13).map(|minor| of_version(minor, &files)).collect();
    cases.push(case("offsets/other_files_are_skipped_with_a_reason", no_interpreter));
    cases
}

fn of_version(minor: u8, files: &[PathBuf]) -> Case {
    let wanted = |path: &&PathBuf| minor_of_name(path) == Some(minor) && has_debug_information(path);
    let files: Vec<PathBuf> = files.iter().filter(wanted).cloned().collect();
    let missing = || format!("there is no CPython 3.{minor} with debug information here");
    let need = if files.is_empty() { Err(missing()) } else { Ok(()) };
    let name = format!("offsets/python3.{minor}::the_committed_table_matches_the_debug_information");
    case(name, move || is_in_the_table(minor, files.clone())).needs(need)
}

/// Whether an interpreter has debug information. A launcher may have some too, so an export of the interpreter is
/// required.
pub fn has_debug_information(path: &Path) -> bool {
    let data = std::fs::read(path).unwrap_or_default();
    Elf::parse(&data).is_ok_and(|elf| elf.has_section(b".debug_info") && elf.exported("PyCode_Type").is_some())
}

fn is_in_the_table(minor: u8, files: Vec<PathBuf>) {
    let (generated, skipped) = generator::generate(files);
    let one =
        generated.get(&minor).unwrap_or_else(|| panic!("no file has the offsets of CPython 3.{minor}: {skipped:#?}"));
    assert_eq!(generator::compare(TABLE, &generated).unwrap(), [one.version.as_str()]);

    // The comparison must notice a single changed number, and name it in one sentence.
    let (structure, field) = if minor < 13 { ("code", "name") } else { ("gil", "condition") };
    let number = one.fields[structure][field].to_string();
    let changed = TABLE.replace(&format!("{field} = {number}\n"), &format!("{field} = 4096\n"));
    assert_ne!(changed, TABLE);
    let error = generator::compare(&changed, &generated).unwrap_err().to_string();
    let start = format!("{structure}.{field} of CPython {}:", one.version);
    assert!(error.starts_with(&start) && error.contains("the table has 4096"), "{error}");
}

fn no_interpreter() {
    let files = ["/bin/sh", "/etc/passwd", "/nonexistent"];
    let (generated, skipped) = generator::generate(files.map(PathBuf::from).to_vec());
    assert!(generated.is_empty());
    let reasons: Vec<String> = skipped.iter().map(|(_, why)| why.to_string()).collect();
    assert_eq!(reasons, ["it has no debug information", "not an ELF file", "cannot read it"]);
}

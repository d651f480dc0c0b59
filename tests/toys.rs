//! Checks that the recipes of docs/internals/extending.md still hold: the patches in `toys`, a whole family and a whole format,
//! apply to this tree, and the tree compiles with them.
//!
//! If a patch does not apply any more: `git apply --3way tests/toys/NAME.patch`, repair it, add the new files with `git add -N`,
//! and write `git diff -U1` to the file.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use pyobs_tests::{Case, Folder, case, needs, run};

const TOYS: [&str; 2] = ["family.patch", "format.patch"];
/// What a checkout consists of, for a compiler.
const PARTS: [&str; 9] =
    [".cargo", "Cargo.lock", "Cargo.toml", "clippy.toml", "docs", "ebpf", "tests", "userspace", "xtask"];

fn main() -> ExitCode {
    let of_one =
        |toy: &'static str| case(format!("toys/{toy}_applies"), move || apply(&repository(), &[toy], &["--check"]));
    let mut cases: Vec<Case> = TOYS.map(|toy| of_one(toy).needs(needs::program("git"))).into();
    let whole = case("toys/all_compile", all_compile).needs(needs::all());
    cases.push(whole.needs(needs::program("git")).needs(needs::program("cargo")));
    run(cases)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn apply(tree: &Path, toys: &[&str], options: &[&str]) {
    let patches = toys.iter().map(|toy| Path::new(env!("CARGO_MANIFEST_DIR")).join("toys").join(toy));
    let mut git = Command::new("git");
    git.current_dir(tree).arg("apply").args(options).args(patches);
    // A copy below `target` is not a part of the repository, or git would leave out what the patches change there.
    succeed(git.env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree)));
}

fn all_compile() {
    let copy = Folder::new();
    for part in PARTS {
        succeed(Command::new("cp").arg("-r").arg(repository().join(part)).arg(&*copy));
    }
    apply(&copy, &TOYS, &[]);
    let packages = ["-p", "pyobs", "-p", "pyobs-tests", "--test", "writes"];
    succeed(Command::new("cargo").current_dir(&*copy).args(["check", "--quiet", "--bins"]).args(packages));
}

fn succeed(command: &mut Command) {
    let output = command.output().expect("it can be started");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

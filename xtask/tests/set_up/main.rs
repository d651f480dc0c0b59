//! Tests what `cargo xtask` does on a bare machine and on one that is set up, by the programs that it calls.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

mod machine;

use std::fs;
use std::process::{Command, ExitCode};

use pyobs_tests::{Case, case, command, needs};

use machine::{Machine, RUSTC, fails_with, has_mode, output_of, succeeds};

const BUILD: &str = "cargo rustc --release --package pyobs --bin pyobs -- -C target-feature=+crt-static";
const TRIAL: &str = "rustc --edition 2024 -C target-feature=+crt-static -o tools/static-trial tools/static-trial.rs";

fn main() -> ExitCode {
    let of_nobody = |case: Case| case.needs(needs::root()).needs(needs::program("setpriv"));
    pyobs_tests::run(vec![
        case("a_second_run_sets_nothing_up", second_run),
        case("missing_parts_are_set_up_again", set_up_again),
        case("missing_requirements_give_one_sentence", lacking),
        of_nobody(case("a_user_without_rights_goes_through_sudo", through_sudo)),
        of_nobody(case("without_sudo_root_is_required", without_sudo)),
        case("a_prefix_has_every_installed_file", installed).needs(needs::program("install")),
        case("bash_completes_verbs", bash).needs(needs::program("install")).needs(needs::program("bash")),
        case("groff_accepts_the_manual_page", page).needs(needs::program("install")).needs(needs::program("groff")),
    ])
}

fn second_run() {
    let machine = Machine::new();
    succeeds(&machine.xtask(&["build"]));
    let first = ["rustc -vV", "rustc --print sysroot", TRIAL, "bpf-linker --version", BUILD];
    assert_eq!(machine.calls(), first);
    succeeds(&machine.xtask(&["build"]));
    assert_eq!(machine.calls(), ["rustc -vV", BUILD]);
    if needs::root().is_ok() {
        succeeds(&machine.xtask(&["top", "--rate", "49"]));
        assert_eq!(machine.calls(), ["rustc -vV", BUILD, "pyobs top --rate 49"]);
    }
}

fn set_up_again() {
    let machine = Machine::new();
    let is_set_up = || {
        succeeds(&machine.xtask(&["setup"]));
        machine.calls() != ["rustc -vV"]
    };
    assert!(is_set_up() && !is_set_up());
    machine.is(&RUSTC.replace("1.95.0", "1.95.1"));
    assert!(is_set_up(), "nothing was set up for another rustc");
    assert!(!is_set_up());
    machine.lose("target/tools/bin/bpf-linker");
    assert!(is_set_up(), "nothing was set up without a linker");
    assert!(!is_set_up());
    machine.lose("target/tools/static-trial");
    assert!(is_set_up(), "nothing was set up without the static program");
    assert!(!is_set_up());
}

fn lacking() {
    const SOURCE: &str = "sysroot/lib/rustlib/src/rust/library/Cargo.lock";
    let after = |change: fn(&Machine), code, sentence| {
        let machine = Machine::new();
        change(&machine);
        for verb in ["setup", "build", "top"] {
            fails_with(&machine.xtask(&[verb]), code, sentence);
        }
        assert!(!machine.calls().contains(&BUILD.to_owned()));
    };
    after(
        |machine| machine.lose("bin/rustc"),
        3,
        "rustc does not run: No such file or directory (os error 2); install Rust",
    );
    after(|machine| machine.lose(SOURCE), 3, "there is no rustup to add it");
    after(|machine| machine.is("rustc 1.95.0\\n"), 3, "does not say which LLVM it holds; install Rust with rustup");
    after(|machine| machine.has_rustc(RUSTC, "exit 1"), 3, "install glibc's static library: libc6-dev on Debian");
    after(|machine| machine.lose("bin/bpf-linker"), 3, "there is no C compiler `cc`");
    let with_compiler = |machine: &Machine| {
        machine.lose("bin/bpf-linker");
        machine.script("bin/cc", "");
    };
    after(with_compiler, 3, "was not installed by rustup; install Rust with rustup");
    let with_rustup = |machine: &Machine| {
        machine.lose(SOURCE);
        machine.script("bin/rustup", "exit 1");
    };
    after(with_rustup, 1, "rustup could not add rust-src");
}

/// root does the set-up, for a user who may not write to the folder.
fn set_up_for_nobody() -> Machine {
    let machine = Machine::new();
    succeeds(&machine.xtask(&["setup"]));
    machine.calls();
    machine
}

fn through_sudo() {
    let machine = set_up_for_nobody();
    machine.script("bin/sudo", "");
    succeeds(&machine.xtask_as_nobody(&["top", "--rate", "49"]));
    assert_eq!(machine.calls(), ["rustc -vV", BUILD, "sudo release/pyobs top --rate 49"]);
}

fn without_sudo() {
    let machine = set_up_for_nobody();
    fails_with(
        &machine.xtask_as_nobody(&["top"]),
        3,
        "needs root, and there is no sudo here; run this command as root",
    );
    assert_eq!(machine.calls(), ["rustc -vV", BUILD]);
}

/// Runs `cargo xtask install --prefix` with the real pyobs.
fn install() -> Machine {
    let machine = Machine::new();
    machine.borrow("install");
    machine.lose("target/release/pyobs");
    fs::copy(pyobs_tests::pyobs(), machine.path("target/release/pyobs")).unwrap();
    let prefix = machine.path("prefix");
    succeeds(&machine.xtask(&["install", "--prefix", prefix.to_str().unwrap()]));
    machine
}

fn installed() {
    let machine = install();
    has_mode(&machine.path("prefix/bin/pyobs"), 0o755);
    let generated = [
        "man/man1/pyobs.1",
        "bash-completion/completions/pyobs",
        "zsh/site-functions/_pyobs",
        "fish/vendor_completions.d/pyobs.fish",
    ];
    for file in generated {
        let file = machine.path("prefix/share").join(file);
        has_mode(&file, 0o644);
        assert!(fs::read_to_string(&file).unwrap().contains("record"), "{}", file.display());
    }
    let version = output_of({
        let mut pyobs = command(machine.path("prefix/bin/pyobs"));
        pyobs.arg("--version");
        pyobs
    });
    assert_eq!(version, format!("pyobs {}\n", env!("CARGO_PKG_VERSION")));
}

fn bash() {
    let machine = install();
    let mut bash = Command::new("bash");
    bash.args([
        "--norc",
        "-c",
        "source \"$0\" && complete -p pyobs && \
        COMP_WORDS=(pyobs rec) COMP_CWORD=1 && _pyobs pyobs rec pyobs && echo \"${COMPREPLY[@]}\"",
    ]);
    bash.arg(machine.path("prefix/share/bash-completion/completions/pyobs"));
    let printed = output_of(bash);
    let lines: Vec<&str> = printed.lines().collect();
    assert!(matches!(lines[..], [complete, "record"] if complete.contains("-F _pyobs")), "{printed}");
}

fn page() {
    let machine = install();
    let mut groff = Command::new("groff");
    groff.args(["-ww", "-man", "-Tascii", "-P-cbou"]).arg(machine.path("prefix/share/man/man1/pyobs.1"));
    let page = output_of(groff);
    for heading in ["NAME", "SYNOPSIS", "DESCRIPTION"] {
        assert!(page.lines().any(|line| line.contains(heading)), "no {heading}: {page:.2000}");
    }
}

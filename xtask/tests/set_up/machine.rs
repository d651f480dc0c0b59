//! A simulated machine: scripts replace Rust and the programs that need root, and log how they were called.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pyobs_tests::{Folder, command, needs};

const NOBODY: &str = "65534";
pub const RUSTC: &str = "rustc 1.95.0 (of a test)\nLLVM version: 22.1.2\n";

pub struct Machine(Folder);

impl Machine {
    /// A machine with everything that a build needs, but not set up yet.
    pub fn new() -> Self {
        let machine = Self(Folder::new());
        for folder in ["bin", "target/release", "sysroot/lib/rustlib/src/rust/library"] {
            fs::create_dir_all(machine.path(folder)).unwrap();
        }
        fs::write(machine.path("sysroot/lib/rustlib/src/rust/library/Cargo.lock"), "").unwrap();
        fs::write(machine.path("calls"), "").unwrap();
        machine.is(RUSTC);
        // xtask recognises a fitting linker by its version and by LLVM's producer string in it.
        machine.script("bin/bpf-linker", "echo bpf-linker 0.13.0 # LLVM22.");
        for program in ["bin/cargo", "target/release/pyobs"] {
            machine.script(program, "");
        }
        machine
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Gives the machine this rustc.
    pub fn is(&self, version: &str) {
        // xtask links with `--edition 2024 -C OPTION -o FILE`.
        self.has_rustc(version, ": > \"$6\"");
    }

    /// Gives the machine a rustc that runs `link` when it is to link a program.
    pub fn has_rustc(&self, version: &str, link: &str) {
        let sysroot = self.path("sysroot");
        let answers = format!("-vV) printf '{version}';; --print) echo '{}';; *) {link};;", sysroot.display());
        self.script("bin/rustc", &format!("case \"$1\" in {answers} esac"));
    }

    /// Adds a program that logs its call and then runs `body`.
    pub fn script(&self, name: &str, body: &str) {
        let program = self.path(name);
        let short = program.file_name().unwrap().to_string_lossy();
        let text = format!("#!/bin/sh\necho {short} \"$@\" >> '{}'\n{body}\n", self.path("calls").display());
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub fn lose(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    /// Adds one of this machine's own programs.
    pub fn borrow(&self, program: &str) {
        symlink(needs::program(program).unwrap(), self.path("bin").join(program)).unwrap();
    }

    /// Runs `xtask` with these arguments.
    pub fn xtask(&self, arguments: &[&str]) -> Output {
        self.run(command(env!("CARGO_BIN_EXE_xtask")), arguments)
    }

    /// Runs it as a user without rights.
    pub fn xtask_as_nobody(&self, arguments: &[&str]) -> Output {
        fs::copy(env!("CARGO_BIN_EXE_xtask"), self.path("xtask")).unwrap();
        let mut setpriv = command(needs::program("setpriv").unwrap());
        setpriv.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]).arg(self.path("xtask"));
        for (name, mode) in [("", 0o755), ("calls", 0o666)] {
            fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        self.run(setpriv, arguments)
    }

    fn run(&self, mut command: Command, arguments: &[&str]) -> Output {
        command.args(arguments).env("PATH", self.path("bin")).env("CARGO", self.path("bin/cargo"));
        command.env("CARGO_TARGET_DIR", self.path("target")).env_remove("CARGO_HOME").env_remove("RUSTC");
        command.output().unwrap()
    }

    /// The calls since the last time.
    pub fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.path("calls")).unwrap();
        fs::write(self.path("calls"), "").unwrap();
        calls.lines().map(|call| call.replace(&format!("{}/", self.path("target").display()), "")).collect()
    }
}

/// Asserts that it ended with this code, and that its last line is an error that contains this.
#[track_caller]
pub fn fails_with(output: &Output, code: i32, expected: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    let (last, before) =
        stderr.lines().collect::<Vec<_>>().split_last().map(|(last, all)| (*last, all.to_vec())).unwrap();
    assert!(before.iter().all(|line| line.starts_with("xtask: ")), "{stderr}");
    assert!(last.starts_with("error: ") && last.contains(expected), "{stderr}");
}

#[track_caller]
pub fn succeeds(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The output of a program, which must succeed and print no errors.
#[track_caller]
pub fn output_of(mut program: Command) -> String {
    let output = program.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{program:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
pub fn has_mode(file: &Path, mode: u32) {
    let file = fs::metadata(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    assert_eq!(file.permissions().mode() & 0o777, mode);
}

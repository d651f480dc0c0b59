//! Compiles C and C++ programs for tests with the machine's compiler.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Needs the program `cc`.
#[track_caller]
pub fn shared_library(source: &Path, folder: &Path) -> PathBuf {
    compile(source, &folder.join("library.so"), &["-shared", "-fPIC"])
}

/// Like [`shared_library`], with a name and more options. Needs the program `cc`.
#[track_caller]
pub fn shared_library_named(source: &Path, output: &Path, options: &[&str]) -> PathBuf {
    compile(source, output, &[&["-shared", "-fPIC"], options].concat())
}

/// Its functions can be found by name while it runs. Needs the program `cc`.
#[track_caller]
pub fn executable(source: &Path, folder: &Path) -> PathBuf {
    compile(source, &folder.join("program"), &["-rdynamic"])
}

/// Like [`executable`], with a name and more options. Needs the program `cc`.
#[track_caller]
pub fn executable_named(source: &Path, output: &Path, options: &[&str]) -> PathBuf {
    compile(source, output, &[&["-rdynamic"], options].concat())
}

/// Needs the program `c++`.
#[track_caller]
pub fn plus_plus_library(source: &Path, folder: &Path) -> PathBuf {
    compile_with("c++", source, &folder.join("library.so"), &["-shared", "-fPIC"])
}

/// Does not inline, so that small functions appear as frames. Needs the program `c++`, and the folder of an
/// interpreter's headers.
#[track_caller]
pub fn python_module(source: &Path, output: &Path, headers: &Path) -> PathBuf {
    let headers = format!("-I{}", headers.display());
    compile_with("c++", source, output, &["-O2", "-shared", "-fPIC", "-std=c++17", "-fno-inline", &headers])
}

#[track_caller]
fn compile(source: &Path, output: &Path, options: &[&str]) -> PathBuf {
    compile_with("cc", source, output, options)
}

#[track_caller]
fn compile_with(compiler: &str, source: &Path, output: &Path, options: &[&str]) -> PathBuf {
    let mut cc = Command::new(compiler);
    cc.arg("-O1").args(options).arg("-o").arg(output).arg(source).args(["-ldl", "-lpthread"]);
    let made = cc.output().unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(made.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&made.stderr));
    output.to_path_buf()
}

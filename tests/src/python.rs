//! The interpreters of this machine, and commands that run them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::{env, fs};

use serde::Deserialize;

use crate::workload::command;

/// An interpreter, as `cargo xtask test` lists them in the file that `PYOBS_PYTHONS` names.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Python {
    /// "3.12.1"; free-threaded builds end in "t".
    pub version: String,
    /// A path inside `root`, if there is one.
    pub executable: PathBuf,
    /// The interpreter of its virtual environment with the packages of `tests/requirements.txt`.
    #[serde(default)]
    pub venv: Option<PathBuf>,
    /// The root folder that it lives in, if that is not ours.
    #[serde(default)]
    pub root: Option<PathBuf>,
}

const ENTER: &str = r#"
    mount -t proc proc "$0/proc"
    mount --bind /dev/shm "$0/dev/shm"
    exec chroot "$0" "$@"
"#;

impl Python {
    /// All interpreters, oldest first.
    pub fn all() -> &'static [Self] {
        static ALL: OnceLock<Vec<Python>> = OnceLock::new();
        ALL.get_or_init(|| match env::var_os("PYOBS_PYTHONS") {
            Some(list) => read(Path::new(&list)),
            None => find(),
        })
    }

    /// Whether its version starts with one such as "3.12".
    pub fn is(&self, version: &str) -> bool {
        self.version.strip_prefix(version).is_some_and(|rest| rest.starts_with('.'))
    }

    /// 12 for CPython 3.12.
    pub fn minor(&self) -> u32 {
        self.version.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0)
    }

    /// A part for the names of cases: "python3.12.1", "python3.14.0_in_another_root".
    pub fn name(&self) -> String {
        format!("python{}{}", self.version, if self.root.is_some() { "_in_another_root" } else { "" })
    }

    /// The interpreter without a script. It is unbuffered, and leaves no `.pyc` files.
    pub fn command(&self) -> Command {
        let mut python = match &self.root {
            None => command(&self.executable),
            Some(root) => {
                // In a mount namespace of its own, as in a container, with `/proc` and the `/dev/shm` that all share.
                let mut unshare = command("unshare");
                unshare.args(["--mount", "sh", "-ec", ENTER]).arg(root).arg(&self.executable);
                unshare
            }
        };
        python.args(["-B", "-u"]).env_remove("PYTHONPATH").env_remove("PYTHONHOME");
        python
    }

    /// The interpreter with a script, to which arguments can be added. For another root the script's folder is copied.
    pub fn script(&self, script: impl AsRef<Path>) -> Command {
        let script = script.as_ref();
        let mut python = self.command();
        python.arg(self.root.as_ref().map_or_else(|| script.to_path_buf(), |root| copy_folder_of(script, root)));
        python
    }

    /// The interpreter with a program on the command line.
    pub fn inline(&self, program: &str) -> Command {
        let mut python = self.command();
        python.args(["-c", program]);
        python
    }

    pub fn imports(&self, modules: &[&str]) -> bool {
        let mut python = self.inline(&format!("import {}", modules.join(", ")));
        python.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        python.status().is_ok_and(|status| status.success())
    }

    fn number(&self) -> (u32, u32) {
        let patch = self.version.trim_end_matches('t').split('.').nth(2).and_then(|patch| patch.parse().ok());
        (self.minor(), patch.unwrap_or(0))
    }
}

/// Returns the path of the script inside the root.
fn copy_folder_of(script: &Path, root: &Path) -> PathBuf {
    let inside = Path::new("/opt/pyobs-tests");
    let outside = root.join("opt/pyobs-tests");
    fs::create_dir_all(&outside).unwrap();
    for file in entries(script.parent().unwrap()).iter().filter(|file| file.is_file()) {
        fs::copy(file, outside.join(file.file_name().unwrap())).unwrap();
    }
    inside.join(script.file_name().unwrap())
}

fn read(list: &Path) -> Vec<Python> {
    let text = fs::read_to_string(list).unwrap_or_else(|error| panic!("PYOBS_PYTHONS: {}: {error}", list.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("PYOBS_PYTHONS: {}: {error}", list.display()))
}

/// The interpreters in the usual places, where `cargo xtask pythons` looks as well.
fn find() -> Vec<Python> {
    let pyenv = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let pyenv = pyenv.or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv"))).unwrap_or_default();
    let own = entries(&pyenv.join("versions")).into_iter().map(|version| version.join("bin/python"));
    let system = entries(Path::new("/usr/bin")).into_iter().filter(|path| is_python(path));
    let files: BTreeSet<PathBuf> = own.chain(system).filter_map(|path| path.canonicalize().ok()).collect();
    let mut pythons: Vec<Python> = files.into_iter().filter_map(examine).collect();
    pythons.sort_by_key(Python::number);
    pythons
}

fn is_python(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix("python3")
        .is_some_and(|rest| rest.trim_end_matches('t').chars().all(|c| c == '.' || c.is_ascii_digit()))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn examine(executable: PathBuf) -> Option<Python> {
    let program = "import sys; sys.version_info >= (3, 6) or sys.exit(1); \
                   print('%d.%d.%d' % sys.version_info[:3] + ('t' if 't' in sys.abiflags else ''))";
    let output = Command::new(&executable).args(["-c", program]).stderr(Stdio::null()).output().ok()?;
    let version = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    output.status.success().then_some(Python { version, executable, venv: None, root: None })
}

//! The guest's disk: pyobs, interpreters, the checks and their programs, on an ext4 file system.
//!
//! There is no initramfs: Debian's cloud kernels have NVMe and ext4 built in, so they mount the disk as the root file
//! system without any module. The modules of some kernels can no longer be downloaded.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{
    errors::lacking,
    process::{find, output, progress},
    pythons, repo,
};

/// The oldest kind of frame layout and the newest. The suites cover all kinds under this machine's kernel.
const PYTHONS: [&str; 2] = ["3.8", "3.13"];
/// Parts of the standard library that no check needs.
const LEFT_OUT: [&str; 8] =
    ["test", "site-packages", "dist-packages", "idlelib", "tkinter", "lib2to3", "ensurepip", "turtledemo"];
const MIB: u64 = 700;
const FOLDERS: [&str; 10] = ["bin", "dev", "proc", "root", "run", "sys", "tmp", "usr/lib", "guest/programs", "etc"];
const LIBRARY: [&str; 3] = ["-shared", "-fPIC", "-O1"];
/// The checks' C programs: the source, the program, and the compiler's options.
const PROGRAMS: [(&str, &str, &[&str]); 4] = [
    ("workloads/ucp.c", "libucp.so.0", &LIBRARY),
    ("workloads/ucp_user.c", "ucp_user", &["-O1", "-ldl"]),
    ("workloads/redundancy.c", "redundancy.so", &LIBRARY),
    ("workloads/nrt.c", "_nrt_python.so", &LIBRARY),
];
const PLACES: &str = "import sysconfig; print(*{sysconfig.get_path('stdlib'), sysconfig.get_path('platstdlib')})";

/// Makes the disk anew, and returns its path.
pub(super) fn make(folder: &Path) -> Result<PathBuf> {
    progress("making the guests' disk");
    let stage = Stage(folder.join("stage"));
    if stage.0.exists() {
        fs::remove_dir_all(&stage.0).with_context(|| format!("cannot remove {}", stage.0.display()))?;
    }
    for folder in FOLDERS {
        stage.folder(folder)?;
    }
    let busybox = find("busybox").context("there is no busybox on the PATH")?;
    let mke2fs = find("mke2fs").context("there is no mke2fs on the PATH")?;
    stage.copy(&busybox, "bin/busybox")?;
    stage.copy(&repo::pyobs(), "guest/pyobs")?;
    let tests = repo::root().join("tests");
    stage.copy(&tests.join("workloads"), "guest/workloads")?;
    stage.copy(&tests.join("kernels/guest"), "guest/scripts")?;
    stage.copy(&tests.join("kernels/guest/init"), "init")?;
    for (source, program, options) in PROGRAMS {
        let mut cc = Command::new("cc");
        cc.arg(tests.join(source)).arg("-o").arg(stage.0.join("guest/programs").join(program)).args(options);
        output(&mut cc)?;
    }
    stage.pythons()?;
    // Interpreters load this library on their own when a thread ends.
    let unwinder = output(Command::new("cc").arg("-print-file-name=libgcc_s.so.1"))?;
    let unwinder = Path::new(unwinder.trim()).canonicalize().context("the C compiler has no libgcc_s.so.1")?;
    stage.copy(&unwinder, "lib/x86_64-linux-gnu/libgcc_s.so.1")?;
    stage.libraries(&[busybox, repo::pyobs(), stage.0.join("guest/programs/ucp_user")])?;
    let disk = folder.join("disk.img");
    let _ = fs::remove_file(&disk);
    let mut mke2fs = Command::new(mke2fs);
    mke2fs.args(["-q", "-t", "ext4", "-d"]).arg(&stage.0).arg(&disk).arg(format!("{MIB}M"));
    output(&mut mke2fs)?;
    Ok(disk)
}

/// The folder from which the disk is made.
struct Stage(PathBuf);

impl Stage {
    fn folder(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let folder = self.0.join(path);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(folder)
    }

    /// Copies a file or a folder with its times, by which interpreters recognise their compiled modules.
    fn copy(&self, from: &Path, to: impl AsRef<Path>) -> Result<()> {
        let to = self.0.join(to);
        if let Some(parent) = to.parent() {
            self.folder(parent)?;
        }
        output(Command::new("cp").args(["-r", "-L", "--preserve=mode,timestamps"]).arg(from).arg(to))?;
        Ok(())
    }

    /// Interpreters keep this machine's paths, because they look for their library there.
    fn pythons(&self) -> Result<()> {
        let found = pythons::find_all();
        let mut staged = Vec::new();
        for version in PYTHONS {
            let Some(python) = pythons::of_version(&found, version) else {
                progress(format!(
                    "the guests run without CPython {version}, which is neither in pyenv nor on the PATH"
                ));
                continue;
            };
            self.python(&python.executable)?;
            staged.push((python.version.clone(), python.executable.clone()));
        }
        let (_, newest) = staged.last().ok_or_else(|| {
            lacking(format!("the guests need one of CPython {}, and none is here; install one", PYTHONS.join(", ")))
        })?;
        fs::write(self.0.join("guest/interpreter"), newest.display().to_string())?;
        fs::write(self.0.join("guest/pythons.json"), serde_json::to_string(&staged)?)?;
        Ok(())
    }

    fn python(&self, executable: &Path) -> Result<()> {
        self.copy(executable, within(executable)?)?;
        let mut needy = vec![executable.to_path_buf()];
        for library in output(Command::new(executable).args(["-c", PLACES]))?.split_whitespace().map(Path::new) {
            let folder = self.folder(within(library)?)?;
            for entry in fs::read_dir(library).with_context(|| format!("cannot read {}", library.display()))?.flatten()
            {
                let name = entry.file_name().to_string_lossy().into_owned();
                if !LEFT_OUT.contains(&name.as_str()) && !name.starts_with("config-") {
                    self.copy(&entry.path(), folder.join(&name))?;
                }
            }
            let modules = fs::read_dir(library.join("lib-dynload")).into_iter().flatten().flatten();
            needy.extend(modules.map(|entry| entry.path()));
        }
        self.libraries(&needy)
    }

    /// Copies the shared libraries that these programs need; a static one needs none.
    fn libraries(&self, programs: &[PathBuf]) -> Result<()> {
        // ldd fails if one of them is static.
        let printed = Command::new("ldd").args(programs).output().context("ldd does not run")?;
        let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
        let named = printed.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
        for library in named.filter(|word| !word.ends_with(':')).collect::<BTreeSet<_>>() {
            let library = Path::new(library);
            if !self.0.join(within(library)?).exists() {
                self.copy(library, within(library)?)?;
            }
        }
        Ok(())
    }
}

fn within(path: &Path) -> Result<&Path> {
    path.strip_prefix("/").with_context(|| format!("{} is not absolute", path.display()))
}

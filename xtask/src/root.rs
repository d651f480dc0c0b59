//! Makes other root folders with debootstrap. One has newer CPythons, whose interpreters need a newer C library than a
//! stable distribution has, and which are also processes in another root. The others are old Debian releases in which
//! pyobs itself runs.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::{
    debian,
    process::{as_root, output, progress},
    pythons::{Found, Python},
    repo,
};

/// The first Debian suite whose default interpreter is 3.14 comes first.
const SUITES: [&str; 2] = ["forky", "sid"];
/// Each suite has the first; the others are installed if they exist.
const PYTHONS: [&str; 2] = ["python3.14", "python3.15"];
/// Old releases, and the variables that give the tests their folders.
const OLD: [(&str, &str, &str); 2] =
    [("Debian 10", "buster", "PYOBS_DEBIAN_10"), ("Debian 11", "bullseye", "PYOBS_DEBIAN_11")];
/// Enough for `record -- python3`.
const OLD_PYTHON: &str = "python3-minimal";
/// The variable that names a mirror for the releases that apt's own mirror no longer has.
const ARCHIVE: &str = "PYOBS_DEBIAN_ARCHIVE";
/// The keys of releases that are no longer supported.
const OLD_KEYS: &str = "/usr/share/keyrings/debian-archive-removed-keys.gpg";
/// debootstrap names its scripts by suite, and an older debootstrap lacks those of newer suites; they are all alike.
const SCRIPT: &str = "/usr/share/debootstrap/scripts/sid";

/// Adds the root folder's interpreters to the list, or the reason why it cannot.
pub(crate) fn add(found: &mut Found) {
    let root = match ensure() {
        Ok(root) => root,
        Err(error) => return found.skip("CPython 3.14 and 3.15 in another root", format!("{error:#}")),
    };
    for name in PYTHONS {
        match python(&root, name) {
            Ok(python) => found.pythons.push(python),
            Err(error) => found.skip(format!("{name} in another root"), format!("{error:#}")),
        }
    }
}

/// The roots of old Debian releases by their variables. Prints which are missing and why.
pub(crate) fn old() -> Vec<(&'static str, PathBuf)> {
    let made = OLD.into_iter().filter_map(|(release, suite, variable)| match ensure_old(suite) {
        Ok(root) => Some((variable, root)),
        Err(error) => {
            eprintln!("skipped pyobs in {release}: {error:#}");
            None
        }
    });
    made.collect()
}

fn ensure_old(suite: &str) -> Result<PathBuf> {
    let root = repo::target().join("roots").join(suite);
    if root.exists() {
        return Ok(root);
    }
    debian::ensure(&[("debootstrap", "debootstrap")])?;
    let Err(error) = debootstrap(suite, &[OLD_PYTHON], &root, debian::mirror().as_deref(), None) else {
        return Ok(root);
    };
    let error = error.context(format!("apt's mirror does not give the suite {suite}"));
    let Some(archive) = env::var(ARCHIVE).ok() else {
        return Err(error.context(format!("{ARCHIVE} may name the address of a mirror that has it")));
    };
    debootstrap(suite, &[OLD_PYTHON], &root, Some(&archive), Some(OLD_KEYS)).context("nor does the archive")?;
    Ok(root)
}

/// The path of an interpreter inside the root folder.
fn executable(name: &str) -> PathBuf {
    Path::new("/usr/bin").join(name)
}

fn ensure() -> Result<PathBuf> {
    let root = repo::target().join("roots/newer");
    if root.exists() {
        return Ok(root);
    }
    debian::ensure(&[("debootstrap", "debootstrap")])?;
    let mut last = None;
    for (suite, packages) in SUITES.into_iter().flat_map(|suite| [(suite, &PYTHONS[..]), (suite, &PYTHONS[..1])]) {
        match debootstrap(suite, packages, &root, debian::mirror().as_deref(), None) {
            Ok(()) => return Ok(root),
            Err(error) => last = Some(error.context(format!("the Debian suite {suite} could not be unpacked"))),
        }
    }
    Err(last.context("there is no suite to try")?)
}

/// Unpacks to a temporary folder and renames it, so that an interrupted run leaves nothing that looks complete.
fn debootstrap(suite: &str, packages: &[&str], root: &Path, mirror: Option<&str>, keyring: Option<&str>) -> Result<()> {
    let unfinished = root.with_extension("unfinished");
    if unfinished.exists() {
        output(as_root("rm")?.args(["-rf", "--one-file-system"]).arg(&unfinished))?;
    }
    if let Some(parent) = root.parent() {
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    }
    let with = packages.join(",");
    progress(format!("unpacking Debian {suite} with {with} into {} (once; about a minute)", root.display()));
    // debootstrap prints its errors to standard output.
    let mut command = as_root("sh")?;
    command.args(["-c", "exec debootstrap \"$@\" >&2", "sh", "--variant=minbase", &format!("--include={with}")]);
    command.args(keyring.map(|keyring| format!("--keyring={keyring}")));
    command.arg(suite).arg(&unfinished).args(mirror.into_iter().flat_map(|mirror| [mirror, SCRIPT]));
    output(&mut command)?;
    output(as_root("mv")?.arg(&unfinished).arg(root))?;
    Ok(())
}

fn python(root: &Path, name: &str) -> Result<Python> {
    let executable = executable(name);
    if !root.join(executable.strip_prefix("/")?).exists() {
        bail!("the Debian suite has no package of that name");
    }
    let mut chroot = as_root("chroot")?;
    chroot.arg(root).arg(&executable).args(["-c", "import platform; print(platform.python_version())"]);
    let version = output(&mut chroot)?.trim().to_owned();
    Ok(Python { version, executable, venv: None, root: Some(root.to_path_buf()) })
}

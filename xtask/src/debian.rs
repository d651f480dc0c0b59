//! Installs Debian packages that a step needs, and finds Debian's mirror.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use crate::{
    errors::lacking,
    process::{find, is_root, output, progress},
};

/// Installs the packages whose programs are missing, each given as (program, package).
pub(crate) fn ensure(needed: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<(&str, &str)> = needed.iter().copied().filter(|(program, _)| find(program).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = |of: fn(&(&str, &str)) -> String| missing.iter().map(of).collect::<Vec<_>>();
    let (programs, packages) = (names(|it| it.0.to_owned()).join(", "), names(|it| it.1.to_owned()));
    if !is_root() || find("apt-get").is_none() {
        return Err(lacking(format!(
            "there is no {programs} here; install your distribution's packages of {}",
            packages.join(", ")
        )));
    }
    progress(format!("installing {}", packages.join(", ")));
    // A new machine has no package lists yet, and old lists name packages that no longer exist.
    if install(&packages).is_err() {
        output(Command::new("apt-get").arg("update"))?;
        install(&packages)?;
    }
    Ok(())
}

fn install(packages: &[String]) -> Result<String> {
    let mut apt = Command::new("apt-get");
    apt.args(["install", "--yes", "--no-install-recommends"]).args(packages).env("DEBIAN_FRONTEND", "noninteractive");
    output(&mut apt)
}

/// The mirror that this machine's own apt uses, if that is a Debian one.
pub(crate) fn mirror() -> Option<String> {
    let folder = Path::new("/etc/apt/sources.list.d");
    let listed = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = listed.chain([PathBuf::from("/etc/apt/sources.list")]);
    let sources =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "sources" || extension == "list"));
    sources.filter_map(|path| fs::read_to_string(path).ok()).find_map(|text| mirror_in(&text))
}

/// In both of apt's formats the URI is a separate word, and the main archive's URI ends in "/debian".
fn mirror_in(sources: &str) -> Option<String> {
    let lines = sources.lines().filter(|line| !line.trim_start().starts_with('#'));
    let mut words = lines.flat_map(str::split_whitespace);
    words.find(|word| word.contains("://") && word.trim_end_matches('/').ends_with("/debian")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::mirror_in;

    #[test]
    fn the_mirror_is_read_from_both_formats_of_apt() {
        let deb822 =
            "Types: deb\n# http://mirror.example/archive/debian\nURIs: http://mirror.example/debian\nSuites: x\n";
        assert_eq!(mirror_in(deb822).as_deref(), Some("http://mirror.example/debian"));
        let list = "deb [arch=amd64] https://mirror.example/debian/ bookworm main\n";
        assert_eq!(mirror_in(list).as_deref(), Some("https://mirror.example/debian/"));
        assert_eq!(mirror_in("URIs: http://mirror.example/debian-security\n"), None);
        assert_eq!(mirror_in("deb http://mirror.example/ubuntu noble main\n"), None);
    }
}

//! Fetches kernel images from Debian's packages, using apt with its own list of sources and state.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use super::NEWEST;
use crate::{
    debian,
    process::{output, progress},
};

/// The package lists are updated after a day.
const FRESH: Duration = Duration::from_secs(24 * 60 * 60);
/// Up to 6.18 the first package has the image, from 6.19 on the second.
const PREFIXES: [&str; 2] = ["linux-image-", "linux-binary-"];
/// The flavour for virtual machines has everything built in that a guest needs.
const FLAVOUR: &str = "-cloud-amd64";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

pub(super) struct Image {
    /// The package's name.
    pub(super) name: String,
    pub(super) file: PathBuf,
}

/// The newest image of the first of these versions that a suite has.
pub(super) fn image(versions: &[String], suites: &[String], folder: &Path) -> Result<Image> {
    let apt = Apt::new(folder, suites)?;
    let names = apt.names()?;
    let name = versions.iter().find_map(|version| newest(&names, version));
    let name = name.with_context(|| format!("no Debian suite has a kernel {}", versions.join(" or ")))?;
    let images = folder.join("images");
    fs::create_dir_all(&images).with_context(|| format!("cannot make {}", images.display()))?;
    let file = images.join(name);
    if !file.exists() {
        progress(format!("fetching {name}"));
        apt.unpack(name, &file)?;
    }
    Ok(Image { name: name.to_owned(), file })
}

struct Apt {
    folder: PathBuf,
}

impl Apt {
    fn new(folder: &Path, suites: &[String]) -> Result<Self> {
        let apt = Self { folder: folder.join("apt") };
        for part in ["lists/partial", "cache/archives/partial"] {
            let part = apt.folder.join(part);
            fs::create_dir_all(&part).with_context(|| format!("cannot make {}", part.display()))?;
        }
        let mirror = debian::mirror().context(
            "this machine's apt has no Debian mirror among its sources, which the kernels come from; add one",
        )?;
        let sources = sources(&mirror, suites);
        let (list, stamp) = (apt.folder.join("sources.list"), apt.folder.join("updated"));
        let age = fs::metadata(&stamp).ok().and_then(|stamp| stamp.modified().ok()?.elapsed().ok());
        if age.is_some_and(|age| age < FRESH) && fs::read_to_string(&list).is_ok_and(|held| held == sources) {
            return Ok(apt);
        }
        fs::write(&list, sources).with_context(|| format!("cannot write {}", list.display()))?;
        progress("looking up Debian's kernels");
        // A suite that a mirror lacks makes the update fail, but the others are still updated.
        if let Err(error) = output(apt.command("apt-get").arg("update")) {
            progress(format!("some of Debian's suites could not be read: {error:#}"));
        }
        fs::write(&stamp, "").with_context(|| format!("cannot write {}", stamp.display()))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let option = |name: &str, value: &Path| format!("{name}={}", value.display());
        for option in [
            option("Dir::Etc::sourcelist", &self.folder.join("sources.list")),
            option("Dir::State::Lists", &self.folder.join("lists")),
            option("Dir::Cache", &self.folder.join("cache")),
            "Dir::Etc::sourceparts=-".to_owned(),
            // apt's own user may not write below the checkout.
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Retries=3".to_owned(),
        ] {
            command.args(["-o", &option]);
        }
        command
    }

    fn names(&self) -> Result<Vec<String>> {
        let printed = output(self.command("apt-cache").args(["pkgnames", "linux-"]))?;
        let names: Vec<String> = printed.lines().map(str::to_owned).collect();
        if names.is_empty() {
            bail!("apt could not read any of Debian's suites; is there a network?");
        }
        Ok(names)
    }

    fn unpack(&self, name: &str, to: &Path) -> Result<()> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        output(self.command("apt-get").args(["download", name]).current_dir(&folder))?;
        // The modules, a hundred megabytes, are not needed.
        let unpack = "dpkg-deb --fsys-tarfile ./*.deb | tar -x --wildcards --transform 's,.*/,,' '*/vmlinuz*'";
        output(Command::new("sh").args(["-c", unpack]).current_dir(&folder))
            .with_context(|| format!("cannot unpack {name}"))?;
        let entries = fs::read_dir(&folder)?.flatten().map(|entry| entry.path());
        let is_image =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"));
        let image =
            entries.into_iter().find(is_image).with_context(|| format!("the package {name} holds no vmlinuz"))?;
        fs::rename(&image, to).with_context(|| format!("cannot move {}", image.display()))?;
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))
    }
}

/// Security updates lie in a folder beside the main archive.
fn sources(mirror: &str, suites: &[String]) -> String {
    let mirror = mirror.trim_end_matches('/');
    let line = |suite: &String| {
        let beside = if suite.ends_with("-security") { "-security" } else { "" };
        format!("deb [arch=amd64 signed-by={KEYRING}] {mirror}{beside} {suite} main\n")
    };
    suites.iter().map(line).collect()
}

/// The package with the newest patch release of a version such as "6.1".
fn newest<'a>(names: &'a [String], version: &str) -> Option<&'a str> {
    let is_of_it = |numbers: &[u64]| version == NEWEST || numbers.starts_with(&all_numbers(version));
    let of_it = names.iter().filter_map(|name| {
        let (which, rest) =
            PREFIXES.iter().enumerate().find_map(|(n, prefix)| Some((n, name.strip_prefix(prefix)?)))?;
        let release = rest.strip_suffix(FLAVOUR)?;
        // Release candidates, such as 7.0~rc3, are left out.
        let is_release = release.starts_with(|first: char| first.is_ascii_digit()) && !release.contains("rc");
        let numbers = all_numbers(release);
        (is_release && is_of_it(&numbers)).then_some((numbers, which, name.as_str()))
    });
    of_it.max().map(|(_, _, name)| name)
}

fn all_numbers(text: &str) -> Vec<u64> {
    text.split(|letter: char| !letter.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_patch_release_of_a_version_is_chosen() {
        let names = [
            "linux-image-6.1.0-9-cloud-amd64",
            "linux-image-6.1.0-56-cloud-amd64",
            "linux-image-6.1.0-57-cloud-amd64-unsigned",
            "linux-image-6.12.117+deb13-cloud-amd64",
            "linux-image-6.12.117+deb13-amd64",
            "linux-image-7.0.13+deb13-cloud-amd64",
            "linux-binary-7.0.13+deb13-cloud-amd64",
            "linux-binary-7.1~rc3-cloud-amd64",
            "linux-image-cloud-amd64",
        ]
        .map(str::to_owned);
        assert_eq!(newest(&names, "6.1"), Some("linux-image-6.1.0-56-cloud-amd64"));
        assert_eq!(newest(&names, "6.12"), Some("linux-image-6.12.117+deb13-cloud-amd64"));
        assert_eq!(newest(&names, "7.0"), Some("linux-binary-7.0.13+deb13-cloud-amd64"));
        assert_eq!(newest(&names, NEWEST), Some("linux-binary-7.0.13+deb13-cloud-amd64"));
        assert_eq!(newest(&names, "6.16"), None);
    }

    #[test]
    fn security_updates_come_from_beside_the_archive() {
        let sources = sources("http://mirror.example/debian/", &["sid".to_owned(), "trixie-security".to_owned()]);
        let ends: Vec<&str> = sources.lines().filter_map(|line| line.split_once("] ")).map(|(_, end)| end).collect();
        let expected =
            ["http://mirror.example/debian sid main", "http://mirror.example/debian-security trixie-security main"];
        assert_eq!(ends, expected);
    }
}

//! Which Python programs run now, by the names of their executables.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use super::{ALL, Area, Check};

pub(super) fn examine(checks: &mut Vec<Check>) {
    let mut area = Area::new("python", checks);
    let (found, unseen) = running();
    let why = if found.is_empty() && unseen > 0 {
        format!("none that this user may look at; {unseen} processes are others'")
    } else if found.is_empty() {
        "no process runs a program named python; an embedded interpreter has another name, and is found all the same"
            .to_owned()
    } else {
        let names: Vec<_> = found.iter().map(|(name, count)| format!("{count} × {name}")).collect();
        names.join(", ")
    };
    area.works("running interpreters", ALL, why);
}

/// How many there are of each name, and how many processes do not show theirs.
fn running() -> (BTreeMap<String, usize>, usize) {
    let (mut found, mut unseen) = (BTreeMap::new(), 0);
    let Ok(entries) = fs::read_dir("/proc") else { return (found, unseen) };
    for entry in entries.flatten() {
        if !entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        let exe = match fs::read_link(entry.path().join("exe")) {
            Ok(exe) => exe,
            Err(error) => {
                unseen += usize::from(error.kind() == io::ErrorKind::PermissionDenied);
                continue;
            }
        };
        if let Some(name) = exe.file_name().and_then(|name| name.to_str()).and_then(python) {
            *found.entry(name.to_owned()).or_insert(0) += 1;
        }
    }
    (found, unseen)
}

/// The name itself, when it is `python`, `python3` or `python3.12`, with what the kernel adds to a deleted file cut off.
fn python(name: &str) -> Option<&str> {
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let version = name.strip_prefix("python")?;
    version.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 't' | 'd' | 'm')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_interpreters_count() {
        assert_eq!(python("python3.12"), Some("python3.12"));
        assert_eq!(python("python3.13t (deleted)"), Some("python3.13t"));
        assert_eq!(python("python-argcomplete"), None);
        assert_eq!(python("bash"), None);
    }
}

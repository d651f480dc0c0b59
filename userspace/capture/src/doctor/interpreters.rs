//! Which Python programs run now, by the names of their executables.

use std::collections::BTreeMap;
use std::fs;

use super::{ALL, Area, Check};

pub(super) fn examine(checks: &mut Vec<Check>) {
    let mut area = Area::new("python", checks);
    let found = running();
    let why = if found.is_empty() {
        "no process runs a program named python; an embedded interpreter has another name, and is found all the same"
            .to_owned()
    } else {
        let names: Vec<_> = found.iter().map(|(name, count)| format!("{count} × {name}")).collect();
        names.join(", ")
    };
    area.works("running interpreters", ALL, why);
}

fn running() -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let Ok(entries) = fs::read_dir("/proc") else { return found };
    for entry in entries.flatten() {
        if !entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        let Ok(exe) = fs::read_link(entry.path().join("exe")) else { continue };
        if let Some(name) = exe.file_name().and_then(|name| name.to_str()).and_then(python) {
            *found.entry(name.to_owned()).or_insert(0) += 1;
        }
    }
    found
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

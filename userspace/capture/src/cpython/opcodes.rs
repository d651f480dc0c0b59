//! The numbers of the instructions that Python functions begin and end with. They differ between versions, so
//! they come from `opcodes.toml`, which `cargo xtask opcodes` generates from real interpreters.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::version::{Level, Version};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    version: Vec<Numbers>,
}

/// The numbers of one version.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Numbers {
    /// Major and minor version.
    of: [u8; 2],
    #[expect(dead_code, reason = "says where the numbers are from")]
    built_from: String,
    /// Numbers without an instruction.
    unassigned: Vec<u8>,
    numbers: HashMap<String, u8>,
}

static TABLE: LazyLock<Vec<Numbers>> = LazyLock::new(|| {
    toml::from_str::<Table>(include_str!("opcodes.toml")).map_or_else(|_| Vec::new(), |table| table.version)
});

/// The numbers of a version; `None` if they are not known.
pub(super) fn of(version: Version) -> Option<&'static Numbers> {
    // They may change until a version's first release candidate.
    if matches!(version.level, Level::Alpha | Level::Beta) {
        return None;
    }
    TABLE.iter().find(|numbers| numbers.of == [version.major, version.minor])
}

impl Numbers {
    /// `None` if the version has no such instruction.
    pub(super) fn number(&self, name: &str) -> Option<u8> {
        self.numbers.get(name).copied()
    }

    /// Whether a handler table belongs to this version: exactly the numbers without an instruction share a
    /// handler.
    pub(super) fn fit(&self, handlers: &[u64; 256]) -> bool {
        let Some(none) = self.unassigned.first().map(|number| handlers[usize::from(*number)]) else { return false };
        (0..=u8::MAX).zip(handlers).all(|(number, handler)| (*handler == none) == self.unassigned.contains(&number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_since_3_11_has_what_it_begins_and_ends_functions_with() {
        let minors: Vec<u8> = TABLE.iter().map(|numbers| numbers.of[1]).collect();
        assert_eq!(minors, [11, 12, 13, 14]);
        for minor in minors {
            let short = match minor {
                11 => "RESUME_QUICK",
                12 => "RESUME",
                _ => "RESUME_CHECK",
            };
            let numbers = of(Version::new(3, minor, 0)).unwrap();
            for name in ["RESUME", short, "YIELD_VALUE", "RETURN_VALUE"] {
                let number = numbers.number(name).unwrap_or_else(|| panic!("{name} of 3.{minor}"));
                assert!(!numbers.unassigned.contains(&number));
            }
        }
        assert!(of(Version { level: Level::Beta, ..Version::new(3, 14, 0) }).is_none());
        assert!(of(Version::new(3, 10, 0)).is_none());
    }

    #[test]
    fn a_shifted_table_is_rejected() {
        let numbers = of(Version::new(3, 12, 0)).unwrap();
        let mut handlers: [u64; 256] = std::array::from_fn(|number| 0x1000 + number as u64);
        numbers.unassigned.iter().for_each(|number| handlers[usize::from(*number)] = 0x999);
        assert!(numbers.fit(&handlers));
        let mut shifted = handlers;
        shifted.rotate_right(4);
        assert!(!numbers.fit(&shifted));
        handlers[usize::from(numbers.number("RESUME").unwrap())] = 0x999;
        assert!(!numbers.fit(&handlers));
    }
}

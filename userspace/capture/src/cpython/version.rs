//! An interpreter's version, as in `PY_VERSION_HEX` and `PY_VERSION`
//! (<https://github.com/python/cpython/blob/v3.13.0/Include/patchlevel.h>).

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    Alpha,
    Beta,
    Candidate,
    Final,
}

/// A version of CPython. Older is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    pub major: u8,
    pub minor: u8,
    pub micro: u8,
    pub level: Level,
    /// The 2 of `3.14.0rc2`; 0 for a final release.
    pub serial: u8,
}

impl Version {
    pub const fn new(major: u8, minor: u8, micro: u8) -> Self {
        Self { major, minor, micro, level: Level::Final, serial: 0 }
    }

    /// How far behind the header of a tuple its items lie. 3.14 moved them behind the hash:
    /// <https://github.com/python/cpython/blob/v3.14.0/Include/cpython/tupleobject.h>
    pub fn tuple_items(self) -> u64 {
        if self.minor >= 14 { 16 } else { 8 }
    }

    /// From `PY_VERSION_HEX`, if it is valid: one byte each for major, minor and micro, half a byte each for
    /// level and serial.
    pub fn from_hex(hex: u64) -> Option<Self> {
        let [major, minor, micro, rest] = u32::try_from(hex).ok()?.to_be_bytes();
        let level = match rest >> 4 {
            0xa => Level::Alpha,
            0xb => Level::Beta,
            0xc => Level::Candidate,
            0xf => Level::Final,
            _ => return None,
        };
        (2..=4).contains(&major).then_some(Self { major, minor, micro, level, serial: rest & 0xf })
    }

    /// From `PY_VERSION`, such as `3.8.18` or `3.14.0rc2`; the `+` of a build between two releases is
    /// dropped.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = text.strip_suffix(b"+").unwrap_or(text);
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= 16)?;
        let mut parts = text.splitn(3, '.');
        let (major, minor, last) = (number(parts.next()?)?, number(parts.next()?)?, parts.next()?);
        let digits = last.bytes().take_while(u8::is_ascii_digit).count();
        let (micro, rest) = last.split_at(digits);
        let (level, serial) = if rest.is_empty() {
            (Level::Final, 0)
        } else if let Some(serial) = rest.strip_prefix("rc") {
            (Level::Candidate, number(serial)?)
        } else if let Some(serial) = rest.strip_prefix('a') {
            (Level::Alpha, number(serial)?)
        } else {
            (Level::Beta, number(rest.strip_prefix('b')?)?)
        };
        Some(Self { major, minor, micro: number(micro)?, level, serial })
    }

    /// True if this is 3.`minor` or newer.
    pub fn since(&self, minor: u8) -> bool {
        (self.major, self.minor) >= (3, minor)
    }
}

fn number(text: &str) -> Option<u8> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.major, self.minor, self.micro)?;
        let level = match self.level {
            Level::Alpha => "a",
            Level::Beta => "b",
            Level::Candidate => "rc",
            Level::Final => return Ok(()),
        };
        write!(out, "{level}{}", self.serial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_hex_agree() {
        for (text, hex) in [
            ("3.8.18", 0x0308_12f0),
            ("3.14.0rc2", 0x030e_00c2),
            ("3.15.0a1", 0x030f_00a1),
            ("3.13.0b4", 0x030d_00b4),
            ("2.7.18", 0x0207_12f0),
        ] {
            let version = Version::parse(text.as_bytes()).unwrap();
            assert_eq!(Some(version), Version::from_hex(hex));
            assert_eq!(version.to_string(), text);
        }
        assert_eq!(Version::parse(b"3.12.1+"), Some(Version::new(3, 12, 1)));
        assert!(Version::parse(b"3.14.0rc2") < Version::parse(b"3.14.0"));
        assert!(Version::new(3, 9, 18) < Version::new(3, 10, 0));
    }

    #[test]
    fn what_is_no_version_is_none() {
        for text in [
            "", "3", "3.", "3.8", "3.8.", "3.8.x", "3.8.1x", "3.8.1rc", "3.8.300", "3.8.-1", "+3.8.1", "3.8.1.2",
            "3.é.1",
        ] {
            assert_eq!(Version::parse(text.as_bytes()), None, "{text}");
        }
        for hex in [0, 0x0308_1200, u64::MAX, 0x1_0308_12f0, 0xff08_12f0] {
            assert_eq!(Version::from_hex(hex), None, "{hex:#x}");
        }
    }
}

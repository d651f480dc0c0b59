//! What instructions do to the value stack, by version. The numbers come from `effects.toml`, which `cargo
//! xtask opcodes` generates from real interpreters.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::version::{Level, Version};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    version: Vec<Listed>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    /// Major and minor version.
    of: [u8; 2],
    #[expect(dead_code, reason = "says where the numbers are from")]
    built_from: String,
    /// Specialized and instrumented instructions, each with the one it replaces.
    stands_for: Vec<[u8; 2]>,
    instructions: HashMap<String, Instruction>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Jump {
    Forward,
    Backward,
    /// From the beginning of the code.
    Absolute,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Instruction {
    number: u8,
    /// A constant, a factor for the argument, and weights for its lowest bits.
    effect: Vec<i32>,
    pub jump: Option<Jump>,
    /// The effect if it jumps.
    jumped: Option<Vec<i32>>,
    /// The argument has a number in its lowest byte and another above it, whose sum counts.
    #[serde(default)]
    pair: bool,
    /// Control never continues to the next instruction.
    #[serde(default)]
    pub ends: bool,
    /// Inline caches after it, in units of two bytes.
    #[serde(default)]
    pub caches: u8,
}

impl Instruction {
    /// How much higher the stack is afterwards. The argument comes from the watched process and may have any
    /// value.
    pub fn effect(&self, argument: u32) -> i64 {
        sum(&self.effect, if self.pair { (argument & 0xff) + (argument >> 8) } else { argument })
    }

    pub fn effect_jumped(&self, argument: u32) -> i64 {
        self.jumped.as_ref().map_or(0, |effect| sum(effect, argument))
    }
}

fn sum(effect: &[i32], argument: u32) -> i64 {
    let part = |index: usize| effect.get(index).map_or(0, |part| i64::from(*part));
    let bits = (0..effect.len().saturating_sub(2)).filter(|bit| argument >> bit & 1 == 1).map(|bit| part(2 + bit));
    part(0) + part(1) * i64::from(argument) + bits.sum::<i64>()
}

/// The instructions of one version, by number.
#[derive(Debug)]
pub(super) struct Effects {
    of: [u8; 2],
    by_number: Vec<Option<(String, Instruction)>>,
}

impl Effects {
    pub fn get(&self, number: u8) -> Option<(&str, &Instruction)> {
        self.by_number[usize::from(number)].as_ref().map(|(name, instruction)| (name.as_str(), instruction))
    }
}

static TABLE: LazyLock<Vec<Effects>> = LazyLock::new(|| {
    let table = toml::from_str::<Table>(include_str!("effects.toml"));
    table.map_or_else(|_| Vec::new(), |table| table.version.into_iter().map(by_number).collect())
});

fn by_number(listed: Listed) -> Effects {
    let mut by_number = vec![None; 256];
    for (name, instruction) in listed.instructions {
        let number = usize::from(instruction.number);
        by_number[number] = Some((name, instruction));
    }
    for [number, other] in listed.stands_for {
        by_number[usize::from(number)] = by_number[usize::from(other)].clone();
    }
    Effects { of: listed.of, by_number }
}

/// The instructions of a version; `None` if they are not known.
pub(super) fn of(version: Version) -> Option<&'static Effects> {
    // They may change until a version's first release candidate.
    if matches!(version.level, Level::Alpha | Level::Beta) {
        return None;
    }
    TABLE.iter().find(|effects| effects.of == [version.major, version.minor])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_from_3_8_on_are_there() {
        let minors: Vec<u8> = TABLE.iter().map(|effects| effects.of[1]).collect();
        assert_eq!(minors, [8, 9, 10, 11, 12, 13, 14]);
    }

    /// The effects documented for the module `dis`.
    #[test]
    fn effects_are_sums() {
        let effects = |minor| of(Version::new(3, minor, 0)).unwrap();
        let named = |minor, name: &str| {
            effects(minor).by_number.iter().flatten().find(|(of, _)| of == name).map(|(_, of)| of.clone()).unwrap()
        };
        assert_eq!(named(8, "CALL_FUNCTION").effect(3), -3);
        assert_eq!(named(12, "CALL").effect(3), -4);
        assert_eq!(named(12, "LOAD_GLOBAL").effect(4), 1);
        assert_eq!(named(12, "LOAD_GLOBAL").effect(5), 2);
        assert_eq!(named(8, "FOR_ITER").effect(0), 1);
        assert_eq!(named(8, "FOR_ITER").effect_jumped(0), -1);
        assert_eq!(named(11, "MAKE_FUNCTION").effect(0b1001), -2);
        for minor in 8..=14 {
            let slice = named(minor, "BUILD_SLICE");
            assert_eq!([2, 3].map(|argument| slice.effect(argument)), [-1, -2], "3.{minor}");
            // `a, b, *c, d = e`: two before the list, one behind it.
            assert_eq!(named(minor, "UNPACK_EX").effect(2 | 1 << 8), 3, "3.{minor}");
        }
        assert_eq!(named(13, "JUMP_BACKWARD").jump, Some(Jump::Backward));
    }
}

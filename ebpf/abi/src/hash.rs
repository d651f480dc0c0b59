//! The hash for values that must differ but need no protection against collision attacks: multiplicative hashing, word
//! by word.

/// 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
#[must_use]
pub const fn mix(sum: u64, word: u64) -> u64 {
    (sum.rotate_left(23) ^ word).wrapping_mul(SPREAD)
}

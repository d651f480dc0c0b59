//! A number that stands for an output that is too large to be kept.

/// FNV-1a: the standard library's hashes may change from one release to the next.
pub fn digest(bytes: &[u8]) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(BASIS, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(PRIME))
}

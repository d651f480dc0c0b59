//! Texts that grow by copies: `text += more` makes a new `str` or `bytes`.

use std::sync::Arc;

use pyobs_abi::redundancy::{NOT_DECODED, Registers, SpotKey};
use pyobs_model::{CalledBy, Compared};

use super::calls::{Calls, Observed, SPOTS_MAX};
use super::place::Place;

/// Limits the instructions added here to half of the table, because almost any instruction can call the C library. The
/// other half is reserved for calls of extensions.
const SPOTS: usize = SPOTS_MAX as usize / 2;
/// Shorter texts are not examined.
const SIZE_MIN: u64 = 1024;
/// Larger than the header of any text. A register that points to the header or to the start of the data does not prove
/// that the data is being copied.
const START: u64 = 128;

impl Calls {
    /// Returns the sizes of two texts being concatenated, if the sample interrupted the copy of the longer one. CPython
    /// appends in place to a text that nothing else refers to, and then copies only the shorter one.
    pub fn concatenated(&mut self, place: &mut Place, sample: &Registers) -> Option<Observed> {
        if sample.words == NOT_DECODED || !place.is_in_runtime(sample) {
            return None;
        }
        let key = SpotKey { pid: sample.header.pid, padding: 0, code: sample.code, detail: sample.detail };
        if !self.spots.contains_key(&key) && self.spots.len() < SPOTS {
            self.learn(place, key);
        }
        let operator = match self.spots.get(&key)?.operands.as_ref()?.instruction {
            "BINARY_ADD" => "+",
            "INPLACE_ADD" => "+=",
            _ => return None,
        };
        let [left, right, ..] = sample.operands;
        self.classify(place, key.pid, &[left, right]);
        let texts = [left, right].map(|operand| operand.object);
        let (copied, added) = copied(texts, sample.sizes, &sample.general)?;
        let compared = Compared::Copied { copied, added };
        Some(Observed { callee: Arc::from(operator), called_by: CalledBy::Innermost, compared })
    }
}

/// Returns the sizes of the longer and the shorter text, if a register points into the longer one.
fn copied(texts: [u64; 2], [left, right]: [u64; 2], registers: &[u64]) -> Option<(u64, u64)> {
    let (text, copied, added) = if left >= right { (texts[0], left, right) } else { (texts[1], right, left) };
    // An append in place writes only the last bytes.
    let inner = text.checked_add(START)?..text.checked_add(copied - added)?;
    (copied >= SIZE_MIN && registers.iter().any(|register| inner.contains(register))).then_some((copied, added))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [u64; 2] = [0x7000_0000, 0x9000_0000];

    #[test]
    fn a_text_counts_if_it_is_being_read() {
        let found = |sizes, register| copied(TEXTS, sizes, &[1, register]);
        assert_eq!(found([5000, 7], TEXTS[0] + 3000), Some((5000, 7)));
        assert_eq!(found([7, 5000], TEXTS[1] + 3000), Some((5000, 7)));
        assert_eq!(found([5000, 7], TEXTS[1] + 3000), None, "that is the shorter one");
        assert_eq!(found([5000, 7], TEXTS[0] + 4996), None, "the other one is appended there");
        assert_eq!(found([5000, 7], TEXTS[0] + 48), None, "its data begin there");
        assert_eq!(found([1000, 7], TEXTS[0] + 500), None, "it is short");
        assert_eq!(found([0, 0], TEXTS[0]), None);
    }

    #[test]
    fn sizes_that_make_no_sense_are_no_copies() {
        let last = u64::MAX - 10;
        assert_eq!(copied([last, last], [5000, 7], &[last]), None);
        assert_eq!(copied([0, 0], [u64::MAX, u64::MAX], &[u64::MAX, 500]), None);
    }
}

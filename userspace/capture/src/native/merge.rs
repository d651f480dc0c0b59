//! Merges Python frames into the native stack, in place of the interpreter loop's C frames that run them.

use std::ops::Range;

use pyobs_abi::stack::{COUNT_UNKNOWN, loop_count, native_address};

/// A frame of a merged stack, by its number among the frames of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    Native(usize),
    Python(usize),
}

/// What is known about the two halves of a stack.
#[derive(Clone, Copy, Debug)]
pub struct Halves {
    /// Up to CPython 3.10 each C frame runs one Python frame.
    pub one_each: bool,
    /// Whether the native frames reach the outermost one.
    pub native_complete: bool,
    /// Whether there are more Python frames than were walked.
    pub python_truncated: bool,
}

/// The merged stack, leaf first like the words and the `frames` Python frames. Returns false if the two
/// halves do not fit together.
pub fn merge(words: &[u64], frames: usize, halves: Halves, merged: &mut Vec<Merged>) -> bool {
    merged.clear();
    let loops = words.iter().filter(|word| loop_count(**word).is_some()).count();
    // With fewer Python frames than C frames, the innermost C frame is just being entered or left. With
    // native frames missing at the root, there are more Python frames.
    let mut without = if halves.one_each && halves.native_complete && !halves.python_truncated {
        loops.saturating_sub(frames)
    } else {
        0
    };
    let mut next = 0;
    for (number, word) in words.iter().enumerate() {
        let count = match loop_count(*word) {
            None => 0,
            Some(_) if halves.one_each && without > 0 => {
                without -= 1;
                0
            }
            Some(_) if halves.one_each => 1,
            // The walk ended in this one's frames, or before.
            Some(COUNT_UNKNOWN) if halves.python_truncated => frames,
            Some(COUNT_UNKNOWN) => 0,
            Some(count) => count as usize,
        };
        let end = frames.min(next + count);
        if next == end {
            merged.push(Merged::Native(number));
        }
        merged.extend((next..end).map(Merged::Python));
        next = end;
    }
    merged.extend((next..frames).map(Merged::Python));
    next == frames || !halves.native_complete
}

/// The number of native frames, leaf first, that belong to a greenlet: those up to its outermost Python
/// frame. Beyond are greenlet's own code and another greenlet's C frames. `None` if the stack is not a
/// greenlet's.
pub fn greenlet_part(words: &[u64], frames: usize, one_each: bool, greenlet: &Range<u64>) -> Option<usize> {
    if frames == 0 {
        return None;
    }
    let (mut ran, mut outermost) = (0, None);
    for (number, word) in words.iter().enumerate() {
        match loop_count(*word) {
            Some(_) if one_each => (ran, outermost) = (ran + 1, Some(number)),
            Some(COUNT_UNKNOWN) | None => {}
            Some(count) => (ran, outermost) = (ran + count as usize, Some(number)),
        }
        if ran >= frames && greenlet.contains(&native_address(*word)) {
            return outermost.map(|number| number + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use pyobs_abi::stack::{loop_word, native_word};

    use super::*;

    const C: u64 = native_word(0x1000);
    const WHOLE: Halves = Halves { one_each: false, native_complete: true, python_truncated: false };

    fn shown(words: &[u64], frames: usize, halves: Halves) -> (String, bool) {
        let mut merged = Vec::new();
        let fits = merge(words, frames, halves, &mut merged);
        let shown = merged.iter().map(|frame| match frame {
            Merged::Native(number) => format!("n{number}"),
            Merged::Python(number) => format!("p{number}"),
        });
        (shown.collect::<Vec<_>>().join(" "), fits)
    }

    fn run(count: u32) -> u64 {
        loop_word(0x2000, count)
    }

    #[test]
    fn chains_take_the_place_of_their_c_frames() {
        let stack = [C, run(2), C, run(0), C, run(1), C];
        assert_eq!(shown(&stack, 3, WHOLE), ("n0 p0 p1 n2 n3 n4 p2 n6".to_owned(), true));
    }

    #[test]
    fn a_chain_that_was_cut_is_the_first_of_unknown_length() {
        let halves = Halves { python_truncated: true, ..WHOLE };
        let stack = [run(1), C, run(COUNT_UNKNOWN), C, run(COUNT_UNKNOWN)];
        assert_eq!(shown(&stack, 3, halves), ("p0 n1 p1 p2 n3 n4".to_owned(), true));
    }

    #[test]
    fn with_one_frame_each_the_innermost_may_have_none() {
        let halves = Halves { one_each: true, ..WHOLE };
        let unknown = run(COUNT_UNKNOWN);
        assert_eq!(shown(&[unknown, C, unknown, C, unknown, C], 2, halves), ("n0 n1 p0 n3 p1 n5".to_owned(), true));
        assert_eq!(shown(&[C, unknown, C], 2, halves), ("n0 p0 n2 p1".to_owned(), false));
    }

    #[test]
    fn a_greenlet_begins_with_its_first_python_frame() {
        const SWITCH: u64 = native_word(0x9010);
        let code = 0x9000..0x9100;
        let unknown = run(COUNT_UNKNOWN);
        let kept = |words: &[u64], frames, one_each| greenlet_part(words, frames, one_each, &code);
        // It is switching to another greenlet, and was started by one whose C frames are still on the stack.
        let stack = [SWITCH, C, run(2), C, run(1), C, SWITCH, C, unknown, C];
        assert_eq!(kept(&stack, 3, false), Some(5));
        let stack = [SWITCH, C, unknown, C, unknown, C, SWITCH, C, unknown, C];
        assert_eq!(kept(&stack, 2, true), Some(5));
        // A thread's first greenlet ends with the thread's own frames.
        assert_eq!(kept(&[SWITCH, C, run(2), C, run(1), C], 3, false), None);
        assert_eq!(kept(&[SWITCH, C], 0, false), None);
    }

    #[test]
    fn python_frames_beyond_the_last_native_one_are_kept() {
        for one_each in [false, true] {
            let halves = Halves { one_each, native_complete: false, python_truncated: false };
            assert_eq!(shown(&[C, run(1), C], 3, halves), ("n0 p0 n2 p1 p2".to_owned(), true));
            assert_eq!(shown(&[C], 2, halves), ("n0 p0 p1".to_owned(), true));
            assert_eq!(shown(&[C], 0, halves), ("n0".to_owned(), true));
        }
    }
}

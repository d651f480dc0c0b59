//! Tests with a process that has one code object, simulated in memory.

use super::*;
use crate::cpython::offsets::layout_for;
use crate::cpython::version::Version;
use crate::memory::Range;
use std::cell::Cell;

const CODE: u64 = 0x1000;
const NAME: u64 = 0x2000;
const FILE: u64 = 0x10_0000;
const TABLE: u64 = 0x20_0000;
const STR: u64 = 0x77;
const CODE_TYPE: u64 = 0x88;

/// The layout of 3.12.
fn layout() -> Layout {
    layout_for(&Version::new(3, 12, 0), false).unwrap().clone()
}

fn layout_of(minor: u8) -> Layout {
    Layout { version: [3, minor], ..layout() }
}

/// A process with one code object, whose memory may change after a number of reads.
struct Process {
    objects: Vec<(u64, Vec<u8>)>,
    later: Option<(u32, u64, u64)>,
    reads: Cell<u32>,
    error: Option<i32>,
}

impl Memory for Process {
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        self.reads.set(self.reads.get() + 1);
        if into.is_empty() {
            return Ok(());
        }
        if let Some(error) = self.error {
            return Err(io::Error::from_raw_os_error(error));
        }
        let efault = || io::Error::from_raw_os_error(libc::EFAULT);
        let (start, mut bytes) = self
            .objects
            .iter()
            .find(|(start, bytes)| (*start..*start + bytes.len() as u64).contains(&address))
            .cloned()
            .ok_or_else(efault)?;
        if let Some((_, at, value)) = self.later.filter(|(reads, at, _)| self.reads.get() > *reads && *at >= start)
            && let Some(place) = bytes.get_mut((at - start) as usize..).and_then(<[u8]>::first_chunk_mut)
        {
            *place = value.to_ne_bytes();
        }
        let from = (address - start) as usize;
        into.copy_from_slice(bytes.get(from..from + into.len()).ok_or_else(efault)?);
        Ok(())
    }

    fn read_many(&self, ranges: &mut [Range<'_>]) -> io::Result<()> {
        ranges.iter_mut().try_for_each(|(address, into)| self.read(*address, into))
    }
}

fn text(kind: u64, ascii: bool, shift: u32, code_points: &[u32]) -> Vec<u8> {
    let state = (kind | 8 | u64::from(ascii) << 4) << shift | 1;
    let mut bytes = vec![0u8; if ascii { 40 } else { 56 }];
    bytes[8..16].copy_from_slice(&STR.to_ne_bytes());
    bytes[16..24].copy_from_slice(&(code_points.len() as u64).to_ne_bytes());
    bytes[32..40].copy_from_slice(&state.to_ne_bytes());
    bytes.extend(code_points.iter().flat_map(|code| code.to_ne_bytes()[..kind as usize].to_vec()));
    bytes
}

fn ascii(text_: &str) -> Vec<u8> {
    text(1, true, 2, &text_.chars().map(u32::from).collect::<Vec<_>>())
}

fn process(name: Vec<u8>, file: Vec<u8>) -> Process {
    let mut code = vec![0u8; 200];
    code[8..16].copy_from_slice(&CODE_TYPE.to_ne_bytes());
    code[64..68].copy_from_slice(&5u32.to_ne_bytes());
    code[68..72].copy_from_slice(&42u32.to_ne_bytes());
    for (at, pointer) in [(112, FILE), (120, NAME), (128, NAME), (136, TABLE)] {
        code[at..at + 8].copy_from_slice(&pointer.to_ne_bytes());
    }
    let mut table = vec![0u8; 32];
    let entries = [0x80 | (11 << 3), 0, 1];
    table[16..24].copy_from_slice(&(entries.len() as u64).to_ne_bytes());
    table.extend(entries);
    let objects = vec![(CODE, code), (NAME, name), (FILE, file), (TABLE, table)];
    Process { objects, later: None, reads: Cell::new(0), error: None }
}

fn plain() -> Process {
    process(ascii("Class.method"), ascii("/srv/app.py"))
}

fn read(process: &Process, check: u32) -> Result<CodeObject, Reason> {
    read_with(process, check, &layout(), Some(CODE_TYPE))
}

fn read_with(process: &Process, check: u32, layout: &Layout, code_type: Option<u64>) -> Result<CodeObject, Reason> {
    read_code(process, CODE, check, layout, code_type, LongTables::Read)
}

/// The words in the check word: first line, five that are constant here, file, name, qualified name, line
/// table.
const WORDS: [u64; 10] = [42 << 32 | 5, 0, 0, 0, 0, 0, FILE, NAME, NAME, TABLE];

fn fold(words: &[u64]) -> u32 {
    words.iter().copied().fold(Check::default(), Check::add).fold()
}

/// The kernel side's check word for this code object.
fn seen() -> u32 {
    fold(&WORDS)
}

#[test]
fn a_code_object_has_its_names_and_lines() {
    for check in [0, seen()] {
        let code = read(&plain(), check).unwrap();
        assert_eq!((&*code.function, &*code.file, code.first_line), ("Class.method", "/srv/app.py", 42));
        assert_eq!(
            [-2, -1, 0, 1, 2].map(|lasti| code.line(lasti, &plain()).unwrap()),
            [42, 42, 43, 43, 0].map(|line| (line != 0).then_some(line))
        );
    }
}

#[test]
fn the_check_word_depends_on_all_its_parts() {
    for part in 0..WORDS.len() {
        for bit in [0, 5, 31, 32, 63] {
            let mut other = WORDS;
            other[part] ^= 1 << bit;
            assert_ne!(fold(&other), seen(), "bit {bit} of part {part}");
        }
    }
}

/// Before 3.12, two code objects may have the same words.
#[test]
fn the_check_word_depends_on_texts() {
    let layout = layout_of(11);
    let long = "/a/long/path".repeat(9) + "/x";
    let names = [
        ("f", "<cell 1>"),
        ("f", "<cell 2>"),
        ("g", "<cell 1>"),
        ("", ""),
        ("f", &long),
        ("f", &long[1..]),
        ("12345678", "1"),
        ("1234567", "81"),
    ];
    let add = |words: &mut Vec<u64>, text: &str| {
        words.push(text.len() as u64);
        let tail = &text.as_bytes()[text.len().saturating_sub(Tail::MAX)..];
        words.extend(tail.chunks(8).map(|bytes| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))));
    };
    let checks = names.map(|(name, file)| {
        let mut words = WORDS.to_vec();
        add(&mut words, name);
        add(&mut words, file);
        fold(&words)
    });
    for (number, (name, file)) in names.iter().enumerate() {
        for (other, check) in checks.iter().enumerate() {
            let got = read_with(&process(ascii(name), ascii(file)), *check, &layout, None);
            let expected = if number == other { Ok(*file) } else { Err(Reason::CodeChanged) };
            assert_eq!(
                got.as_ref().map(|code| &*code.file).map_err(|reason| *reason),
                expected,
                "{name} {file}, {other}"
            );
        }
    }
}

#[test]
fn what_is_not_the_code_object_that_was_seen_has_no_name() {
    assert_eq!(read(&plain(), seen() + 1), Err(Reason::CodeChanged));
    assert_eq!(read_with(&plain(), 0, &layout(), Some(1)), Err(Reason::CodeInvalid));
    assert!(read_with(&plain(), 0, &layout(), None).is_ok());
    let mut negative = plain();
    negative.objects[0].1[71] = 0x80;
    assert_eq!(read(&negative, 0), Err(Reason::CodeInvalid));
}

#[test]
fn a_change_between_two_reads_is_seen() {
    let reads = {
        let process = plain();
        read(&process, 0).unwrap();
        process.reads.get()
    };
    for field in [112, 128, 136, 64, 8] {
        let process = Process { later: Some((reads - 1, CODE + field, 0x3333)), ..plain() };
        assert_eq!(read(&process, seen()), Err(Reason::CodeChanged), "field at {field}");
    }
}

#[test]
fn unreadable_memory_has_its_reason() {
    let with = |error| read(&Process { error: Some(error), ..plain() }, 0);
    assert_eq!(with(libc::ESRCH), Err(Reason::ProcessGone));
    assert_eq!([libc::EFAULT, libc::EPERM].map(with), [(); 2].map(|()| Err(Reason::CodeUnreadable)));
    for missing in 0..4 {
        let mut process = plain();
        process.objects.remove(missing);
        assert_eq!(read(&process, 0), Err(Reason::CodeUnreadable), "object {missing}");
    }
}

#[test]
fn text_of_every_width() {
    let of = |kind, code_points: &[u32]| {
        read(&process(text(kind, false, 2, code_points), ascii("f")), 0).unwrap().function.to_string()
    };
    assert_eq!(of(1, &[0x67, 0xe9, 0xff]), "géÿ");
    assert_eq!(of(2, &[0x3b1, 0xdcff, 0x6f22]), "α\u{fffd}漢");
    assert_eq!(of(4, &[0x1f40d, 0xd800, 0x11_0000, 0x41]), "🐍\u{fffd}\u{fffd}A");
    assert_eq!(of(1, &[]), "");
    // Kept as it is, except NUL: escaping is up to whoever shows the text.
    assert_eq!(of(1, &[0x1b, 0x5b, 0x32, 0x4a, 0x0a, 0x3c, 0, 0x85]), "\x1b[2J\n<\u{fffd}\u{85}");
}

#[test]
fn long_text_is_cut_where_it_matters_less() {
    let long: Vec<u32> = (0..100_000).map(|i| 0x400 + i % 0x400).collect();
    let code = read(&process(text(2, false, 2, &long), text(4, false, 2, &long)), 0).unwrap();
    let character = |index: usize| char::from_u32(long[index]);
    assert_eq!((code.function.chars().count(), code.file.chars().count()), (FUNCTION_LIMIT, FILE_LIMIT));
    assert_eq!((code.function.chars().next(), code.function.chars().last()), (character(0), Some('…')));
    assert_eq!((code.file.chars().next(), code.file.chars().last()), (Some('…'), character(99_999)));
    assert_eq!(code.file.chars().nth(1), character(100_000 - FILE_LIMIT + 1));
    let exact = "x".repeat(FUNCTION_LIMIT);
    assert_eq!(*read(&process(ascii(&exact), ascii("f")), 0).unwrap().function, exact);
}

#[test]
fn the_place_of_the_state_bits_varies_from_3_14_on() {
    for (minor, shift, ok) in [(14, 2, true), (14, 8, true), (15, 16, true), (13, 8, false), (6, 2, true)] {
        let layout = layout_of(minor);
        let process = process(text(1, true, shift, &[0x66]), text(1, true, shift, &[0x66]));
        let expected = if ok { Ok("f") } else { Err(Reason::NameInvalid) };
        let got = read_with(&process, 0, &layout, None);
        assert_eq!(got.as_ref().map(|code| &*code.function).map_err(|reason| *reason), expected, "{minor} {shift}");
    }
}

#[test]
fn what_is_no_text_is_no_name() {
    let broken = |at: usize, value: u64| {
        let mut process = plain();
        process.objects[1].1[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        read(&process, 0).map(|code| code.function)
    };
    let invalid = Err(Reason::NameInvalid);
    // Another type; a negative length; not compact; kind 0, 3, 5; ASCII of two bytes.
    for (at, value) in [(8, 1), (16, u64::MAX), (32, 0x44), (32, 0x60), (32, 0x6c), (32, 0x34), (32, 0x68)] {
        assert_eq!(broken(at, value), invalid, "{value:#x} at {at}");
    }
    assert_eq!(broken(16, 1 << 40), Err(Reason::CodeUnreadable));
}

#[test]
fn a_line_table_too_large_leaves_the_name() {
    for size in [LONG_MAX + 1, u64::MAX] {
        let mut process = plain();
        process.objects[3].1[16..24].copy_from_slice(&size.to_ne_bytes());
        let code = read(&process, 0).unwrap();
        assert_eq!((&*code.function, code.line(-1, &process)), ("Class.method", Ok(Some(42))));
        assert_eq!((code.line(0, &process), code.leaves_out_lines()), (Err(Reason::LineUnknown), false));
    }
    let mut empty = plain();
    empty.objects[3].1[16] = 0;
    assert_eq!(read(&empty, 0).unwrap().line(0, &empty), Ok(None));
    assert_eq!(read_with(&empty, 0, &layout_of(9), None).unwrap().line(6, &empty), Ok(Some(42)));
}

#[test]
fn a_long_line_table_is_read_again_for_each_line() {
    let mut process = plain();
    let count = 20_000;
    process.objects[3].1.truncate(32);
    process.objects[3].1[16..24].copy_from_slice(&(3 * count as u64).to_ne_bytes());
    process.objects[3].1.extend([0x80 | (11 << 3), 0, 1].repeat(count));
    let code = read(&process, seen()).unwrap();
    assert!(code.has_long_table());
    assert_eq!(
        [0, 2, 39_998, 40_000].map(|lasti| code.line(lasti, &process)),
        [43, 44, 20_042, 0].map(|line| Ok((line != 0).then_some(line)))
    );
    let gone = Process { error: Some(libc::ESRCH), ..plain() };
    assert_eq!(code.line(0, &gone), Err(Reason::ProcessGone));
    let left_out = read_code(&process, CODE, seen(), &layout(), None, LongTables::LeaveOut).unwrap();
    assert!(left_out.leaves_out_lines());
    process.objects[3].1[50_000] = 0xff;
    assert_eq!((code.line(0, &process), code.line(33_000, &process)), (Ok(Some(43)), Err(Reason::LineUnknown)));
}

#[test]
fn a_layout_out_of_bounds_is_no_layout() {
    let mut layout = layout();
    layout.code.filename = u32::MAX;
    assert_eq!(read_with(&plain(), 0, &layout, None), Err(Reason::InterpreterUnknown));
}

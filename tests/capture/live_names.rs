//! Tests names and current lines read from the memory of a process that waits at a known place, on every CPython.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use pyobs_abi::process::Check;
use pyobs_capture::cpython::names::{LongTables, check_words, read_code};
use pyobs_capture::cpython::offsets::{Layout, Position, layout_for};
use pyobs_capture::cpython::{debug_offsets, version::Version};
use pyobs_capture::memory::{Memory, ProcessMemory};
use pyobs_model::Reason;
use pyobs_tests::{Case, Python, workload};

use crate::{for_every_python, hex};

pub fn cases() -> Vec<Case> {
    for_every_python("live_names", "a_waiting_process_has_the_names_and_lines_that_it_reports", check)
}

/// The offset of `PyFrameObject.f_frame`, after the object's head and `f_back` (3.11+;
/// Include/internal/pycore_frame.h). pyobs itself never starts from a frame object.
fn f_frame(layout: &Layout) -> u64 {
    u64::from(layout.object.size) + 8
}

/// The frame's position in its bytecode, in bytes from the start, as the kernel side reports it.
fn lasti(memory: &ProcessMemory, layout: &Layout, frame_object: u64, code: u64) -> i32 {
    let field = |frame: u64| frame + u64::from(layout.frame.instruction);
    match layout.frame.position {
        Position::ByteIndex => memory.read_u32(field(frame_object)).unwrap().cast_signed(),
        Position::UnitIndex => memory.read_u32(field(frame_object)).unwrap().cast_signed() * 2,
        Position::PreviousPointer | Position::CurrentPointer => {
            let frame = memory.read_u64(frame_object + f_frame(layout)).unwrap();
            assert_eq!(memory.read_u64(frame + u64::from(layout.frame.code)).unwrap(), code);
            let start = code + u64::from(layout.code.code_adaptive.unwrap());
            memory.read_u64(field(frame)).unwrap().wrapping_sub(start) as i32
        }
    }
}

/// The check word that the kernel side computes for a code object (ebpf/programs/src/common/checks.rs).
fn kernel_check(memory: &ProcessMemory, layout: &Layout, address: u64) -> u32 {
    let word = |at: u64| memory.read_u64(at).unwrap();
    let object = check_words(layout).step_by(8).map(|offset| word(address + u64::from(offset)));
    let mut check = object.fold(Check::default(), Check::add);
    let code = &layout.code;
    for text in [code.qualname.unwrap_or(code.name), code.filename] {
        if layout.version >= [3, 12] {
            break;
        }
        let text = word(address + u64::from(text));
        let (length, state) =
            (word(text + u64::from(layout.unicode.length)), word(text + u64::from(layout.unicode.state)));
        let is_ascii = state & 1 << 6 != 0;
        let data = if is_ascii { layout.unicode.ascii_data } else { layout.unicode.compact_data };
        let bytes = length * (state >> 2 & 7);
        let tail = bytes.min(80);
        let mut buffer = [0; 80];
        memory.read(text + u64::from(data) + bytes - tail, &mut buffer[..tail as usize]).unwrap();
        let words = buffer.chunks_exact(8).take(tail.div_ceil(8) as usize);
        check = words.fold(check.add(length), |check, word| check.add(u64::from_le_bytes(word.try_into().unwrap())));
    }
    check.fold()
}

fn check(python: &Python) {
    // The process ends with its input, however this case ends.
    let mut script = python.script(workload("live_names.py"));
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let memory = ProcessMemory::new(child.id());
    let mut printed = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let head: Vec<u64> = printed.next().unwrap().split('\t').map(|number| number.parse().unwrap()).collect();
    let [runtime, version, code_type] = head[..] else { panic!("{head:?}") };
    let version = Version::from_hex(version).unwrap();
    let layout = match layout_for(&version, false) {
        Some(layout) => layout.clone(),
        None => debug_offsets::read(&memory, runtime, version).unwrap(),
    };

    let read =
        |address, check, code_type| read_code(&memory, address, check, &layout, Some(code_type), LongTables::Read);
    let mut frames = 0;
    for row in printed.by_ref().take_while(|line| line != "ready") {
        let row: Vec<_> = row.split('\t').collect();
        let [frame, code, name, file, first_line, line] = row[..] else { panic!("{row:?}") };
        let text = |digits: &str| String::from_utf8(hex(digits).into()).unwrap();
        let (frame, address): (u64, u64) = (frame.parse().unwrap(), code.parse().unwrap());
        let seen = kernel_check(&memory, &layout, address);
        let code = read(address, seen, code_type).unwrap();
        let context = format!("{} {}", python.name(), code.function);
        assert_eq!((&*code.function, &*code.file), (&*text(name), &*text(file)), "{context}");
        assert_eq!(code.first_line.to_string(), first_line, "{context}");
        assert_eq!(code.line(-1, &memory), Ok(Some(code.first_line)));
        if &*code.file == "long_table" {
            // 98 kB of locations from 3.11 on; a few bytes before.
            assert_eq!(code.has_long_table(), version.since(11), "{context}");
            assert_eq!(code.line(0, &memory), Ok(Some(code.first_line)), "{context}");
        }
        if frame != 0 {
            frames += 1;
            let lasti = lasti(&memory, &layout, frame, address);
            let got = code.line(lasti, &memory).unwrap().map_or("None".to_owned(), |line| line.to_string());
            assert_eq!(got, line, "the line of {context} at {lasti}");
        }
        let other = seen.wrapping_add(1).max(1);
        assert_eq!(read(address, other, code_type).err(), Some(Reason::CodeChanged));
        assert_eq!(read(address, seen, address).err(), Some(Reason::CodeInvalid));
    }
    assert!(frames >= 14, "{}: {frames} frames", python.name());

    // The type's own type is not a code object, whatever its memory holds, and address 1 is not mapped.
    assert_eq!(read(code_type, 0, code_type).err(), Some(Reason::CodeInvalid));
    assert_eq!(read(1, 0, code_type).err(), Some(Reason::CodeUnreadable));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert_eq!(read(code_type, 0, code_type).err(), Some(Reason::ProcessGone));
}

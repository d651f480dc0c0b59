//! Files made byte by byte: what local compilers do not emit, and what no linker produces.

use std::io::Write;

use gimli::constants::*;

use super::elf::{CODE, Frames, Image};
use super::*;

const FRAME_ON_STACK: [u8; 5] = [DW_CFA_def_cfa.0, 7, 8, DW_CFA_offset.0 | 16, 1];
const RETURN_ADDRESS_UNDEFINED: [u8; 2] = [DW_CFA_undefined.0, 16];
/// What GCC emits for a function that realigned its stack: CFA at *(rbp - 8), rbp at *rbp.
const REALIGNED: [u8; 9] =
    [DW_CFA_def_cfa_expression.0, 3, DW_OP_breg6.0, 0x78, DW_OP_deref.0, DW_CFA_expression.0, 6, 2, DW_OP_breg6.0];

fn push(words: u16) -> Rule {
    Rule::new(cfa::RSP, words, rbp::SAME, 0)
}

fn table(image: Image) -> Table {
    let table = of_memory(&image.bytes()).unwrap();
    check(&table);
    table
}

/// A function of each kind, one of them only in `.debug_frame`, and the stubs that lld creates.
fn sample() -> Image {
    let mut eh = Frames::eh_frame();
    let cie = eh.cie("zR", &FRAME_ON_STACK);
    eh.fde(cie, CODE + 0x100, 0x40, &[]);
    eh.fde(cie, CODE + 0x140, 0x40, &[&[DW_CFA_advance_loc.0 | 4], &REALIGNED[..], &[0]].concat());
    eh.fde(cie, CODE + 0x200, 0x20, &RETURN_ADDRESS_UNDEFINED);
    let mut debug = Frames::debug_frame();
    let cie = debug.cie("", &[DW_CFA_def_cfa.0, 6, 16, DW_CFA_offset.0 | 16, 1, DW_CFA_offset.0 | 6, 2]);
    debug.fde(cie, CODE + 0x180, 0xa0, &[]);
    let stubs = [&[0xff, 0x35, 0, 0, 0, 0, 0xff, 0x25][..], &[0; 8], &[0xff, 0x25, 0, 0, 0, 0, 0x68], &[0; 25]];
    Image::default().with(eh).with(debug).section(".plt", CODE + 0x800, stubs.concat(), 6)
}

#[test]
fn functions_of_each_kind() {
    let table = table(sample());
    let realigned = Rule::new(cfa::DEREF_RBP, 0xffff, rbp::AT_RBP, 0);
    let framed = Rule::new(cfa::RBP, 2, rbp::AT_CFA, 2);
    for (offset, rule) in [
        (0, NONE),
        (0xff, NONE),
        (0x100, push(1)),
        (0x143, push(1)),
        (0x144, realigned),
        (0x17f, realigned),
        // Only `.debug_frame` has it, up to where `.eh_frame` differs.
        (0x180, framed),
        (0x1ff, framed),
        (0x200, Rule::new(cfa::END, 0, rbp::UNDEFINED, 0)),
        (0x220, NONE),
        (0x7ff, NONE),
        (0x800, push(2)),
        (0x806, push(3)),
        (0x80f, push(3)),
        (0x810, Rule::new(cfa::PLT, 11, rbp::SAME, 0)),
        (0x82f, Rule::new(cfa::PLT, 11, rbp::SAME, 0)),
        (0x830, NONE),
        (0x1_0000, NONE),
    ] {
        assert_eq!(look_up(&table, offset), rule, "{offset:#x}");
    }
    let counts = table.counts;
    assert_eq!((counts.fdes, counts.skipped, counts.stub_bytes, counts.unsupported_bytes), (4, 0, 0x30, 0));
    assert_eq!(counts.covered_bytes, 0x120 + 0x30);
    let registers = Registers { rip: 0, rsp: 0x7000, rbp: 0x8000 };
    let caller =
        Step::Caller { rsp: memory(0x7ff8), rip: memory(memory(0x7ff8).wrapping_sub(8)), rbp: Some(memory(0x8000)) };
    assert_eq!(step(realigned, registers), caller);
}

/// A signed LEB128 of three bytes.
fn leb(value: i16) -> [u8; 3] {
    [0, 7, 14].map(|shift| (i32::from(value) >> shift) as u8 & 0x7f | if shift < 14 { 0x80 } else { 0 })
}

#[test]
fn what_fits_a_row_and_what_does_not() {
    const RBP: u8 = 6;
    let cfa = |register: u8, offset: i16| [&[DW_CFA_def_cfa_sf.0, register][..], &leb(offset)].concat();
    let cfa_expression =
        |operations: &[u8]| [&[DW_CFA_def_cfa_expression.0, operations.len() as u8], operations].concat();
    let rbp_at = |offset: i16| [&[DW_CFA_offset_extended_sf.0, RBP][..], &leb(offset)].concat();
    let rbp_expression = |register: u8, offset: i16| {
        [&[DW_CFA_expression.0, RBP, 4, DW_OP_breg0.0 + register][..], &leb(offset)].concat()
    };
    let register = |register: u8, offset: i16| [&[DW_OP_breg0.0 + register][..], &leb(offset)].concat();
    let deref_plus = |offset: i16, more: u8| {
        let plus = [DW_OP_deref.0, DW_OP_plus_uconst.0, more];
        cfa_expression(&[&register(7, offset)[..], &plus].concat())
    };
    let deref =
        |register_: u8, offset: i16| cfa_expression(&[&register(register_, offset)[..], &[DW_OP_deref.0]].concat());
    let framed = |kind, offset: i16| Rule::new(kind, offset.cast_unsigned(), rbp::SAME, 0);
    let saved = |kind, offset: i16| Rule::new(cfa::RSP, 1, kind, offset.cast_unsigned());
    // Offsets of registers count down from the CFA in words; those of expressions count up in bytes.
    let rows = [
        (cfa(7, -3), framed(cfa::RSP, 3)),
        (cfa(RBP, -2), framed(cfa::RBP, 2)),
        (cfa(7, 1), UNSUPPORTED),
        (cfa(10, -1), UNSUPPORTED),
        (vec![DW_CFA_def_cfa.0, 7, 12], UNSUPPORTED),
        (vec![DW_CFA_def_cfa.0, 7, 0xf8, 0xff, 0x1f], framed(cfa::RSP, -1)),
        (vec![DW_CFA_def_cfa.0, 7, 0x80, 0x80, 0x20], UNSUPPORTED),
        (cfa_expression(&register(7, 16)), framed(cfa::RSP, 2)),
        (cfa_expression(&register(RBP, 24)), framed(cfa::RBP, 3)),
        (deref_plus(16, 8), framed(cfa::DEREF_RSP, 2 << 4 | 1)),
        (deref_plus(0x220, 0x38), framed(cfa::DEREF_RSP, 0x44 << 4 | 7)),
        (deref_plus(-8, 8), framed(cfa::DEREF_RSP, -1 << 4 | 1)),
        (deref_plus(16, 4), UNSUPPORTED),
        (deref_plus(16, 0x70), framed(cfa::DEREF_RSP, 2 << 4 | 14)),
        (cfa_expression(&[DW_OP_deref.0; 20]), UNSUPPORTED),
        (cfa_expression(&[]), UNSUPPORTED),
        (deref(RBP, -32_768), framed(cfa::DEREF_RBP, -4096)),
        (deref(RBP, 32), framed(cfa::DEREF_RBP, 4)),
        (deref(RBP, 4), UNSUPPORTED),
        (deref(7, 8), UNSUPPORTED),
        (rbp_at(2), saved(rbp::AT_CFA, 2)),
        (rbp_at(1023), saved(rbp::AT_CFA, 1023)),
        (rbp_at(1024), saved(rbp::UNDEFINED, 0)),
        (rbp_at(-1), saved(rbp::UNDEFINED, 0)),
        (rbp_expression(RBP, -16), saved(rbp::AT_RBP, -2)),
        (rbp_expression(RBP, -4096), saved(rbp::AT_RBP, -512)),
        (rbp_expression(RBP, 4088), saved(rbp::AT_RBP, 511)),
        (rbp_expression(RBP, 4096), saved(rbp::UNDEFINED, 0)),
        (rbp_expression(7, 16), saved(rbp::UNDEFINED, 0)),
        (vec![DW_CFA_same_value.0, RBP], saved(rbp::SAME, 0)),
        (vec![DW_CFA_undefined.0, RBP], saved(rbp::UNDEFINED, 0)),
        (vec![DW_CFA_register.0, RBP, 3], saved(rbp::UNDEFINED, 0)),
        (vec![DW_CFA_offset.0 | 16, 2], UNSUPPORTED),
        (vec![DW_CFA_register.0, 16, 1], UNSUPPORTED),
        (RETURN_ADDRESS_UNDEFINED.to_vec(), Rule::new(cfa::END, 0, rbp::UNDEFINED, 0)),
    ];
    let mut eh = Frames::eh_frame();
    let cie = eh.cie("zR", &FRAME_ON_STACK);
    for (number, (instructions, _)) in rows.iter().enumerate() {
        eh.fde(cie, CODE + 0x40 * number as u64, 0x20, instructions);
    }
    let table = table(Image::default().with(eh));
    for (number, (instructions, rule)) in rows.iter().enumerate() {
        let found = look_up(&table, 0x40 * number as u64);
        assert_eq!(found, *rule, "{number}: {instructions:x?}");
        let (cfa, rbp) = (found.cfa_offset_signed(), found.rbp_offset_signed());
        assert!(found.cfa() != cfa::DEREF_RBP || [-32_768, 32].contains(&cfa), "{cfa}");
        assert!(found.rbp() != rbp::AT_RBP || [-16, -4096, 4088].contains(&rbp), "{rbp}");
    }
}

#[test]
fn a_file_without_sections_has_the_same_functions() {
    let stripped = Image { without_sections: true, ..sample() };
    let table = table(stripped);
    assert_eq!(look_up(&table, 0x150), Rule::new(cfa::DEREF_RBP, 0xffff, rbp::AT_RBP, 0));
    assert_eq!((table.counts.fdes, table.counts.stub_bytes), (3, 0));
}

#[test]
fn stubs_of_other_linkers() {
    let endbr64 = [0xf3, 0x0f, 0x1e, 0xfa];
    let mold = [&endbr64[..], &[0x41, 0x53, 0xff, 0x35], &[0; 24], &endbr64, &[0x41, 0xbb], &[0; 10]].concat();
    let ibt = [&[0xff, 0x35][..], &[0; 14], &endbr64, &[0x68], &[0; 11]].concat();
    for (bytes, expected) in [
        (mold, vec![(0, push(1)), (6, push(2)), (12, push(3)), (32, push(1))]),
        (ibt, vec![(0, push(2)), (6, push(3)), (16, Rule::new(cfa::PLT, 9, rbp::SAME, 0))]),
        (vec![0; 48], vec![(0, push(1)), (47, push(1))]),
    ] {
        let mut eh = Frames::eh_frame();
        let cie = eh.cie("zR", &FRAME_ON_STACK);
        eh.fde(cie, CODE, 0x40, &[]);
        let table = table(Image::default().with(eh).section(".plt", CODE + 0x800, bytes, 6));
        for (offset, rule) in expected {
            assert_eq!(look_up(&table, 0x800 + offset), rule, "{offset}");
        }
    }
}

#[test]
fn signal_frames_are_those_of_the_kernel() {
    // rsp at *(rsp + 160), and the return address at *(rsp + 168) or at the offset of another context.
    let context = |rip: u8| {
        [
            DW_CFA_def_cfa_expression.0,
            4,
            DW_OP_breg7.0,
            0xa0,
            1,
            DW_OP_deref.0,
            DW_CFA_expression.0,
            16,
            3,
            DW_OP_breg7.0,
            rip,
            1,
        ]
    };
    let mut eh = Frames::eh_frame();
    let plain = eh.cie("zR", &FRAME_ON_STACK);
    let signal = eh.cie("zRS", &FRAME_ON_STACK);
    eh.fde(signal, CODE + 0x100, 0x20, &context(0xa8));
    eh.fde(signal, CODE + 0x200, 0x20, &context(0xb0));
    eh.fde(signal, CODE + 0x300, 0x20, &[]);
    eh.fde(plain, CODE + 0x400, 0x20, &context(0xa8));
    let table = table(Image::default().with(eh));
    for (offset, kind) in
        [(0x100, cfa::SIGNAL), (0x200, cfa::UNSUPPORTED), (0x300, cfa::RSP), (0x400, cfa::UNSUPPORTED)]
    {
        assert_eq!(look_up(&table, offset).cfa(), kind, "{offset:#x}");
    }
    assert_eq!(table.counts.unsupported_bytes, 0x40);
}

#[test]
fn a_terminator_in_between_and_a_broken_entry_lose_only_themselves() {
    let mut eh = Frames::eh_frame();
    let cie = eh.cie("zR", &FRAME_ON_STACK);
    eh.fde(cie, CODE + 0x100, 0x20, &[]);
    eh.bytes.extend([0; 4]);
    let unknown = eh.cie("zQ", &FRAME_ON_STACK);
    eh.fde(unknown, CODE + 0x120, 0x20, &[]);
    eh.fde(cie, 0x9000, 0x20, &[]);
    // An invalid instruction.
    eh.fde(cie, CODE + 0x140, 0x20, &[DW_CFA_advance_loc.0 | 8, 0x3f]);
    eh.fde(cie, CODE + 0x160, 0x20, &[]);
    let table = table(Image::default().with(eh));
    assert_eq!((table.counts.fdes, table.counts.skipped), (3, 2));
    for (offset, rule) in [(0x100, push(1)), (0x130, NONE), (0x147, push(1)), (0x148, UNSUPPORTED), (0x160, push(1))] {
        assert_eq!(look_up(&table, offset), rule, "{offset:#x}");
    }
}

#[test]
fn gaps_between_functions_are_dropped_up_to_fifteen_bytes() {
    for (gap, rule) in [(15, push(1)), (16, NONE)] {
        let mut eh = Frames::eh_frame();
        let cie = eh.cie("zR", &FRAME_ON_STACK);
        eh.fde(cie, CODE, 0x20, &[]);
        eh.fde(cie, CODE + 0x20 + gap, 0x20, &[]);
        assert_eq!(look_up(&table(Image::default().with(eh)), 0x20), rule);
    }
}

#[test]
fn work_is_bounded() {
    let mut eh = Frames::eh_frame();
    let cie = eh.cie("zR", &[&FRAME_ON_STACK[..], &[0; 700]].concat());
    for _ in 0..40 {
        eh.fde(cie, CODE, 0x20, &[]);
    }
    assert!(matches!(of_memory(&Image::default().with(eh).bytes()), Err(TableError::TooMuchWork)));
}

#[test]
fn files_without_frames_say_so() {
    assert!(matches!(of_memory(b"#!/bin/sh\n"), Err(TableError::NotElf)));
    assert!(matches!(of_memory(&Image::default().with(Frames::eh_frame()).bytes()), Err(TableError::NoFrames)));
    let mut other = sample().bytes();
    other[18] = 183;
    assert!(matches!(of_memory(&other), Err(TableError::OtherMachine { class: 2, machine: 183 })));
    let compressed = Image::default().section(".debug_frame", 0x2400, vec![1; 64], 0x800);
    assert!(matches!(of_memory(&compressed.bytes()), Err(TableError::Compressed(".debug_frame"))));
    let mut far = sample().bytes();
    far[64 + 32..][..16].fill(0x70);
    assert!(of_memory(&far).is_ok(), "a segment is as long as the file, whatever it says");
}

#[test]
fn damaged_files_have_a_table_or_an_error() {
    let whole = sample().bytes();
    for end in (0..whole.len()).step_by(7) {
        if let Ok(table) = of_memory(&whole[..end]) {
            check(&table);
        }
    }
    for image in [whole, oracle::vdso()] {
        for at in (0..image.len()).filter(|at| image[*at] != 0) {
            let mut damaged = image.clone();
            for flip in [0xff, 0x01, 0x80] {
                damaged[at] = image[at] ^ flip;
                if let Ok(table) = of_memory(&damaged) {
                    check(&table);
                }
            }
        }
    }
}

#[test]
fn a_file_that_was_cut_off_while_it_was_read_is_an_error() {
    let path = std::env::temp_dir().join(format!("pyobs-unwind-table-{}", std::process::id()));
    let whole = sample().bytes();
    for end in [0, 63, 200, 0x2030, whole.len()] {
        File::create(&path).unwrap().write_all(&whole[..end]).unwrap();
        let table = read(&File::open(&path).unwrap(), whole.len() as u64);
        assert_eq!(table.is_ok(), end == whole.len(), "{end}: {table:?}");
        let _ = read(&File::open(&path).unwrap(), u64::MAX);
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn rows_count_in_the_file_whatever_the_addresses() {
    // BOLT moves hot code into a separate segment, with another difference between address and offset.
    let segments = vec![
        Segment { vaddr: 0x40_2a00, offset: 0x1a00, size: 0x1000 },
        Segment { vaddr: 0x80_0000, offset: 0x4000, size: 0x2000 },
    ];
    let code = Code { segments };
    assert_eq!((code.origin(), code.span()), (0x1a00, Some(0x4600)));
    let offsets = |start, end| code.part(start, end).map(|part| (part.offset(part.start), part.offset(part.end)));
    assert_eq!(offsets(0x40_2a00, 0x40_2a10), Some((0, 0x10)));
    assert_eq!(offsets(0x80_0100, 0x80_0180), Some((0x2700, 0x2780)));
    assert_eq!(offsets(0x40_3900, u64::MAX), Some((0xf00, 0x1000)));
    assert_eq!(offsets(0x40_29ff, 0x40_2a10), None);
    assert_eq!(offsets(0x80_0100, 0x80_0100), None);
}

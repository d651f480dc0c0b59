//! Tests with handwritten interpreter code.

use std::collections::BTreeSet;

use object::elf::{ELFCLASS64, ELFDATA2LSB, ELFMAG, EM_X86_64, ET_EXEC, PF_R, PF_X, PT_LOAD};
use pyobs_abi::eval::condition;

use super::functions::exits;
use super::handlers::{branch_on_throwing, starts};
use super::listing::Listing;
use super::*;

const CODE: u64 = 0x1000;
const DATA: u64 = 0x8000;
/// Instructions that several tests use.
const MOV: [u8; 3] = [0x48, 0x89, 0xd8]; // mov rax, rbx
const TEST: [u8; 2] = [0x85, 0xc0]; // test eax, eax
const LEAVE_LOOP: [u8; 2] = [0xff, 0xe0]; // jmp rax

/// An ELF file with two segments: code at `CODE`, constants at `DATA`.
fn file(code: &[u8], data: &[u8]) -> Vec<u8> {
    const HEADER: usize = 64;
    const SEGMENT: usize = 56;
    let start = HEADER + 2 * SEGMENT;
    let mut bytes = Vec::new();
    bytes.extend(ELFMAG);
    bytes.extend([ELFCLASS64.0, ELFDATA2LSB.0, 1]);
    bytes.resize(16, 0);
    bytes.extend(ET_EXEC.0.to_le_bytes());
    bytes.extend(EM_X86_64.0.to_le_bytes());
    bytes.extend(1_u32.to_le_bytes());
    for word in [CODE, HEADER as u64, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(0_u32.to_le_bytes());
    for half in [HEADER as u16, SEGMENT as u16, 2, 64, 0, 0] {
        bytes.extend(half.to_le_bytes());
    }
    for (address, offset, part, flags) in
        [(CODE, start, code, PF_R.0 | PF_X.0), (DATA, start + code.len(), data, PF_R.0)]
    {
        bytes.extend(PT_LOAD.0.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        for word in [offset as u64, address, address, part.len() as u64, part.len() as u64, 1] {
            bytes.extend(word.to_le_bytes());
        }
    }
    bytes.extend(code);
    bytes.extend(data);
    bytes
}

fn with_listing<T>(code: &[u8], data: &[u8], inspect: impl FnOnce(&Listing<'_, '_>) -> T) -> T {
    let bytes = file(code, data);
    let elf = Elf::parse(&bytes).unwrap();
    let range = CODE..CODE + code.len() as u64;
    inspect(&Listing::of(&elf, std::iter::once(range).collect()))
}

fn places(sites: &[Site]) -> Vec<(u64, u64, bool)> {
    sites.iter().map(|site| (site.address, site.condition, site.stepped)).collect()
}

/// RESUME at 0x1000 and RESUME_CHECK at 0x100c, which jumps to 0x1003, past the start of RESUME.
fn two_forms() -> Vec<u8> {
    let long = [&MOV[..], &MOV, &TEST, &[0x74, 0x00], &LEAVE_LOOP].concat(); // je 0x100a
    let short = [&MOV[..], &TEST, &[0x75, 0xf0], &LEAVE_LOOP].concat(); // jne 0x1003
    [long, short].concat()
}

#[test]
fn a_short_form_that_jumps_into_the_long_one_counts_once() {
    let addresses = BTreeSet::from([0x1000, 0x100c]);
    let found = with_listing(&two_forms(), &[], |listing| starts(listing, &addresses));
    assert_eq!(places(&found), [(0x1008, condition::ALWAYS, false), (0x1011, condition::ZERO, false)]);
}

#[test]
fn a_start_that_other_code_jumps_into_is_probed_at_its_first_instruction() {
    let code = [two_forms(), vec![0xeb, 0xec]].concat(); // jmp 0x1003
    let addresses = BTreeSet::from([0x1000, 0x100c]);
    let found = with_listing(&code, &[], |listing| starts(listing, &addresses));
    assert_eq!(places(&found), [(0x1000, condition::ALWAYS, true), (0x1011, condition::ALWAYS, false)]);
}

#[test]
fn a_start_without_a_cheap_instruction_is_stepped_over() {
    let code = [&MOV[..], &LEAVE_LOOP].concat();
    let found = with_listing(&code, &[], |listing| starts(listing, &BTreeSet::from([CODE])));
    assert_eq!(places(&found), [(CODE, condition::ALWAYS, true)]);
}

#[test]
fn the_way_of_thrown_exceptions_is_found_by_the_argument_that_says_so() {
    // mov ebp, edx; mov edx, eax; test ebp, ebp; mov rax, rbx; jne 0x1010; …; 0x1010: mov rax, rbx; je 0x1015
    let code = [
        &[0x89, 0xd5, 0x89, 0xc2, 0x85, 0xed][..],
        &MOV,
        &[0x75, 0x05],
        &MOV,
        &LEAVE_LOOP,
        &MOV,
        &[0x74, 0x00],
        &LEAVE_LOOP,
    ]
    .concat();
    let found = with_listing(&code, &[], |listing| branch_on_throwing(listing, CODE)).unwrap();
    assert_eq!((found.address, found.condition, found.stepped), (0x1013, condition::ALWAYS, false));
    // The argument's register is overwritten before it is tested.
    let other = [&[0x89, 0xc2, 0x85, 0xd2][..], &[0x75, 0x00], &LEAVE_LOOP].concat();
    assert_eq!(with_listing(&other, &[], |listing| branch_on_throwing(listing, CODE)), None);
}

#[test]
fn ends_are_probed_before_the_registers_are_restored() {
    // push rbx; sub rsp, 16; call 0x1000; add rsp, 16; pop rbx; ret
    let code = [0x53, 0x48, 0x83, 0xec, 0x10, 0xe8, 0xf6, 0xff, 0xff, 0xff, 0x48, 0x83, 0xc4, 0x10, 0x5b, 0xc3];
    let found = with_listing(&code, &[], exits);
    assert_eq!(places(&found), [(0x1005, condition::ALWAYS, false)]);
    assert_eq!(found[0].distance, Some(24));
    // mov rax, rbx; ret: there is only the return itself.
    let found = with_listing(&[&MOV[..], &[0xc3]].concat(), &[], exits);
    assert_eq!((places(&found), found[0].distance), (vec![(0x1003, condition::ALWAYS, true)], Some(0)));
}

#[test]
fn the_handler_table_is_recognized() {
    // jmp [rax*8 + DATA], for a switch; jmp [rax*8 + DATA + 32]; then 256 bytes of handlers.
    let jump = |to: u64| [&[0xff, 0x24, 0xc5][..], &u32::try_from(to).unwrap().to_le_bytes()].concat();
    let mut code = [jump(DATA), jump(DATA + 32)].concat();
    let first = CODE + code.len() as u64;
    code.resize(code.len() + 256, 0x90);
    let words = |addresses: &mut dyn Iterator<Item = u64>| addresses.flat_map(u64::to_le_bytes).collect::<Vec<u8>>();
    let mut data = words(&mut std::iter::repeat_n(first, 4));
    data.extend(words(&mut (0..256).map(|index| first + index)));
    let begins = |table: &[u64; 256]| (table[0], table[1]) == (first, first + 1);
    let table = |data: &[u8]| with_listing(&code, data, |listing| listing.handlers(begins));
    assert_eq!(table(&data).unwrap()[255], first + 255);
    // Truncated, or with a word that points elsewhere, it is not a table.
    assert_eq!(table(&data[..data.len() - 8]), None);
    data[33 + 8 * 100] ^= 0xff;
    assert_eq!(table(&data), None);
}

#[test]
fn garbage_has_no_places_and_breaks_nothing() {
    let mut state = 1_u64;
    for length in [0, 1, 7, 64, 4096] {
        let code: Vec<u8> = (0..length)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) as u8
            })
            .collect();
        with_listing(&code, &code, |listing| {
            let addresses: BTreeSet<u64> = (CODE..CODE + length).step_by(5).collect();
            starts(listing, &addresses);
            exits(listing);
            branch_on_throwing(listing, CODE);
            assert_eq!(listing.handlers(|_| true), None);
        });
        let bytes = file(&code, &code);
        let elf = Elf::parse(&bytes).unwrap();
        for minor in [6, 11, 14] {
            assert_eq!(find(&elf, Version::new(3, minor, 0)).unseen, [Unseen::Calls]);
        }
    }
}

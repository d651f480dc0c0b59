//! Pieces for the stubs of a procedure linkage table, for which mold and lld write no call frame information.
//!
//! A stub is entered like a function, so the CFA is rsp + 8 until it pushes. The first bytes show what it
//! pushes:
//!
//! | | header | entries of 16 bytes |
//! |---|---|---|
//! | GNU ld, lld | `push GOT+8; jmp *GOT+16` after the entry's own push, 16 bytes | `jmp *slot; push number; jmp header` |
//! | with IBT | the same | `endbr64; push number; jmp header` |
//! | mold | `endbr64; push r11; push GOT+8; jmp *GOT+16`, 32 bytes | `endbr64; mov number, r11d; jmp *slot` |

use object::LittleEndian as LE;
use object::elf::SHF_EXECINSTR;
use object::read::elf::SectionHeader;
use pyobs_abi::unwind::{Rule, cfa, rbp};

use super::Code;
use super::frames::{self, Piece};
use super::image::Image;

const ENTRY: usize = 16;
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const PUSH_RIP_RELATIVE: [u8; 2] = [0xff, 0x35];
const JUMP_RIP_RELATIVE: [u8; 2] = [0xff, 0x25];
const PUSH_R11: [u8; 2] = [0x41, 0x53];
const PUSH_NUMBER: u8 = 0x68;

fn pushed(words: u16) -> Rule {
    Rule::new(cfa::RSP, words, rbp::SAME, 0)
}

/// In order, without overlaps.
pub fn pieces(image: &Image<'_>, code: &Code) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for name in [".plt", ".plt.sec", ".plt.got"] {
        let Some(header) = image.header(name.as_bytes()) else { continue };
        if header.sh_flags(LE).0 & SHF_EXECINSTR.0 == 0 {
            continue;
        }
        let address = header.sh_addr(LE);
        let Some(part) = code.part(address, address.saturating_add(header.sh_size(LE))) else { continue };
        let (start, end) = (part.offset(part.start), part.offset(part.end));
        let head = if name == ".plt" { image.head(header, 3 * ENTRY as u64).unwrap_or_default() } else { Vec::new() };
        // The rule for entries depends on the pc's low nibble.
        let head = if address.is_multiple_of(ENTRY as u64) { &head[..] } else { &[] };
        let mut steps = steps(head);
        steps.push((u32::MAX, pushed(1)));
        for (step, next) in steps.iter().zip(&steps[1..]) {
            let piece = Piece {
                start: start.saturating_add(step.0).min(end),
                end: start.saturating_add(next.0).min(end),
                rule: step.1,
            };
            if piece.start < piece.end {
                pieces.push(piece);
            }
        }
    }
    frames::in_order(&mut pieces);
    pieces
}

/// The rules in the table's header, each with the first byte it applies from.
fn steps(head: &[u8]) -> Vec<(u32, Rule)> {
    let endbr64 = head.strip_prefix(&ENDBR64);
    let after = |offset: usize| head.get(offset..).unwrap_or_default();
    if head.starts_with(&PUSH_RIP_RELATIVE) {
        let entry = after(ENTRY);
        let entries = if entry.starts_with(&JUMP_RIP_RELATIVE) && entry.get(6) == Some(&PUSH_NUMBER) {
            Rule::new(cfa::PLT, 11, rbp::SAME, 0)
        } else if entry.strip_prefix(&ENDBR64).is_some_and(|rest| rest.first() == Some(&PUSH_NUMBER)) {
            Rule::new(cfa::PLT, 9, rbp::SAME, 0)
        } else {
            pushed(1)
        };
        vec![(0, pushed(2)), (6, pushed(3)), (16, entries)]
    } else if endbr64.is_some_and(|rest| rest.starts_with(&PUSH_R11)) && after(6).starts_with(&PUSH_RIP_RELATIVE) {
        vec![(0, pushed(1)), (6, pushed(2)), (12, pushed(3)), (32, pushed(1))]
    } else {
        vec![(0, pushed(1))]
    }
}

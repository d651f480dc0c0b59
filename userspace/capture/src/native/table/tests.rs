//! Compares the tables of real files with gimli's own look-up, and tests handmade files.

mod elf;
mod handmade;
mod oracle;

use pyobs_abi::unwind::{Rule, cfa, rbp};

use super::*;

/// Looks a row up as the kernel side does: by the page's word, then between the two rows that it names.
fn look_up(table: &Table, offset: u64) -> Rule {
    let (index, rows) = table.words.split_at(table.pages as usize);
    let Some(word) = index.get(usize::try_from(offset >> PAGE_BITS).unwrap()) else { return NONE };
    let (mut low, mut high) = ((word & 0xffff_ffff) as usize, (word >> 32) as usize);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if rows[middle] >> 32 <= offset {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Rule(rows[low] as u32)
}

/// Checks what holds for every table.
fn check(table: &Table) {
    assert_eq!(table.words.len(), (table.pages + table.rows) as usize);
    let (index, rows) = table.words.split_at(table.pages as usize);
    assert_eq!(rows[0] >> 32, 0);
    assert!(rows.windows(2).all(|pair| pair[0] >> 32 < pair[1] >> 32), "rows are not in order");
    assert!(rows.windows(2).all(|pair| pair[0] as u32 != pair[1] as u32), "equal neighbours");
    assert_eq!(Rule(*rows.last().unwrap() as u32), NONE);
    for (page, word) in index.iter().enumerate() {
        let last_by = |offset: usize| rows.partition_point(|row| row >> 32 <= offset as u64) as u64 - 1;
        let start = page << PAGE_BITS;
        assert_eq!(*word, last_by(start) | (last_by(start + (1 << PAGE_BITS) - 1) << 32), "page {page}");
    }
    assert_eq!(index.len() as u64, (rows.last().unwrap() >> 32 >> PAGE_BITS) + 1);
    assert!(table.counts.unsupported_bytes <= table.counts.covered_bytes);
}

/// The registers that a rule uses.
#[derive(Clone, Copy)]
struct Registers {
    rip: u64,
    rsp: u64,
    rbp: u64,
}

/// A caller, with its registers as far as they are known.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Caller {
        rsp: u64,
        rip: u64,
        rbp: Option<u64>,
    },
    End,
    /// Unknown, or not computable from these registers and the stack.
    Nothing,
}

/// A word of a memory with a different value at every address (the finalizer of `SplitMix64`).
fn memory(address: u64) -> u64 {
    let word = (address ^ (address >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// One step as the kernel side takes it.
fn step(rule: Rule, registers: Registers) -> Step {
    let Registers { rip, rsp, rbp } = registers;
    let cfa = match rule.cfa() {
        cfa::RSP => rsp.wrapping_add(rule.cfa_offset()),
        cfa::RBP => rbp.wrapping_add(rule.cfa_offset()),
        cfa::PLT => rsp.wrapping_add(if rip & 15 >= rule.cfa_offset() / 8 { 16 } else { 8 }),
        cfa::DEREF_RSP => {
            let (slot, more) = (rule.cfa_offset_signed() >> 7 << 3, rule.cfa_offset() >> 3 & 15);
            memory(rsp.wrapping_add_signed(slot)).wrapping_add(8 * more)
        }
        cfa::DEREF_RBP => memory(rbp.wrapping_add_signed(rule.cfa_offset_signed())),
        // The `ucontext_t` of x86-64 Linux.
        cfa::SIGNAL => {
            let word = |offset| memory(rsp.wrapping_add(offset));
            return Step::Caller { rsp: word(160), rip: word(168), rbp: Some(word(120)) };
        }
        cfa::END => return Step::End,
        _ => return Step::Nothing,
    };
    let rbp = match rule.rbp() {
        rbp::SAME => Some(rbp),
        rbp::AT_CFA => Some(memory(cfa.wrapping_sub(rule.rbp_offset()))),
        rbp::AT_RBP => Some(memory(rbp.wrapping_add_signed(rule.rbp_offset_signed()))),
        _ => None,
    };
    Step::Caller { rsp: cfa, rip: memory(cfa.wrapping_sub(8)), rbp }
}

//! Where a function ends.

use iced_x86::{Decoder, DecoderOptions, FlowControl};

use crate::elf::Elf;

/// More than any function has that is worth a probe.
const SIZE_MAX: u64 = 64 << 10;

/// The addresses of a function's return instructions.
pub fn of(elf: &Elf<'_>, start: u64, size: u64) -> Vec<u64> {
    let Some(code) = elf.bytes(start, size.min(SIZE_MAX)).filter(|_| elf.is_code(start)) else { return Vec::new() };
    let instructions = Decoder::with_ip(64, code, start, DecoderOptions::NONE).into_iter();
    let returns = instructions.filter(|instruction| instruction.flow_control() == FlowControl::Return);
    returns.map(|instruction| instruction.ip()).collect()
}
